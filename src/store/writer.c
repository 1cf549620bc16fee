/* Group commit: while one batch is written to the disk, the next gathers. A batch is one
 * transaction; success is reported after its commit. Queued writes are delayed for a moment and
 * join the next awaited one: a create costs one commit, not two, and its second write does not
 * delay the sandbox's first command.
 *
 * There are two queues. Fresh writes are tried once, in call order. Queued writes of a failed batch
 * are kept, retried twice a second, and never delay an awaited write; only writes about the same
 * sandbox stay in order across both. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/map.h"
#include "base/metric.h"
#include "base/str.h"
#include "base/thread.h"
#include "store/internal.h"

#define BATCH_MAX  512
#define LAZY_NS    (5 * NS_PER_MS) /* how long a queued write may be delayed */
#define QUEUED_MAX 65536 /* queued writes; beyond it callers block until the disk catches up */
#define KEPT_MAX   (QUEUED_MAX / 2) /* kept writes of failed batches; further ones are given up */
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

static void writer_look(void *arg)
{
    store_writer *w = arg;
    LOCK_SCOPE(&w->lock);

    metric_set(&METRICS[M_QUEUE], 0, (int64_t)(w->fresh.n + w->kept.n));
}

/* ---- queues; the writer's lock is held ---- */

static void queue_init(store_queue *q)
{
    *q = (store_queue){.last = &q->first};
}

static void queue_append(store_queue *q, store_op *o)
{
    o->next = NULL;
    *q->last = o;
    q->last = &o->next;
    q->n++;
}

static store_op *queue_pop(store_queue *q)
{
    store_op *o = q->first;

    if (!o)
        return NULL;
    q->first = o->next;
    if (!q->first)
        q->last = &q->first;
    q->n--;
    o->next = NULL;
    return o;
}

/* Moves every write of `from` to the end of `to`. */
static void queue_move(store_queue *to, store_queue *from)
{
    if (!from->first)
        return;
    *to->last = from->first;
    to->last = from->last;
    to->n += from->n;
    queue_init(from);
}

/* Moves the writes of `from` that `wanted` accepts to the end of `to`; both keep their order. */
static void queue_select(store_queue *to, store_queue *from,
                         bool (*wanted)(const store_op *o, void *arg), void *arg)
{
    store_queue rest;

    queue_init(&rest);
    for (store_op *o; (o = queue_pop(from));)
        queue_append(wanted(o, arg) ? to : &rest, o);
    queue_move(from, &rest);
}

/* ---- batches ---- */

/* Returns when the next batch is due: 0 is at once, UINT64_MAX is never. Lock held. */
static uint64_t batch_due(const store_writer *w)
{
    uint64_t due = UINT64_MAX;

    if (w->fresh.n)
        due = w->stop || w->awaited || w->fresh.n >= BATCH_MAX ? 0 : w->lazy_until;
    if (w->kept.n && (w->stop || w->again_ns < due))
        due = w->stop ? 0 : w->again_ns;
    return due;
}

static bool is_of_subject(const store_op *o, void *arg)
{
    return o->subject && map_get_str(arg, o->subject);
}

/* Moves kept writes about the subjects of the batch's awaited writes in front of the batch: an
 * awaited write may overtake only writes about other sandboxes. Lock held. */
static void batch_take_along(store_writer *w, store_queue *batch)
{
    store_queue along;
    map subjects = {0};

    queue_init(&along);
    for (store_op *o = batch->first; o; o = o->next)
        if (!o->release && o->subject)
            map_put_str(&subjects, o->subject, o);
    if (subjects.count)
        queue_select(&along, &w->kept, is_of_subject, &subjects);
    map_done(&subjects);
    queue_move(&along, batch);
    queue_move(batch, &along);
}

/* Takes kept writes if their time has come, alternating with awaited ones; otherwise fresh ones.
 * Lock held. */
static void batch_fill(store_writer *w, store_queue *batch)
{
    bool due = w->kept.n && (w->stop || w->again_ns <= now_mono_ns());

    w->again = due && !(w->again && w->awaited) && !(w->stop && w->fresh.n);
    store_queue *from = w->again ? &w->kept : &w->fresh;
    while (batch->n < BATCH_MAX && from->n) {
        store_op *o = queue_pop(from);
        w->awaited -= !w->again && !o->release;
        queue_append(!w->again && o->flush && w->kept.n ? &w->kept : batch, o);
    }
    if (!w->again && w->kept.n)
        batch_take_along(w, batch);
}

