/* Tunnels: commands that are connections. Their life, from the request to the last reference. */
#include "exec/tunnel.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/count.h"

#define IDS_STEP  256u            /* ids per record of the journal */
#define LINGER_NS (60 * NS_PER_S) /* time for the command to end after its peer has left */
#define KILL_NS   (5 * NS_PER_S)

/* ---- references ---- */

static struct tunnel *tunnel_ref(struct tunnel *u)
{
    atomic_fetch_add(&u->refs, 1);
    return u;
}

static void tunnel_unref(struct tunnel *u)
{
    exec_table *t;

    if (!u || atomic_fetch_sub(&u->refs, 1) != 1)
        return;
    t = u->table;
    close_soon(t, u->pipe, 3);
    close_soon(t, u->closing, 3);
    pump_job_done(&u->job);
    closep(&u->fd);
    closep(&u->peer);
    atomic_fetch_sub(&t->hub->tunnel_bytes, u->weight);
    buf_done(&u->held);
    buf_done(&u->in);
    t->ops->box_unref(u->box);
    pthread_mutex_destroy(&u->lock);
    free(u);
    exec_table_unref(t);
}
DEFINE_CLEANUP(struct tunnel, tunnel_unref)

static struct tunnel *tunnel_find(exec_table *t, uint64_t id)
{
    LOCK_SCOPE(&t->lock);
    struct tunnel *u = map_get_u64(&t->tunnels, id);

    return u ? tunnel_ref(u) : NULL;
}

static void tunnel_forget(struct tunnel *u)
{
    exec_table *t = u->table;
    struct tunnel *there;

    pump_timer_cancel(t->hub->pump, &u->timer); /* it is not set again */
    {
        LOCK_SCOPE(&t->lock);
        there = map_take_u64(&t->tunnels, u->id);
    }
    tunnel_unref(there);
}

/* ---- the answer ---- */

static err *failure_of(const struct tunnel *u)
{
    exec_end end = {.how = EXEC_NOT_STARTED, .errnum = u->refused};

    if (u->too_late)
        return err_new(ERR_TIMEOUT, "the sandbox has not answered in time");
    if (u->exited && u->rec.state == SP_FAILED) {
        end.errnum = u->rec.status;
        end.stage = (int)u->rec.stage;
    }
    if (u->refused || (u->exited && u->rec.state == SP_FAILED))
        return exec_end_error(&end);
    if (u->lost)
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", u->table->sandbox),
                        "sandbox");
    return err_because(err_remedy(err_new(ERR_UNAVAILABLE, "the kit in the sandbox failed"),
                                  "Try again; if it stays, something in the sandbox interferes."),
                       WIFEXITED(u->rec.status) ? "it ended early" : "it was killed");
}

/* Returns true if the missing bytes will not come. Lock held. */
static bool is_in_vain(const struct tunnel *u)
{
    return u->refused || u->lost || u->too_late || (u->exited && (u->out_eof || u->fd < 0));
}

/* Calls done if the answer is known. No lock held: done may begin and end other tunnels. */
static void tunnel_tell(struct tunnel *u)
{
    exec_tunnel_done *done = NULL;
    err *failure = NULL;
    int fd = -1;

    {
        LOCK_SCOPE(&u->lock);
        if (u->done && u->moved >= u->first)
            fd = TAKE_FD(u->peer);
        else if (u->done && is_in_vain(u))
            failure = failure_of(u);
        if (fd >= 0 || failure)
            done = TAKE_PTR(u->done);
    }
    if (done)
        done(u->arg, failure, fd);
}

/* ---- its work ---- */

static void set_timer(struct tunnel *u, uint64_t ns)
{
    pump_timer_set(u->table->hub->pump, &u->timer, now_mono_ns() + ns);
}

/* Handles the timer. A tunnel that has not answered fails; a command without a socket is killed,
 * again and again until it is gone. No signal reaches a paused sandbox. Lock held. */
