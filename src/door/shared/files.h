/* Answers made of a kit's records: one relay job for each, whose form says what a record becomes.
 * Files of callers on their way in and out. Errors are told in the form that the response had. */
#pragma once

#include "base/cleanup.h"
#include "door/shared/stream.h"
#include "engine/files.h"

typedef struct file_job file_job;

enum file_go {
    FILE_ON,    /* the next record */
    FILE_AGAIN, /* the step is full: the same record once more */
    FILE_DONE,  /* the answer is complete */
    FILE_CUT,   /* it cannot be completed: close */
};

typedef struct file_form {
    /* A record that is neither END nor AT. */
    enum file_go (*record)(file_job *f, relay_io *io, const kit_record *r);
    /* END has come. FILE_AGAIN, FILE_DONE or FILE_CUT. */
    enum file_go (*over)(file_job *f, relay_io *io, const kit_record *end);
    /* Failed after the head went out; NULL: the connection is cut. */
    enum file_go (*failed)(file_job *f, relay_io *io, const err *e);
    /* Failed before: the error as the caller is to read it. Takes it; NULL: it was none. Without
     * this it stays as it is. */
    err *(*refused)(file_job *f, relay_io *io, err *e);
    /* Nothing there; may say something. NULL: no. */
    void (*idle)(file_job *f, relay_io *io);
    /* file_read_…: further lines of the head, to be freed; NULL: none. */
    char *(*lines)(const file_job *f, const kit_record *entry);
    /* Frees `own`. */
    void (*done)(void *own);
} file_form;

/* Whose file verb it is. */
typedef struct file_place {
    engine *engine;
    const caller *who;
    sandbox *sb;
    const char *user; /* NULL: the sandbox's */
} file_place;

struct file_job {
    const file_form *form;
    const error_form *errors;
    kit_call *call;
    relay_job *job;
    kit_request rq; /* its strings are the job's */
    char *at;       /* what the kit says of the path (KIT_F_HOME), or NULL */
    char *request_id;
    bool head_sent, has_pending, stream; /* stream: ended by a last chunk */
    enum kit_next pending_is;
    kit_record pending; /* looked at and not done with */
    int errnum;         /* of the first entry that was left out */

    /* where it happens, to begin again */
    engine *engine;
    sandbox *sb;
    caller who;
    char *user;

    /* read */
    char *if_range, *if_none_match;
    bool ranged, sized;
    uint64_t from, end;

    void *own; /* the form's */
};

/* Starts the verb and hands the connection to the relay. rq's strings are copied. ret_job (or NULL)
 * is for what else the form wants to know; it is the relay's. */
err *file_start(request *rq, response *rs, const file_place *place, const file_form *form,
                const kit_request *q, file_job **ret_job) ERR_MUST;
/* The same for a call that runs already; takes it. */
file_job *file_relay(request *rq, response *rs, const file_form *form, const kit_request *q,
                     kit_call *call);
/* The path as the kit understood it, or as it was asked for. */
const char *file_path(const file_job *f);

/* ---- in ---- */
/* For kit_call_wait_by(): arg is the request. */
err *file_wait(void *rq, int fd, int ms) ERR_MUST;
/* Bytes as DATA of the entry that was put last, in batches. */
typedef struct file_sender {
    kit_call *call;
    buf batch;
    uint64_t at; /* of this entry */
} file_sender;
/* Of any number of bytes; what the kit does not want any more is forgotten. */
err *file_send(file_sender *s, const void *p, size_t n) ERR_MUST;
err *file_send_record(file_sender *s, const kit_record *r) ERR_MUST;
err *file_send_end(file_sender *s) ERR_MUST;
void file_sender_done(file_sender *s);

/* ---- out: a file's content, as the kit's read gives it. Parts of a form ---- */
enum file_go file_read_record(file_job *f, relay_io *io, const kit_record *r);
enum file_go file_read_over(file_job *f, relay_io *io, const kit_record *end);
/* Head only, of a stat. */
enum file_go file_head_record(file_job *f, relay_io *io, const kit_record *r);
enum file_go file_head_over(file_job *f, relay_io *io, const kit_record *end);
/* Reads Range and the conditions; q gets the range. Then file_read_begin() of the job. */
typedef struct file_wish {
    bool ranged;
    const char *if_range, *if_none_match;
} file_wish;
file_wish file_read_wish(const request *rq, kit_request *q);
void file_read_begin(file_job *f, const file_wish *w);
char *file_etag(const struct kit_entry *e);
