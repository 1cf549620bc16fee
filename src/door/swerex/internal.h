/* What the files of this door share. */
#pragma once

#include <pthread.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/str.h"
#include "door/shared/stream.h"
#include "door/swerex/body.h"
#include "door/swerex/swerex.h"
#include "door/swerex/token.h"

#define REX_BODY_MAX   (16u << 20) /* of a JSON body: commands of 2 MiB, contents of files */
#define REX_OUTPUT_MAX (8u << 20)  /* of a stream in an answer: its beginning and its end */
#define REX_READ_MAX   (32u << 20) /* of a file that is read */
#define REX_PROMPT     "SHELLPS1PREFIX"

typedef struct rex_terminals rex_terminals;

struct swerex {
    swerex_options o;
    rex_terminals *terminals;
    pthread_mutex_t lock;
    map made;   /* hash of a token to the id of the sandbox that was last made for it: a copy */
    map staged; /* owner to the bytes of uploads under way */
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

/* ---- who.c: whose request it is, and which sandbox is meant ---- */
typedef struct rex_who {
    rex_token token; /* its sandbox is the path's, if that names one */
    char hash[65];   /* of the token, if it is made */
} rex_who;
void rex_who_done(rex_who *w);
/* Sets the request's caller. */
err *rex_admit(request *rq, const rex_path *path, rex_who *ret_who) ERR_MUST;
/* NULL: the token's is not made yet. */
err *rex_find(request *rq, const rex_who *w, sandbox **ret_sandbox) ERR_MUST;
/* NULL: the token's is being made; the request is served again when it is there. Before its body is
 * read. */
err *rex_find_or_make(request *rq, response *rs, const rex_who *w, sandbox **ret_sandbox) ERR_MUST;
/* Ends what was made for this token; nothing of any other. */
err *rex_unmake(request *rq, const rex_who *w, sandbox *sb) ERR_MUST;

/* ---- forms.c: answers ---- */
extern const error_form REX_FORM;
/* An error that the client raises as this class ("swerex.exceptions.SessionExistsError"). */
err *rex_raise(const char *class, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))) ERR_MUST;
#define REX_E(name) "swerex.exceptions." name
/* The same as a whole answer. */
enum relay_next rex_exception(relay_io *io, const char *class, const char *message, size_t n,
                              const char *request_id);
/* Its body alone; returns the status. extra: members of extra_info, or NULL. */
int rex_exception_body(buf *body, const char *class, const char *message, size_t n,
                       const char *extra);
/* A whole answer, the last of its job. */
enum relay_next rex_answer(relay_io *io, int status, const buf *body, const char *request_id);
/* "[Errno 2] No such file or directory: '/x'", of the class that Python has for it. */
err *rex_os_error(int errnum, const char *path) ERR_MUST;

/* ---- sessions.c, run.c: shells by pipes ---- */
/* What a session is called here: names of clients may be any text. */
char *rex_session_name(const char *name);
/* A live one; SessionDoesNotExistError. */
err *rex_session_find(sandbox *sb, const char *name, session **ret_session) ERR_MUST;

/* What an answer is made of: commands that are run one after the other in a session. */
typedef struct rex_ground { /* where it happens; done frees */
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

/* Runs an action in its session without a terminal; takes it. key: of the request, or NULL. */
err *rex_run_start(request *rq, response *rs, sandbox *sb, session *s, rex_action *a,
                   const exec_key *key) ERR_MUST;
/* The answer of an action. code: as JSON. */
void rex_observation(buf *body, const buf *output, const char *code, const char *expected);
enum relay_next rex_tell_observation(const rex_ground *g, relay_io *io, const buf *output,
                                     const char *code, const char *expected);
/* Takes the command back that its session runs; nothing if it runs none. */
err *rex_interrupt_start(request *rq, response *rs, sandbox *sb, session *s) ERR_MUST;
/* A session that is new: its files are sourced, once for a key, then it is told. Takes the opening.
 */
err *rex_opening_start(request *rq, response *rs, sandbox *sb, session *s, rex_opening *o,
                       const exec_key *key) ERR_MUST;

/* ---- output.c: bytes of a command as a text ---- */
typedef err *rex_reader(void *from, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
                        uint64_t *ret_gap_to);
/* All of a stream, or its beginning and its end with a line between them, decoded. */
err *rex_output(rex_reader *read, void *from, int stream, uint64_t length, buf *out) ERR_MUST;

/* ---- stage.c: uploads under way, on the node's disk ---- */
#define REX_STAGE_MAX   (UINT64_C(4) << 30)   /* of one */
#define REX_STAGED_MAX  (UINT64_C(8) << 30)   /* of all of an owner's */
#define REX_STAGE_FLOOR (UINT64_C(512) << 20) /* of the disk stays free: the store is on it */
typedef struct rex_stage {                    /* done closes it, and nothing is left */
    swerex *door;
    char *owner;
    int fd; /* of a file without a name; -1: none */
    uint64_t n;
} rex_stage;
err *rex_stage_open(swerex *d, const char *owner, rex_stage *ret_stage) ERR_MUST;
err *rex_stage_write(rex_stage *s, const void *p, size_t n) ERR_MUST;
void rex_stage_done(rex_stage *s);

/* ---- terminal.c: programs that want one ---- */
rex_terminals *rex_terminals_new(void);
void rex_terminals_free(rex_terminals *t);
/* An action on it; takes the action. */
err *rex_terminal_start(request *rq, response *rs, sandbox *sb, session *s,
                        rex_action *in) ERR_MUST;
/* An interrupt: of the program in front of a terminal's shell, or else of the session. */
err *rex_terminal_interrupt(request *rq, response *rs, sandbox *sb, session *s,
                            rex_action *in) ERR_MUST;
void rex_terminal_close(rex_terminals *all, sandbox *sb, session *s);

/* ---- handlers; the sandbox is there ---- */
typedef err *rex_handler(request *rq, response *rs, const rex_who *w, sandbox *sb);
rex_handler rex_create_session, rex_run_in_session, rex_close_session, rex_execute, rex_read_file,
    rex_write_file, rex_upload, rex_close;
