/* A growable byte buffer. Zero-initialised is empty; buf_done() frees. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct buf {
    char *p;
    size_t len;
    size_t cap;
} buf;

void buf_reserve(buf *b, size_t more);
void buf_append(buf *b, const void *p, size_t n);
void buf_str(buf *b, const char *s);
void buf_char(buf *b, char c);
void buf_printf(buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends a JSON string literal of n bytes, with quotes. Invalid UTF-8 becomes U+FFFD. */
void buf_json_string(buf *b, const char *s, size_t n);
/* Removes n bytes at the front. */
void buf_consume(buf *b, size_t n);
void buf_clear(buf *b);
void buf_done(buf *b);
/* Returns the bytes followed by a NUL; the buffer keeps ownership. */
const char *buf_cstr(buf *b);
/* Hands the bytes (NUL-terminated) to the caller and empties the buffer. */
char *buf_take(buf *b);
