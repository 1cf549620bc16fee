#include "warden/destroy.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "warden/counters.h"
#include "warden/network.h"
#include "warden/privs.h"
#include "warden/quota.h"
#include "warden/view.h"
#include "warden/warden.h"

#define REAP_MAX      64
#define TRASH_TURN    1000 /* entries of a tree, then the next one */
#define RETRY_MIN_MS  1
#define RETRY_MAX_MS  200
#define KILL_AGAIN_MS 1000

static void leave_counts(warden *w, slot *s)
{
    if (s->id[0] && slot_find(w, s->id) == s)
        map_take_str(&w->by_id, s->id);
    if (s->state == SLOT_READY)
        slot_leave_ready(w, s);
    if (s->state == SLOT_CLAIMING || s->state == SLOT_CLAIMED) {
        w->claimed--;
        slot_unpromise(w, s);
        view_forget_cpus(w, s);
        pool_left(&w->pool, now_mono_ns());
    }
}

static void send_kill(const warden *w, const slot *s)
{
    if (s->pidfd >= 0)
        pidfd_send_signal(s->pidfd, SIGKILL, NULL, 0); /* the pid namespace goes with pid 1 */
    cgroup_kill(&w->cg, s->n);
}

/* Adds a slot to the dying ones. The end of its pid 1 wakes the cleaner; a slot without a pidfd is
 * tried at once. */
static void enter_dying(warden *w, slot *s)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = s};

    s->prev = NULL;
    s->next = w->dying_list;
    if (s->next)
        s->next->prev = s;
    w->dying_list = s;
    w->ndying++;
    if (s->pidfd >= 0 && !epoll_ctl(w->reaper, EPOLL_CTL_ADD, s->pidfd, &ev))
        return;
    s->tried = true;
    eventfd_write(w->reaper_wake, 1);
}

/* Removes a slot from the dying ones. The descriptor is taken out of epoll by hand: a child that is
 * just being spawned may hold a copy of it, and then closing it would leave the entry with its
 * pointer. */
static void leave_dying(warden *w, slot *s)
{
    *(s->prev ? &s->prev->next : &w->dying_list) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->prev = s->next = NULL;
    w->ndying--;
    if (s->pidfd >= 0)
        epoll_ctl(w->reaper, EPOLL_CTL_DEL, s->pidfd, NULL);
}

void destroy_slot(warden *w, slot *s)
{
    if (s->state == SLOT_DYING)
        return;
    leave_counts(w, s);
    s->state = SLOT_DYING;
    slot_mark_dead(s);
    FAULT_KILL("destroy.marked");
    send_kill(w, s);
    FAULT_KILL("destroy.killed");
    enter_dying(w, s);
    count_destroyed();
    pthread_cond_signal(&w->refill);
    pthread_cond_signal(&w->claims); /* there may be room for the next one */
}

/* Returns true if the slot is not being made any more. Its maker (this warden, or a crun of a
 * warden that was killed) holds the lock. */
static bool nobody_makes_it(const slot *s)
{
    CLEANUP(closep) int fd = s->dirfd < 0 ? -1 : openat(s->dirfd, "lock", O_RDONLY | O_CLOEXEC);

    return fd < 0 || !flock(fd, LOCK_EX | LOCK_NB);
}

/* Moves an upper into the trash. A tenant's upper may hold millions of files, so it is not removed
 * here. */
static err *throw_away(const warden *w, const char *name)
{
    char as[40];
    int n = snprintf(as, sizeof as, "%s.", name);

    id_random(as + n, 12);
    if (renameat(w->uppers_fd, name, w->trash_fd, as) && errno != ENOENT)
        return fs_error(errno, "cannot throw away the upper of slot %s", name);
    return NULL;
}

/* Makes one attempt. Returns true when nothing of the slot is left but trash. */
static bool take_apart(warden *w, slot *s)
{
    char name[16];

    if ((s->pidfd >= 0 && !slot_dead(s)) || !nobody_makes_it(s)) {
        send_kill(w, s);
        return false;
    }
    if (!cgroup_remove(&w->cg, s->n)) {
        cgroup_kill(&w->cg, s->n);
        return false;
    }
    FAULT_KILL("destroy.cgroup_gone");
    snprintf(name, sizeof name, "%u", s->n);
    view_remove(w, s->n);
    quota_forget(w, s->project);
    err *e = throw_away(w, name);
    FAULT_KILL("destroy.upper_gone");
    if (s->network) {
        network_close(w, s->n);
        s->network = false;
        FAULT_KILL("network.closed");
    }
    if (!e)
        e = fs_remove(w->slots_fd, name);
    FAULT_KILL("destroy.slot_gone");
    if (!e)
        return true;
    if (s->stays != e->errnum) /* logged once, not at every attempt */
        log_warn("destroy", "slot %u: %s: %s", s->n, e->message, e->cause ? e->cause : "");
    s->stays = e->errnum;
    err_free(e);
    return false;
}

