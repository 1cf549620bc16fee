/* Messages to init: one ordered queue per box, sealed when the stream takes them. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "backend/link_internal.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "base/thread.h"

#define QUEUE_MAX   4096
#define BATCH       (64u * 1024) /* sealed at a time; the rest stays in the queue */
#define UNHEARD_MAX 64           /* sent messages that get no answer: more of them cause a PING */

/* ---- queues ---- */

void link_queue_init(link_queue *q)
{
    *q = (link_queue){.end = &q->first};
}

void link_queue_push(link_queue *q, link_out *o)
{
    o->next = NULL;
    *q->end = o;
    q->end = &o->next;
    q->n++;
}

link_out *link_queue_pop(link_queue *q)
{
    link_out *o = q->first;

    if (!o)
        return NULL;
    q->first = o->next;
    if (!q->first)
        q->end = &q->first;
    q->n--;
    o->next = NULL;
    return o;
}

void link_queue_done(link_queue *q)
{
    link_out *o;

    while ((o = link_queue_pop(q)))
        link_out_free(o);
}

/* Appends everything of `from` to `to`. */
static void queue_move(link_queue *to, link_queue *from)
{
    link_out *o;

    while ((o = link_queue_pop(from)))
        link_queue_push(to, o);
}

link_out *link_out_new(uint32_t type, uint64_t id, const void *record, size_t n)
{
    link_out *o = xcalloc(1, sizeof *o);

    o->type = type;
    o->id = id;
    buf_append(&o->record, record, n);
    return o;
}

link_out *link_out_spine(spine_out *record)
{
    link_out *o = xcalloc(1, sizeof *o);
    const struct sp_hdr *h = (const struct sp_hdr *)record->record.p;

    o->type = h->type;
    o->id = h->id;
    o->record = record->record;
    o->extra = record->payload;
    *record = (spine_out){0};
    return o;
}

void link_out_free(link_out *o)
{
    if (!o)
        return;
    if (o->record.p)
        secret_wipe(o->record.p, o->record.len); /* CLAIM contains secrets, SPAWN may */
    if (o->extra.p)
        secret_wipe(o->extra.p, o->extra.len);
    buf_done(&o->record);
    buf_done(&o->extra);
    free(o);
}

/* ---- which is what ---- */

static bool is_asked(const link_out *o)
{
    return o->type == SP_SPAWN || o->type == SP_FETCH || o->type == SP_SIGNAL;
}

/* Returns whether a message is valid in one connection only: the receiver sends it anew in the
 * next. */
static bool is_of_connection(const link_out *o)
{
    return o->type == SPS_RECEIVED || o->type == SPS_STDIN || o->type == SPS_PING;
}

static bool link_out_repeats(const link_out *o)
{
    return o->type != SP_SIGNAL || o->signo == SIGKILL || !o->signo;
}

/* ---- sealing and writing; the box's lock is held ---- */

static void link_out_seal(box *x, const link_out *o)
{
    buf_reserve(&x->out, spl_size(o->record.len, o->extra.len));
    x->out.len += spl_put(&x->end, x->out.p + x->out.len, o->record.p, o->record.len, o->extra.p,
                          o->extra.len);
}

/* Keeps a sealed message as long as it may have to be sent again. */
static void link_out_sealed(box *x, link_out *o)
{
    if (o->type == SPS_RECEIVED || o->type == SPS_STDIN) {
        link_out_free(o);
        return;
    }
    x->nasked += is_asked(o);
    link_queue_push(&x->sent, o);
}

static bool may_seal(const box *x)
{
    const link_out *o = x->queue.first;

    return o && x->state == LINK_OPEN && x->phase == LINK_BOX && !x->held && x->out.len < BATCH &&
           (!is_asked(o) || x->nasked < SP_UNANSWERED);
}

static void link_out_refill(box *x)
{
    if (x->out_sent == x->out.len && x->out.len) {
        secret_wipe(x->out.p, x->out.len);
        if (x->out.cap > BATCH + SPL_SIZE(SP_INLINE_MAX, SPS_CHUNK_MAX))
            buf_done(&x->out);
        buf_clear(&x->out);
        x->out_sent = 0;
    }
    while (may_seal(x)) {
        link_out *o = link_queue_pop(&x->queue);
        link_out_seal(x, o);
        link_out_sealed(x, o);
    }
    if (x->state == LINK_OPEN && x->sent.n - x->nasked > UNHEARD_MAX)
        link_send_ping(x);
}

/* Returns false if the stream takes nothing now. */
static bool write_some(box *x)
{
    size_t n = x->out.len - x->out_sent;
    ssize_t r = x->stream.ops->write(x->stream.s, n ? x->out.p + x->out_sent : NULL, n);

    if (r < 0 && errno == EINTR)
        return true;
    if (r < 0 && errno != EAGAIN) { /* reading may report the error too, or may not */
        x->write_failed = true;
        link_box_look_soon(x);
    }
    if (r <= 0)
        return false;
    x->out_sent += (size_t)r;
    return true;
}

static bool stream_wants(const box *x)
{
    return x->stream.ops->wants_out && x->stream.ops->wants_out(x->stream.s);
}

