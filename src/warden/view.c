#include "warden/view.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/bundle.h"
#include "warden/privs.h"
#include "warden/warden.h"

#define REFRESH_S   2
#define WORTH_IT_OF 128 /* a change of one part in so many of the limit is shown */

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER; /* one /proc/meminfo at a time */

/* ---- files ---- */

static void host_cpus(cpus_set *ret_set)
{
    cpu_set_t have;

    *ret_set = (cpus_set){0};
    CPU_ZERO(&have);
    if (sched_getaffinity(0, sizeof have, &have))
        cpus_add(ret_set, 0);
    for (unsigned i = 0; i < CPU_SETSIZE && i < CPUS_MAX; i++)
        if (CPU_ISSET(i, &have))
            cpus_add(ret_set, i);
}

/* Binds the directory on a mount of its own, whose flags the warden can choose: a bind that a user
 * namespace makes keeps the flags of what it binds. */
err *view_open(warden *w)
{
    CLEANUP(freep) char *from = str_printf("%s/view", w->o.state);
    CLEANUP(freep) char *to = str_printf("%s/view", w->place);
    const unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    cpus_set host;

    host_cpus(&host);
    cpus_init(&w->cpus, &host);
    if (mkdir(to, 0755) || mount(from, to, NULL, MS_BIND, NULL) ||
        mount(NULL, to, NULL, MS_REMOUNT | MS_BIND | flags, NULL))
        return err_sys(ERR_UNAVAILABLE, errno, "cannot bind %s", from);
    return NULL;
}

/* Writes a file in place, because it is bound somewhere. A text that is shorter than before is cut
 * only afterwards, so that no reader finds the file empty. */
static err *view_rewrite(const warden *w, uint32_t n, const char *kind, const char *text,
                         size_t len)
{
    char name[32];

    snprintf(name, sizeof name, "%u.%s", n, kind);
    CLEANUP(closep) int fd = openat(w->view_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
    if (fd < 0 || pwrite(fd, text, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len))
        return err_sys(errno == ENOSPC ? ERR_DISK_FULL : ERR_INTERNAL, errno,
                       "cannot write what slot %u sees of its limits", n);
    return NULL;
}

void view_remove(const warden *w, uint32_t n)
{
    static const char *const KINDS[] = {"mem", "cpu"};
    char name[32];

    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++) {
        snprintf(name, sizeof name, "%u.%s", n, KINDS[i]);
        unlinkat(w->view_fd, name, 0);
    }
}

/* ---- processors ---- */

static err *show_cpus(const warden *w, uint32_t n, const cpus_set *set)
{
    char text[CPUS_TEXT + 1];

    cpus_text(set, text);
    size_t len = strlen(text);
    text[len++] = '\n';
    return view_rewrite(w, n, "cpu", text, len);
}

void view_forget_cpus(warden *w, slot *s)
{
    cpus_release(&w->cpus, &s->cpus, s->promised);
    s->promised = 0;
}

/* Chooses and counts a slot's processors. Returns false if it has them already, or is being
 * destroyed. Lock held. */
static bool choose_cpus(warden *w, slot *s, uint32_t milli, cpus_set *ret_set)
{
    if (s->state != SLOT_CLAIMING && s->state != SLOT_CLAIMED)
        return false;
    view_forget_cpus(w, s);
    cpus_choose(&w->cpus, w->cg.cpuset < 0 ? UINT32_MAX : milli, &s->cpus, ret_set);
    bool other = !cpus_equal(ret_set, &s->cpus);
    s->cpus = *ret_set;
    s->promised = milli;
    cpus_promise(&w->cpus, ret_set, milli);
    return other;
}

err *view_set_cpus(warden *w, slot *s, uint32_t milli)
{
    cpus_set set;

    pthread_mutex_lock(&w->lock);
    bool other = choose_cpus(w, s, milli, &set);
    pthread_mutex_unlock(&w->lock);
    if (!other)
        return NULL;
    TRY(cgroup_set_cpus(&w->cg, s->n, &set));
    return show_cpus(w, s->n, &set);
}

/* ---- memory ---- */

/* Writes one line as the kernel writes it, but as wide as any number: a rewrite never changes where
 * a line begins. */
static int view_line(char *at, const char *name, uint64_t bytes)
{
    return sprintf(at, "%-16s%11" PRIu64 " kB\n", name, bytes / 1024);
}

/* Writes the text of /proc/meminfo. Swap is within the memory limit, so none is shown. Page cache
 * can be reclaimed, so it counts as available. */
