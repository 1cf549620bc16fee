/* A box of a link: the life of its stream, and the messages of init.
 *
 * Any thread queues under the box's lock (link_out.c). Only the loop's thread reads, dials again,
 * and delivers events. Init is not trusted: a message it should not have sent ends the box. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backend/link_internal.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "wire/spine_seal.h"

#define READ_CHUNK   (64u * 1024)
#define READ_TURN    (256u * 1024) /* per box, before the other boxes are served */
#define RETRY_MIN_MS 50
#define RETRY_MAX_MS 2000
#define STEADY_NS    (5 * NS_PER_S) /* a stream that lasted so long is dialled again at once */
/* limit of `attempts` (of the delay) after a stream that opened */
#define OPENED_TRIES 2

/* ---- life ---- */

static void derive_secret(const link_host *h, const link_container *c,
                          uint8_t ret_secret[SPL_SECRET])
{
    struct seal_piece pieces[] = {{"attach", 6}, {c->nonce, LINK_NONCE_LEN}};

    seal_hmac(h->o.key, LINK_KEY_LEN, pieces, 2, ret_secret);
}

box *link_box_new(link_host *h, const link_container *c)
{
    box *x = xcalloc(1, sizeof *x);

    x->h = h;
    atomic_fetch_add(&h->refs, 1);
    atomic_init(&x->refs, 2); /* its owner's and the list's */
    x->handle = xstrdup(c->handle);
    derive_secret(h, c, x->secret);
    link_queue_init(&x->queue);
    link_queue_init(&x->sent);
    x->down_ns = now_mono_ns();
    pthread_mutex_init(&x->lock, NULL);
    return x;
}

static void forget_stdins(box *x)
{
    map_iter it = {0};

    while (map_next(&x->stdins, &it))
        free(it.entry->value);
    map_done(&x->stdins);
    x->stdins = (map){0};
}

void link_unref(box *x)
{
    if (atomic_fetch_sub(&x->refs, 1) != 1)
        return;
    link_queue_done(&x->queue);
    link_queue_done(&x->sent);
    link_out_free(x->claim);
    forget_stdins(x);
    buf_done(&x->out);
    buf_done(&x->in);
    free(x->hello);
    free(x->handle);
    secret_wipe(x->secret, sizeof x->secret);
    pthread_mutex_destroy(&x->lock);
    link_host_unref(x->h);
    free(x);
}

static enum link_state state_of(box *x)
{
    LOCK_SCOPE(&x->lock);
    return x->state;
}

static enum link_phase phase_of(box *x)
{
    LOCK_SCOPE(&x->lock);
    return x->phase;
}

static bool is_held(box *x)
{
    LOCK_SCOPE(&x->lock);
    return x->held;
}

/* Returns the receiver of the box's events, NULL if the box has no user. */
static const box_events *events_of(box *x)
{
    return phase_of(x) == LINK_BOX && atomic_load(&x->users) ? x->ev : NULL;
}

/* Returns the sandbox id for the log, or NULL. The id is written once, before the phase. */
static const char *sandbox_of(box *x)
{
    enum link_phase phase = phase_of(x);

    return phase == LINK_CLAIMING || phase == LINK_BOX ? x->id : NULL;
}

/* Logs the end of a stream, with the engine's message if it has one. */
static void log_end(box *x, const link_stream *s, const char *why)
{
    CLEANUP(freep) char *said = s->ops->why ? s->ops->why(s->s) : NULL;

    LOG_ABOUT(sandbox_of(x), NULL, 0);
    log_debug("link", "the stream to %s ended: %s%s%s", x->handle, why, said ? ": " : "",
              str_or(said, ""));
}

/* Closes the stream and sets the state. */
static void link_box_disconnect(box *x, enum link_state state, const char *why)
{
    link_stream s;

    {
        LOCK_SCOPE(&x->lock);
        s = x->stream;
        if (s.ops)
            link_unwatch(x);
        x->stream = (link_stream){0};
        if (x->state != LINK_DOWN)
            x->down_ns = now_mono_ns();
        x->state = state;
        x->want_out = x->write_failed = x->in_turn = false;
        if (x->out.p)
            secret_wipe(x->out.p, x->out.len);
        buf_done(&x->out);
        x->out_sent = 0;
        spl_end_wipe(&x->end);
        forget_stdins(x);
    }
    x->timer_ns = 0;
    buf_done(&x->in);
    free(x->hello);
    x->hello = NULL;
    link_ooms_lost(x);
    if (!s.ops)
        return;
    log_end(x, &s, why);
    s.ops->close(s.s);
}

