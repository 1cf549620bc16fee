/* Shared by the files of the store; no other code includes it. */
#pragma once

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "store/store.h"

/* ---- connections (conn.c) ---- */

enum store_sql {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_SANDBOX_INSERT,
    SQL_SANDBOX_STATE,
    SQL_SANDBOX_SPEC,
    SQL_SANDBOX_RESET,
    SQL_EVENT_RESET,
    SQL_SANDBOX_PAUSE,
    SQL_SANDBOX_PENDING,
    SQL_SANDBOX_FREE_KEY,
    SQL_SANDBOX_GET,
    SQL_SANDBOX_BY_KEY,
    SQL_SANDBOX_BY_NAME,
    SQL_SANDBOX_SEQ,
    SQL_SANDBOX_LIST,
    SQL_SANDBOX_LIST_OWNER,
    SQL_SANDBOX_LIST_LIVE,
    SQL_SANDBOX_ENDED,
    SQL_SANDBOX_FORGET,
    SQL_KEY_INSERT,
    SQL_KEY_BY_HASH,
    SQL_KEY_BY_ID,
    SQL_KEY_QUOTA,
    SQL_KEY_LIST,
    SQL_KEY_REMOVE,
    SQL_EPOCH_LIST,
    SQL_IMAGE_PUT,
    SQL_IMAGE_REMOVE,
    SQL_IMAGE_LIST,
    SQL_TEMPLATE_INSERT,
    SQL_TEMPLATE_FIND,
    SQL_TEMPLATE_BY_NAME,
    SQL_TEMPLATE_UPDATE,
    SQL_TEMPLATE_REMOVE,
    SQL_TEMPLATE_LIST,
    SQL_SNAPSHOT_INSERT,
    SQL_SNAPSHOT_COUNT,
    SQL_SNAPSHOT_FIND,
    SQL_SNAPSHOT_REMOVE,
    SQL_SNAPSHOT_LIST,
    SQL_BUILD_INSERT,
    SQL_BUILD_LIST,
    SQL_BUILD_UPDATE,
    SQL_BUILD_REMOVE,
    SQL_BUILD_FORGET,
    SQL_BUILD_FORGET_BARE,
    SQL_EVENT_LIST,
    SQL_EVENT_LIST_OWNER,
    SQL_EVENT_LIST_SANDBOX,
    SQL_EVENT_FIRST,
    SQL_EVENT_LAST,
    SQL_EVENT_FORGET,
    SQL_STATEMENTS
};

/* One SQLite connection and its prepared statements. Used by one thread at a time. */
typedef struct store_conn {
    sqlite3 *db;
    sqlite3_stmt *stmt[SQL_STATEMENTS];
    struct store_conn *next; /* in the list of idle readers */
} store_conn;

/* Opens `name` in the directory. writer: may create the file; readers are query-only. */
err *store_conn_open(int dirfd, const char *name, const char *sync, bool writer,
                     store_conn **ret_conn) ERR_MUST;
/* Opens a file that is not a store in use, such as a copy; makes it if it is missing. No WAL, not
 * durable. */
err *store_conn_open_plain(int dirfd, const char *name, store_conn **ret_conn) ERR_MUST;
void store_conn_free(store_conn *c);
/* Returns the prepared statement, ready to bind; reset it with CLEANUP(stmt_resetp). */
err *store_stmt(store_conn *c, enum store_sql which, sqlite3_stmt **ret_stmt) ERR_MUST;
static inline void stmt_resetp(sqlite3_stmt **s)
{
    if (*s) {
        sqlite3_reset(*s);
        sqlite3_clear_bindings(*s);
    }
}
/* Runs a bound statement that returns no rows. */
err *store_step_done(store_conn *c, sqlite3_stmt *st, const char *doing) ERR_MUST;
/* Returns the error of the connection's last call. */
err *store_error(store_conn *c, const char *doing) ERR_MUST;
/* Returns the error for a damaged file. */
err *store_damaged(const char *doing, const char *why) ERR_MUST;
/* Prepares and runs a statement without parameters. */
err *store_run(store_conn *c, enum store_sql which, const char *doing) ERR_MUST;

void bind_text(sqlite3_stmt *st, int i, const char *s); /* NULL: NULL */
void bind_blob(sqlite3_stmt *st, int i, const void *p, int n);
void bind_time(sqlite3_stmt *st, int i, uint64_t ns);
char *column_text(sqlite3_stmt *st, int i); /* owned, NULL for NULL */
/* Reads exactly n bytes; zeros if the column has another length. */
void column_blob(sqlite3_stmt *st, int i, void *p, int n);

/* ---- schema.c ---- */
/* Upgrades the file to STORE_VERSION. Refuses a newer file. */
err *store_migrate(store_conn *c) ERR_MUST;
/* Commits a write that changes nothing, so that SQLite writes all of the first part of the WAL's
 * index. The index is a mapped file whose pages may lack blocks where a block is smaller than a
 * page: the first write to such a page on a full disk ends the process by SIGBUS. */
