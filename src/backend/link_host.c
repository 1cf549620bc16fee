/* The threads of a link host: one loop with every stream (epoll, timers, posted work), and a few
 * dial threads. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "backend/link_internal.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "base/thread.h"

#define EVENTS_MAX      64
#define IDLE_NS         (60 * NS_PER_S)
#define DIALERS_DEFAULT 4
#define DIALERS_MAX     64
#define DIAL_MS         10000
#define PING_MS         5000
#define AWAY_MS         5000

struct link_post_item {
    link_post_item *next;
    void (*fn)(void *arg);
    void *arg;
};

struct link_dial_item {
    link_dial_item *next;
    box *x; /* referenced */
};

/* ---- posting work to the loop ---- */

void link_post(link_host *h, void (*fn)(void *arg), void *arg)
{
    link_post_item *p = xcalloc(1, sizeof *p);

    p->fn = fn;
    p->arg = arg;
    {
        LOCK_SCOPE(&h->post_lock);
        *h->posts_end = p;
        h->posts_end = &p->next;
    }
    eventfd_write(h->wake, 1);
}

static bool run_posts(link_host *h)
{
    eventfd_t n;
    bool stop;

    (void)!eventfd_read(h->wake, &n);
    pthread_mutex_lock(&h->post_lock);
    link_post_item *p = h->posts;
    stop = h->stop;
    h->posts = NULL;
    h->posts_end = &h->posts;
    pthread_mutex_unlock(&h->post_lock);
    while (p) {
        link_post_item *next = p->next;
        p->fn(p->arg);
        free(p);
        p = next;
    }
    return !stop;
}

/* ---- timers and descriptors ---- */

static void due_by(link_host *h, uint64_t at_ns)
{
    if (at_ns && at_ns < h->due)
        h->due = at_ns;
}

void link_timer(box *x, uint64_t at_ns)
{
    x->timer_ns = at_ns;
    due_by(x->h, at_ns);
}

void link_claim_timer(box *x, uint64_t at_ns)
{
    x->claim_timer_ns = at_ns;
    due_by(x->h, at_ns);
}

static bool is_due(const box *x, uint64_t now)
{
    return (x->timer_ns && x->timer_ns <= now) || (x->claim_timer_ns && x->claim_timer_ns <= now);
}

static void run_timer(link_host *h, box *x, uint64_t now)
{
    link_ref(x);
    if (is_due(x, now))
        link_box_timer(x, now);
    due_by(h, x->timer_ns);
    due_by(h, x->claim_timer_ns);
    link_unref(x);
}

/* Runs due timers; returns the time until the next one, in ms. A box may leave the list in its own
 * timer (and in no other box's: events only post), so the next box is read first. */
static int run_timers(link_host *h)
{
    uint64_t now = now_mono_ns();

    if (now >= h->due) {
        h->due = now + IDLE_NS; /* the timers below may set it again */
        for (box *x = h->boxes, *next; x; x = next) {
            next = x->next;
            run_timer(h, x, now);
        }
    }
    return h->due > now ? (int)((h->due - now) / NS_PER_MS) + 1 : 0;
}

bool link_watch(box *x, bool first, bool want_out)
{
    struct epoll_event e = {.events = EPOLLIN | (want_out ? EPOLLOUT : 0), .data.ptr = x};
    int fd = x->stream.ops->fd(x->stream.s);

    return !epoll_ctl(x->h->epoll, first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &e);
}

void link_unwatch(box *x)
{
    epoll_ctl(x->h->epoll, EPOLL_CTL_DEL, x->stream.ops->fd(x->stream.s), NULL);
}

static void link_host_serve(box *x, uint32_t events)
{
    if (events & EPOLLOUT)
        link_box_writable(x);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        link_box_readable(x);
}

static void *run_loop(void *arg)
{
    link_host *h = arg;
    struct epoll_event e[EVENTS_MAX];
    bool going = true;

    while (going) {
        int n = epoll_wait(h->epoll, e, EVENTS_MAX, run_timers(h));
        bool posted = false;
        for (int i = 0; i < n; i++) /* references first: one box's event may end another box */
            if (e[i].data.ptr)
                link_ref(e[i].data.ptr);
        for (int i = 0; i < n; i++) {
            box *x = e[i].data.ptr;
            posted |= !x;
            if (!x)
                continue;
            link_host_serve(x, e[i].events);
            link_unref(x);
        }
        if (posted)
            going = run_posts(h);
    }
    return NULL;
}

/* ---- dialling ---- */

typedef struct arrival { /* on its way from a dial thread to the loop */
    box *x;              /* referenced by the dial */
    link_stream stream;
    err *failure;
} arrival;