static size_t memory_text(char *text, uint64_t total, uint64_t used, const cgroup_memory *m)
{
    uint64_t shmem = m->shmem < m->file ? m->shmem : m->file;
    uint64_t cache = m->file < used ? m->file : used;
    uint64_t back = cache > shmem ? cache - shmem : 0;
    const struct {
        const char *name;
        uint64_t bytes;
    } LINES[] = {
        {"MemTotal:", total},
        {"MemFree:", total - used},
        {"MemAvailable:", total - used + back},
        {"Buffers:", 0},
        {"Cached:", cache},
        {"SwapCached:", 0},
        {"SwapTotal:", 0},
        {"SwapFree:", 0},
        {"AnonPages:", m->anon},
        {"Shmem:", shmem},
        {"Slab:", 0},
        {"SReclaimable:", 0},
        {"SUnreclaim:", 0},
    };
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(LINES); i++)
        n += (size_t)view_line(text + n, LINES[i].name, LINES[i].bytes);
    return n;
}

static err *write_memory(const warden *w, uint32_t n, uint64_t limit, uint64_t used,
                         const cgroup_memory *m)
{
    char text[1024];
    uint64_t total = w->memory_total && limit > w->memory_total ? w->memory_total : limit;

    return view_rewrite(w, n, "mem", text,
                        memory_text(text, total, used < total ? used : total, m));
}

static uint64_t limit_of(warden *w, const slot *s)
{
    LOCK_SCOPE(&w->lock);

    return s->limits.memory ? s->limits.memory : BUNDLE_MEMORY;
}

/* Shows a slot its memory. `writing` held, and limit read under it, so that the last writer writes
 * the newest. */
static err *show_memory(warden *w, slot *s, uint64_t limit, uint64_t used)
{
    cgroup_memory m = {0};

    s->shown_used = used;
    (void)cgroup_memory_of(&w->cg, s->n, &m);
    return write_memory(w, s->n, limit, used, &m);
}

err *view_show_memory(warden *w, slot *s)
{
    LOCK_SCOPE(&writing);

    return show_memory(w, s, limit_of(w, s), cgroup_memory_used(&w->cg, s->n));
}

/* ---- a slot's life ---- */

/* Makes both files. The processor is a guess that is often right: then a claim writes nothing. It
 * is not counted before the slot is claimed. */
err *view_make(warden *w, slot *s)
{
    cpus_set one = {0};
    unsigned at = s->n % cpus_count(&w->cpus.host);

    for (unsigned i = 0; i < w->cpus.end; i++)
        if (cpus_has(&w->cpus.host, i) && !at--)
            cpus_add(&one, i);
    s->cpus = w->cg.cpuset < 0 ? w->cpus.host : one;
    TRY(show_cpus(w, s->n, &s->cpus));
    return write_memory(w, s->n, BUNDLE_MEMORY, 0, &(cgroup_memory){0});
}

void view_recover(warden *w, slot *s)
{
    if (!cgroup_get_cpus(&w->cg, s->n, &s->cpus))
        s->cpus = w->cpus.host;
    if (s->state != SLOT_CLAIMED)
        return;
    s->promised = cgroup_get_cpu(&w->cg, s->n);
    cpus_promise(&w->cpus, &s->cpus, s->promised);
    err_drop(show_cpus(w, s->n, &s->cpus), "view"); /* its memory is shown again soon */
}

/* ---- keeping up ---- */

/* Returns the claimed slot with the lowest number from `from` on, referenced; NULL at the end. */
static slot *hold_next(warden *w, uint32_t from)
{
    LOCK_SCOPE(&w->lock);

    for (uint32_t n = from; w->claimed && n < w->nslots; n++)
        if (w->slots[n] && w->slots[n]->state == SLOT_CLAIMED) {
            slot_ref(w->slots[n]);
            return w->slots[n];
        }
    return NULL;
}

static err *view_refresh(warden *w, slot *s)
{
    LOCK_SCOPE(&writing);
    uint64_t limit = limit_of(w, s), used = cgroup_memory_used(&w->cg, s->n);
    uint64_t change = used > s->shown_used ? used - s->shown_used : s->shown_used - used;

    return change > limit / WORTH_IT_OF ? show_memory(w, s, limit, used) : NULL;
}

void *view_run(void *arg)
{
    warden *w = arg;
    uint32_t n;

    privs_thread("view");
    setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
    for (;;) {
        nanosleep(&(struct timespec){.tv_sec = REFRESH_S}, NULL);
        n = 0;
        for (slot *s; (s = hold_next(w, n));) {
            n = s->n + 1;
            err_drop(view_refresh(w, s), "view");
            pthread_mutex_lock(&w->lock);
            slot_unref(w, s);
            slot_unlock_release(w);
        }
    }
    return NULL;
}
