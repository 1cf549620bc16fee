#include "warden/slot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/str.h"
#include "warden/destroy.h"
#include "warden/network.h"
#include "warden/quota.h"
#include "warden/snapshot.h"
#include "warden/view.h"
#include "warden/walls.h"
#include "warden/warden.h"

#ifndef SO_PEERPIDFD
#    define SO_PEERPIDFD 77 /* 6.5 */
#endif

/* ---- the table ---- */

slot *slot_add(warden *w, uint32_t n, enum slot_state state)
{
    slot *s = xcalloc(1, sizeof *s);

    *s = (slot){
        .n = n, .state = state, .refs = 1, .dirfd = -1, .pidfd = -1, .userns = -1, .conn = -1};
    w->slots[n] = s;
    return s;
}

slot *slot_find(const warden *w, const char *id)
{
    return map_get_str(&w->by_id, id);
}

void slot_ref(slot *s)
{
    s->refs++;
}

void slot_unref(warden *w, slot *s)
{
    if (--s->refs)
        return;
    w->slots[s->n] = NULL;
    closep(&s->dirfd);
    closep(&s->pidfd);
    closep(&s->userns);
    closep(&s->conn);
    slot_drop_ahead(w, s);
    w->free_numbers[w->nfree++] = s->n;
    free(s);
    pthread_cond_signal(&w->refill);
}

void slot_drop_ahead(warden *w, slot *s)
{
    if (!s->ahead.owner)
        return;
    w->stacks = xrealloc(w->stacks, (w->nstacks + 1) * sizeof *w->stacks);
    w->stacks[w->nstacks++] = s->ahead;
    s->ahead = (layers_stack){0};
}

void slot_unlock_release(warden *w)
{
    layers_stack *list = TAKE_PTR(w->stacks);
    size_t n = w->nstacks;

    w->nstacks = 0;
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < n; i++)
        layers_stack_done(&list[i]);
    free(list);
}

uint32_t slot_take_number(warden *w)
{
    return w->nfree ? w->free_numbers[--w->nfree] : UINT32_MAX;
}

void slot_enter_ready(warden *w, slot *s)
{
    s->state = SLOT_READY;
    s->ready_ns = now_mono_ns();
    s->prev = w->ready_tail;
    s->next = NULL;
    *(w->ready_tail ? &w->ready_tail->next : &w->ready_head) = s;
    w->ready_tail = s;
    w->ready++;
}

void slot_promise(warden *w, const slot *s)
{
    w->memory_claimed += admit_counted(w->memory_total, s->limits.memory);
    w->pids_claimed += s->limits.pids;
}

void slot_unpromise(warden *w, const slot *s)
{
    w->memory_claimed -= admit_counted(w->memory_total, s->limits.memory);
    w->pids_claimed -= s->limits.pids;
}

void slot_leave_ready(warden *w, slot *s)
{
    *(s->prev ? &s->prev->next : &w->ready_head) = s->next;
    *(s->next ? &s->next->prev : &w->ready_tail) = s->prev;
    s->prev = s->next = NULL;
    w->ready--;
}

/* ---- the process ---- */

/* Reads field n of /proc/PID/stat, from 3 on, as a number or the letter it is. The name in field 2
 * may hold anything, so fields count from its last ')'. Returns false if there is no such
 * process. */
static bool stat_field(int proc_fd, pid_t pid, int n, uint64_t *ret)
{
    CLEANUP(buf_done) buf b = {0};
    char name[32];

    snprintf(name, sizeof name, "%d/stat", pid);
    err *e = fs_read(proc_fd, name, 4096, &b);
    if (e) {
        err_free(e);
        return false;
    }
    char *at = strrchr(buf_cstr(&b), ')');
    for (int i = 2; i < n && at; i++)
        at = strchr(at + 1, ' ');
    if (at)
        *ret = n == 3 ? (uint64_t)at[1] : strtoull(at + 1, NULL, 10);
    return at;
}

