/* A box: the connection to one init.
 *
 * Any thread queues records under the box's lock; they leave in order, at most SP_UNANSWERED of
 * them unanswered. Only the loop's thread reads, and only it delivers events. A connection that
 * breaks while init lives is replaced through ATTACH: after HELLO, unanswered records are sent
 * again (SPAWN and FETCH are idempotent on their id; a signal other than SIGKILL is not, and is
 * reported lost).
 *
 * Init is not trusted: a record or a descriptor it should not have sent ends the box. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/oci.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define QUEUE_MAX      4096
#define RECORDS_A_TURN 64 /* per box, before the other boxes are served */
#define RETRY_MIN_MS   20
#define RETRY_MAX_MS   2000
#define ATTACH_MS      30000
#define GREET_MS       30000 /* of a create: HELLO and the answer to CLAIM */
#define OUT_FDS_MAX    3
#define RX_MAX         SP_HELLO_MAX

struct oci_out {
    oci_out *next;
    uint32_t type;
    uint64_t id, cookie;
    uint32_t signo;
    buf record;
    int fds[OUT_FDS_MAX];
    size_t nfds;
};

/* ---- records to send ---- */

static int seal_payload(const buf *p)
{
    int fd = memfd_create("spine", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    int e = fs_write_all(fd, p->p, p->len);
    if (!e && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        e = -errno;
    if (e) {
        close(fd);
        return e;
    }
    return fd;
}

err *oci_out_new(spine_out *record, const int *fds, size_t nfds, oci_out **ret_out)
{
    oci_out *o = xcalloc(1, sizeof *o);
    const struct sp_hdr *h = (const struct sp_hdr *)record->record.p;
    int mem = 0;

    o->type = h->type;
    o->id = h->id;
    if (record->payload.len) {
        mem = seal_payload(&record->payload);
        if (mem >= 0)
            o->fds[o->nfds++] = mem;
    }
    for (size_t i = 0; i < nfds; i++)
        o->fds[o->nfds++] = fds[i];
    o->record = record->record;
    record->record = (buf){0};
    if (mem < 0) {
        oci_out_free(o);
        return err_sys(ERR_INTERNAL, -mem, "cannot make a memory file for the arguments");
    }
    *ret_out = o;
    return NULL;
}

oci_out *oci_out_op(const struct sp_op *op, uint64_t cookie)
{
    oci_out *o = xcalloc(1, sizeof *o);

    o->type = op->h.type;
    o->id = op->h.id;
    o->signo = op->signo;
    o->cookie = cookie;
    buf_append(&o->record, op, sizeof *op);
    return o;
}

void oci_out_free(oci_out *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->nfds; i++)
        close(o->fds[i]);
    if (o->record.p)
        secret_wipe(o->record.p, o->record.len); /* CLAIM contains secrets, SPAWN may */
    buf_done(&o->record);
    free(o);
}

static bool is_answered(const oci_out *o)
{
    return o->type != SP_CLOSE && o->type != SP_ACK;
}

static int out_send(int fd, const oci_out *o)
{
    struct iovec v = {o->record.p, o->record.len};
    return sock_send(fd, &v, 1, o->fds, o->nfds, MSG_DONTWAIT);
}

/* ---- life ---- */

box *oci_box_new(oci *b, const char *id, const box_events *ev, void *arg)
{
    box *x = xcalloc(1, sizeof *x);

    x->b = b;
    memcpy(x->id, id, sizeof x->id - 1);
    x->ev = ev;
    x->arg = arg;
    x->fd = -1;
    x->queue_end = &x->queue;
    x->sent_end = &x->sent;
    x->begun_ns = now_mono_ns();
    atomic_init(&x->refs, 2); /* the users' and the loop's */
    atomic_init(&x->users, 1);
    pthread_mutex_init(&x->lock, NULL);
    return x;
}

void oci_box_ref(box *x)
{
    atomic_fetch_add(&x->refs, 1);
}

static void free_list(oci_out *o)
{
    while (o) {
        oci_out *next = o->next;
        oci_out_free(o);
        o = next;
    }
}

void oci_box_unref(box *x)
{
    if (atomic_fetch_sub(&x->refs, 1) != 1)
        return;
    closep(&x->fd);
    free_list(x->queue);
    free_list(x->sent);
    oci_out_free(x->claim);
    free(x->hello);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

/* Closes the connection and sets the state. Loop's thread. */
static void oci_box_disconnect(box *x, enum box_state state)
{
    LOCK_SCOPE(&x->lock);
    if (x->fd >= 0) {
        oci_loop_unwatch(x->b->loop, x);
        shutdown(x->fd, SHUT_RDWR); /* init notices at once */
        oci_discard(x, &x->fd, 1);
        x->fd = -1;
    }
    x->want_out = false;
    x->state = state;
    x->timer_ns = 0; /* this connection's: it must not cause a second ATTACH */
}

void oci_box_shut(box *x)
{
    oci_box_disconnect(x, BOX_GONE);
}

static enum box_state state_of(box *x)
{
    LOCK_SCOPE(&x->lock);
    return x->state;
}

static bool oci_box_wanted(box *x)
{
    return atomic_load(&x->users) > 0;
}

/* Reports a failed create and drops the box. Does not destroy the slot. Takes ownership of the
 * error. */
void oci_box_failed(box *x, err *why)
{
    create_done *done = x->done;

    oci_box_disconnect(x, BOX_GONE);
    x->done = NULL;
    atomic_store(&x->users, 0);
    done(x->done_arg, why, NULL, NULL);
    oci_loop_remove(x->b->loop, x);
    oci_box_unref(x); /* there will be no user */
}

static void destroy_ignored(void *arg, warden_answer *a)
{
    (void)arg;
    (void)a;
}

static void destroy_slot(box *x)
{
    struct wp_id id = {0};

    if (x->b->closing)
        return; /* the next daemon finds it unclaimed */
    memcpy(id.id, x->id, SANDBOX_ID_LEN);
    oci_warden_send(x->b->warden,
                    &(warden_ask){.type = WP_DESTROY, .body = {{&id, sizeof id}}, .fd = -1},
                    destroy_ignored, NULL);
}

/* Ends the box: sends its last event, or fails its create. */
static void oci_box_end(box *x, const char *why)
{
    if (state_of(x) == BOX_GONE)
        return;
    if (x->done) {
        destroy_slot(x);
        oci_box_failed(x, err_because(err_new(ERR_CREATE_FAILED, "the sandbox died while it was "
                                                                 "being made"),
                                      "%s", why));
        return;
    }
    oci_box_disconnect(x, BOX_GONE);
    if (oci_box_wanted(x))
        x->ev->gone(x->arg, why);
    oci_loop_remove(x->b->loop, x);
}

/* ---- sending ---- */

static oci_out *queue_pop(box *x)
{
    oci_out *o = x->queue;

    x->queue = o->next;
    if (!x->queue)
        x->queue_end = &x->queue;
    x->nqueue--;
    o->next = NULL;
    return o;
}

static void sent_append(box *x, oci_out *o)
{
    *x->sent_end = o;
    x->sent_end = &o->next;
    x->nsent++;
}

static void try_later(void *arg)
{
    box *x = arg;

    if (state_of(x) == BOX_OPEN)
        oci_loop_timer(x->b->loop, x, RETRY_MIN_MS);
    oci_box_unref(x);
}

/* Sends queued records until the socket is full. A dead peer is noticed by the reader; until then
 * sending is retried. Lock held. */
static void oci_box_flush(box *x)
{
    bool full = false;

    while (x->state == BOX_OPEN && !x->held && x->queue) {
        if (is_answered(x->queue) && x->nsent >= SP_UNANSWERED)
            break;
        int e = out_send(x->fd, x->queue);
        full = e == -EAGAIN;
        if (e && !full) { /* no memory or too many fds in flight: epoll is no help */
            oci_box_ref(x);
            oci_loop_post(x->b->loop, try_later, x);
        }
        if (e)
            break;
        oci_out *o = queue_pop(x);
        if (is_answered(o))
            sent_append(x, o);
        else
            oci_out_free(o);
    }
    if (full != x->want_out && x->state == BOX_OPEN)
        oci_loop_watch(x->b->loop, x, false, full);
    x->want_out = full;
}

err *oci_box_push(box *x, oci_out *o)
{
    LOCK_SCOPE(&x->lock);
    if (x->state == BOX_GONE) {
        oci_out_free(o);
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", x->id), "sandbox");
    }
    if (x->newer && is_answered(o)) {
        oci_out_free(o);
        return err_remedy(
            err_new(ERR_UNAVAILABLE, "sandbox %s is of a newer release than this bothyd", x->id),
            "Run the newer bothyd again; the sandbox lives on.");
    }
    if (x->nqueue >= QUEUE_MAX && is_answered(o)) {
        oci_out_free(o);
        return err_new(ERR_SANDBOX_EXHAUSTED, "%d requests wait for sandbox %s", QUEUE_MAX, x->id);
    }
    *x->queue_end = o;
    x->queue_end = &o->next;
    x->nqueue++;
    oci_box_flush(x);
    return NULL;
}

void oci_box_hold(box *x, bool held)
{
    LOCK_SCOPE(&x->lock);
    x->held = held;
    oci_box_flush(x);
}

void oci_box_writable(box *x)
{
    LOCK_SCOPE(&x->lock);
    oci_box_flush(x);
}

/* ---- connecting ---- */

typedef struct arrival { /* a new connection on its way from the warden's thread to the loop */
    box *x;
    int fd;
    int errnum;
    bool local;
    char text[WP_ERROR_TEXT + 1];
} arrival;

static bool means_dead(const arrival *a)
{
    return !a->local && (a->errnum == ESRCH || a->errnum == ENOENT || a->errnum == ECONNREFUSED);
}

static void retry_later(box *x)
{
    unsigned shift = x->attempts < 7 ? x->attempts : 7;
    uint64_t ms = (uint64_t)RETRY_MIN_MS << shift;

    x->attempts++;
    oci_loop_timer(x->b->loop, x, ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS);
}

static void attach_arrived(void *arg)
{
    arrival *a = arg;
    box *x = a->x;

    if (state_of(x) == BOX_GONE || a->errnum == ECANCELED)
        oci_discard(x, &a->fd, 1);
    else if (!a->errnum)
        oci_box_connected(x, a->fd, NULL, 0);
    else if (means_dead(a))
        oci_box_end(x, *a->text ? a->text : "pid 1 has ended");
    else
        retry_later(x);
    oci_box_unref(x); // NOLINT(clang-analyzer-unix.Malloc): the request's own reference
    free(a);
}

static void attach_answered(void *arg, warden_answer *w)
{
    arrival *a = xcalloc(1, sizeof *a);

    a->x = arg;
    a->errnum = !w->errnum && w->fd < 0 ? EPROTO : w->errnum;
    a->local = w->local;
    a->fd = TAKE_FD(w->fd);
    strncpy(a->text, w->text, sizeof a->text - 1);
    oci_loop_post(a->x->b->loop, attach_arrived, a);
}

void oci_box_attach(box *x)
{
    struct wp_id id = {0};

    if (x->b->closing)
        return;
    memcpy(id.id, x->id, SANDBOX_ID_LEN);
    oci_box_ref(x);
    oci_warden_send(
        x->b->warden,
        &(warden_ask){
            .type = WP_ATTACH, .body = {{&id, sizeof id}}, .fd = -1, .timeout_ms = ATTACH_MS},
        attach_answered, x);
}

void oci_box_timer(box *x)
{
    enum box_state state = state_of(x);

    if (state == BOX_CONNECTING)
        oci_box_attach(x);
    else if (state == BOX_GREETING && x->done)
        oci_box_end(x, "pid 1 did not answer in time");
    else
        oci_box_writable(x);
}

/* Puts unanswered records back at the front of the queue. Returns the signals that must not be sent
 * twice, to be reported as lost. Lock held. */
static oci_out *take_back(box *x)
{
    oci_out *again = NULL, **again_end = &again, *lost = NULL, **lost_end = &lost;

    for (oci_out *o = x->sent, *next; o; o = next) {
        bool repeat = o->type != SP_SIGNAL || o->signo == SIGKILL || !o->signo;
        next = o->next;
        o->next = NULL;
        oci_out ***at = repeat ? &again_end : &lost_end;
        **at = o;
        *at = &o->next;
        x->nqueue += repeat;
    }
    if (again) {
        *again_end = x->queue;
        if (!x->queue)
            x->queue_end = again_end;
        x->queue = again;
    }
    x->sent = NULL;
    x->sent_end = &x->sent;
    x->nsent = 0;
    return lost;
}

static void oci_box_violated(box *x, const char *why)
{
    LOG_ABOUT(x->id, NULL, 0);
    log_error("spine", "sandbox %s: %s", x->id, why);
    if (!x->done) {      /* otherwise oci_box_end() destroys it */
        destroy_slot(x); /* whatever speaks there now is not bothy's init */
        if (oci_box_wanted(x) && x->ev->distrusted)
            x->ev->distrusted(x->arg);
    }
    oci_box_end(x, why);
}

/* Handles a broken connection. The warden knows whether init is still alive. */
static void oci_box_broken(box *x)
{
    oci_box_disconnect(x, BOX_CONNECTING);
    pthread_mutex_lock(&x->lock);
    oci_out *lost = take_back(x);
    pthread_mutex_unlock(&x->lock);
    x->claim_sent = false;
    free(x->hello);
    x->hello = NULL;
    for (oci_out *o = lost, *next; o; o = next) {
        next = o->next;
        if (oci_box_wanted(x))
            x->ev->signalled(x->arg, o->id, o->cookie, ECONNRESET);
        oci_out_free(o);
    }
    if (atomic_load(&x->discards) >= OCI_DISCARDS_MAX)
        oci_box_violated(x, "what init sent cannot be closed");
    else if (x->attempts)
        retry_later(x);
    else
        oci_box_attach(x);
    x->attempts += !x->attempts;
}

/* Sets `newer`; returns the previous value. */
static bool set_newer(box *x, bool newer)
{
    LOCK_SCOPE(&x->lock);
    bool was = x->newer;

    x->newer = newer;
    return was;
}

/* After a downgrade, bothyd may find boxes of a newer release: it must not end them. */
static void too_new(box *x)
{
    bool told = set_newer(x, true);

    if (!told) {
        LOG_ABOUT(x->id, NULL, 0);
        log_error("spine",
                  "sandbox %s: init speaks a newer version of the spine than this bothyd (%u to "
                  "%u): it lives on, out of reach; run the newer bothyd again",
                  x->id, SP_VERSION_MIN, SP_VERSION);
    }
    if (!told && oci_box_wanted(x) && x->ev->newer)
        x->ev->newer(x->arg);
    x->attempts += !x->attempts; /* an immediate retry would get the same greeting */
    oci_box_broken(x);
}

/* ---- HELLO and CLAIM ---- */

/* Combines the walls that init reports with those the warden checked after the claim. */
static void note_walls(box *x, const struct sp_hello *h)
{
    box_walls *w = &x->timing.walls;
    uint32_t by_warden = w->claim;

    *w = box_walls_of(h); /* init already greets as claimed after an earlier create of this id */
    w->claim |= by_warden | (SP_HELD(x->walls) & WALLS_ALL);
    if (w->claim)
        w->claim_ns = now_real_ns();
}

/* The box is reachable: notifies the creator first, then the receiver of events. Records that they
 * queue are sent after the unanswered ones. */
static void oci_box_opened(box *x)
{
    CLEANUP(freep) struct sp_hello *h = TAKE_PTR(x->hello);
    create_done *done = x->done;

    set_newer(x, false);
    oci_out_free(x->claim);
    x->claim = NULL;
    x->done = NULL;
    if (done) {
        x->timing.claim_ns = now_mono_ns() - x->begun_ns;
        x->timing.klass = BOX_SLOT;
        note_walls(x, h);
        done(x->done_arg, NULL, x, &x->timing);
    }
    if (oci_box_wanted(x))
        x->ev->attached(x->arg, h, spine_hello_recs(h));
    LOCK_SCOPE(&x->lock);
    if (x->state != BOX_GREETING)
        return;
    x->state = BOX_OPEN;
    oci_box_flush(x);
}

void oci_box_claim(box *x, int fd, const void *hello, size_t n)
{
    const struct sp_hello *h = hello;

    if (n >= sizeof *h && !(h->flags & SP_HELLO_CLAIMED))
        x->claim_sent = !out_send(fd, x->claim);
}

static void oci_box_greeted(box *x, const void *hello, size_t n)
{
    x->hello = xmalloc(n);
    memcpy(x->hello, hello, n);
    log_debug("hello", "sandbox %s: instance %016lx", x->id, x->hello->instance);
    if (x->hello->flags & SP_HELLO_CLAIMED || !x->claim) {
        oci_box_opened(x);
        return;
    }
    /* The first record on a new connection always fits its buffer; otherwise reconnect. */
    if (!x->claim_sent && out_send(x->fd, x->claim)) {
        oci_box_broken(x);
        return;
    }
    x->claim_sent = true;
}

/* Reports failed walls to the warden, which counts them and destroys the slot. For a warden without
 * that capability, only destroys the slot. */
static void tell_walls(box *x, uint32_t failed)
{
    struct wp_walls f = {.failed = failed};

    memcpy(f.sandbox.id, x->id, SANDBOX_ID_LEN);
    if (oci_warden_caps(x->b->warden) & WP_CAP_WALLS)
        oci_warden_send(x->b->warden,
                        &(warden_ask){.type = WP_WALLS, .body = {{&f, sizeof f}}, .fd = -1},
                        destroy_ignored, NULL);
    else
        destroy_slot(x);
}

static err *walls_error(uint32_t failed)
{
    CLEANUP(buf_done) buf names = {0};

    for (unsigned i = 0; i < WALL_COUNT; i++)
        if (failed & 1u << i)
            buf_printf(&names, "%s'%s': %s", names.len ? "; " : "", wall_info(i)->name,
                       wall_info(i)->what);
    return err_because(err_new(ERR_WALL_FAILED, "cannot make the sandbox"),
                       "a wall failed after the claim, tried from inside: %s",
                       names.len ? buf_cstr(&names) : "one that this bothyd does not know");
}

static void wall_failed(box *x, uint32_t failed)
{
    failed &= WALLS_ALL;
    if (failed)
        tell_walls(x, failed);
    else
        destroy_slot(x); /* walls of a newer init that this release does not know */
    oci_box_failed(x, walls_error(failed));
}

static void claim_answered(box *x, int errnum, uint64_t walls)
{
    x->claim_sent = false;
    x->walls = walls;
    if (!errnum || errnum == EALREADY) {
        oci_box_opened(x);
        return;
    }
    if (errnum == SP_EWALL && x->done) {
        wall_failed(x, SP_TRIED(walls) & ~SP_HELD(walls));
        return;
    }
    char why[96];
    snprintf(why, sizeof why, "init refused the claim: %s",
             str_or(strerrordesc_np(errnum), "an unknown error"));
    oci_box_end(x, why);
}

void oci_box_connected(box *x, int fd, const void *hello, size_t n)
{
    int flags = fcntl(fd, F_GETFL);

    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    pthread_mutex_lock(&x->lock);
    x->fd = fd;
    x->state = BOX_GREETING;
    oci_loop_watch(x->b->loop, x, true, false);
    pthread_mutex_unlock(&x->lock);
    if (x->done) /* a create has a time limit; attaching to a paused box may take longer */
        oci_loop_timer(x->b->loop, x, GREET_MS);
    if (!hello)
        return;
    const char *why = spine_check_answer(hello, n, 0);
    if (why || ((const struct sp_hdr *)hello)->type != SP_HELLO)
        oci_box_violated(x, str_or(why, "init did not greet"));
    else
        oci_box_greeted(x, hello, n);
}

/* ---- receiving ---- */

/* Returns the request that this answers, or NULL if init was not asked. Answers come in order. */
static oci_out *take_answered(box *x, uint32_t type, uint64_t id)
{
    LOCK_SCOPE(&x->lock);
    oci_out *o = x->sent;
    if (!o || o->type != type || o->id != id)
        return NULL;
    x->sent = o->next;
    if (!x->sent)
        x->sent_end = &x->sent;
    x->nsent--;
    oci_box_flush(x);
    return o;
}

static const char *got_started(box *x, const struct sp_started *st, const int *fds)
{
    uint32_t asked = st->h.type == SP_STARTED ? SP_SPAWN : SP_FETCH;
    oci_out *o = take_answered(x, asked, st->h.id);
    int fd[SP_FDS_MAX] = {-1, -1, -1, -1};
    const char *why = o ? NULL : "init answers what was not asked";

    for (size_t i = 0, next = 0; i < SP_FDS_MAX; i++)
        if (st->fds & (1u << i))
            fd[i] = fds[next++];
    if (!why)
        why = oci_check_fds(st->flags, fd);
    oci_out_free(o);
    if (!why && oci_box_wanted(x)) {
        x->ev->started(x->arg, st->h.id, st->h.err, st, fd);
        return NULL;
    }
    oci_discard(x, fd, SP_FDS_MAX);
    return why;
}

static const char *got_done(box *x, const struct sp_hdr *h)
{
    if (x->claim_sent) { /* CLAIM is sent first and alone */
        claim_answered(x, h->err, h->id);
        return NULL;
    }
    oci_out *o = take_answered(x, SP_SIGNAL, h->id);
    if (!o)
        return "init answers what was not asked";
    if (oci_box_wanted(x))
        x->ev->signalled(x->arg, o->id, o->cookie, h->err);
    oci_out_free(o);
    return NULL;
}

/* Checks the order while greeting: HELLO first, then CLAIM's answer, with exits between. Returns
 * NULL, or what is wrong. Consumes nothing. */
static const char *out_of_turn(box *x, const struct sp_hdr *h)
{
    if (state_of(x) != BOX_GREETING)
        return h->type == SP_HELLO ? "init greets twice" : NULL;
    if (!x->claim_sent)
        return h->type == SP_HELLO ? NULL : "init did not greet";
    return h->type == SP_DONE || h->type == SP_EXIT ? NULL : "init answers what was not asked";
}

static const char *got_record(box *x, const void *p, size_t n, const int *fds)
{
    const struct sp_hdr *h = p;

    if (h->type == SP_HELLO) {
        oci_box_greeted(x, p, n);
        return NULL;
    }
    x->attempts = 0; /* the connection works */
    switch (h->type) {
    case SP_STARTED:
    case SP_FDS:
        return got_started(x, p, fds);
    case SP_EXIT:
        if (oci_box_wanted(x))
            x->ev->exited(x->arg, &((const struct sp_exit *)p)->r);
        return NULL;
    case SP_DONE:
        return got_done(x, h);
    default:
        return "init's record has no meaning here";
    }
}

void oci_box_readable(box *x)
{
    static char rx[RX_MAX] __attribute__((aligned(8))); /* the loop's thread only */

    for (int i = 0; i < RECORDS_A_TURN && x->fd >= 0; i++) {
        int fds[SOCK_FDS_MAX];
        size_t nfds;
        ssize_t n = sock_recv_all(x->fd, rx, sizeof rx, fds, &nfds, MSG_DONTWAIT);
        if (n <= 0 && nfds)
            oci_discard(x, fds, nfds);
        if (n == -EAGAIN)
            return;
        if (n == -ECONNRESET) /* reported once, before data that is still queued */
            continue;
        if (n == -EMSGSIZE) {
            oci_box_violated(x, "init's record is too long");
            return;
        }
        if (n == -EMFILE) { /* not init's fault: it keeps the descriptors and sends them again */
            log_warn("descriptors", "sandbox %s: none free for what init sends", x->id);
            x->attempts += !x->attempts; /* retry with a delay */
        }
        if (n <= 0) {
            oci_box_broken(x);
            return;
        }
        if (!x->done && !nfds && state_of(x) == BOX_GREETING &&
            spine_hello_is_newer(rx, (size_t)n)) {
            too_new(x);
            return;
        }
        const char *why = spine_check_answer(rx, (size_t)n, nfds);
        if (!why)
            why = out_of_turn(x, (const struct sp_hdr *)rx);
        if (why) /* the refused record's descriptors must be closed, too */
            for (size_t k = 0; k < nfds; k++)
                close(fds[k]);
        else
            why = got_record(x, rx, (size_t)n, fds);
        if (why) {
            oci_box_violated(x, why);
            return;
        }
    }
}
