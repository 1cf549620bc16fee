/* The handful of helpers a program without libc needs: bothy-init and bothy-kit are made with
 * lib.c. Nothing here allocates but map_anon(). */
#pragma once

#include "bare/sys.h"

/* The compiler itself calls these. */
void *memset(void *d, int c, size_t n);
void *memcpy(void *d, const void *s, size_t n);

size_t text_len(const char *s);
bool text_equal(const char *a, const char *b);
bool text_starts(const char *s, const char *prefix);
/* Decimal digits up to `until`; false if empty, not digits or beyond 64 bits. */
bool text_number(const char *s, const char *until, u64 *ret);
char *text_from_number(char *end, u64 v); /* writes before end, returns the first digit */
void *map_anon(size_t n);                 /* NULL when memory is out */
void *map_anon_lazy(size_t n);            /* more than will be touched; no promise of memory */
void fd_close(int *fd);

/* The whole of a small file of the image (passwd, group), NUL-terminated and ours to cut up; NULL
 * if it is absent or not a regular file of at most TEXT_FILE_MAX bytes. A FIFO there is not waited
 * for. Its memory stays. */
#define TEXT_FILE_MAX (1u << 20)
char *text_file(const char *path);
/* Cuts the next line at *at into its fields, which ':' divides; missing ones are empty. False at
 * the end. */
#define TEXT_FIELDS 7
bool text_fields(char **at, const char *field[TEXT_FIELDS]);
