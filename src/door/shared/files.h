/* Relay jobs that turn records of a kit into an answer; a form renders each record in the door's
 * protocol. Also uploads and downloads of files. Errors are in the form that the response had. */
#pragma once

#include "base/cleanup.h"
#include "door/shared/stream.h"
#include "engine/files.h"

typedef struct file_job file_job;

enum file_go {
    FILE_ON,    /* take the next record */
    FILE_AGAIN, /* the output is full: the same record once more */
    FILE_DONE,  /* the answer is complete */
    FILE_CUT,   /* it cannot be completed: close */
};

typedef struct file_form {
    /* Renders a record that is neither END nor AT. */
    enum file_go (*record)(file_job *f, relay_io *io, const kit_record *r);
    /* Renders END. Returns FILE_AGAIN, FILE_DONE or FILE_CUT. */
    enum file_go (*over)(file_job *f, relay_io *io, const kit_record *end);
    /* Renders an error after the head was sent. NULL: the connection is closed. */
    enum file_go (*failed)(file_job *f, relay_io *io, const err *e);
    /* Converts an error before the head was sent. Takes it; returns NULL if it wrote an answer
     * itself. NULL: errors stay as they are. */
    err *(*refused)(file_job *f, relay_io *io, err *e);
    /* Called when no record has come; may append output. NULL: none. */
    void (*idle)(file_job *f, relay_io *io);
    /* file_read_…: returns further header lines, which the caller frees; NULL: none. */
    char *(*lines)(const file_job *f, const kit_record *entry);
    /* Frees `own`. */
    void (*done)(void *own);
} file_form;

/* The sandbox, caller and user of a file verb. */
typedef struct file_place {
    engine *engine;
    const caller *who;
    sandbox *sb;
    const char *user; /* NULL: the sandbox's default user */
} file_place;

struct file_job {
    const file_form *form;
    const error_form *errors;
    kit_call *call;
    relay_job *job;
    kit_request rq; /* the job owns its strings */
    char *at;       /* the path as the kit resolved it (KIT_F_HOME), or NULL */
    char *request_id;
    bool head_sent, has_pending, stream; /* stream: ended by a last chunk */
    enum kit_next pending_is;
    kit_record pending; /* a record that is not finished yet */
    int errnum;         /* errno of the first entry that was left out */

    /* to start the verb again */
    engine *engine;
    sandbox *sb;
    caller who;
    char *user;

    /* read */
    char *if_range, *if_none_match;
    bool ranged, sized;
    uint64_t from, end;

    void *own; /* the form's data */
};

/* Starts the verb and hands the connection to the relay. rq's strings are copied. ret_job (or NULL)
 * lets the form set more members; the relay owns the job. */
err *file_start(request *rq, response *rs, const file_place *place, const file_form *form,
                const kit_request *q, file_job **ret_job) ERR_MUST;
/* The same for a call that runs already; takes ownership of it. */
file_job *file_relay(request *rq, response *rs, const file_form *form, const kit_request *q,
                     kit_call *call);
/* Returns the path as the kit resolved it, or as it was requested. */
const char *file_path(const file_job *f);

/* ---- uploads ---- */
/* For kit_call_wait_by(): arg is the request. */
err *file_wait(void *rq, int fd, int ms) ERR_MUST;
/* Sends bytes as DATA of the last entry, in batches. */
typedef struct file_sender {
    kit_call *call;
    buf batch;
    uint64_t at; /* offset in this entry */
} file_sender;
/* Sends any number of bytes. Bytes that the kit no longer wants are dropped. */
err *file_send(file_sender *s, const void *p, size_t n) ERR_MUST;
err *file_send_record(file_sender *s, const kit_record *r) ERR_MUST;
err *file_send_end(file_sender *s) ERR_MUST;
void file_sender_done(file_sender *s);

/* ---- downloads: a file's content, from the kit's read; parts of a form ---- */
enum file_go file_read_record(file_job *f, relay_io *io, const kit_record *r);
enum file_go file_read_over(file_job *f, relay_io *io, const kit_record *end);
/* Writes only the head, from a stat. */
enum file_go file_head_record(file_job *f, relay_io *io, const kit_record *r);
enum file_go file_head_over(file_job *f, relay_io *io, const kit_record *end);
/* Reads the Range header and the conditions, and puts the range into q. Pass the result
 * to file_read_begin() of the job. */
typedef struct file_wish {
    bool ranged;
    const char *if_range, *if_none_match;
} file_wish;
file_wish file_read_wish(const request *rq, kit_request *q);
void file_read_begin(file_job *f, const file_wish *w);
char *file_etag(const struct kit_entry *e);
