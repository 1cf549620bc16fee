/* Errors: one value, one table.
 *
 * Above the system-call leaves every fallible function returns `err *`: NULL is success, anything
 * else is owned by the receiver. Outputs come last, are called ret_x and are written on success
 * only. TRY() passes an error on; err_wrap() adds what only this caller knows. An error is written
 * for a program or a model to act on: what happened (message), why (cause), what to do (remedy).
 *
 * The table in err_table.h gives each code its name, HTTP status, Connect code, CLI exit status,
 * whether a retry may help, and a default remedy. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef enum err_code {
#define ERR_ROW(id, name, http, connect, cli, retryable, remedy) ERR_##id,
#include "base/err_table.h"
#undef ERR_ROW
    ERR_CODES
} err_code;

typedef struct err_info {
    const char *name;    /* "not_found" */
    int http;            /* 404 */
    const char *connect; /* "not_found" of the Connect protocol */
    int cli;             /* exit status of the command line */
    bool retryable;
    const char *remedy;
} err_info;

typedef struct err {
    err_code code;
    int errnum;      /* errno of the failing call, 0 if none */
    int retry_after; /* seconds, 0 if not known */
    char *message;   /* what happened, one line, no full stop */
    char *cause;     /* why, or NULL */
    char *remedy;    /* what to do, or NULL: the table's */
    char *kind;      /* which kind of thing ("sandbox", "image"), or NULL */
    bool retryable;  /* the table's, unless changed */
} err;

#define ERR_MUST __attribute__((warn_unused_result))

err *err_new(err_code code, const char *fmt, ...) __attribute__((format(printf, 2, 3))) ERR_MUST;
/* Like err_new(), for a failed system call: errnum (usually errno) becomes the cause. */
err *err_sys(err_code code, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))) ERR_MUST;

/* Each function takes the error and returns it. NULL is accepted and returned. */
err *err_wrap(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3))) ERR_MUST;
err *err_because(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3))) ERR_MUST;
err *err_remedy(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3))) ERR_MUST;
err *err_kind(err *e, const char *kind) ERR_MUST;
err *err_retry_after(err *e, int seconds) ERR_MUST;
err *err_copy(const err *e) ERR_MUST;

const err_info *err_info_of(err_code code);
const char *err_remedy_of(const err *e);
/* Returns the code with this name, or ERR_CODES. */
err_code err_code_by_name(const char *name);

void err_free(err *e);
static inline void err_freep(err **e)
{
    err_free(*e);
}
/* Logs and frees an error that cannot be returned to a caller. Accepts NULL. */
void err_drop(err *e, const char *what);

#define TRY(x)           \
    do {                 \
        err *try_ = (x); \
        if (try_)        \
            return try_; \
    } while (0)