err *store_touch_index(store_conn *c) ERR_MUST;
/* Returns the file's version. Refuses a newer file. */
err *store_check_version(store_conn *c, int *ret_version) ERR_MUST;
/* Checks the file's pages. which: "quick_check" or "integrity_check". */
err *store_check_pages(store_conn *c, const char *which) ERR_MUST;

/* ---- backup.c ---- */
/* Puts a restored store in its place, if one waits. */
err *store_finish_restore(int dirfd) ERR_MUST;

/* ---- writer.c ---- */
typedef err *store_write_fn(store_conn *c, void *arg);

typedef struct store_pending {
    struct store_pending *next;
    store_write_fn *run;
    void *arg;
    const char *subject;        /* id of the sandbox that the write is about, or NULL; borrowed */
    void (*release)(void *arg); /* queued writes only: frees arg; the op is freed after it */
    void (*told)(void *arg, bool settled); /* queued writes only, or NULL: see store_queued */
    bool flush;                            /* waits for queued writes before it */
    err *result;
    bool done;
    pthread_cond_t ended; /* blocking writes only */
    uint64_t begun_ns;
} store_op;

typedef struct store_queue {
    store_op *first, **last;
    size_t n;
} store_queue;

/* The writer's state about events (events.c). */
typedef struct store_events {
    uint64_t newest;       /* inserted by the current transaction; writer thread only */
    _Atomic uint64_t last; /* committed */
    pthread_mutex_t lock;  /* guards the watcher; held while it is notified */
    void (*notify)(void *arg);
    void *arg;
} store_events;
err *store_events_open(store_events *ev, store_conn *writer) ERR_MUST;
/* Returns true if the commit had events; then call store_events_notify(). */
bool store_events_committed(store_events *ev, bool done);
void store_events_notify(store_events *ev);

typedef struct store_writer {
    store_events events;
    store_conn *conn; /* writer thread only */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work; /* a write was queued, or stop was set */
    pthread_cond_t room; /* the queue got shorter */
    store_queue fresh;   /* not tried yet, in call order */
    store_queue kept;    /* queued writes of failed batches, and writes that wait behind them */
    size_t awaited;      /* number of blocking writes in `fresh` */
    uint64_t lazy_until; /* latest time to write the first fresh one */
    uint64_t again_ns;   /* earliest time to retry the kept writes */
    bool again;          /* writer thread only: the last batch was of kept writes */
    bool failing;        /* writer thread only: the failure of writes has been logged */
    bool naps;           /* it wakes up soon by itself; false: signal it for queued writes */
    bool stop;
} store_writer;

void store_writer_start(store_writer *w, store_conn *conn);
/* Writes everything that is queued, then ends the thread. Accepts a writer that never started. */
void store_writer_stop(store_writer *w);

typedef struct store_states {
    pthread_mutex_t lock; /* guards the watcher; held while it is notified */
    void (*notify)(void *arg, const char *id, bool settled);
    void *arg;
} store_states;

/* ---- store.c ---- */
struct store {
    int dirfd;
    char *name, *sync;
    store_writer writer;
    store_states states;
    pthread_mutex_t copying;
    pthread_mutex_t lock;
    store_conn *idle;
    unsigned nidle;
};

/* Runs a write on the writer thread, in a transaction shared with others. Returns when it is
 * durable. `run` may execute at most one statement that changes anything: if that fails, the other
 * writes of the batch must not be affected. */
err *store_write(store *s, store_write_fn *run, void *arg) ERR_MUST;
/* Like store_write(), in order with queued writes about the same sandbox. */
err *store_write_about(store *s, const char *subject, store_write_fn *run, void *arg) ERR_MUST;
/* Begins a write like store_write_about(); store_pending_end() waits for it. */
store_op *store_write_begin(store *s, const char *subject, store_write_fn *run, void *arg);
/* A write without waiting. If the disk fails, its batch is retried, so `run` may be called more
 * than once. A write that the store refuses is logged. */
typedef struct store_queued {
    const char *subject; /* id of the sandbox that the write is about, or NULL; part of arg */
    store_write_fn *run;
    void *arg;
    void (*release)(void *arg); /* frees arg */
    /* Called on the writer's thread, or NULL. settled false: a try failed and will be repeated.
     * settled true, once: the write was committed or given up. Must not wait for the store. */
    void (*told)(void *arg, bool settled);
} store_queued;
void store_write_queued(store *s, const store_queued *q);

/* A connection for reading, returned to the pool at the end of the scope. */
typedef struct store_read {
    store *s;
    store_conn *c;
} store_read;
err *store_read_begin(store *s, store_read *ret_read) ERR_MUST;
void store_read_end(store_read *r);
