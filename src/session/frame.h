/* What goes between us and the driver (driver.sh), without I/O.
 *
 * A frame is one line of shell assignments; the command in it is a quoted word, so that no text can
 * end it early. In bash a long command follows its line as raw bytes of a stated number. A trailer
 * is RS, a token, a kind, a status, the shell's pid, its directory, RS, newline; the token is
 * random and ours. Trailers come out of a sandbox: whatever does not fit their form is output. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define FRAME_TOKEN 16u        /* hex digits */
#define FRAME_TEXT  (2u << 20) /* of a command, at most */
#define FRAME_SYNC \
    "__by_b=6 __by_Y=%03u\n" /* 1 to 255: the status of the trailer Y that answers \
                              */
#define TRAILER_MAX   8192u
#define FRAME_BULK_AT 1500u /* bytes: bash reads longer ones in one piece */

typedef struct frame {
    const char *text;
    size_t n;
    char token[FRAME_TOKEN + 1];
    bool savepoint; /* the shell may not survive it as itself: keep a copy */
    bool merge;     /* its stderr goes to stdout */
    bool bulk;      /* bash only */
    bool fold;      /* bash only: shells that have exited are made one first */
    bool lead;      /* a byte first that may be lost: a shell that was killed may still take one */
    bool keep;      /* the exported variables, first: it may kill the shell below */
    bool readonly;  /* from now on IFS may be read-only */
} frame;
/* ERR_INVALID_REQUEST: a NUL. ERR_TOO_LARGE. */
err *frame_check(const char *text, size_t n) ERR_MUST;
void frame_write(const frame *f, buf *out);

enum trailer_kind {
    TRAILER_ENDED = 'E',
    TRAILER_EXITED = 'X',  /* the shell exited; its state was kept */
    TRAILER_RESUMED = 'R', /* it was lost: the state is from before. With the session's token */
    TRAILER_PID = 'P',     /* of the shell that runs a savepoint's command, in between */
    TRAILER_SYNC = 'Y',
    TRAILER_BASH = 'B', /* the first one: which shell it is */
    TRAILER_DASH = 'D',
    TRAILER_ASH = 'A',
};
typedef struct trailer {
    char kind;
    bool own; /* the command's token, not the session's */
    int status;
    uint32_t pid;
    const char *cwd; /* in the bytes given */
    size_t ncwd;
    size_t n; /* bytes of it all */
} trailer;

enum trailer_found {
    TRAILER_NONE, /* all of it is output */
    TRAILER_HALF, /* one may begin at *ret_at; what is before is output */
    TRAILER_HERE, /* at *ret_at */
};
/* The first trailer in p. Tokens are FRAME_TOKEN digits; command may be NULL. */
enum trailer_found trailer_find(const char *p, size_t n, const char *session, const char *command,
                                size_t *ret_at, trailer *ret_trailer);

enum dialect {
    DIALECT_UNKNOWN,
    DIALECT_BASH,
    DIALECT_DASH,
    DIALECT_ASH
};
const char *dialect_name(enum dialect d); /* NULL: unknown */
#define RISK_REPLACE \
    (1u << 0) /* replaces or ends the shell in a way the dialect does not survive */
#define RISK_KILL     (1u << 1) /* kills, maybe us */
#define RISK_READONLY (1u << 2)
/* What this text may do to the shell, by its words. Errs to yes. */
unsigned frame_risks(const char *text, size_t n, enum dialect d);