uint64_t slot_start_time(int proc_fd, pid_t pid)
{
    uint64_t start = 0;

    return stat_field(proc_fd, pid, 22, &start) ? start : 0;
}

void slot_wait_dead(const slot *s, int wait_ms)
{
    struct pollfd p = {s->pidfd, POLLIN, 0};

    if (s->pidfd >= 0)
        (void)poll(&p, 1, wait_ms);
}

bool slot_dead(const slot *s)
{
    struct pollfd p = {s->pidfd, POLLIN, 0};

    return s->pidfd < 0 || poll(&p, 1, 0) > 0;
}

/* From linux/pidfd.h of 6.15; older headers do not have it. */
struct pidfd_info_exit {
    uint64_t mask, cgroupid;
    uint32_t pid, tgid, ppid, ids[8];
    int32_t exit_code;
};
#define PIDFD_GET_EXIT  _IOWR(0xFF, 11, struct pidfd_info_exit)
#define PIDFD_MASK_EXIT (UINT64_C(1) << 3)

/* Reads the status of a process that nothing has waited for yet; on some machines nothing ever
 * does. */
static bool zombie_status(int proc_fd, const slot *s, int *ret_status)
{
    uint64_t state, code;

    if (slot_start_time(proc_fd, s->pid) != s->start || !stat_field(proc_fd, s->pid, 3, &state) ||
        state != 'Z' || !stat_field(proc_fd, s->pid, 52, &code))
        return false;
    *ret_status = (int)code;
    return true;
}

/* Reads the status of a process that the machine's own pid 1 has waited for. */
static bool reaped_status(const slot *s, int *ret_status)
{
    struct pidfd_info_exit info = {.mask = PIDFD_MASK_EXIT};

    if (ioctl(s->pidfd, PIDFD_GET_EXIT, &info) || !(info.mask & PIDFD_MASK_EXIT))
        return false;
    *ret_status = info.exit_code;
    return true;
}

bool slot_status(int proc_fd, const slot *s, int *ret_status)
{
    if (s->pidfd < 0)
        return false;
    return zombie_status(proc_fd, s, ret_status) || reaped_status(s, ret_status);
}

/* ---- the claim file ---- */

/* Begins a record in an empty file, which the refill made: making one during the claim takes longer
 * than all the rest of its record. */