void link_flush(box *x)
{
    if (!x->stream.ops || x->in_turn)
        return;
    link_out_refill(x);
    while (x->out_sent < x->out.len && write_some(x))
        link_out_refill(x);
    if (x->out_sent == x->out.len && stream_wants(x))
        write_some(x);
    bool want = x->out_sent < x->out.len || stream_wants(x);
    if (want != x->want_out)
        link_watch(x, false, want);
    x->want_out = want;
}

void link_send_claim(box *x)
{
    link_out_seal(x, x->claim);
    x->state = LINK_CLAIM_SENT;
    link_flush(x);
    FAULT_KILL("link.claim_sent");
}

void link_send_ping(box *x)
{
    struct sps_data d = {.h.type = SPS_PING};

    if (x->pinged)
        return;
    x->pinged = true;
    link_out *o = link_out_new(SPS_PING, 0, &d, sizeof d);
    link_out_seal(x, o);
    link_out_sealed(x, o);
}

/* ---- queueing ---- */

/* Updates the offset of a queued RECEIVED instead of queueing a second one. */
static bool merge_received(box *x, const link_out *o)
{
    const struct sps_data *d = (const struct sps_data *)o->record.p;

    if (o->type != SPS_RECEIVED)
        return false;
    for (link_out *q = x->queue.first; q; q = q->next) {
        struct sps_data *have = (struct sps_data *)q->record.p;
        if (q->type != SPS_RECEIVED || q->id != o->id || have->a != d->a)
            continue;
        if (have->offset < d->offset)
            have->offset = d->offset;
        return true;
    }
    return false;
}

/* Returns the error if a message cannot be queued now. Lock held. */
static err *link_out_refusal(const box *x, const link_out *o)
{
    if (x->state == LINK_GONE)
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", x->id), "sandbox");
    if (!is_asked(o))
        return NULL;
    bool away = x->state == LINK_DOWN && !x->held &&
                now_mono_ns() - x->down_ns > x->h->o.away_ms * NS_PER_MS;
    if (x->newer)
        return err_remedy(
            err_new(ERR_UNAVAILABLE, "sandbox %s is of a newer release than this bothyd", x->id),
            "Run the newer bothyd again; the sandbox lives on.");
    if (away && o->type == SP_SPAWN) /* other requests concern running execs and can wait */
        return err_retry_after(
            err_because(err_new(ERR_UNAVAILABLE, "sandbox %s cannot be reached now", x->id),
                        "%s does not answer; the sandbox lives on and is tried again",
                        x->h->o.name),
            2);
    if (x->queue.n >= QUEUE_MAX)
        return err_new(ERR_SANDBOX_EXHAUSTED, "%d requests wait for sandbox %s", QUEUE_MAX, x->id);
    return NULL;
}

err *link_push(box *x, link_out *o)
{
    CLEANUP(link_out_freep) link_out *own = o;

    LOCK_SCOPE(&x->lock);
    TRY(link_out_refusal(x, o));
    x->nfetching += o->type == SP_FETCH;
    if (!merge_received(x, o))
        link_queue_push(&x->queue, TAKE_PTR(own));
    link_flush(x);
    return NULL;
}

/* ---- answered and unanswered messages ---- */

static bool link_out_holds(const link_queue *q, uint32_t type, uint64_t id)
{
    for (const link_out *o = q->first; o; o = o->next)
        if (o->type == type && o->id == id)
            return true;
    return false;
}

bool link_is_fetching(box *x, uint64_t exec)
{
    LOCK_SCOPE(&x->lock);
    return x->nfetching &&
           (link_out_holds(&x->sent, SP_FETCH, exec) || link_out_holds(&x->queue, SP_FETCH, exec));
}

link_out *link_take_asked(box *x, uint32_t type, uint64_t id)
{
    link_queue kept;
    link_out *o, *found = NULL;

    LOCK_SCOPE(&x->lock);
    if (!link_out_holds(&x->sent, type, id))
        return NULL;
    x->nfetching -= type == SP_FETCH;
    link_queue_init(&kept);
    while (!found && (o = link_queue_pop(&x->sent))) {
        if (o->type == type && o->id == id)
            found = o;
        else if (is_asked(o) || o->type == SPS_PING)
            link_queue_push(&kept, o);
        else
            link_out_free(o);
    }
    queue_move(&kept, &x->sent);
    queue_move(&x->sent, &kept);
    x->nasked -= found && is_asked(found);
    link_flush(x);
    return found;
}

link_out *link_take_back(box *x)
{
    link_out *o, *lost = NULL, **lost_end = &lost;
    link_queue again;

    link_queue_init(&again);
    while ((o = link_queue_pop(&x->sent))) {
        if (link_out_repeats(o)) {
            link_queue_push(&again, o);
        } else {
            *lost_end = o;
            lost_end = &o->next;
        }
    }
    queue_move(&again, &x->queue);
    while ((o = link_queue_pop(&again))) {
        if (is_of_connection(o))
            link_out_free(o);
        else
            link_queue_push(&x->queue, o);
    }
    x->nasked = 0;
    x->pinged = false;
    return lost;
}