static void link_host_arrived(void *arg)
{
    arrival *a = arg;
    box *x = a->x;

    link_box_arrived(x, &a->stream, a->failure);
    link_unref(x);
    free(a);
}

static bool is_gone(box *x)
{
    LOCK_SCOPE(&x->lock);
    return x->state == LINK_GONE;
}

static void dial_one(link_host *h, box *x)
{
    arrival *a = xcalloc(1, sizeof *a);

    a->x = x;
    if (is_gone(x)) {
        a->failure = err_new(ERR_SANDBOX_GONE, "nobody wants it any more");
    } else {
        atomic_fetch_add(&h->ndials, 1);
        a->failure = h->o.dial(h->o.arg, x->handle, h->o.dial_ms, &a->stream);
    }
    if (a->failure)
        atomic_fetch_add(&h->ndials_failed, 1);
    link_post(h, link_host_arrived, a);
}

static link_dial_item *next_dial(link_host *h)
{
    LOCK_SCOPE(&h->dial_lock);
    while (!h->dials && !h->dial_stop)
        cond_wait_until(&h->dial_cond, &h->dial_lock, 0);
    link_dial_item *d = h->dial_stop ? NULL : h->dials;
    if (d) {
        h->dials = d->next;
        if (!h->dials)
            h->dials_end = &h->dials;
    }
    return d;
}

static void *run_dialer(void *arg)
{
    link_host *h = arg;
    link_dial_item *d;

    while ((d = next_dial(h))) {
        dial_one(h, d->x);
        free(d);
    }
    return NULL;
}

void link_dial(box *x, bool urgent)
{
    link_host *h = x->h;
    link_dial_item *d = xcalloc(1, sizeof *d);

    LOCK_SCOPE(&h->dial_lock);
    if (h->dial_stop) {
        free(d);
        return;
    }
    d->x = x;
    link_ref(x);
    if (urgent) {
        d->next = h->dials;
        h->dials = d;
        if (!d->next)
            h->dials_end = &d->next;
    } else {
        *h->dials_end = d;
        h->dials_end = &d->next;
    }
    pthread_cond_signal(&h->dial_cond);
}

/* ---- maps of known boxes ---- */

err *link_register(link_host *h, box *x)
{
    LOCK_SCOPE(&h->lock);
    if (map_get_str(&h->handles, x->handle))
        return err_new(ERR_CONFLICT, "container %s is attached already", x->handle);
    map_put_str(&h->handles, x->handle, x);
    if (*x->id)
        map_put_str(&h->ids, x->id, x);
    return NULL;
}

void link_register_id(box *x)
{
    LOCK_SCOPE(&x->h->lock);
    if (map_get_str(&x->h->handles, x->handle) == x)
        map_put_str(&x->h->ids, x->id, x);
}

void link_unregister(box *x)
{
    link_host *h = x->h;

    if (!x->listed)
        return;
    {
        LOCK_SCOPE(&h->lock);
        LOCK_SCOPE(&x->lock);
        if (map_get_str(&h->handles, x->handle) == x)
            map_take_str(&h->handles, x->handle);
        if (*x->id && map_get_str(&h->ids, x->id) == x)
            map_take_str(&h->ids, x->id);
    }
    *(x->prev ? &x->prev->next : &h->boxes) = x->next;
    if (x->next)
        x->next->prev = x->prev;
    x->prev = x->next = NULL;
    x->listed = false;
    link_unref(x);
}

char *link_handle_of(link_host *h, const char *id)
{
    LOCK_SCOPE(&h->lock);
    const box *x = map_get_str(&h->ids, id);
    return x ? xstrdup(x->handle) : NULL;
}

typedef struct death {
    link_host *h;
    char *handle, *why;
} death;

static void link_host_died(void *arg)
{
    death *d = arg;
    box *x;

    {
        LOCK_SCOPE(&d->h->lock);
        x = map_get_str(&d->h->handles, d->handle);
        if (x)
            link_ref(x);
    }
    if (x) {
        link_box_end(x, ERR_SANDBOX_GONE, 0, d->why);
        link_unref(x);
    }
    free(d->handle);
    free(d->why);
    free(d);
}

void link_died(link_host *h, const char *handle, const char *why)
{
    death *d = xcalloc(1, sizeof *d);

    *d = (death){h, xstrdup(handle), xstrdup(why)};
    link_post(h, link_host_died, d);
}