/* Waits until a batch is due, or the writer is to stop. Lock held. */
static void batch_wait_due(store_writer *w)
{
    uint64_t nap_until = now_mono_ns() + LAZY_NS, due;

    w->naps = true;
    while ((due = batch_due(w)) > now_mono_ns() && !w->stop)
        if (due < UINT64_MAX)
            cond_wait_until(&w->work, &w->lock, due);
        else
            w->naps &= cond_wait_until(&w->work, &w->lock, w->naps ? nap_until : 0);
}

/* Waits for a batch; an empty one means that the writer is to stop and nothing is left to write.
 * A flush that joins the kept writes leaves an empty batch, too: then it waits again. */
static void batch_wait(store_writer *w, store_queue *batch)
{
    LOCK_SCOPE(&w->lock);

    do {
        batch_wait_due(w);
        batch_fill(w, batch);
        pthread_cond_broadcast(&w->room);
    } while (!batch->n && (!w->stop || w->fresh.n || w->kept.n));
}

static void batch_fail(store_op *batch, const err *why)
{
    for (store_op *o = batch; o; o = o->next) {
        err_free(o->result);
        o->result = err_copy(why);
    }
}

/* Returns true if the disk or the memory refused a write, not a rule of the store. */
static bool is_trouble(const err *e)
{
    return e && (e->code == ERR_DISK_FULL || e->code == ERR_UNAVAILABLE);
}

/* Runs the writes in one transaction. A write that the store refuses (a name that is taken) fails
 * alone. If SQLite rolled back, or disk or memory failed, none of them has happened. */
static err *batch_run(store_conn *c, store_op *batch)
{
    err *e = NULL;

    TRY(store_run(c, SQL_BEGIN, "begin a transaction"));
    for (store_op *o = batch; o && !e; o = o->next) {
        o->result = o->run(c, o->arg);
        if (sqlite3_get_autocommit(c->db))
            return o->result ? err_copy(o->result)
                             : err_new(ERR_INTERNAL, "the transaction was rolled back");
        if (is_trouble(o->result))
            e = err_copy(o->result);
    }
    FAULT_KILL("store.uncommitted");
    if (!e)
        e = store_run(c, SQL_COMMIT, "commit");
    FAULT_KILL("store.committed");
    if (e && !sqlite3_get_autocommit(c->db))
        err_drop(store_run(c, SQL_ROLLBACK, "roll back"), "store");
    return e;
}

/* Reports a result to the waiter, who may free the op as soon as the lock is released. Lock
 * held. */
static void op_answer(store_op *o)
{
    o->done = true;
    pthread_cond_signal(&o->ended);
}

static void op_free(store_op *o)
{
    bool lost = o->result && o->result->code != ERR_NOT_FOUND;

    metric_add(&METRICS[M_LOST], 0, lost);
    err_drop(o->result, "a queued write to the store failed");
    if (o->told)
        o->told(o->arg, true);
    o->release(o->arg);
    free(o);
}

static bool is_awaited(const store_op *o, void *arg)
{
    (void)arg;
    return !o->release;
}

/* Puts writes of a failed batch back: in front of the kept ones if they come from there, else
 * behind them. Flushes among kept writes fail with them. Lock held. */
static void batch_keep(store_writer *w, store_queue *back, const err *why)
{
    store_queue flushes;
    uint64_t now = now_mono_ns();

    if (w->again) {
        queue_move(back, &w->kept);
        queue_init(&flushes);
        queue_select(&flushes, back, is_awaited, NULL);
        batch_fail(flushes.first, why);
        for (store_op *o; (o = queue_pop(&flushes));)
            op_answer(o);
    }
    queue_move(&w->kept, back);
    if (w->again || w->again_ns <= now)
        w->again_ns = now + AGAIN_NS;
}

/* Answers awaited writes, keeps queued writes of a failed batch, and collects the other queued ones
 * in `over`. */
static void batch_sort(store_writer *w, store_queue *batch, const err *why, store_queue *over)
{
    store_queue back;
    LOCK_SCOPE(&w->lock);

    queue_init(&back);
    for (store_op *o; (o = queue_pop(batch));) {
        if (why && o->release && !w->stop && w->kept.n + back.n < KEPT_MAX) {
            err_free(TAKE_PTR(o->result));
            queue_append(&back, o);
            continue;
        }
        metric_add(&METRICS[M_WRITES], 0, 1);
        if (o->release)
            queue_append(over, o);
        else
            op_answer(o);
    }
    if (back.n)
        batch_keep(w, &back, why);
    else if (w->again && !why)
        w->again_ns = 0;
    w->failing = why || w->kept.n;
}

/* Ends a batch. Queued writes of a failed one are retried: otherwise the end of a sandbox would be
 * lost when the disk is full for a moment. */