/* ---- the end ---- */

static err *claim_error(const box *x, err_code code, int errnum, const char *why)
{
    err *e = errnum ? err_sys(code, errnum, "cannot claim container %s", x->handle)
                    : err_new(code, "cannot claim container %s", x->handle);

    return err_because(e, "%s", why);
}

/* Fails a claim and drops its reference. Takes ownership of the error. */
static void fail_claim(box *x, err *e)
{
    create_done *done = x->done;

    x->done = NULL;
    atomic_store(&x->users, 0);
    done(x->done_arg, e, NULL, NULL);
    link_unref(x);
}

void link_box_end(box *x, err_code code, int errnum, const char *why)
{
    enum link_phase phase = phase_of(x);
    const box_events *ev = events_of(x);

    if (state_of(x) == LINK_GONE)
        return;
    link_ref(x);
    link_box_disconnect(x, LINK_GONE, why);
    link_unregister(x); /* first: the receiver may use its handle again */
    if (phase == LINK_CLAIMING)
        fail_claim(x, claim_error(x, code, errnum, why));
    else if (phase == LINK_WARM && x->wev->ended)
        x->wev->ended(x->warg, x, why);
    else if (ev)
        ev->gone(x->arg, why);
    link_unref(x);
}

void link_box_condemn(box *x, const char *why)
{
    const box_events *ev = events_of(x);

    if (state_of(x) == LINK_GONE)
        return;
    LOG_ABOUT(sandbox_of(x), NULL, 0);
    log_error("link", "container %s is not to be believed: %s", x->handle, why);
    atomic_fetch_add(&x->h->ncondemned, 1);
    if (x->h->o.condemned && !atomic_load(&x->h->closing))
        x->h->o.condemned(x->h->o.arg, x->handle, why);
    if (ev && ev->distrusted)
        ev->distrusted(x->arg);
    link_box_end(x, ERR_CREATE_FAILED, 0, why);
}

void link_box_shut(box *x)
{
    enum link_phase phase = phase_of(x);

    link_box_disconnect(x, LINK_GONE, "bothyd ends");
    if (phase == LINK_CLAIMING)
        fail_claim(x, claim_error(x, ERR_UNAVAILABLE, 0, "bothyd ends"));
}

/* ---- dialling ---- */

static void dial_now(box *x)
{
    if (x->dialling || is_held(x) || atomic_load(&x->h->closing))
        return;
    x->dialling = true;
    link_dial(x, phase_of(x) == LINK_CLAIMING);
}

/* Dials after 50 ms to 2 s, a quarter more or less, so that a thousand boxes do not return at
 * once. */
static void dial_later(box *x)
{
    uint64_t ms = (uint64_t)RETRY_MIN_MS << (x->attempts < 6 ? x->attempts : 6);
    uint16_t dice;

    if (ms > RETRY_MAX_MS)
        ms = RETRY_MAX_MS;
    random_bytes(&dice, sizeof dice);
    ms = ms * 3 / 4 + ms / 2 * dice / UINT16_MAX;
    x->attempts++;
    link_timer(x, now_mono_ns() + ms * NS_PER_MS);
}

void link_box_begin(void *arg)
{
    box *x = arg;

    x->next = x->h->boxes;
    if (x->next)
        x->next->prev = x;
    x->h->boxes = x;
    x->listed = true;
    dial_now(x);
}

static void link_box_complain(box *x, const char *why)
{
    if (x->complained)
        return;
    x->complained = true;
    LOG_ABOUT(sandbox_of(x), NULL, 0);
    log_warn("link", "container %s cannot be reached: %s", x->handle, why);
}

static void dial_failed(box *x, err *e)
{
    const char *why = e->cause ? e->cause : e->message;

    if (e->code == ERR_NOT_FOUND || e->code == ERR_SANDBOX_GONE) {
        link_box_end(x, ERR_SANDBOX_GONE, 0, why);
    } else {
        link_box_complain(x, why);
        dial_later(x);
    }
    err_free(e);
}

