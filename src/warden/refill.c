#include "warden/refill.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/spawn.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/bundle.h"
#include "warden/counters.h"
#include "warden/destroy.h"
#include "warden/pace.h"
#include "warden/place.h"
#include "warden/privs.h"
#include "warden/quota.h"
#include "warden/view.h"
#include "warden/walls.h"
#include "warden/warden.h"

#define CRUN_MS  20000u
#define HELLO_MS 10000u

/* ---- what a slot's user namespace may take of the kernel's shared pools ---- */

/* The kernel counts these for each id, and a sandbox's root has 65,536 of them. So no user
 * namespaces can be made unless the operator allows them (--nested); all other pools are open only
 * to the root of one. (The claim's own mounts count as mount namespaces for a moment.) */
static const struct {
    const char *name;
    const char *value; /* NULL: --nested */
} USERNS_CAPS[] = {
    {"max_inotify_instances", "1024"}, {"max_inotify_watches", "65536"},
    {"max_fanotify_groups", "64"},     {"max_cgroup_namespaces", "64"},
    {"max_ipc_namespaces", "64"},      {"max_mnt_namespaces", "64"},
    {"max_net_namespaces", "64"},      {"max_pid_namespaces", "64"},
    {"max_time_namespaces", "64"},     {"max_user_namespaces", NULL},
    {"max_uts_namespaces", "64"},
};

/* Writes a value and reads it again. Returns true if the file has the whole number, and nothing
 * else. */
static bool refill_takes(long fd, const char *value)
{
    char have[16];
    size_t len = strlen(value);

    if (syscall(SYS_write, fd, value, len) != (long)len ||
        syscall(SYS_pread64, fd, have, sizeof have, 0) != (long)len + 1)
        return false;
    return !memcmp(have, value, len) && have[len] == '\n';
}

typedef struct cap_request {
    int proc;
    int userns;
    char nested[16];
} cap_request;

/* Writes the caps, in the child. It makes only system calls: it runs in the parent's memory and on
 * its stack, as the child of posix_spawn does until it executes a program. */
__attribute__((noinline)) static int cap_child(const cap_request *q)
{
    long dir = syscall(SYS_openat, q->proc, "sys/user", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);

    if (dir < 0 || syscall(SYS_setns, q->userns, CLONE_NEWUSER))
        return errno;
    for (size_t i = 0; i < ARRAY_LEN(USERNS_CAPS); i++) {
        long fd = syscall(SYS_openat, dir, USERNS_CAPS[i].name, O_RDWR | O_CLOEXEC, 0);
        if (fd < 0 && errno == ENOENT)
            continue; /* a kernel without that pool */
        errno = 0;
        if (fd < 0 || !refill_takes(fd, str_or(USERNS_CAPS[i].value, q->nested)))
            return errno ? errno : EIO;
        syscall(SYS_close, fd);
    }
    return 0;
}

/* Caps the kernel pools of the slot's user namespace, in a process of its own: a thread cannot
 * enter a user namespace. The process executes nothing, which would take as long as everything else
 * of a slot but crun; so posix_spawn cannot make it. */
static err *cap_userns(const warden *w, const slot *s)
{
    cap_request q = {.proc = w->proc_fd, .userns = s->userns};
    sigset_t all, old;
    int status = 0;

    snprintf(q.nested, sizeof q.nested, "%u", w->o.nested);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* a handler would run in the parent's memory */
    /* NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork): no program follows */
    pid_t pid = vfork();
    if (!pid)
        _exit(cap_child(&q)); /* NOLINT(clang-analyzer-unix.Vfork): it only makes system calls */
    int errnum = errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (pid < 0)
        return err_sys(ERR_WALL_FAILED, errnum, "cannot cap the kernel pools of slot %u", s->n);
    TRY(spawn_wait(pid, 0, &status));
    if (!status)
        return NULL;
    return err_sys(ERR_WALL_FAILED, WIFEXITED(status) ? WEXITSTATUS(status) : EINTR,
                   "cannot cap the kernel pools of slot %u", s->n);
}