static void on_time(struct tunnel *u, bool paused)
{
    signal_spec s = {.exec = u->id, .signo = SIGKILL, .scope = SP_TO_TREE};

    if (u->done) {
        u->too_late = true;
        tunnel_shut(u);
    }
    if (u->over || u->lost || u->fd >= 0)
        return;
    u->left = true;
    if (!paused)
        err_drop(u->table->ops->signal(u->box, &s), "tunnel");
    set_timer(u, KILL_NS);
}

/* Acknowledges the end to the box, and no longer counts the tunnel. An exit counts only when
 * everything before it has come: its descriptors, or every frame. Lock held. */
static void leave_box(struct tunnel *u)
{
    exec_table *t = u->table;

    bool ended = u->exited && u->answered && !u->stalled;

    if (u->over || (!u->refused && !u->lost && !ended))
        return;
    if (u->exited && !u->lost)
        t->ops->ack(u->box, u->id, 15);
    u->over = true;
    atomic_fetch_sub(&t->ntunnels, 1);
    metric_add(&EXEC_METRICS[M_LIVE], LIVE_TUNNEL, -1);
    if (t->account)
        atomic_fetch_sub(&t->account->live, 1);
}

/* Closes what is over. Returns true if the tunnel is over as a whole. Lock held. */
static bool tunnel_settle(struct tunnel *u)
{
    leave_box(u);
    tunnel_input(u); /* again, as leave_box() may have ended the input */
    if (u->refused || (u->whole && u->in_eof) || (u->gone && (u->in_eof || u->in_over)))
        tunnel_shut(u);
    if (u->fd < 0 && !u->over && !u->left) {
        u->left = true;
        set_timer(u, LINGER_NS);
    }
    for (int i = 0; i < 3 && u->over && u->fd < 0; i++)
        tunnel_close_pipe(u, i);
    return u->over && u->fd < 0;
}

static void tunnel_run(pump_job *j)
{
    struct tunnel *u = (struct tunnel *)((char *)j - offsetof(struct tunnel, job));
    bool paused = exec_table_is_paused(u->table), ended;

    {
        LOCK_SCOPE(&u->lock);
        if (atomic_exchange(&u->due, false))
            on_time(u, paused);
        tunnel_output(u);
        tunnel_input(u);
        ended = tunnel_settle(u);
        tunnel_rewatch(u);
    }
    for (int i = 0; i < 3; i++) {
        closep(&u->closing[i]);
        u->closing[i] = -1;
    }
    tunnel_tell(u);
    if (ended)
        tunnel_forget(u);
}

static void job_ref(pump_job *j)
{
    tunnel_ref((struct tunnel *)((char *)j - offsetof(struct tunnel, job)));
}

static void job_unref(pump_job *j)
{
    tunnel_unref((struct tunnel *)((char *)j - offsetof(struct tunnel, job)));
}

static void tunnel_fire(pump_timer *timer)
{
    struct tunnel *u = (struct tunnel *)((char *)timer - offsetof(struct tunnel, timer));

    atomic_store(&u->due, true);
    pump_kick(&u->job);
}

/* ---- beginning ---- */

/* Makes a tunnel and puts it into the table. Table's lock held. */
static struct tunnel *tunnel_enter(exec_table *t, uint64_t id)
{
    struct tunnel *u = xcalloc(1, sizeof *u);

    u->refs = 1;
    u->table = exec_table_ref(t);
    u->id = id;
    u->box = t->box;
    t->ops->box_ref(u->box);
    u->fd = u->peer = -1;
    memset(u->pipe, 0xff, sizeof u->pipe);
    memset(u->closing, 0xff, sizeof u->closing);
    u->taken_known = true;
    pthread_mutex_init(&u->lock, NULL);
    u->job = (pump_job){.run = tunnel_run, .ref = job_ref, .unref = job_unref, .party = &t->party};
    pump_job_init(t->hub->pump, &u->job, hash_bytes(&t, sizeof(void *)) + id);
    u->timer.fire = tunnel_fire;
    map_put_u64(&t->tunnels, id, u);
    atomic_fetch_add(&t->ntunnels, 1);
    metric_add(&EXEC_METRICS[M_LIVE], LIVE_TUNNEL, 1);
    if (t->account)
        atomic_fetch_add(&t->account->live, 1);
    return u;
}

