/* Answers made of a kit's records: one relay job for each, whose form says what a record becomes.
 * files.c has the handlers and answers that come once, files_view.c values as JSON, files_read.c
 * downloads, files_list.c lists, searches and watches. */
#pragma once

#include "door/rest/internal.h"
#include "engine/files.h"

typedef struct file_job file_job;

enum file_go {
    FILE_ON,    /* the next record */
    FILE_AGAIN, /* the step is full: the same record once more */
    FILE_DONE,  /* the answer is complete */
    FILE_CUT,   /* it cannot be completed: close */
};

typedef struct file_form {
    /* A record that is not END. */
    enum file_go (*record)(file_job *f, relay_io *io, const kit_record *r);
    /* END has come. FILE_AGAIN, FILE_DONE or FILE_CUT. */
    enum file_go (*over)(file_job *f, relay_io *io, const kit_record *end);
    /* Failed after the head went out; NULL: the connection is cut. */
    enum file_go (*failed)(file_job *f, relay_io *io, const err *e);
    /* Nothing there; may say something. NULL: no. */
    void (*idle)(file_job *f, relay_io *io);
} file_form;

struct file_job {
    const file_form *form;
    kit_call *call;
    relay_job *job;
    kit_request rq; /* its strings are the job's */
    char *user, *request_id;
    bool head_sent, has_pending, stream; /* stream: NDJSON */
    enum kit_next pending_is;
    kit_record pending; /* looked at and not done with */

    /* once */
    json_t *entry;
    int errnum; /* of the first entry that was left out */

    /* read */
    engine *engine;
    sandbox *sb;
    caller who; /* to begin again without the range */
    char *if_range, *if_none_match;
    bool ranged, sized;
    uint64_t at, end;

    /* list, search */
    buf body;
    char *last; /* the name of the last entry, and its length */
    size_t last_len;
    uint64_t count, size;

    /* watch */
    uint64_t sequence, last_sent;
    bool resumed;
};

/* Starts the verb and hands the connection to the relay. rq's strings are copied. ret_job (or NULL)
 * is for what else the form wants to know; it is the relay's. */
err *file_start(request *rq, response *rs, const file_form *form, const kit_request *q,
                const char *user, file_job **ret_job) ERR_MUST;
/* The same for a call that runs already; takes it. */
void file_relay(request *rq, response *rs, const file_form *form, const kit_request *q,
                kit_call *call);

/* For kit_call_wait_by(): arg is the request. */
err *file_wait(void *rq, int fd, int ms) ERR_MUST;

extern const file_form FILE_READ, FILE_HEAD, FILE_LIST, FILE_SEARCH, FILE_WATCH;

/* files_view.c */
json_t *view_name(const char *p, size_t n);
json_t *view_file(const kit_record *r, const char *name, size_t n);
/* An entry that was left out. */
json_t *view_file_error(const kit_record *r);
char *file_etag(const struct kit_entry *e);
