/* Parses multipart/form-data as it comes: bytes are fed in pieces of any size, and callbacks get
 * each part as it is read. No content is buffered except bytes that could be the beginning of a
 * boundary.
 *
 *     TRY(multipart_new(content_type, &OPS, arg, &m));
 *     TRY(multipart_feed(m, p, n));                 as often as there are bytes
 *     TRY(multipart_finish(m));                     ERR_INVALID_REQUEST without a last boundary
 *
 * File names are accepted in the forms that clients use: quoted with `\"` and `\\` (a backslash
 * before any character that needs none is itself); `%22` and control characters such as `%0A` (how
 * browsers and HTTP libraries quote them; no other escape is decoded); or RFC 5987's `filename*`,
 * which wins.
 *
 * An error of a callback ends the parse and is passed on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define MULTIPART_BOUNDARY_MAX 200u
#define MULTIPART_HEAD_MAX     16384u /* of one part */
#define MULTIPART_SKIP_MAX     65536u /* before the first part */

typedef struct multipart multipart;

typedef struct multipart_part { /* valid during begin() */
    const char *name;           /* of the field; "" if it has none */
    const char *filename;       /* or NULL */
} multipart_part;

typedef struct multipart_ops {
    err *(*begin)(void *arg, const multipart_part *part);
    err *(*data)(void *arg, const void *p, size_t n);
    err *(*end)(void *arg);
} multipart_ops;

/* Makes a parser. content_type: the header's value, "multipart/…; boundary=…";
 * ERR_INVALID_REQUEST. */
err *multipart_new(const char *content_type, const multipart_ops *ops, void *arg,
                   multipart **ret_multipart) ERR_MUST;
err *multipart_feed(multipart *m, const void *p, size_t n) ERR_MUST;
err *multipart_finish(const multipart *m) ERR_MUST;
void multipart_free(multipart *m);
static inline void multipart_freep(multipart **m)
{
    multipart_free(*m);
}

/* Returns true if a Content-Type is this type ("multipart/" and "text/": any subtype), ignoring its
 * parameters. */
bool mime_is(const char *content_type, const char *type);
/* Returns a parameter of "value; name=x; other=\"y\"", or NULL; the caller frees it. *ret_bad (may
 * be NULL): the value is malformed. */
char *mime_param(const char *value, const char *name, bool *ret_bad);
