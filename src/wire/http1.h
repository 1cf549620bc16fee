/* HTTP/1.1 without I/O: a guard that finds the end of a head, llhttp (strict) after it, body
 * framing, and writers for answers. Parses requests, and answers of servers that are not trusted.
 *
 * Anything that two HTTP implementations might read differently is refused, not repaired: bare CR
 * or LF, folded lines, control bytes, a Content-Length that is doubled or beside a
 * Transfer-Encoding, any coding but one "chunked", trailers of a request, a missing or second Host.
 * The caller of this module then answers with an error and closes the connection.
 *
 * Use: feed bytes to http1_guard_feed() until it returns HTTP1_DONE, give the head to
 * http1_parse(), then pass the following bytes through http1_body() until http1_body_ended().
 * Nothing here allocates. */
#pragma once

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define HTTP1_HEAD_MAX    (64 * 1024)
#define HTTP1_HEADERS_MAX 100
/* Limit of a chunk's size line with its extensions, including the CR LF of the chunk before. */
#define HTTP1_CHUNK_LINE_MAX 256

enum http1_result {
    HTTP1_MORE, /* the head is not complete */
    HTTP1_DONE, /* the last byte used is the last of the head */
    HTTP1_BAD,  /* http1_guard_err() says why */
};

/* Zero-initialised is ready for a request's head; .answer for an answer's. */
typedef struct http1_guard {
    bool answer;
    size_t seen;     /* bytes of the head so far */
    size_t line;     /* bytes of the current line so far */
    size_t blank;    /* empty lines before the request line; one is accepted */
    unsigned spaces; /* in the first line */
    char last;
    bool in_headers;
    char tail[8]; /* end of a request line, to check the version; beginning of an answer line */
    const char *why;
    bool too_large;
} http1_guard;

/* Checks n more bytes. *ret_used of them belong to the head (all of them with HTTP1_MORE). */
enum http1_result http1_guard_feed(http1_guard *g, const char *p, size_t n, size_t *ret_used);
err *http1_guard_err(const http1_guard *g) ERR_MUST;

typedef struct http1_header {
    char *name; /* as sent */
    char *value;
} http1_header;

/* Body framing and how far the body was read. May be copied out of its message, which may then be
 * freed. */
typedef struct http1_framing {
    bool chunked;
    bool to_end;          /* of an answer: the body ends with the connection */
    bool answer;          /* bytes after the last chunk are ignored: the connection is not reused */
    uint64_t left;        /* of the Content-Length, or of the current chunk */
    size_t line;          /* bytes of the current size line */
    unsigned char ending; /* 0: chunks; 1: expects CR; 2: expects LF; 3: ended */
    llhttp_t parser;
    /* while llhttp runs */
    char *out;
    size_t nout;
} http1_framing;

typedef struct http1_message {
    http1_framing body; /* first, because llhttp's callbacks get its address as the message's */
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

/* Parses a head of n bytes that http1_guard_feed() has accepted. Changes the bytes in place; the
 * request points into them. */
err *http1_parse(char *head, size_t n, http1_request *ret_rq) ERR_MUST;
/* Like http1_parse(), for an answer. to_head: the request's method was HEAD. Errors are
 * ERR_PORT_CLOSED, because only servers inside sandboxes are read this way. */
err *http1_parse_answer(char *head, size_t n, bool to_head, http1_answer *ret_answer) ERR_MUST;
/* Returns the value of the first header of this name (any case), or NULL. */
const char *http1_header_get(const http1_message *m, const char *name);

/* Decodes body bytes from in to out, which has room for at least nin bytes and may be in. Stops at
 * the end of the body; *ret_used says how much was taken. */
err *http1_body(http1_framing *f, const char *in, size_t nin, char *out, size_t *ret_used,
                size_t *ret_nout) ERR_MUST;
bool http1_body_ended(const http1_framing *f); /* never, if it ends with the connection */
/* Moves a body's framing to an owner that outlives the message. */
void http1_framing_move(const http1_framing *from, http1_framing *to);

/* ---- answers ---- */
const char *http1_reason(int status);
void http1_write_status(buf *out, int status);
/* Writes a header. Control bytes in the value become spaces, so that it cannot end the line
 * early. */
void http1_write_header(buf *out, const char *name, const char *value);
void http1_write_chunk(buf *out, const void *p, size_t n); /* n 0: the last chunk */
