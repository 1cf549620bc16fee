/* Server-sent events (text/event-stream): a pure encoder, and a decoder that takes the stream in
 * whatever pieces it comes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Appends one event. event and id may be NULL; they are cut at a line end. Data is split into one
 * "data:" line for each of its lines; CR, LF and CR LF all arrive as LF. */
void sse_write(buf *out, const char *event, const char *id, const void *data, size_t n);
/* Appends a line that every decoder ignores, to keep the connection in use. */
void sse_write_comment(buf *out, const char *text);

#define SSE_EVENT_MAX (4 * 1024 * 1024) /* bytes of one event's data or of one line */

typedef struct sse_event {
    const char *event; /* "message" unless named */
    const char *id;    /* the last id seen, "" if none; sent as Last-Event-ID */
    const char *data;  /* followed by a NUL; contains none itself */
    size_t len;
} sse_event;

/* Zero-initialised is ready. */
typedef struct sse_decoder {
    buf line;
    buf data;
    buf event;
    buf id;
    bool have_data;
    bool after_cr; /* a LF that follows belongs to the same line end */
    bool begun;    /* the byte order mark was handled */
    bool stopped;
} sse_decoder;

/* Decodes bytes and calls back for every complete event, valid during the call. If the callback
 * returns false, decoding stops and further bytes are ignored. ERR_TOO_LARGE beyond SSE_EVENT_MAX.
 * An event that the stream's end cuts off is never delivered. */
err *sse_feed(sse_decoder *d, const void *p, size_t n, bool (*on_event)(void *, const sse_event *),
              void *arg) ERR_MUST;
void sse_decoder_done(sse_decoder *d);
