/* Helpers that replace the few libc functions bothy-init and bothy-kit need. Only map_anon(),
 * map_anon_lazy() and text_file() allocate. */
#pragma once

#include "bare/sys.h"

/* Called by code that the compiler generates. */
void *memset(void *d, int c, size_t n);
void *memcpy(void *d, const void *s, size_t n);

size_t text_len(const char *s);
bool text_equal(const char *a, const char *b);
bool text_starts(const char *s, const char *prefix);
/* Parses decimal digits up to `until`. Returns false if there are none, other characters, or more
 * than 64 bits. */
bool text_number(const char *s, const char *until, u64 *ret);
char *text_from_number(char *end, u64 v); /* writes before end, returns the first digit */
void *map_anon(size_t n);                 /* NULL if out of memory */
void *map_anon_lazy(size_t n);            /* for more memory than will be touched; not reserved */
void fd_close(int *fd);

/* Returns a small file of the image (passwd, group) whole, NUL-terminated; the caller may modify
 * it. NULL if it is absent or not a regular file of at most TEXT_FILE_MAX bytes. Does not block on
 * a FIFO. The memory is never freed. */
#define TEXT_FILE_MAX (1u << 20)
char *text_file(const char *path);
/* Cuts the next line at *at into its fields, separated by ':'; missing fields are empty. Returns
 * false at the end. */
#define TEXT_FIELDS 7
bool text_fields(char **at, const char *field[TEXT_FIELDS]);
