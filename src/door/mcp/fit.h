/* Text fitted to a model's window: head and tail of what is long, valid UTF-8 in any case. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* Appends n bytes as text: what is no UTF-8, and NUL, becomes U+FFFD. True: all of it was text. */
bool fit_text(buf *out, const char *p, size_t n);
/* The same as a JSON string. */
json_t *fit_json(const char *p, size_t n);

/* How many of n bytes to show of a head or a tail: the largest number, at most max, that neither
 * cuts a character nor, if there is a line end in the last quarter, a line. */
size_t fit_head(const char *p, size_t n, size_t max);
size_t fit_tail(const char *p, size_t n, size_t max);

/* A stream as it is shown. Bytes come by offset. */
typedef struct fit_source {
    /* As exec_read(). */
    err *(*read)(void *arg, uint64_t offset, void *p, size_t max, size_t *ret_n,
                 uint64_t *ret_gap_to);
    void *arg;
    uint64_t length;
    size_t head, tail; /* bytes to show; all of it if that is not longer */
    const char *rest;  /* how to get what is left out, "output(exec=\"3\", stream=\"out\", "; or
                          NULL: it is lost */
} fit_source;
/* Appends it; *ret_cut: something was left out. */
err *fit_stream(buf *out, const fit_source *s, bool *ret_cut) ERR_MUST;