/* Takes an exec id. The journal has a record of ids before they are used, many at a time. Table's
 * lock held. */
static err *take_id(exec_table *t, uint64_t *ret_id)
{
    journal_rec r = {.type = JOURNAL_IDS, .exec = t->next_id};

    if (atomic_load(&t->ntunnels) >= TUNNELS_MAX)
        return err_remedy(err_new(ERR_SANDBOX_EXHAUSTED,
                                  "the sandbox has %u connections to its ports, the limit is %u",
                                  atomic_load(&t->ntunnels), TUNNELS_MAX),
                          "Wait until some have ended, then try again.");
    if (t->next_id >= t->ids_until) {
        r.ids.until = t->next_id + IDS_STEP;
        TRY(journal_append(&t->journal, &r, NULL));
        t->ids_until = r.ids.until;
    }
    *ret_id = t->next_id++;
    return NULL;
}

/* Begins a tunnel. After a failure *ret_tunnel, if it is set, must be ended by its job. Table's
 * lock held. */
static err *tunnel_begin(exec_table *t, const exec_spec *spec, int pair[2],
                         struct tunnel **ret_tunnel)
{
    uint64_t id = 0;

    TRY(table_admit(t));
    TRY(take_id(t, &id));
    struct tunnel *u = tunnel_ref(tunnel_enter(t, id));
    *ret_tunnel = u;
    err *e = t->ops->exec(t->box, id, spec, -1);
    if (e) {
        u->refused = e->errnum ? e->errnum : EIO;
        return e;
    }
    u->fd = TAKE_FD(pair[0]);
    u->peer = TAKE_FD(pair[1]);
    u->in_over = !spec->stdin_open;
    return NULL;
}

static void close_pair(int (*pair)[2])
{
    closep(&(*pair)[0]);
    closep(&(*pair)[1]);
}

err *exec_tunnel(exec_table *t, const exec_spec *spec, size_t first, exec_tunnel_done *done,
                 void *arg)
{
    CLEANUP(close_pair) int pair[2] = {-1, -1};
    CLEANUP(tunnel_unrefp) struct tunnel *u = NULL;
    err *e;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
        return err_sys(ERR_UNAVAILABLE, errno, "cannot make a connection");
    {
        LOCK_SCOPE(&t->lock);
        e = tunnel_begin(t, spec, pair, &u);
        if (u && !e) { /* its events wait for the table's lock */
            u->first = first;
            u->done = done;
            u->arg = arg;
            set_timer(u, spec->timeout_ms * NS_PER_MS);
        }
    }
    if (u)
        pump_kick(&u->job);
    return e;
}

/* ---- events ---- */

/* Ends a tunnel of an earlier process: its other end is gone. Table's lock held. */
static void end_orphan(exec_table *t, uint64_t id)
{
    struct tunnel *u = tunnel_enter(t, id);

    LOCK_SCOPE(&u->lock);
    u->answered = u->gone = u->in_over = true;
    atomic_store(&u->due, true);
    t->ops->close(u->box, id, 15);
    if (t->frames)
        tunnel_fetch(u);
    pump_kick(&u->job);
}

bool tunnels_meet(exec_table *t, const struct sp_rec *rec)
{
    struct tunnel *u = map_get_u64(&t->tunnels, rec->id);

    if (!u && (rec->id >= t->ids_until || table_past(t, rec->id)))
        return false;
    if (!u && rec->state == SP_LIVE)
        end_orphan(t, rec->id);
    else if (!u)
        t->ops->ack(t->box, rec->id, 15);
    if (!u)
        return true;
    LOCK_SCOPE(&u->lock);
    if (t->frames)
        tunnel_fetch(u);
    if (!t->frames && rec->state != SP_LIVE) { /* no event for this exit follows */
        u->exited = true;
        u->rec = *rec;
    }
    pump_kick(&u->job);
    return true;
}

