/* Group commit: while one batch is on its way to the disk, the next gathers. A batch is one
 * transaction; nobody hears of success before its commit. Writes that nobody waits for are put off
 * for a moment, and go with the next one that somebody waits for: a create costs one commit, not
 * two, and its second write is not in the way of the sandbox's first command. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/str.h"
#include "base/thread.h"
#include "store/internal.h"

#define BATCH_MAX  512
#define LAZY_NS    (5 * NS_PER_MS) /* how long a write that nobody waits for may be put off */
#define QUEUED_MAX 65536 /* beyond it even queued writes wait: the disk is that far behind */
#define KEPT_MAX   (QUEUED_MAX / 2) /* of a batch that failed: nobody is to wait for a full disk */
#define AGAIN_NS   (500 * NS_PER_MS)

enum {
    M_WRITES,
    M_COMMITS,
    M_COMMIT_TIME,
    M_FAILED,
    M_LOST,
    M_QUEUE,
    M_WAIT
};
static metric METRICS[] = {
    [M_WRITES] = METRIC_COUNTER("bothy_store_writes_total", "Writes to the store."),
    [M_COMMITS] = METRIC_COUNTER("bothy_store_commits_total", "Commits; each has many writes."),
    [M_COMMIT_TIME] =
        METRIC_HISTOGRAM("bothy_store_commit_seconds", "Time of a batch, with fsync."),
    [M_FAILED] = METRIC_COUNTER("bothy_store_commits_failed_total",
                                "Batches that the store could not write: who waited was told so, "
                                "the other writes are tried again."),
    [M_LOST] = METRIC_COUNTER("bothy_store_writes_lost_total",
                              "Writes that nobody waited for and that were given up."),
    [M_QUEUE] = METRIC_GAUGE("bothy_store_queue", "Writes that wait for the next commit."),
    [M_WAIT] = METRIC_HISTOGRAM("bothy_store_wait_seconds",
                                "Time somebody waited for a write, with its commit."),
};

static void look(void *arg)
{
    store_writer *w = arg;
    LOCK_SCOPE(&w->lock);

    metric_set(&METRICS[M_QUEUE], 0, (int64_t)w->queued);
}

static store_op *take_batch(store_writer *w)
{
    LOCK_SCOPE(&w->lock);

    uint64_t nap_until = now_mono_ns() + LAZY_NS;
    w->naps = true;
    while (!w->stop && !w->awaited && (w->queued < BATCH_MAX || now_mono_ns() < w->again_ns))
        if (w->first && !cond_wait_until(&w->work, &w->lock, w->lazy_until))
            break;
        else if (!w->first)
            w->naps &= cond_wait_until(&w->work, &w->lock, w->naps ? nap_until : 0);
    store_op *batch = w->first, **end = &w->first;
    size_t n = 0;
    for (; *end && n < BATCH_MAX; n++) {
        w->awaited -= !(*end)->release;
        end = &(*end)->next;
    }
    w->first = *end;
    *end = NULL;
    if (!w->first)
        w->last = &w->first;
    w->queued -= n;
    pthread_cond_broadcast(&w->room);
    return batch;
}

static void fail_all(store_op *batch, const err *why)
{
    for (store_op *o = batch; o; o = o->next) {
        err_free(o->result);
        o->result = err_copy(why);
    }
}

/* Runs each in one transaction. What one refuses (a name that is taken) concerns it alone; when
 * SQLite itself has rolled back (disk full, I/O error), none of them has happened. */
static err *run_batch(store_conn *c, store_op *batch)
{
    TRY(store_run(c, SQL_BEGIN, "begin a transaction"));
    for (store_op *o = batch; o; o = o->next) {
        o->result = o->run(c, o->arg);
        if (sqlite3_get_autocommit(c->db))
            return o->result ? err_copy(o->result)
                             : err_new(ERR_INTERNAL, "the transaction was rolled back");
    }
    FAULT_KILL("store.uncommitted");
    err *e = store_run(c, SQL_COMMIT, "commit");
    FAULT_KILL("store.committed");
    if (e && !sqlite3_get_autocommit(c->db))
        err_drop(store_run(c, SQL_ROLLBACK, "roll back"), "store");
    return e;
}

static void free_queued(store_op *o)
{
    err_drop(o->result, "a queued write to the store failed");
    if (o->release)
        o->release(o->arg);
    free(o);
}

/* Locked. Before everything that has come since, in their order. */
static void put_back(store_writer *w, store_op *kept, store_op **end, size_t n)
{
    *end = w->first;
    if (!w->first)
        w->last = end;
    w->first = kept;
    w->queued += n;
    w->again_ns = w->lazy_until = now_mono_ns() + AGAIN_NS;
}

