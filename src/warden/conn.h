/* Serves bothyd's connections: turns frames into jobs; jobs are answered by request id, from any
 * thread. */
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

typedef struct job { /* one request under way; owned by the code that answers it */
    struct job *next;
    conn *c;
    uint32_t type;
    uint64_t request;
    uint64_t received_ns;
    uint64_t again_ns; /* queue.c: put back until this time */
    uint64_t begun_ns; /* freezing.c: 0 until its first step */
    uint32_t turn;     /* freezing.c: its number among the FREEZEs and THAWs of its slot */
    int fd;            /* the descriptor that the request brought, or -1 */
    size_t n;
    _Alignas(8) uint8_t body[];
} job;
void job_free(job *j);

/* Answers with a and b, and frees the job. fd (-1: none) is sent along and stays the caller's. */
void job_answer(job *j, const void *a, size_t na, const void *b, size_t nb, int fd);
/* Answers with the error, or with an empty answer if e is NULL, and frees the job. Takes ownership
 * of e. */
void job_end(job *j, err *e);
/* Returns the errno that the answer to bothyd carries for an error. */
int job_errnum(const err *e);

/* Listens, and serves until SIGTERM or SIGINT. */
err *conn_serve(struct warden *w) ERR_MUST;
