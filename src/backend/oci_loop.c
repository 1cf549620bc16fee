/* One thread with every connection to an init: epoll, timers, posted work. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "backend/oci.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"

#define EVENTS_MAX 64
#define IDLE_MS    60000
#define REWATCH_NS (50 * NS_PER_MS)

typedef struct post {
    struct post *next;
    void (*fn)(void *arg);
    void *arg;
} post;

struct oci_loop {
    int epoll, wake;
    pthread_t thread;
    pthread_mutex_t lock;
    post *first, **last; /* under the lock */
    bool stop;
    box *boxes;   /* loop's thread only */
    uint64_t due; /* no timer is earlier: idle boxes are not scanned for every event */
};

void oci_loop_post(oci_loop *l, void (*fn)(void *arg), void *arg)
{
    post *p = xcalloc(1, sizeof *p);
    uint64_t one = 1;

    p->fn = fn;
    p->arg = arg;
    pthread_mutex_lock(&l->lock);
    *l->last = p;
    l->last = &p->next;
    pthread_mutex_unlock(&l->lock);
    (void)!write(l->wake, &one, sizeof one);
}

void oci_loop_watch(oci_loop *l, box *x, bool first, bool want_out)
{
    struct epoll_event e = {.events = EPOLLIN | (want_out ? EPOLLOUT : 0), .data.ptr = x};
    int r = epoll_ctl(l->epoll, first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, x->fd, &e);

    if (!first)
        return;
    x->unwatched = r != 0; /* out of memory or of watches: run_timers() retries */
    if (r && now_mono_ns() + REWATCH_NS < l->due)
        l->due = now_mono_ns() + REWATCH_NS;
}

void oci_loop_unwatch(oci_loop *l, box *x)
{
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, x->fd, NULL);
    x->unwatched = false;
}

static void oci_loop_rewatch(oci_loop *l, box *x)
{
    LOCK_SCOPE(&x->lock);

    oci_loop_watch(l, x, true, x->want_out);
}

void oci_loop_timer(oci_loop *l, box *x, uint64_t delay_ms)
{
    x->timer_ns = now_mono_ns() + delay_ms * NS_PER_MS;
    if (x->timer_ns < l->due)
        l->due = x->timer_ns;
}

void oci_loop_add(oci_loop *l, box *x)
{
    x->next = l->boxes;
    if (x->next)
        x->next->prev = x;
    l->boxes = x;
}

void oci_loop_remove(oci_loop *l, box *x)
{
    *(x->prev ? &x->prev->next : &l->boxes) = x->next;
    if (x->next)
        x->next->prev = x->prev;
    x->prev = x->next = NULL;
    oci_box_unref(x);
}

static bool run_posts(oci_loop *l)
{
    uint64_t n;

    (void)!read(l->wake, &n, sizeof n);
    pthread_mutex_lock(&l->lock);
    post *p = l->first;
    bool stop = l->stop;
    l->first = NULL;
    l->last = &l->first;
    pthread_mutex_unlock(&l->lock);
    while (p) {
        post *next = p->next;
        p->fn(p->arg);
        free(p);
        p = next;
    }
    return !stop;
}

/* Runs due timers; returns the time until the next one, in ms. A box may leave the list in its own
 * timer, so the next box is read first. */
static int run_timers(oci_loop *l)
{
    uint64_t now = now_mono_ns(), due = now + IDLE_MS * NS_PER_MS;

    if (now < l->due)
        return (int)((l->due - now) / NS_PER_MS) + 1;
    l->due = due; /* the timers below may set it again */
    for (box *x = l->boxes, *next; x; x = next) {
        next = x->next;
        if (x->unwatched)
            oci_loop_rewatch(l, x);
        if (x->timer_ns && x->timer_ns <= now) {
            x->timer_ns = 0;
            oci_box_timer(x);
        } else if (x->timer_ns && x->timer_ns < due) {
            due = x->timer_ns;
        }
    }
    if (due < l->due)
        l->due = due;
    return (int)((l->due - now) / NS_PER_MS) + 1;
}

static void *oci_loop_run(void *arg)
{
    oci_loop *l = arg;
    struct epoll_event e[EVENTS_MAX];
    bool going = true;

    while (going) {
        int n = epoll_wait(l->epoll, e, EVENTS_MAX, run_timers(l));
        bool posted = false;
        for (int i = 0; i < n; i++) /* references first: one box's event may end another box */
            if (e[i].data.ptr)
                oci_box_ref(e[i].data.ptr);
        for (int i = 0; i < n; i++) {
            box *x = e[i].data.ptr;
            posted |= !x;
            if (x && e[i].events & EPOLLOUT)
                oci_box_writable(x);
            if (x && e[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                oci_box_readable(x);
            if (x)
                oci_box_unref(x);
        }
        if (posted)
            going = run_posts(l);
    }
    return NULL;
}

oci_loop *oci_loop_new(void)
{
    oci_loop *l = xcalloc(1, sizeof *l);
    struct epoll_event e = {.events = EPOLLIN};

    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->last = &l->first;
    pthread_mutex_init(&l->lock, NULL);
    if (l->epoll < 0 || l->wake < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->wake, &e))
        abort(); /* at start-up; nothing works without descriptors */
    l->thread = thread_start("boxes", oci_loop_run, l);
    return l;
}

static void do_nothing(void *arg)
{
    (void)arg;
}

void oci_loop_stop(oci_loop *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_mutex_unlock(&l->lock);
    oci_loop_post(l, do_nothing, NULL);
    pthread_join(l->thread, NULL);
}

void oci_loop_free(oci_loop *l)
{
    run_posts(l);
    while (l->boxes) {
        oci_box_shut(l->boxes);
        oci_loop_remove(l, l->boxes);
    }
    close(l->epoll);
    close(l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