/* ---- one slot ---- */

/* Makes the files in the upper, so that links of the image are not followed when the claim fills
 * them. */
err *refill_make_upper(const warden *w, const char *name, uint32_t project)
{
    static const char *const FILLED[] = {"u/etc/resolv.conf", "u/etc/hostname", "u/etc/hosts"};
    CLEANUP(closep) int fd = -1;

    TRY(fs_dir(w->uppers_fd, name, 0755, &fd));
    TRY(quota_mark(fd, project)); /* before there is anything below it, which inherits it */
    if (mkdirat(fd, "u", 0755) || mkdirat(fd, "w", 0700) || mkdirat(fd, "u/etc", 0755))
        return err_sys(ERR_INTERNAL, errno, "cannot make the upper of slot %s", name);
    for (size_t i = 0; i < ARRAY_LEN(FILLED); i++) {
        CLEANUP(closep) int r = openat(fd, FILLED[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (r < 0)
            return err_sys(ERR_INTERNAL, errno, "cannot write in the upper of slot %s", name);
    }
    return NULL;
}

static err *make_directory(warden *w, slot *s, int *ret_lock)
{
    CLEANUP(buf_done) buf config = {0};
    char name[16];

    snprintf(name, sizeof name, "%u", s->n);
    TRY(fs_dir(w->slots_fd, name, 0700, &s->dirfd));
    TRY(fs_lock(s->dirfd, "lock", ret_lock));
    FAULT_KILL("refill.directory");
    TRY(fs_remove(w->uppers_fd, name));
    TRY(quota_take(w, &s->project));
    TRY(walls_blame(refill_make_upper(w, name, s->project), WALL_DISK, WALLS_AT_REFILL));
    FAULT_KILL("refill.upper");
    TRY(view_make(w, s));
    bundle_write(w, s->n, &config);
    return fs_write(s->dirfd, "config.json", config.p, config.len, 0600, false);
}

/* Makes an error that has the last line crun logged as its cause. */
static err *crun_failed(const slot *s, int status)
{
    CLEANUP(buf_done) buf b = {0};
    err *e = err_new(ERR_INTERNAL, "crun ended with status %d",
                     WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));

    err_free(fs_read(s->dirfd, "crun.log", 65536, &b));
    if (!b.len)
        return e;
    if (b.p[b.len - 1] == '\n')
        b.p[b.len - 1] = 0;
    const char *line = strrchr(b.p, '\n');
    return err_because(e, "%s", line ? line + 1 : b.p);
}

/* Records the worker's child, so that refill_hurry() raises it, too. */
static void have_child(warden *w, refill_worker *me, pid_t pid)
{
    LOCK_SCOPE(&w->lock);
    me->child = pid;
    if (pid && !me->low)
        pace_raise_tree(w->proc_fd, pid); /* it was started before this thread was raised */
}

/* Runs crun. The listener becomes stdin of pid 1. crun also inherits the slot's lock: while any
 * crun works on the slot, even one of an earlier warden, the slot is not taken apart. */
static err *run_crun(warden *w, refill_worker *me, slot *s, int lock, int listener)
{
    CLEANUP(freep) char *root = str_printf("%s/crun", w->place);
    CLEANUP(freep) char *bundle = str_printf("%s/slots/%u", w->o.state, s->n);
    CLEANUP(freep) char *log = str_printf("%s/crun.log", bundle);
    CLEANUP(freep) char *id = str_printf("%u", s->n);
    char *argv[] = {w->runtime, "--root", root,       "--cgroup-manager", "cgroupfs", "--log",
                    log,        "run",    "--detach", "--no-new-keyring", "--bundle", bundle,
                    id,         NULL};
    /* crun gives its stdio to the slot's root: never the host's /dev/null, which that root could
     * then close to everyone. crun's messages are in its log. */
    CLEANUP(closep) int sink = memfd_create("stdio", MFD_CLOEXEC);
    const int fds[] = {listener, sink, sink, lock};
    int status = 0;
    pid_t pid;

    if (sink < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot make crun's output");
    TRY(spawn_start(&(spawn_spec){.argv = argv, .fds = fds, .nfds = 4}, &pid));
    FAULT_KILL("refill.crun_started");
    have_child(w, me, pid);
    err *e = spawn_wait(pid, CRUN_MS, &status);
    FAULT_KILL("refill.crun_done");
    have_child(w, me, 0);
    TRY(err_wrap(e, "crun"));
    return status ? crun_failed(s, status) : NULL;
}

/* Removes crun's own record of the container, which is not needed again. Where the v2 hierarchy is
 * covered (place.c), also removes the directory in memory that crun took for a cgroup there. */
static void forget_in_crun(const warden *w, uint32_t n)
{
    CLEANUP(freep) char *name = str_printf("%s/crun/%u", w->place, n);

    err_drop(fs_remove(AT_FDCWD, name), "refill");
    if (!w->covered)
        return;
    CLEANUP(freep) char *cgroup = str_printf(PLACE_COVERED "%s/%u", w->o.cgroup, n);
    err_drop(fs_remove(AT_FDCWD, cgroup), "refill");
}

static err *refill_start(warden *w, refill_worker *me, slot *s, int lock)
{
    CLEANUP(closep) int listener = -1;

    TRY(sock_bind(s->dirfd, "spine", SOCK_SEQPACKET, 0600, &listener));
    if (listen(listener, 8))
        return err_sys(ERR_INTERNAL, errno, "cannot listen for slot %u", s->n);
    FAULT_KILL("refill.listening");
    err *e = run_crun(w, me, s, lock, listener);
    forget_in_crun(w, s->n);
    return e;
}

/* Sets the default limits. The runtime was asked for these, too. But they are walls, and a claim
 * that keeps them relies on what the warden wrote itself. */
static err *refill_limit(const warden *w, slot *s)
{
    const struct wp_limits defaults = {.memory = BUNDLE_MEMORY,
                                       .cpu_milli = BUNDLE_CPU_MILLI,
                                       .pids = BUNDLE_PIDS,
                                       .shm_mib = BUNDLE_SHM_MIB};

    if (!FAULT("wall.limits"))
        TRY(cgroup_limit(&w->cg, s->n, &(struct wp_limits){0}, &defaults));
    TRY(walls_limits(w, s, &(struct wp_limits){0}, &defaults));
    TRY(cgroup_rate_set(&w->cg, s->n, &w->o.rate));
    s->made = defaults;
    if (w->cg.cpuset >= 0)
        TRY(cgroup_set_cpus(&w->cg, s->n, &s->cpus));
    return NULL;
}

static err *refill_make(warden *w, refill_worker *me, slot *s)
{
    CLEANUP(closep) int lock = -1;
    char name[32];

    TRY(make_directory(w, s, &lock));
    TRY(refill_start(w, me, s, lock));
    TRY(slot_meet(s, HELLO_MS));
    FAULT_KILL("refill.met");
    TRY(walls_at_refill(w, s));
    FAULT_KILL("refill.walls_tried");
    s->start = slot_start_time(w->proc_fd, s->pid);
    snprintf(name, sizeof name, "%d/ns/user", s->pid);
    s->userns = openat(w->proc_fd, name, O_RDONLY | O_CLOEXEC);
    if (s->userns < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot open the user namespace of slot %u", s->n);
    TRY(walls_blame(cgroup_take_back(&w->cg, s->n), WALL_CGROUP, WALLS_AT_REFILL));
    FAULT_KILL("refill.taken_back");
    TRY(walls_blame(cap_userns(w, s), WALL_POOLS, WALLS_AT_REFILL));
    FAULT_KILL("refill.capped");
    if (!pace_set(s->pid, PACE_NORMAL) && privs_may_renice()) /* it inherited this thread's */
        return err_sys(ERR_INTERNAL, errno, "cannot give slot %u its priority back", s->n);
    TRY(walls_blame(refill_limit(w, s), WALL_CGROUP, WALLS_AT_REFILL));
    slot_walls_held(w, s);
    return slot_write_state(w->proc_fd, s);
}

/* ---- the workers ---- */

pool_level refill_level(const warden *w)
{
    return (pool_level){.ready = w->ready + w->giving,
                        .making = w->making,
                        .claimed = w->claimed,
                        .waiting = w->fifo.n,
                        .blocked = w->fifo.held_by != ADMIT_NOW};
}

unsigned refill_retry_after(const warden *w, uint32_t before)
{
    const pool_level l = refill_level(w);

    return pool_retry_after(&w->pool, &l, before, now_mono_ns());
}

void refill_hurry(warden *w)
{
    if (!w->fifo.n || w->ready || w->fifo.held_by != ADMIT_NOW)
        return;
    for (size_t i = 0; i < POOL_WORKERS; i++)
        if (w->worker[i].low) {
            w->worker[i].low = false;
            (void)pace_set(w->worker[i].tid, PACE_NORMAL);
            if (w->worker[i].child)
                pace_raise_tree(w->proc_fd, w->worker[i].child);
        }
}

/* Waits until the planner wants one more slot, and returns a new one, referenced. */
static slot *refill_begin(warden *w, refill_worker *me)
{
    LOCK_SCOPE(&w->lock);

    for (;;) {
        const pool_level l = refill_level(w);
        pool_plan plan = pool_decide(&w->pool, &l, now_mono_ns());
        uint32_t n = plan.start ? slot_take_number(w) : UINT32_MAX;
        if (n == UINT32_MAX) {
            cond_wait_until(&w->refill, &w->lock, plan.again_ns);
            continue;
        }
        slot *s = slot_add(w, n, SLOT_MAKING);
        slot_ref(s); /* this worker's, besides the table's */
        w->making++;
        me->low = !plan.hurry && pace_set(me->tid, PACE_LOW);
        if (!me->low)
            (void)pace_set(me->tid, PACE_NORMAL);
        if (plan.start > 1)
            pthread_cond_signal(&w->refill);
        return s;
    }
}

static void note_failure(warden *w, const err *e)
{
    w->refills_failed++;
    walls_note(w, e);
    count_refill(0);
}

static void refill_finish(warden *w, slot *s, const err *e, uint64_t from)
{
    uint64_t now = now_mono_ns();
    LOCK_SCOPE(&w->lock);

    w->making--;
    if (e) {
        note_failure(w, e);
        pool_failed(&w->pool, from, now);
        destroy_slot(w, s);
    } else {
        slot_enter_ready(w, s);
        FAULT_KILL("refill.ready");
        pool_made(&w->pool, now - from);
        count_refill(now - from);
    }
    slot_unref(w, s);
    pthread_cond_signal(&w->claims);
}

static refill_worker *sign_on(warden *w)
{
    LOCK_SCOPE(&w->lock);
    refill_worker *me = w->worker;

    while (me->tid)
        me++;
    me->tid = gettid();
    return me;
}

void *refill_run(void *arg)
{
    warden *w = arg;
    refill_worker *me = sign_on(w);

    pthread_setname_np(pthread_self(), "refill");
    for (;;) {
        slot *s = refill_begin(w, me);
        uint64_t from = now_mono_ns();
        err *e = refill_make(w, me, s);
        if (e)
            log_warn("refill", "slot %u: %s: %s", s->n, e->message, str_or(e->cause, "no cause"));
        refill_finish(w, s, e, from);
        err_free(e);
    }
    return NULL;
}