static void link_host_count(box *x, link_stats *ret)
{
    LOCK_SCOPE(&x->lock);
    bool warm = x->phase == LINK_WARM, open = x->state == LINK_OPEN;

    ret->warm += warm;
    ret->ready += warm && open;
    ret->boxes += !warm;
    ret->open += !warm && open;
}

void link_host_stats(link_host *h, link_stats *ret_stats)
{
    map_iter it = {0};

    *ret_stats = (link_stats){.dials = atomic_load(&h->ndials),
                              .dials_failed = atomic_load(&h->ndials_failed),
                              .lost = atomic_load(&h->nlost),
                              .silent = atomic_load(&h->nsilent),
                              .forged = atomic_load(&h->nforged),
                              .condemned = atomic_load(&h->ncondemned)};
    LOCK_SCOPE(&h->lock);
    while (map_next(&h->handles, &it))
        link_host_count(it.entry->value, ret_stats);
}

void link_nonce_new(uint8_t ret_nonce[LINK_NONCE_LEN])
{
    random_bytes(ret_nonce, LINK_NONCE_LEN);
}

/* ---- life ---- */

static unsigned or_default(unsigned value, unsigned otherwise)
{
    return value ? value : otherwise;
}

static void set_options(link_host *h, const link_options *o)
{
    h->o = *o;
    h->o.dialers = or_default(o->dialers, DIALERS_DEFAULT);
    if (h->o.dialers > DIALERS_MAX)
        h->o.dialers = DIALERS_MAX;
    h->o.dial_ms = or_default(o->dial_ms, DIAL_MS);
    h->o.ping_ms = or_default(o->ping_ms, PING_MS);
    h->o.pong_ms = or_default(o->pong_ms, SPL_SILENCE_MS);
    h->o.away_ms = or_default(o->away_ms, AWAY_MS);
    h->o.kit = o->kit ? xstrdup(o->kit) : NULL;
}

void link_host_unref(link_host *h)
{
    if (atomic_fetch_sub(&h->refs, 1) != 1)
        return;
    closep(&h->epoll);
    closep(&h->wake);
    map_done(&h->handles);
    map_done(&h->ids);
    pthread_mutex_destroy(&h->lock);
    pthread_mutex_destroy(&h->post_lock);
    pthread_mutex_destroy(&h->dial_lock);
    pthread_cond_destroy(&h->dial_cond);
    secret_wipe(h->o.key, sizeof h->o.key);
    free((char *)h->o.kit);
    free(h->dialers);
    free(h);
}

err *link_host_new(const link_options *o, link_host **ret_host)
{
    link_host *h = xcalloc(1, sizeof *h);
    struct epoll_event e = {.events = EPOLLIN};

    set_options(h, o);
    atomic_init(&h->refs, 1);
    h->posts_end = &h->posts;
    h->dials_end = &h->dials;
    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->post_lock, NULL);
    pthread_mutex_init(&h->dial_lock, NULL);
    cond_init(&h->dial_cond);
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->epoll < 0 || h->wake < 0 || epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->wake, &e)) {
        err *failure = err_sys(ERR_INTERNAL, errno, "cannot start the links of %s", o->name);
        link_host_unref(h);
        return failure;
    }
    h->thread = thread_start("links", run_loop, h);
    h->dialers = xcalloc(h->o.dialers, sizeof *h->dialers);
    for (unsigned i = 0; i < h->o.dialers; i++)
        h->dialers[i] = thread_start("dial", run_dialer, h);
    *ret_host = h;
    return NULL;
}

static void stop_dialers(link_host *h)
{
    {
        LOCK_SCOPE(&h->dial_lock);
        h->dial_stop = true;
        pthread_cond_broadcast(&h->dial_cond);
    }
    for (unsigned i = 0; i < h->o.dialers; i++)
        pthread_join(h->dialers[i], NULL);
    while (h->dials) {
        link_dial_item *d = h->dials;
        h->dials = d->next;
        link_unref(d->x);
        free(d);
    }
}

static void do_nothing(void *arg)
{
    (void)arg;
}

static void stop_loop(link_host *h)
{
    {
        LOCK_SCOPE(&h->post_lock);
        h->stop = true;
    }
    link_post(h, do_nothing, NULL);
    pthread_join(h->thread, NULL);
}

void link_host_free(link_host *h)
{
    if (!h)
        return;
    atomic_store(&h->closing, true);
    stop_dialers(h);
    stop_loop(h);
    run_posts(h); /* on this thread, which acts as the loop now */
    while (h->boxes) {
        box *x = h->boxes;
        link_box_shut(x);
        link_unregister(x);
    }
    run_posts(h); /* work that shutting down has posted */
    link_host_unref(h);
}