static void batch_finish(store_writer *w, store_queue *batch, const err *why)
{
    store_queue over;

    for (store_op *o = batch->first; why && o; o = o->next)
        if (o->told)
            o->told(o->arg, false);
    queue_init(&over);
    batch_sort(w, batch, why, &over);
    for (store_op *o; (o = queue_pop(&over));)
        op_free(o);
}

static void batch_failed(store_writer *w, store_op *batch, const err *e)
{
    batch_fail(batch, e);
    metric_add(&METRICS[M_FAILED], 0, 1);
    if (!w->failing)
        log_error("store", "writes fail and are tried again: %s%s%s", e->message,
                  e->cause ? ": " : "", str_or(e->cause, ""));
}

static void *writer_main(void *arg)
{
    store_writer *w = arg;

    for (;;) {
        store_queue batch;
        queue_init(&batch);
        batch_wait(w, &batch);
        if (!batch.n)
            return NULL;
        uint64_t begun = now_mono_ns();
        CLEANUP(err_freep) err *e = batch_run(w->conn, batch.first);
        if (e)
            batch_failed(w, batch.first, e);
        bool news = store_events_committed(&w->events, !e);
        metric_add(&METRICS[M_COMMITS], 0, 1);
        metric_observe_ns(&METRICS[M_COMMIT_TIME], 0, now_mono_ns() - begun);
        batch_finish(w, &batch, e);
        if (news) /* after the answers, because there may be thousands of watchers */
            store_events_notify(&w->events);
    }
}

void store_writer_start(store_writer *w, store_conn *conn)
{
    metric_register(METRICS, ARRAY_LEN(METRICS));
    w->conn = conn;
    queue_init(&w->fresh);
    queue_init(&w->kept);
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->work);
    cond_init(&w->room);
    metric_look(writer_look, w);
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

/* Returns true if a write must wait behind kept ones, so that writes about a sandbox stay in order.
 * Lock held. */
static bool op_waits_with_kept(const store_writer *w, const store_op *o)
{
    return (o->release || o->flush) && w->kept.n && w->kept.n < KEPT_MAX && !w->stop;
}

/* Queues a write; waits while the queue is full. Lock held. */
static void op_enqueue(store_writer *w, store_op *o)
{
    while (w->fresh.n >= QUEUED_MAX)
        pthread_cond_wait(&w->room, &w->lock);
    if (op_waits_with_kept(w, o)) {
        queue_append(&w->kept, o);
        return;
    }
    if (!w->fresh.n) {
        w->lazy_until = now_mono_ns() + LAZY_NS;
        if (!w->naps)
            pthread_cond_signal(&w->work);
    }
    queue_append(&w->fresh, o);
    w->awaited += !o->release;
    if (!o->release || w->fresh.n >= BATCH_MAX)
        pthread_cond_signal(&w->work);
}

static void op_begin(store *s, store_op *o)
{
    cond_init(&o->ended);
    o->begun_ns = now_mono_ns();
    LOCK_SCOPE(&s->writer.lock);
    op_enqueue(&s->writer, o);
}

static err *op_end(store *s, store_op *o)
{
    pthread_mutex_lock(&s->writer.lock);
    while (!o->done)
        pthread_cond_wait(&o->ended, &s->writer.lock);
    pthread_mutex_unlock(&s->writer.lock);
    pthread_cond_destroy(&o->ended);
    metric_observe_ns(&METRICS[M_WAIT], 0, now_mono_ns() - o->begun_ns);
    return o->result;
}

err *store_write_about(store *s, const char *subject, store_write_fn *run, void *arg)
{
    store_op o = {.run = run, .arg = arg, .subject = subject};

    op_begin(s, &o);
    return op_end(s, &o);
}

err *store_write(store *s, store_write_fn *run, void *arg)
{
    return store_write_about(s, NULL, run, arg);
}

store_op *store_write_begin(store *s, const char *subject, store_write_fn *run, void *arg)
{
    store_op *o = xcalloc(1, sizeof *o);

    *o = (store_op){.run = run, .arg = arg, .subject = subject};
    op_begin(s, o);
    return o;
}

err *store_pending_end(store *s, store_pending *p)
{
    err *e = op_end(s, p);

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
    store_op o = {.run = write_nothing, .flush = true};

    op_begin(s, &o);
    return op_end(s, &o);
}

void store_write_queued(store *s, const store_queued *q)
{
    store_op *o = xcalloc(1, sizeof *o);

    *o = (store_op){.run = q->run,
                    .arg = q->arg,
                    .subject = q->subject,
                    .release = q->release,
                    .told = q->told};
    LOCK_SCOPE(&s->writer.lock);
    op_enqueue(&s->writer, o);
}
