/* HTTP/1.1 without I/O: a guard that finds the end of a head, llhttp (strict) behind it, body
 * framing, and writers for answers. Requests, and answers of servers we do not trust.
 *
 * Everything two HTTP implementations might read differently is refused, not repaired: bare CR or
 * LF, folded lines, control bytes, a Content-Length that is doubled or beside a Transfer-Encoding,
 * any coding but one "chunked", trailers of a request, a missing or second Host. The caller answers
 * and closes.
 *
 * Use: feed bytes to http1_guard() until it says HTTP1_DONE, give the head to http1_parse(), then
 * pass what follows through http1_body() until http1_body_ended(). Nothing here allocates. */
#pragma once

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define HTTP1_HEAD_MAX    (64 * 1024)
#define HTTP1_HEADERS_MAX 100
/* A chunk's size line with its extensions, and the CR LF of the chunk before. */
#define HTTP1_CHUNK_LINE_MAX 256

enum http1_result {
    HTTP1_MORE, /* the head goes on */
    HTTP1_DONE, /* the last byte used is the last of the head */
    HTTP1_BAD,  /* http1_guard_err() says why */
};

/* Zero-initialised is ready for a request's head; .answer for an answer's. */
typedef struct http1_guard {
    bool answer;
    size_t seen;     /* bytes of the head so far */
    size_t line;     /* bytes of the current line so far */
    size_t blank;    /* empty line before the request line: one is forgiven */
    unsigned spaces; /* of the first line */
    char last;
    bool in_headers;
    char tail[8]; /* end of the request line, for the version; of an answer its beginning */
    const char *why;
    bool too_large;
} http1_guard;

/* Looks at n more bytes; *ret_used of them belong to the head (all of them with HTTP1_MORE). */
enum http1_result http1_guard_feed(http1_guard *g, const char *p, size_t n, size_t *ret_used);
err *http1_guard_err(const http1_guard *g) ERR_MUST;

typedef struct http1_header {
    char *name; /* as sent */
    char *value;
} http1_header;

/* Where a body ends, and how far in it we are. May be copied out of its head, which may then go. */
typedef struct http1_framing {
    bool chunked;
    bool to_end;   /* of an answer: the connection's end is the body's */
    bool answer;   /* what is behind the last chunk is not looked at: the connection is used once */
    uint64_t left; /* of the Content-Length, or of the current chunk */
    size_t line;   /* bytes of the current size line */
    unsigned char ending; /* 0: chunks; 1: expects CR; 2: expects LF; 3: ended */
    llhttp_t parser;
    /* while llhttp runs */
    char *out;
    size_t nout;
} http1_framing;

typedef struct http1_message {
    http1_framing body; /* first: llhttp's callbacks know it by the same address */
    const char *method; /* of a request; static */
    char *target;       /* of a request: origin form ("/a?b"), or "*" of OPTIONS */
    const char *host;   /* of a request, or NULL (HTTP/1.0) */
    int status;         /* of an answer */
    http1_header header[HTTP1_HEADERS_MAX];
    size_t nheader;
    bool http11;
    bool keep_alive; /* HTTP/1.0 never does */
    bool expect_continue;
    bool upgrade;    /* Connection: upgrade with an Upgrade header; the caller may ignore it */
    const char *why; /* while llhttp runs */
} http1_message;
typedef http1_message http1_request;
typedef http1_message http1_answer;

/* Parses a head that passed the guard (n bytes, changed in place: the request points into it). */
err *http1_parse(char *head, size_t n, http1_request *ret_rq) ERR_MUST;
/* The same of an answer to a request whose method was HEAD, or not. Its errors are ERR_PORT_CLOSED:
 * only servers inside sandboxes are read this way. */
err *http1_parse_answer(char *head, size_t n, bool to_head, http1_answer *ret_answer) ERR_MUST;
/* The value of the first header of this name (any case), or NULL. */
const char *http1_header_get(const http1_message *m, const char *name);

/* Takes body bytes from in, puts the decoded ones at out (room for at least nin bytes; out may be
 * in). Stops at the end of the body; *ret_used says how much was taken. */
err *http1_body(http1_framing *f, const char *in, size_t nin, char *out, size_t *ret_used,
                size_t *ret_nout) ERR_MUST;
bool http1_body_ended(const http1_framing *f); /* never of one that ends with the connection */
/* A body's framing for somebody who outlives the message. */
void http1_framing_move(const http1_framing *from, http1_framing *to);

/* ---- answers ---- */
const char *http1_reason(int status);
void http1_write_status(buf *out, int status);
/* Control bytes in the value become spaces: nothing can end the line early. */
void http1_write_header(buf *out, const char *name, const char *value);
void http1_write_chunk(buf *out, const void *p, size_t n); /* n 0: the last chunk */