/* What nobody waits for nobody repeats either: how a sandbox ended would be lost with a disk that
 * was full for a moment. */
static void finish_batch(store_writer *w, store_op *batch, bool failed)
{
    store_op *kept = NULL, **end = &kept;
    size_t n = 0;
    LOCK_SCOPE(&w->lock);

    for (store_op *o = batch, *next; o; o = next) {
        next = o->next;
        if (failed && o->release && !w->stop && w->queued + n < KEPT_MAX) {
            err_free(TAKE_PTR(o->result));
            *end = o;
            end = &o->next;
            n++;
            continue;
        }
        metric_add(&METRICS[M_WRITES], 0, 1);
        if (o->release) {
            metric_add(&METRICS[M_LOST], 0, failed);
            free_queued(o);
        } else {
            /* The op lies on the waiter's stack: it may be gone as soon as we unlock. */
            o->done = true;
            pthread_cond_signal(&o->ended);
        }
    }
    if (n)
        put_back(w, kept, end, n);
}

static void *writer_main(void *arg)
{
    store_writer *w = arg;
    store_op *batch;

    while ((batch = take_batch(w))) {
        uint64_t begun = now_mono_ns();
        CLEANUP(err_freep) err *e = run_batch(w->conn, batch);
        if (e) {
            fail_all(batch, e);
            metric_add(&METRICS[M_FAILED], 0, 1);
            if (!w->failing)
                log_error("store", "writes fail and are tried again: %s%s%s", e->message,
                          e->cause ? ": " : "", str_or(e->cause, ""));
        }
        w->failing = e != NULL;
        store_events_committed(&w->events, !e);
        metric_add(&METRICS[M_COMMITS], 0, 1);
        metric_observe_ns(&METRICS[M_COMMIT_TIME], 0, now_mono_ns() - begun);
        finish_batch(w, batch, e != NULL);
    }
    return NULL;
}

void store_writer_start(store_writer *w, store_conn *conn)
{
    metric_register(METRICS, ARRAY_LEN(METRICS));
    w->conn = conn;
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->work);
    cond_init(&w->room);
    metric_look(look, w);
    w->thread = thread_start("store", writer_main, w);
}

void store_writer_stop(store_writer *w)
{
    if (!w->conn)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    store_conn_free(w->conn);
    pthread_cond_destroy(&w->room);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
}

/* Locked. */
static void enqueue(store_writer *w, store_op *o)
{
    while (w->queued >= QUEUED_MAX)
        pthread_cond_wait(&w->room, &w->lock);
    if (!w->first) {
        w->lazy_until = now_mono_ns() + LAZY_NS;
        if (!w->naps)
            pthread_cond_signal(&w->work);
    }
    *w->last = o;
    w->last = &o->next;
    w->queued++;
    w->awaited += !o->release;
    if (!o->release || w->queued >= BATCH_MAX)
        pthread_cond_signal(&w->work);
}

static void begin(store *s, store_op *o)
{
    cond_init(&o->ended);
    o->begun_ns = now_mono_ns();
    LOCK_SCOPE(&s->writer.lock);
    enqueue(&s->writer, o);
}

static err *end(store *s, store_op *o)
{
    pthread_mutex_lock(&s->writer.lock);
    while (!o->done)
        pthread_cond_wait(&o->ended, &s->writer.lock);
    pthread_mutex_unlock(&s->writer.lock);
    pthread_cond_destroy(&o->ended);
    metric_observe_ns(&METRICS[M_WAIT], 0, now_mono_ns() - o->begun_ns);
    return o->result;
}

err *store_write(store *s, store_write_fn *run, void *arg)
{
    store_op o = {.run = run, .arg = arg};

    begin(s, &o);
    return end(s, &o);
}

store_op *store_write_begin(store *s, store_write_fn *run, void *arg)
{
    store_op *o = xcalloc(1, sizeof *o);

    *o = (store_op){.run = run, .arg = arg};
    begin(s, o);
    return o;
}

err *store_pending_end(store *s, store_pending *p)
{
    err *e = end(s, p);

    free(p);
    return e;
}

static err *write_nothing(store_conn *c, void *arg)
{
    (void)c;
    (void)arg;
    return NULL;
}

err *store_flush(store *s)
{
    return store_write(s, write_nothing, NULL);
}

void store_write_queued(store *s, store_write_fn *run, void *arg, void (*release)(void *arg))
{
    store_op *o = xcalloc(1, sizeof *o);

    *o = (store_op){.run = run, .arg = arg, .release = release};
    LOCK_SCOPE(&s->writer.lock);
    enqueue(&s->writer, o);
}
