/* bothyd's connection: frames in, jobs out, answers by request id from any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/wardenp.h"

struct warden;
typedef struct conn conn;

void conn_ref(conn *c);
void conn_unref(conn *c);
bool conn_closed(const conn *c);

typedef struct job { /* one request under way; owned by whoever answers it */
    struct job *next;
    conn *c;
    uint32_t type;
    uint64_t request;
    uint64_t received_ns;
    uint64_t again_ns; /* queue.c: put back until then */
    uint64_t begun_ns; /* freezing.c: 0 until its first step */
    uint32_t turn;     /* freezing.c: which FREEZE or THAW of its slot it is */
    int fd;            /* -1, or what the request brought */
    size_t n;
    _Alignas(8) uint8_t body[];
} job;
void job_free(job *j);

/* Each answers and frees the job. fd (-1: none) is sent along and stays the caller's. */
void job_answer(job *j, const void *a, size_t na, const void *b, size_t nb, int fd);
/* e NULL: an empty answer. Takes the error. */
void job_end(job *j, err *e);
/* The errno an error is told as. */
int job_errnum(const err *e);

/* Listens, and serves until a signal says to end. */
err *conn_serve(struct warden *w) ERR_MUST;