static err *begin_record(const slot *s, const char *name, const char *text, int len, int *ret_fd)
{
    CLEANUP(closep)
    int fd = openat(s->dirfd, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    struct stat st;
    int r = fd < 0 || fstat(fd, &st) ? -errno : st.st_size ? -EEXIST : 0;

    r = r ? r : fs_write_all(fd, text, (size_t)len);

    if (r)
        return err_sys(r == -ENOSPC ? ERR_DISK_FULL : ERR_INTERNAL, -r,
                       "cannot write the %s record of slot %u", name, s->n);
    *ret_fd = TAKE_FD(fd);
    return NULL;
}

err *slot_claim_begin(slot *s, int *ret_fd)
{
    char text[128], hex[65];

    hex_encode(s->image.sha256, sizeof s->image.sha256, hex);
    int n = snprintf(text, sizeof text, "%s\n%s\n", s->id, hex);
    return begin_record(s, "claim", text, n, ret_fd);
}

err *slot_ahead_begin(slot *s, int *ret_fd)
{
    char text[80], hex[65];

    hex_encode(s->image.sha256, sizeof s->image.sha256, hex);
    int n = snprintf(text, sizeof text, "%s\n", hex);
    return begin_record(s, "ahead", text, n, ret_fd);
}

err *slot_claim_done(int fd)
{
    int r = fs_write_all(fd, "ok\n", 3);

    return r ? err_sys(ERR_INTERNAL, -r, "cannot complete a claim's record") : NULL;
}

void slot_mark_dead(slot *s)
{
    if (s->dirfd < 0)
        return;
    if (!renameat(s->dirfd, "claim", s->dirfd, "dead") || errno != ENOENT)
        return;
    int fd = openat(s->dirfd, "dead", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    closep(&fd);
}

/* ---- meeting pid 1 ---- */

/* Connects to the slot's socket. The warden made the listener; pid 1 takes it over when it calls
 * listen() again. Before that, a connection names the warden itself as its peer. */
static err *connect_once(slot *s, int *ret_conn, pid_t *ret_pid)
{
    CLEANUP(closep) int fd = -1;
    sock_peer peer;

    TRY(sock_connect(s->dirfd, "spine", SOCK_SEQPACKET, &fd));
    if (!sock_peer_of(fd, &peer))
        return err_sys(ERR_INTERNAL, errno, "cannot tell who pid 1 of slot %u is", s->n);
    *ret_conn = TAKE_FD(fd);
    *ret_pid = peer.pid;
    return NULL;
}

static err *receive_hello(slot *s, int conn, uint64_t timeout_ms)
{
    struct pollfd p = {conn, POLLIN, 0};
    int r = poll(&p, 1, (int)timeout_ms);

    if (r <= 0)
        return err_new(ERR_TIMEOUT, "pid 1 of slot %u did not speak", s->n);
    ssize_t n = recv(conn, &s->hello, sizeof s->hello, MSG_DONTWAIT | MSG_TRUNC);
    if (n <= 0)
        return err_sys(ERR_UNAVAILABLE, n ? errno : ECONNRESET, "pid 1 of slot %u is gone", s->n);
    if (n != (ssize_t)sizeof s->hello || s->hello.h.type != SP_HELLO || s->hello.nrec ||
        s->hello.high || (s->hello.flags & SP_HELLO_CLAIMED))
        return err_new(ERR_CONFLICT, "pid 1 of slot %u is not fresh", s->n);
    if (s->hello.version < SP_VERSION_MIN || s->hello.version > SP_VERSION)
        return err_new(ERR_UNSUPPORTED,
                       "bothy-init speaks version %u of the spine, this warden %u to %u: install "
                       "programs of one release",
                       s->hello.version, SP_VERSION_MIN, SP_VERSION);
    return NULL;
}

static int peer_pidfd(int conn, pid_t pid)
{
    int fd = -1;
    socklen_t n = sizeof fd;

    if (!getsockopt(conn, SOL_SOCKET, SO_PEERPIDFD, &fd, &n))
        return fd;
    /* Before 6.5. While the connection lives its peer does, so the pid is not recycled. */
    return pidfd_open(pid, 0);
}

err *slot_meet(slot *s, uint64_t timeout_ms)
{
    CLEANUP(closep) int conn = -1;
    pid_t pid = 0;

    for (int tries = 0;; tries++) {
        closep(&conn);
        conn = -1;
        TRY(connect_once(s, &conn, &pid));
        TRY(receive_hello(s, conn, timeout_ms));
        if (pid != getpid())
            break;
        if (tries)
            return err_new(ERR_INTERNAL, "nobody took over the socket of slot %u", s->n);
    }
    s->pid = pid;
    s->pidfd = peer_pidfd(conn, pid);
    if (s->pidfd < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot hold pid 1 of slot %u", s->n);
    s->conn = TAKE_FD(conn);
    return NULL;
}

void slot_walls_held(const warden *w, slot *s)
{
    uint32_t held = WALLS_REFILL_OUTSIDE & ~(w->quota ? 0 : WALL_BIT(DISK));

    s->hello.h.id |= SP_WALLS(held, held);
}

/* ---- after a restart ---- */

/* Reads "<id>\n<image>\nok\n". Returns false for anything shorter: a claim that was never
 * completed. */
static bool read_claim(slot *s)
{
    CLEANUP(buf_done) buf b = {0};
    err *e = fs_read(s->dirfd, "claim", 256, &b);

    if (e) {
        err_free(e);
        return false;
    }
    const size_t len = SANDBOX_ID_LEN + 1 + 64 + 1 + 3;
    if (b.len != len || b.p[SANDBOX_ID_LEN] != '\n' || strcmp(b.p + len - 4, "\nok\n") != 0)
        return false;
    b.p[SANDBOX_ID_LEN] = 0;
    b.p[SANDBOX_ID_LEN + 1 + 64] = 0;
    if (!id_is_sandbox(b.p) || !hex_decode(b.p + SANDBOX_ID_LEN + 1, s->image.sha256, 32))
        return false;
    memcpy(s->id, b.p, sizeof s->id);
    return true;
}

/* Holds the process of the state file, if it is still the same one. */
static void find_process(const warden *w, slot *s)
{
    int fd = pidfd_open(s->pid, 0);

    if (fd >= 0 && slot_start_time(w->proc_fd, s->pid) == s->start &&
        cgroup_holds(&w->cg, w->proc_fd, s->pid, s->n))
        s->pidfd = TAKE_FD(fd);
    closep(&fd);
}

static bool slot_exists(const slot *s, const char *name)
{
    return !faccessat(s->dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

static bool is_claimed(const slot *s)
{
    struct stat st;

    return !fstatat(s->dirfd, "claim", &st, AT_SYMLINK_NOFOLLOW) && st.st_size > 0;
}

static int open_userns(const warden *w, pid_t pid)
{
    char name[32];

    snprintf(name, sizeof name, "%d/ns/user", pid);
    return openat(w->proc_fd, name, O_RDONLY | O_CLOEXEC);
}

/* Reads the image that the slot has ahead of a claim. Returns false if it was not put under it
 * wholly, or was forgotten. */
static bool read_ahead(const warden *w, slot *s)
{
    CLEANUP(buf_done) buf b = {0};
    uint8_t image[32];

    if (!w->layers) /* --destroy-all: everything goes */
        return false;
    err *e = fs_read(s->dirfd, "ahead", 256, &b);
    bool whole = !e && b.len == 64 + 1 + 3 && !strcmp(buf_cstr(&b) + 64, "\nok\n");

    if (whole) {
        b.p[64] = 0;
        whole = hex_decode(b.p, image, sizeof image);
    }
    if (whole)
        e = layers_stack_of(w->layers, image, &s->ahead);
    whole &= !e;
    err_free(e);
    return whole;
}

/* Reads the slot's state. If that of a claimed slot is missing or damaged, pid 1 is searched for in
 * the cgroup, because the slot is a sandbox. */
static bool find_state(const warden *w, slot *s)
{
    enum slot_found f = slot_read_state(w, s);

    if (f == SLOT_FOUND)
        return true;
    if (f == SLOT_OF_EARLIER_BOOT || (f == SLOT_NEVER_READY && !is_claimed(s)))
        return false;
    if (is_claimed(s) && slot_rebuild_state(w, s))
        return true;
    if (f == SLOT_DAMAGED)
        log_error("recover", "slots/%u/state is damaged and no process of it is left", s->n);
    return false;
}

/* Recovers one slot. Returns true if it may stay. */
static bool recover_one(warden *w, slot *s)
{
    struct wp_usage u = {0};

    if (slot_exists(s, "dead") || !find_state(w, s))
        return false;
    find_process(w, s);
    s->project = quota_project(w, s->n);
    if (is_claimed(s)) { /* its socket is bothyd's: never connect to it */
        if (!read_claim(s) || slot_find(w, s->id))
            return false;
        s->state = SLOT_CLAIMED;
        snapshot_recover(w, s);
        s->frozen = !cgroup_thawed(&w->cg, s->n);
        s->network = network_has(w, s->n);
        s->limits.memory = cgroup_usage(&w->cg, s->n, &u) ? u.memory_limit : 0;
        s->limits.pids = cgroup_pids_limit(&w->cg, s->n);
        return true;
    }
    if (s->foreign) { /* a new sandbox never gets the pid 1 of another release */
        log_info("recover", "slot %u is of another release: a new one takes its place", s->n);
        return false;
    }
    if (slot_dead(s) || (slot_exists(s, "ahead") && !read_ahead(w, s)))
        return false;
    if (w->quota && !s->project) /* made before there were quotas */
        return false;
    pid_t pid = s->pid;
    closep(&s->pidfd);
    s->pidfd = -1;
    err *e = slot_meet(s, 2000);
    s->userns = e ? -1 : open_userns(w, s->pid);
    bool ok = !e && s->pid == pid && s->userns >= 0;
    if (ok) /* an earlier version may not even have tried all */
        e = walls_at_refill(w, s);
    if (ok && !e)
        e = cgroup_rate_renew(&w->cg, s->n, &w->o.rate);
    if (e)
        log_warn("recover", "slot %u: %s: %s", s->n, e->message, str_or(e->cause, "no cause"));
    ok &= !e;
    slot_walls_held(w, s);
    err_free(e);
    s->state = SLOT_READY;
    return ok;
}

static void recover_number(warden *w, uint32_t n)
{
    char name[16];
    slot *s = slot_add(w, n, SLOT_MAKING);

    FAULT_KILL("recover.slot");
    snprintf(name, sizeof name, "%u", n);
    s->dirfd = openat(w->slots_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dirfd < 0 || !recover_one(w, s)) {
        s->state = SLOT_MAKING; /* counted nowhere */
        s->id[0] = 0;
        destroy_slot(w, s);
    } else if (s->state == SLOT_CLAIMED) {
        map_put_str(&w->by_id, s->id, s);
        w->claimed++;
        slot_promise(w, s);
        view_recover(w, s);
    } else {
        view_recover(w, s);
        slot_enter_ready(w, s);
    }
}

/* Refuses slots of a newer warden, before anything is touched. */
static err *check_formats(const warden *w)
{
    int fd = openat(w->slots_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    err *e = NULL;

    if (!d)
        return err_sys(ERR_INTERNAL, errno, "cannot read the slots");
    while (!e && (entry = readdir(d))) /* NOLINT(concurrency-mt-unsafe): the stream is local */
        e = slot_state_known(w->slots_fd, entry->d_name);
    closedir(d);
    return e;
}

static err *for_numbers(int dirfd, void (*each)(warden *w, uint32_t n), warden *w)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    uint64_t n;

    if (!d)
        return err_sys(ERR_INTERNAL, errno, "cannot read a directory of the state");
    while ((e = readdir(d))) /* NOLINT(concurrency-mt-unsafe): the stream is local */
        if (str_to_u64(e->d_name, w->nslots - 1, &n) && !w->slots[n])
            each(w, (uint32_t)n);
    closedir(d);
    return NULL;
}

/* Destroys a slot that has an upper or a cgroup but no directory: it was almost gone. */
static void recover_orphan(warden *w, uint32_t n)
{
    slot *s = slot_add(w, n, SLOT_MAKING);

    destroy_slot(w, s);
}

err *slot_recover(warden *w)
{
    TRY(check_formats(w));
    uint32_t *orphans = xcalloc(SLOTS_MAX, sizeof *orphans);
    size_t norphans = cgroup_list(&w->cg, orphans, SLOTS_MAX);

    pthread_mutex_lock(&w->lock);
    err *e = for_numbers(w->slots_fd, recover_number, w);
    if (!e)
        e = for_numbers(w->uppers_fd, recover_orphan, w);
    for (size_t i = 0; i < norphans; i++)
        if (orphans[i] < w->nslots && !w->slots[orphans[i]])
            recover_orphan(w, orphans[i]);
    for (uint32_t n = w->nslots; n-- > 0;) /* the lowest on top */
        if (!w->slots[n])
            w->free_numbers[w->nfree++] = n;
    pthread_mutex_unlock(&w->lock);
    free(orphans);
    log_info("recover", "%u claimed and %u ready slots found", w->claimed, w->ready);
    return e;
}
