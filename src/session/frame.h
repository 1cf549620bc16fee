/* The messages between bothyd and the driver (driver.sh), without I/O.
 *
 * A frame is one line of shell assignments. The command in it is a quoted word, so that no text can
 * end it early. For bash a long command follows its line as raw bytes of a stated number. A trailer
 * is RS, a token, a kind, a status, the shell's pid, its directory, RS, newline; bothyd chose the
 * random token. Trailers come from a sandbox: anything that does not have their form is output. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define FRAME_TOKEN 16u        /* hex digits */
#define FRAME_TEXT  (2u << 20) /* most bytes of a command */
#define FRAME_SYNC \
    "__by_b=6 __by_Y=%03u\n" /* 1 to 255: the status of the trailer Y that answers \
                              */
#define TRAILER_MAX   8192u
#define FRAME_BULK_AT 1500u /* bytes: bash reads longer commands in one piece */

typedef struct frame {
    const char *text;
    size_t n;
    char token[FRAME_TOKEN + 1];
    bool savepoint; /* the command may replace the shell: keep a copy */
    bool merge;     /* its stderr goes to stdout */
    bool bulk;      /* bash only */
    bool fold;      /* bash only: first merges the shells that have exited into one */
    bool lead;      /* begins with a byte that may be lost to a killed shell */
    bool keep;      /* saves exported variables first: the command may kill the shell below */
    bool readonly;  /* IFS may be read-only from now on */
} frame;
/* Checks a command. ERR_INVALID_REQUEST: it has a NUL. ERR_TOO_LARGE. */
err *frame_check(const char *text, size_t n) ERR_MUST;
void frame_write(const frame *f, buf *out);

enum trailer_kind {
    TRAILER_ENDED = 'E',
    TRAILER_EXITED = 'X',  /* the shell exited; its state was kept */
    TRAILER_RESUMED = 'R', /* the shell was lost: an earlier state. Has the session's token */
    TRAILER_PID = 'P',     /* sent meanwhile by the shell that runs a command with a savepoint */
    TRAILER_SYNC = 'Y',
    TRAILER_BASH = 'B', /* the first trailer: which shell it is */
    TRAILER_DASH = 'D',
    TRAILER_ASH = 'A',
};
typedef struct trailer {
    char kind;
    bool own; /* has the command's token, not the session's */
    int status;
    uint32_t pid;
    const char *cwd; /* points into the given bytes */
    size_t ncwd;
    size_t n; /* its length in bytes */
} trailer;

enum trailer_found {
    TRAILER_NONE, /* all of it is output */
    TRAILER_HALF, /* one may begin at *ret_at; all before it is output */
    TRAILER_HERE, /* at *ret_at */
};
/* Finds the first trailer in p. Tokens are FRAME_TOKEN digits; command may be NULL. */
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
    (1u << 0) /* replaces or ends the shell in a way that the dialect does not survive */
#define RISK_KILL     (1u << 1) /* kills processes, perhaps the shell itself */
#define RISK_READONLY (1u << 2)
/* Returns what the text may do to the shell, judged by its words; in doubt it sets the bit. */
unsigned frame_risks(const char *text, size_t n, enum dialect d);