static void is_gone(warden *w, slot *s)
{
    pthread_mutex_lock(&w->lock);
    leave_dying(w, s);
    w->trash_full = true;
    pthread_cond_signal(&w->trash);
    slot_unref(w, s);
    slot_unlock_release(w);
}

/* Makes one attempt and returns true when the slot is gone. Only one thread calls this, the cleaner
 * or destroy_wait(), and no other takes from the list. */
static bool try_one(warden *w, slot *s)
{
    if (take_apart(w, s)) {
        is_gone(w, s);
        return true;
    }
    LOCK_SCOPE(&w->lock);
    s->tried = true;
    return false;
}

/* Returns the slot behind s that is to be tried again, or with any the next one. Starts at the
 * list's head without s. */
static slot *next_dying(warden *w, slot *s, bool any)
{
    LOCK_SCOPE(&w->lock);

    for (s = s ? s->next : w->dying_list; s && !any && !s->tried;)
        s = s->next;
    return s;
}

/* Makes one attempt at each slot. Returns how many were tried in vain. */
static size_t destroy_sweep(warden *w, bool any)
{
    size_t left = 0;

    for (slot *s = next_dying(w, NULL, any), *next; s; s = next) {
        next = next_dying(w, s, any); /* s may be gone afterwards */
        left += !try_one(w, s);
    }
    return left;
}

/* Waits until a pid 1 ends, or wait_ms is over, and tries the slots whose pid 1 ended. */
static void destroy_reap(warden *w, int wait_ms)
{
    struct epoll_event ev[REAP_MAX];
    int n = epoll_wait(w->reaper, ev, REAP_MAX, wait_ms);

    for (int i = 0; i < n; i++) {
        eventfd_t ignored;
        if (ev[i].data.ptr)
            (void)try_one(w, ev[i].data.ptr);
        else
            eventfd_read(w->reaper_wake, &ignored);
    }
}

void destroy_init(warden *w)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};

    w->reaper = epoll_create1(EPOLL_CLOEXEC);
    w->reaper_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert(w->reaper >= 0 && w->reaper_wake >= 0);
    epoll_ctl(w->reaper, EPOLL_CTL_ADD, w->reaper_wake, &ev);
}

/* Waits for the ends of pid 1 rather than polling. If a slot is not gone then (not every process
 * leaves its cgroup at the same moment), it is retried soon; a slot that does not end is killed
 * again. */
void *destroy_run(void *arg)
{
    warden *w = arg;
    uint64_t swept = now_mono_ns();
    int retry_ms = RETRY_MIN_MS;

    privs_thread("cleaner");
    for (;;) {
        bool again = next_dying(w, NULL, false), some = next_dying(w, NULL, true);
        destroy_reap(w, again ? retry_ms : some ? KILL_AGAIN_MS : -1);
        if (some && now_mono_ns() - swept > KILL_AGAIN_MS * NS_PER_MS) {
            swept = now_mono_ns();
            (void)destroy_sweep(w, true);
        } else if (again) {
            bool left = destroy_sweep(w, false);
            retry_ms = !left ? RETRY_MIN_MS : retry_ms < RETRY_MAX_MS ? 2 * retry_ms : retry_ms;
        }
    }
    return NULL;
}

/* ---- uppers of destroyed slots ---- */

/* Empties the trash in turns, so that an upper of a million files does not delay the space of other
 * sandboxes. */
static void trash_empty(const warden *w)
{
    bool more = true;

    while (more) {
        more = false;
        err *e = fs_empty_some(w->trash_fd, TRASH_TURN, &more);
        if (more) /* logged once, in the last pass */
            err_free(e);
        else
            err_drop(e, "trash");
    }
}

void *destroy_trash_run(void *arg)
{
    warden *w = arg;

    privs_thread("trash");
    setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
    for (;;) {
        trash_empty(w);
        FAULT_KILL("destroy.trash_empty");
        LOCK_SCOPE(&w->lock);
        while (!w->trash_full)
            pthread_cond_wait(&w->trash, &w->lock);
        w->trash_full = false;
    }
    return NULL;
}

/* Returns true if nothing runs any more and no attempt will change the rest: the disk is
 * read-only. */
static bool only_files_stay(warden *w)
{
    LOCK_SCOPE(&w->lock);

    for (const slot *s = w->dying_list; s; s = s->next)
        if (s->stays != EROFS)
            return false;
    return true;
}

err *destroy_wait(warden *w, uint64_t timeout_ms)
{
    uint64_t end = now_mono_ns() + timeout_ms * NS_PER_MS;

    while (destroy_sweep(w, true)) {
        if (only_files_stay(w))
            return fs_error(EROFS, "nothing runs any more, but what the slots left on the disk "
                                   "stays");
        if (now_mono_ns() > end)
            return err_new(ERR_TIMEOUT, "some slots could not be taken apart");
        usleep(5000);
    }
    err_drop(fs_empty(w->trash_fd), "trash");
    return NULL;
}
