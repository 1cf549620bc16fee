/* Fits text to a model's window: shows head and tail of long text, always as valid UTF-8. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* Appends n bytes as text; NUL and invalid UTF-8 become U+FFFD. Returns
 * true if all of it was valid text. */
bool fit_text(buf *out, const char *p, size_t n);
/* Returns the same as a JSON string. */
json_t *fit_json(const char *p, size_t n);

/* Returns how many of n bytes to show as a head or a tail: at most max. They never split a
 * character, nor a line if a line ends in the last quarter. */
size_t fit_head(const char *p, size_t n, size_t max);
size_t fit_tail(const char *p, size_t n, size_t max);

/* A stream to show. Bytes are read by offset. */
typedef struct fit_source {
    /* As exec_read(). */
    err *(*read)(void *arg, uint64_t offset, void *p, size_t max, size_t *ret_n,
                 uint64_t *ret_gap_to);
    void *arg;
    uint64_t length;
    size_t head, tail; /* bytes to show; a stream no longer than both is shown whole */
    const char *rest;  /* the call that reads the rest, "output(exec=\"3\", stream=\"out\", "; or
                          NULL: it is lost */
} fit_source;
/* Appends the stream. Sets *ret_cut if something was left out. */
err *fit_stream(buf *out, const fit_source *s, bool *ret_cut) ERR_MUST;