static bool is_among(const struct sp_hello *h, const struct sp_rec *recs, uint64_t id)
{
    for (uint32_t i = 0; i < h->nrec; i++)
        if (recs[i].id == id)
            return true;
    return false;
}

void tunnels_miss(exec_table *t, const struct sp_hello *h, const struct sp_rec *recs)
{
    map_iter it = {0};

    while (map_next(&t->tunnels, &it)) {
        struct tunnel *u = it.entry->value;
        LOCK_SCOPE(&u->lock);
        if (!u->answered || is_among(h, recs, u->id))
            continue; /* its request is sent again and will be answered */
        u->lost = true;
        pump_kick(&u->job);
    }
}

void tunnels_lose(exec_table *t)
{
    map_iter it = {0};

    while (map_next(&t->tunnels, &it)) {
        struct tunnel *u = it.entry->value;
        LOCK_SCOPE(&u->lock);
        u->lost = true;
        pump_kick(&u->job);
    }
}

bool tunnel_started(exec_table *t, uint64_t id, int errnum, int fd[SP_FDS_MAX])
{
    CLEANUP(tunnel_unrefp) struct tunnel *u = tunnel_find(t, id);

    if (!u)
        return false;
    {
        LOCK_SCOPE(&u->lock);
        u->fetching = false;
        if (errnum && !u->answered)
            u->refused = errnum;
        else if (errnum)
            u->lost = true;
        for (int i = 0; i < 3 && !errnum && !u->answered && !t->frames; i++)
            u->pipe[i] = TAKE_FD(fd[i]);
        u->answered |= !errnum;
    }
    if (!errnum)
        close_soon(t, fd, SP_FDS_MAX);
    pump_kick(&u->job);
    return true;
}

/* Handles a frame at once, without waiting for the job: a caller waits for the first bytes. */
bool tunnel_frame(exec_table *t, uint64_t id, int stream, uint64_t offset, const void *p, size_t n)
{
    CLEANUP(tunnel_unrefp) struct tunnel *u = tunnel_find(t, id);
    bool work;

    if (!u)
        return false;
    {
        LOCK_SCOPE(&u->lock);
        if (stream == 1 || stream == 2)
            tunnel_take(u, stream, offset, p, n);
        work = !n || stream == 2 || u->full || u->stalled || u->gone;
    }
    tunnel_tell(u);
    if (work)
        pump_kick(&u->job);
    return true;
}

bool tunnel_exited(exec_table *t, const struct sp_rec *rec)
{
    CLEANUP(tunnel_unrefp) struct tunnel *u = tunnel_find(t, rec->id);

    if (!u)
        return false;
    {
        LOCK_SCOPE(&u->lock);
        if (!u->stalled && !u->fetching && rec->state != SP_LIVE && !u->exited) {
            u->exited = true;
            u->rec = *rec;
        }
    }
    pump_kick(&u->job);
    return true;
}

bool tunnel_stdin_taken(exec_table *t, uint64_t id, uint64_t offset)
{
    CLEANUP(tunnel_unrefp) struct tunnel *u = tunnel_find(t, id);

    if (!u)
        return false;
    {
        LOCK_SCOPE(&u->lock);
        if (!u->fetching)
            tunnel_taken(u, offset);
    }
    pump_kick(&u->job);
    return true;
}

/* Ends all tunnels. The pump has stopped. */
void tunnels_abandon(exec_table *t)
{
    for (;;) {
        CLEANUP(tunnel_unrefp) struct tunnel *u = NULL;
        map_iter it = {0};
        {
            LOCK_SCOPE(&t->lock);
            if (map_next(&t->tunnels, &it))
                u = tunnel_ref(it.entry->value);
        }
        if (!u)
            return;
        {
            LOCK_SCOPE(&u->lock);
            u->lost = true;
            leave_box(u);
        }
        tunnel_tell(u);
        tunnel_forget(u);
    }
}