static void link_box_connected(box *x, const link_stream *s)
{
    uint8_t nonce[SPL_NONCE];
    bool watched;

    random_bytes(nonce, sizeof nonce);
    {
        LOCK_SCOPE(&x->lock);
        x->stream = *s;
        x->state = LINK_GREETING;
        spl_begin_link(&x->end, nonce);
        watched = link_watch(x, true, false);
    }
    x->up_ns = x->heard_ns = now_mono_ns();
    link_timer(x, x->up_ns + x->h->o.pong_ms * NS_PER_MS);
    if (!watched) {
        link_box_broken(x, "it cannot be watched");
        return;
    }
    link_box_readable(x); /* bytes that came with it may lie in a library's buffer */
}

void link_box_arrived(box *x, link_stream *s, err *e)
{
    x->dialling = false;
    if (state_of(x) == LINK_DOWN && !atomic_load(&x->h->closing)) {
        if (e)
            dial_failed(x, e);
        else
            link_box_connected(x, s);
        return;
    }
    if (!e)
        s->ops->close(s->s);
    err_free(e);
}

static void tell_lost(box *x, link_out *lost)
{
    while (lost) {
        link_out *o = lost;
        const box_events *ev = events_of(x);
        lost = o->next;
        if (ev)
            ev->signalled(x->arg, o->id, o->cookie, ECONNRESET);
        link_out_free(o);
    }
}

/* Handles a broken stream. The next dial shows whether init still lives. */
void link_box_broken(box *x, const char *why)
{
    bool opened = state_of(x) == LINK_OPEN;
    bool was_ready = opened && phase_of(x) == LINK_WARM;
    bool steady = opened && now_mono_ns() - x->up_ns >= STEADY_NS;
    link_out *lost;

    if (state_of(x) == LINK_GONE)
        return;
    atomic_fetch_add(&x->h->nlost, 1);
    link_box_disconnect(x, LINK_DOWN, why);
    {
        LOCK_SCOPE(&x->lock);
        lost = link_take_back(x);
    }
    tell_lost(x, lost);
    if (opened && x->attempts > OPENED_TRIES)
        x->attempts = OPENED_TRIES;
    if (steady)
        x->attempts = 0;
    if (steady)
        dial_now(x);
    else
        dial_later(x);
    if (was_ready && x->wev->lost && phase_of(x) == LINK_WARM)
        x->wev->lost(x->warg, x);
}

/* ---- time ---- */

static void link_box_beat(box *x, uint64_t now)
{
    uint64_t ping_at = x->heard_ns + x->h->o.ping_ms * NS_PER_MS;

    if (is_held(x)) {
        x->ping_ns = 0;
        x->heard_ns = now; /* a held box cannot answer */
        link_timer(x, now + x->h->o.ping_ms * NS_PER_MS);
        return;
    }
    if (x->ping_ns && x->heard_ns > x->ping_ns)
        x->ping_ns = 0;
    if (x->ping_ns && now - x->ping_ns >= x->h->o.pong_ms * NS_PER_MS) {
        atomic_fetch_add(&x->h->nsilent, 1);
        link_box_broken(x, "init does not answer");
        return;
    }
    if (!x->ping_ns && now >= ping_at) {
        x->ping_ns = now;
        LOCK_SCOPE(&x->lock);
        link_send_ping(x);
        link_flush(x);
    }
    link_timer(x, x->ping_ns ? x->ping_ns + x->h->o.pong_ms * NS_PER_MS : ping_at);
}

static void greet_timer(box *x, uint64_t now)
{
    uint64_t late = x->up_ns + x->h->o.pong_ms * NS_PER_MS;

    if (is_held(x))
        x->up_ns = now;
    else if (now >= late)
        link_box_broken(x, "init does not greet");
    if (state_of(x) == LINK_GREETING)
        link_timer(x, x->up_ns + x->h->o.pong_ms * NS_PER_MS);
}

void link_box_timer(box *x, uint64_t now)
{
    enum link_state state = state_of(x);

    if (x->claim_timer_ns && x->claim_timer_ns <= now) {
        x->claim_timer_ns = 0;
        if (phase_of(x) == LINK_CLAIMING) {
            link_box_end(x, ERR_TIMEOUT, 0, "it did not answer in time");
            return;
        }
    }
    if (!x->timer_ns || x->timer_ns > now)
        return;
    x->timer_ns = 0;
    if (state == LINK_DOWN)
        dial_now(x);
    else if (state == LINK_GREETING)
        greet_timer(x, now);
    else if (state != LINK_GONE)
        link_box_beat(x, now);
}

