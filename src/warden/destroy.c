#include "warden/destroy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "warden/counters.h"
#include "warden/privs.h"
#include "warden/warden.h"

static void leave_counts(warden *w, slot *s)
{
    if (s->id[0] && slot_find(w, s->id) == s)
        map_take_str(&w->by_id, s->id);
    if (s->state == SLOT_READY)
        slot_leave_ready(w, s);
    if (s->state == SLOT_CLAIMING || s->state == SLOT_CLAIMED) {
        w->claimed--;
        w->memory_claimed -= s->limits.memory;
        pool_left(&w->pool, now_mono_ns());
    }
}

static void send_kill(const warden *w, const slot *s)
{
    if (s->pidfd >= 0)
        pidfd_send_signal(s->pidfd, SIGKILL, NULL, 0); /* the pid namespace goes with pid 1 */
    cgroup_kill(&w->cg, s->n);
}

void destroy_slot(warden *w, slot *s)
{
    if (s->state == SLOT_DYING)
        return;
    leave_counts(w, s);
    s->state = SLOT_DYING;
    slot_mark_dead(s);
    send_kill(w, s);
    s->next = w->dying_list;
    w->dying_list = s;
    w->ndying++;
    count_destroyed();
    pthread_cond_signal(&w->dying);
    pthread_cond_signal(&w->refill);
    pthread_cond_signal(&w->claims); /* there may be room for the next one */
}

/* Whoever was making it (we, or a crun of a warden that was killed) holds the lock. */
static bool nobody_makes_it(const slot *s)
{
    CLEANUP(closep) int fd = s->dirfd < 0 ? -1 : openat(s->dirfd, "lock", O_RDONLY | O_CLOEXEC);

    return fd < 0 || !flock(fd, LOCK_EX | LOCK_NB);
}

/* A tenant's upper may hold millions of files: it only gets out of the way here. */
static err *throw_away(const warden *w, const char *name)
{
    char as[40];
    int n = snprintf(as, sizeof as, "%s.", name);

    id_random(as + n, 12);
    if (renameat(w->uppers_fd, name, w->trash_fd, as) && errno != ENOENT)
        return err_sys(ERR_INTERNAL, errno, "cannot throw away the upper of slot %s", name);
    return NULL;
}

/* One attempt; true when nothing of it is left but trash. */
static bool take_apart(const warden *w, slot *s)
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
    snprintf(name, sizeof name, "%u", s->n);
    err *e = throw_away(w, name);
    if (!e)
        e = fs_remove(w->slots_fd, name);
    if (!e)
        return true;
    log_warn("destroy", "slot %u: %s: %s", s->n, e->message, e->cause ? e->cause : "");
    err_free(e);
    return false;
}

/* One attempt at each of the dying. Returns how many are left. */
static size_t sweep(warden *w)
{
    size_t left = 0;

    pthread_mutex_lock(&w->lock);
    slot *list = w->dying_list;
    w->dying_list = NULL;
    pthread_mutex_unlock(&w->lock);
    while (list) {
        slot *s = list;
        list = s->next;
        bool gone = take_apart(w, s);
        LOCK_SCOPE(&w->lock);
        if (gone) {
            w->ndying--;
            w->trash_full = true;
            pthread_cond_signal(&w->trash);
            slot_unref(w, s);
        } else {
            left++;
            s->next = w->dying_list;
            w->dying_list = s;
        }
    }
    return left;
}

void *destroy_run(void *arg)
{
    warden *w = arg;
    unsigned wait_ms = 1;

    privs_thread("cleaner");
    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (!w->dying_list)
            pthread_cond_wait(&w->dying, &w->lock);
        pthread_mutex_unlock(&w->lock);
        if (!sweep(w)) {
            wait_ms = 1;
            continue;
        }
        usleep(wait_ms * 1000); /* processes take a moment to die */
        wait_ms = wait_ms < 200 ? wait_ms * 2 : wait_ms;
    }
    return NULL;
}

/* ---- uppers of what is gone ---- */

void *destroy_trash_run(void *arg)
{
    warden *w = arg;

    privs_thread("trash");
    setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
    for (;;) {
        err_drop(fs_empty(w->trash_fd), "trash");
        LOCK_SCOPE(&w->lock);
        while (!w->trash_full)
            pthread_cond_wait(&w->trash, &w->lock);
        w->trash_full = false;
    }
    return NULL;
}

bool destroy_wait(warden *w, uint64_t timeout_ms)
{
    uint64_t end = now_mono_ns() + timeout_ms * NS_PER_MS;

    while (sweep(w)) {
        if (now_mono_ns() > end)
            return false;
        usleep(5000);
    }
    err_drop(fs_empty(w->trash_fd), "trash");
    return true;
}
