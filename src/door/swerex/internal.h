/* Shared declarations of the SWE-ReX door. */
#pragma once

#include <pthread.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/str.h"
#include "door/shared/stream.h"
#include "door/swerex/body.h"
#include "door/swerex/swerex.h"
#include "door/swerex/token.h"

#define REX_BODY_MAX   (16u << 20) /* bytes of a JSON body: commands of 2 MiB, contents of files */
#define REX_OUTPUT_MAX (8u << 20)  /* bytes of a stream in an answer: its beginning and its end */
#define REX_READ_MAX   (32u << 20) /* bytes of a file in an answer */
#define REX_PROMPT     "SHELLPS1PREFIX"

typedef struct rex_terminals rex_terminals;

struct swerex {
    swerex_options o;
    rex_terminals *terminals;
    pthread_mutex_t lock;
    map made;   /* token's hash to the id of the sandbox last made for it: a cache of the store */
    map staged; /* owner to the bytes of uploads in progress */
};

static inline swerex *rex_of(request *rq)
{
    return request_door(rq);
}
static inline const caller *rex_caller(request *rq)
{
    return request_user(rq);
}
static inline engine *rex_engine(request *rq)
{
    return rex_of(rq)->o.engine;
}

/* ---- who.c: the caller of a request, and the sandbox it means ---- */
typedef struct rex_who {
    rex_token token; /* names the path's sandbox, if the path names one */
    char hash[65];   /* of the token, if its sandbox is made on demand */
} rex_who;
void rex_who_done(rex_who *w);
/* Checks the token or key and sets the request's caller. */
err *rex_admit(request *rq, const rex_path *path, rex_who *ret_who) ERR_MUST;
/* Finds the sandbox; NULL if the token's sandbox does not exist yet. */
err *rex_find(request *rq, const rex_who *w, sandbox **ret_sandbox) ERR_MUST;
/* Finds the sandbox, or makes the token's. NULL: it is being made, and the request is parked and
 * served again afterwards. Call it before the body is read. */
err *rex_find_or_make(request *rq, response *rs, const rex_who *w, sandbox **ret_sandbox) ERR_MUST;
/* Ends a sandbox that was made for this token; does nothing to others. */
err *rex_unmake(request *rq, const rex_who *w, sandbox *sb) ERR_MUST;

/* ---- forms.c: answers ---- */
extern const error_form REX_FORM;
/* Returns an error that the client raises as this class
 * ("swerex.exceptions.SessionExistsError"). */
err *rex_raise(const char *class, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))) ERR_MUST;
#define REX_E(name) "swerex.exceptions." name
/* Writes a whole answer that the client raises as this class. */
enum relay_next rex_exception(relay_io *io, const char *class, const char *message, size_t n,
                              const char *request_id);
/* Writes only the body of such an answer; returns its status. extra: members of extra_info, or
 * NULL. */
int rex_exception_body(buf *body, const char *class, const char *message, size_t n,
                       const char *extra);
/* Writes a whole answer, the last of its relay job. */
enum relay_next rex_answer(relay_io *io, int status, const buf *body, const char *request_id);
/* Returns "[Errno 2] No such file or directory: '/x'", with the class that Python raises for it. */
err *rex_os_error(int errnum, const char *path) ERR_MUST;

/* ---- sessions.c, run.c: shells on pipes ---- */
/* Returns the engine's name for a session: a client may call it by any text. */
char *rex_session_name(const char *name);
/* Finds a live session; otherwise SessionDoesNotExistError. */
err *rex_session_find(sandbox *sb, const char *name, session **ret_session) ERR_MUST;

/* Actions run one after the other in a session. */
typedef struct rex_ground { /* context of an action; rex_ground_done() frees it */
    engine *engine;
    caller who;
    sandbox *sb;
    session *s;
    char *request_id;
    request_hold *hold;
    bool uses;
} rex_ground;
err *rex_ground_take(request *rq, sandbox *sb, session *s, size_t held, rex_ground *ret) ERR_MUST;
void rex_ground_done(rex_ground *g);

/* Runs an action in its session without a terminal. Takes the action. key: of the request, or
 * NULL. */
err *rex_run_start(request *rq, response *rs, sandbox *sb, session *s, rex_action *a,
                   const exec_key *key) ERR_MUST;
/* Writes the answer of an action. code: its exit code as JSON. */
void rex_observation(buf *body, const buf *output, const char *code, const char *expected);
enum relay_next rex_tell_observation(const rex_ground *g, relay_io *io, const buf *output,
                                     const char *code, const char *expected);
/* Interrupts the command that the session runs, and answers when it has ended. Answers at once if
 * none runs. */
err *rex_interrupt_start(request *rq, response *rs, sandbox *sb, session *s) ERR_MUST;
/* Prepares a new session: sources its files, once for a key, and answers. Takes the opening. */
err *rex_opening_start(request *rq, response *rs, sandbox *sb, session *s, rex_opening *o,
                       const exec_key *key) ERR_MUST;

/* ---- output.c: a command's output as text ---- */
typedef err *rex_reader(void *from, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
                        uint64_t *ret_gap_to);
/* Decodes a stream whole, or its beginning and end with a line between them that says how much is
 * left out. */
err *rex_output(rex_reader *read, void *from, int stream, uint64_t length, buf *out) ERR_MUST;

/* ---- stage.c: uploads in progress, on the node's disk ---- */
#define REX_STAGE_MAX   (UINT64_C(4) << 30)   /* bytes of one upload */
#define REX_STAGED_MAX  (UINT64_C(8) << 30)   /* bytes of all uploads of an owner */
#define REX_STAGE_FLOOR (UINT64_C(512) << 20) /* disk space that stays free: the store is on it */
typedef struct rex_stage {                    /* rex_stage_done() closes and so removes it */
    swerex *door;
    char *owner;
    int fd; /* an unnamed file; -1: none */
    uint64_t n;
} rex_stage;
err *rex_stage_open(swerex *d, const char *owner, rex_stage *ret_stage) ERR_MUST;
err *rex_stage_write(rex_stage *s, const void *p, size_t n) ERR_MUST;
void rex_stage_done(rex_stage *s);

/* ---- terminal.c, interactive.c: shells on terminals ---- */
rex_terminals *rex_terminals_new(void);
void rex_terminals_free(rex_terminals *t);
/* Runs an action on a terminal beside the session. Takes the action. */
err *rex_terminal_start(request *rq, response *rs, sandbox *sb, session *s,
                        rex_action *in) ERR_MUST;
/* Interrupts the program in front of the terminal's shell; if there is none, the session's
 * command. */
err *rex_terminal_interrupt(request *rq, response *rs, sandbox *sb, session *s,
                            rex_action *in) ERR_MUST;
void rex_terminal_close(rex_terminals *all, sandbox *sb, session *s);

/* ---- handlers; the sandbox exists, except in rex_close ---- */
typedef err *rex_handler(request *rq, response *rs, const rex_who *w, sandbox *sb);
rex_handler rex_create_session, rex_run_in_session, rex_close_session, rex_execute, rex_read_file,
    rex_write_file, rex_upload, rex_close;