static void link_box_look(void *arg)
{
    box *x = arg;
    bool failed, claiming;
    uint64_t due;

    {
        LOCK_SCOPE(&x->lock);
        failed = x->write_failed;
        claiming = x->phase == LINK_CLAIMING && x->done;
        due = x->claim_due_ns;
    }
    if (state_of(x) == LINK_GONE) {
        if (claiming)
            fail_claim(x, claim_error(x, ERR_SANDBOX_GONE, 0, "it has ended"));
    } else {
        if (claiming && !atomic_load(&x->h->closing))
            link_claim_timer(x, due);
        if (failed)
            link_box_broken(x, "it cannot be written to");
        else if (state_of(x) == LINK_DOWN && !x->timer_ns)
            dial_now(x); /* it was held before */
        x->ping_ns = 0;
        x->heard_ns = now_mono_ns();
    }
    link_unref(x);
}

void link_box_look_soon(box *x)
{
    link_ref(x);
    link_post(x->h, link_box_look, x);
}

void link_hold(box *x, bool held)
{
    {
        LOCK_SCOPE(&x->lock);
        if (x->held == held)
            return;
        x->held = held;
        link_flush(x);
    }
    link_box_look_soon(x);
}

/* ---- messages of init ---- */

/* Tracks the stdin of an exec that was requested; init cannot add any by itself. A new exec has
 * taken nothing yet; for a fetched one TAKEN brings the offset. */
static void open_stdin(box *x, const struct sp_started *st)
{
    bool begins = st->h.type == SP_STARTED;

    LOCK_SCOPE(&x->lock);
    if (st->h.err || st->flags & SP_F_NOSTDIN)
        return;
    link_stdin *in = map_get_u64(&x->stdins, st->h.id);
    if (!in) {
        in = xcalloc(1, sizeof *in);
        map_put_u64(&x->stdins, st->h.id, in);
    }
    *in = (link_stdin){.limit = begins ? SPL_STDIN_CREDIT : 0, .told = begins};
}

static const char *on_started(box *x, const struct sp_started *st)
{
    uint32_t asked = st->h.type == SP_STARTED ? SP_SPAWN : SP_FETCH;
    CLEANUP(link_out_freep) link_out *o = link_take_asked(x, asked, st->h.id);
    int fd[SP_FDS_MAX] = {-1, -1, -1, -1};
    const box_events *ev = events_of(x);

    if (!o)
        return "init answers what was not asked";
    open_stdin(x, st);
    if (ev)
        ev->started(x->arg, st->h.id, st->h.err, st, fd);
    return NULL;
}

static const char *on_done(box *x, const struct sp_hdr *h)
{
    CLEANUP(link_out_freep) link_out *o = link_take_asked(x, SP_SIGNAL, h->id);
    const box_events *ev = events_of(x);

    if (!o)
        return "init answers what was not asked";
    if (ev)
        ev->signalled(x->arg, o->id, o->cookie, h->err);
    return NULL;
}

static void on_taken(box *x, const struct sps_data *d)
{
    const box_events *ev = events_of(x);

    {
        LOCK_SCOPE(&x->lock);
        link_stdin *in = map_get_u64(&x->stdins, d->h.id);
        if (in && !in->told)
            in->next = d->offset;
        if (in && d->offset <= UINT64_MAX - d->b && in->limit < d->offset + d->b)
            in->limit = d->offset + d->b;
        if (in)
            in->told = true;
    }
    if (ev)
        ev->stdin_taken(x->arg, d->h.id, d->offset);
}

static const char *on_pong(box *x, const struct sps_data *d)
{
    CLEANUP(link_out_freep) link_out *o = link_take_asked(x, SPS_PING, 0);

    link_ooms_told(x, d->a);
    return o ? NULL : "init answers what was not asked";
}

