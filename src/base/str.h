/* Strings, string vectors, numbers, and the encodings every part needs.
 *
 * The x-functions abort when memory is out: small allocations are not worth an error path, and
 * sandboxes survive the process. Sizes that a peer chooses are checked before. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *xmalloc(size_t n) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *p, size_t n) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((returns_nonnull));
char *xstrndup(const char *s, size_t n) __attribute__((returns_nonnull));
char *str_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2), returns_nonnull));
char *str_vprintf(const char *fmt, va_list ap) __attribute__((returns_nonnull));

static inline const char *str_or(const char *s, const char *otherwise)
{
    return s ? s : otherwise;
}
bool str_eq(const char *a, const char *b); /* NULL equals NULL only */
bool str_starts(const char *s, const char *prefix);
/* Copies what fits into size bytes, always with a NUL. Returns false if the string was cut. */
bool str_copy(char *to, size_t size, const char *from);
bool str_ends(const char *s, const char *suffix);

/* Parses a decimal number of at most max: digits only, no sign or space. */
bool str_to_u64(const char *s, uint64_t max, uint64_t *ret_value);
/* Parses "512", "64k", "512m", "1g", "1.5g" (powers of 1024, optional b or ib) into bytes. */
bool str_to_bytes(const char *s, uint64_t *ret_value);
/* Parses "300", "30s", "5m", "1h", "2d" into milliseconds. */
bool str_to_duration_ms(const char *s, uint64_t *ret_value);

/* NULL-terminated vectors of owned strings. */
size_t strv_len(char *const *v);
char **strv_copy(char *const *v);
void strv_push(char ***v, char *owned);
void strv_free(char **v);
void strv_freep(char ***v);
/* For vectors of "NAME=value": returns the value of NAME or NULL; sets or replaces NAME. */
const char *strv_env_get(char *const *env, const char *name);
void strv_env_set(char ***env, const char *name, const char *value);

bool utf8_valid(const void *p, size_t n);
/* Returns true if a valid UTF-8 text holds C0, DEL or C1 (U+0080 to U+009F, which includes CSI). */
bool utf8_has_control(const char *s);
bool ascii_visible(const char *s); /* every byte 0x21..0x7e, not empty */

char *base64_encode(const void *p, size_t n);
/* Decodes the standard alphabet with padding. Returns false on anything else. */
bool base64_decode(const char *s, size_t n, void **ret_bytes, size_t *ret_n);
void hex_encode(const void *p, size_t n, char *ret_text /* 2n + 1 */);
bool hex_decode(const char *s, void *ret_bytes, size_t n /* bytes, exact */);
/* Decodes %XX in place and returns the new length. Returns false on a bad escape or on %00. */
bool percent_decode(char *s, size_t *ret_len);
/* Returns the nearest candidate by edit distance, or NULL if none is near: for "did you mean". */
const char *str_nearest(const char *s, const char *const *candidates, size_t n);

/* Overwrites with zeros; the compiler does not optimise it away. */
void secret_wipe(void *p, size_t n);
/* Wipes and frees a NUL-terminated secret; for CLEANUP(). */
void secret_freep(char **s);