/* Handles exits, output and stdin offsets of an exec. */
static void on_flow(box *x, const sps_message *m)
{
    const struct sps_data *d = m->record;
    const box_events *ev = events_of(x);

    if (link_is_fetching(x, d->h.id))
        return;
    if (m->type == SPS_TAKEN)
        on_taken(x, d);
    else if (ev && m->type == SP_EXIT)
        ev->exited(x->arg, &((const struct sp_exit *)m->record)->r);
    else if (ev)
        ev->frame(x->arg, d->h.id, (int)d->a, d->offset, m->extra, m->nextra);
}

/* Handles a message of an open box. Returns NULL, or what is wrong. */
static const char *on_open(box *x, const sps_message *m)
{
    switch (m->type) {
    case SP_STARTED:
    case SP_FDS:
        return on_started(x, m->record);
    case SP_DONE:
        return on_done(x, m->record);
    case SPS_PONG:
        return on_pong(x, m->record);
    case SP_EXIT:
    case SPS_STDIO:
    case SPS_TAKEN:
        on_flow(x, m);
        return NULL;
    default:
        return "init's message has no meaning here";
    }
}

/* Returns false if the stream has ended. */
static bool on_message(box *x, const sps_message *m)
{
    enum link_state state = state_of(x);
    const char *why = NULL;

    if (m->type == SPS_GREETING)
        return link_on_greeting(x, m->record);
    if (m->type == SPS_REFUSED)
        return link_on_refused(x, m->record);
    if (state == LINK_GREETING && spine_hello_is_newer(m->record, m->size))
        return link_on_newer(x);
    why = sps_check(m, SPS_ANSWERS);
    if (!why && state == LINK_GREETING && m->type == SP_HELLO)
        return link_on_hello(x, m);
    if (!why && state == LINK_CLAIM_SENT && m->type == SP_DONE)
        return link_on_claimed(x, m->record);
    if (!why && m->type == SPS_PONG)
        why = on_pong(x, m->record);
    else if (!why && state == LINK_OPEN && phase_of(x) == LINK_BOX)
        why = on_open(x, m);
    else if (!why)
        why = "init's message has no meaning here";
    if (why)
        link_box_condemn(x, why);
    return !why;
}

/* ---- reading ---- */

/* As spl_next(), for the bytes from `at` on. */
static long next_message(box *x, size_t at, sps_message *ret_message, const char **ret_why)
{
    LOCK_SCOPE(&x->lock);
    return spl_next(&x->end, x->in.p + at, x->in.len - at, ret_message, ret_why);
}

/* Returns false if the stream has ended. */
static bool take_messages(box *x)
{
    size_t at = 0;

    for (;;) {
        sps_message m;
        const char *why;
        long n = next_message(x, at, &m, &why);
        if (n < 0) {
            atomic_fetch_add(&x->h->nforged, 1);
            link_box_complain(x, why);
            link_box_broken(x, why);
            return false;
        }
        if (!n)
            break;
        at += (size_t)n;
        x->heard_ns = now_mono_ns();
        if (!on_message(x, &m))
            return false;
    }
    buf_consume(&x->in, at);
    if (!x->in.len)
        buf_done(&x->in); /* a thousand silent boxes hold no buffer */
    return true;
}

static ssize_t read_some(box *x)
{
    buf_reserve(&x->in, READ_CHUNK);
    LOCK_SCOPE(&x->lock);
    if (!x->stream.ops) {
        errno = EAGAIN;
        return -1;
    }
    x->in_turn = true;
    return x->stream.ops->read(x->stream.s, x->in.p + x->in.len, READ_CHUNK);
}

/* Sends together all that the events have queued. */
static void end_turn(box *x)
{
    LOCK_SCOPE(&x->lock);
    x->in_turn = false;
    link_flush(x);
}

static void read_again(void *arg)
{
    link_box_readable(arg);
    link_unref(arg);
}

void link_box_readable(box *x)
{
    size_t turn = 0;

    while (turn < READ_TURN) {
        ssize_t n = read_some(x);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            end_turn(x);
            return;
        }
        if (n <= 0) {
            link_box_broken(x, n ? strerrordesc_np(errno) : "it was closed");
            return;
        }
        x->in.len += (size_t)n;
        turn += (size_t)n;
        if (!take_messages(x))
            return;
        end_turn(x);
    }
    link_ref(x); /* more may lie in a library's buffer, for which epoll reports nothing */
    link_post(x->h, read_again, x);
}

void link_box_writable(box *x)
{
    LOCK_SCOPE(&x->lock);
    link_flush(x);
}
