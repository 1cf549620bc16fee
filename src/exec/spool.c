/* Spools: room on the disk, holes, followers, writing, reading. */
#include "exec/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define MIB         (UINT64_C(1) << 20)
#define OPEN_BUDGET 512u
#define PATIENCE_NS (60 * NS_PER_S)
#define KEPT_OF     16          /* kept: one part in so many of the disk */
#define KEPT_MAX    (256 * MIB) /* at most */
#define ALLOWANCE   (8 * MIB)
#define SPACE_MIN   4096u /* a quarter of the free space that is less is none */

static bool spool_punch(int fd, uint64_t from, uint64_t to)
{
    return !fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                      (off_t)(to - from));
}

/* ---- room on the disk ---- */

static uint64_t space_of(int root, uint64_t *ret_kept)
{
    struct statvfs v;

    *ret_kept = 0;
    if (fstatvfs(root, &v))
        return UINT64_MAX; /* then writing will tell */
    uint64_t all = (uint64_t)v.f_blocks * v.f_frsize, have = (uint64_t)v.f_bavail * v.f_frsize;
    *ret_kept = all / KEPT_OF < KEPT_MAX ? all / KEPT_OF : KEPT_MAX;
    return have > *ret_kept ? have - *ret_kept : 0;
}

/* Returns how many bytes may be written before the next check. Takes a quarter of the free space,
 * so that two writers that check together do not overshoot. */
static size_t spool_allowance(spool_set *s)
{
    int64_t left = atomic_load(&s->allowance);
    uint64_t kept;

    if (left > 0)
        return (size_t)left;
    uint64_t more = s->space(s->root, &kept) / 4;
    if (more < SPACE_MIN)
        return 0;
    left = (int64_t)(more < ALLOWANCE ? more : ALLOWANCE);
    atomic_store(&s->allowance, left);
    return (size_t)left;
}

bool spool_set_has_space(spool_set *s)
{
    return spool_allowance(s) > 0;
}

bool spool_set_is_full(spool_set *s)
{
    uint64_t kept;

    return s->space(s->root, &kept) / 4 < SPACE_MIN;
}

bool spool_set_is_short(spool_set *s)
{
    uint64_t kept, space = s->space(s->root, &kept);

    return space < kept;
}

static err *spool_probe(spool_set *s)
{
    char page[8192] = {1};
    CLEANUP(closep)
    int fd = openat(s->root, ".probe", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot write to the spool directory");
    /* A full disk fails the write and tells nothing about holes: they are then taken to work. */
    s->punch = fs_pwrite_all(fd, page, sizeof page, 0) || spool_punch(fd, 0, 4096);
    unlinkat(s->root, ".probe", 0);
    if (!s->punch)
        log_warn("spool", "the spool's file system cannot make holes: commands block at %lu bytes",
                 s->max);
    return NULL;
}

err *spool_set_init(spool_set *s, int root, uint64_t max)
{
    *s = (spool_set){.root = root,
                     .max = max,
                     .budget = OPEN_BUDGET,
                     .patience_ns = PATIENCE_NS,
                     .now = now_mono_ns,
                     .space = space_of};
    TRY(spool_probe(s));
    pthread_mutex_init(&s->lock, NULL);
    return NULL;
}

void spool_set_done(spool_set *s)
{
    pthread_mutex_destroy(&s->lock);
}

/* Takes a spool off the list of open ones. set->lock held. */
static void list_take(spool *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        s->set->open = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->prev = s->next = NULL;
    s->set->nopen--;
}

void spool_set_sweep(spool_set *set, uint64_t now_ns, uint64_t idle_ns)
{
    spool *next;

    LOCK_SCOPE(&set->lock);
    if (set->nopen > set->budget)
        idle_ns = 0;
    for (spool *s = set->open; s; s = next) {
        next = s->next;
        /* Trylock, because a thread that opens the spool holds its lock and waits for the set's. A
         * spool in use is not idle. */
        if (pthread_mutex_trylock(&s->lock))
            continue;
        if (!s->users && now_ns - s->used_ns >= idle_ns) {
            close(TAKE_FD(s->fd));
            list_take(s);
        }
        pthread_mutex_unlock(&s->lock);
    }
}

void spool_path(const char *sandbox, uint64_t exec, int stream, char ret_path[SPOOL_PATH_MAX])
{
    snprintf(ret_path, SPOOL_PATH_MAX, "%s/%lu.%s", sandbox, exec, stream == 1 ? "out" : "err");
}

void spool_init(spool *s, spool_set *set, const char *sandbox, uint64_t exec, int stream,
                spool_marker *mark, void *arg)
{
    *s = (spool){.set = set, .mark = mark, .arg = arg, .stream = stream, .max = set->max, .fd = -1};
    spool_path(sandbox, exec, stream, s->path);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->drop_lock, NULL);
}

void spool_limit(spool *s, uint64_t max)
{
    if (max < s->max)
        s->max = max;
}

void spool_done(spool *s)
{
    {
        LOCK_SCOPE(&s->set->lock);
        if (s->fd >= 0) {
            close(TAKE_FD(s->fd));
            list_take(s);
        }
    }
    spans_done(&s->holes);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->drop_lock);
}

/* ---- holes ---- */

/* Returns the hole behind the present base, which is the last one, or NULL. Lock held. */
static const span *hole_now(const spool *s)
{
    const span *h = s->holes.n ? &s->holes.at[s->holes.n - 1] : NULL;

    return h && h->to > s->base ? h : NULL;
}

void spool_set_mark(spool *s, uint64_t from, uint64_t to)
{
    LOCK_SCOPE(&s->lock);
    spans_add(&s->holes, from, to);
}

uint64_t spool_load(spool *s, uint64_t least)
{
    struct stat st;
    uint64_t size = 0;

    if (!fstatat(s->set->root, s->path, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
        size = (uint64_t)st.st_size;
    LOCK_SCOPE(&s->lock);
    uint64_t to = s->holes.n ? s->holes.at[s->holes.n - 1].to : 0, length = to > least ? to : least;
    uint64_t known = spans_bytes(&s->holes, 0, UINT64_MAX);

    if (length > size)
        spans_add(&s->holes, size, length);
    atomic_store(&s->length, length > size ? length : size);
    return spans_bytes(&s->holes, 0, UINT64_MAX) - known;
}

uint64_t spool_dropped(spool *s, uint64_t from, uint64_t to)
{
    LOCK_SCOPE(&s->lock);
    return spans_bytes(&s->holes, from, to);
}

/* Returns the descriptor, which stays open until spool_release(), or -errno. */
static int spool_acquire(spool *s, bool create)
{
    LOCK_SCOPE(&s->lock);
    if (s->fd < 0) {
        int fd = openat(s->set->root, s->path,
                        O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600);
        if (fd < 0)
            return -errno;
        /* Holes are made again: a kill between a mark and its hole left the bytes. */
        for (size_t i = 0; create && s->set->punch && i < s->holes.n; i++)
            spool_punch(fd, s->holes.at[i].from, s->holes.at[i].to);
        LOCK_SCOPE(&s->set->lock);
        s->fd = fd;
        s->next = s->set->open;
        if (s->next)
            s->next->prev = s;
        s->set->open = s;
        s->set->nopen++;
    }
    s->users++;
    return s->fd;
}

static void spool_release(spool *s)
{
    LOCK_SCOPE(&s->lock);
    s->users--;
    s->used_ns = now_mono_ns();
}

static enum spool_status spool_trouble(const spool *s, int errnum)
{
    if (!fs_is_no_room(errnum))
        log_error("spool", "%s: %s", s->path, strerrordesc_np(errnum));
    return SPOOL_NOSPACE;
}

/* ---- followers ---- */

/* Returns true while a follower that advances has still to read a byte before end. The spool's
 * patience is limited as a whole, too: a follower that comes again and again without reading always
 * looks new. */
static bool hold_back(spool *s, uint64_t end)
{
    LOCK_SCOPE(&s->lock);
    /* Read under the lock, otherwise a follower that moves meanwhile could be newer than `now`. */
    uint64_t now = s->set->now(), patience = s->set->patience_ns;

    if (s->waits_ns)
        s->waited_ns += now - s->waits_ns;
    s->wanted = s->waits_ns = 0;
    for (const spool_hold *h = s->holds; h && s->waited_ns < patience; h = h->next)
        if (h->at < end && now < h->moved_ns + patience)
            s->wanted = end;
    if (s->awaited && s->waited_ns < patience)
        s->wanted = end;
    if (s->wanted)
        s->waits_ns = now;
    return s->wanted;
}

/* Ends the writer's wait if a follower has read up to `wanted`. Lock held. */
static bool let_go(spool *s, uint64_t at)
{
    if (!s->wanted || at < s->wanted)
        return false;
    s->wanted = 0; /* the writer checks again: other followers may be behind */
    return true;
}

void spool_hold_add(spool *s, spool_hold *h, uint64_t at)
{
    LOCK_SCOPE(&s->lock);
    s->awaited = false;
    *h = (spool_hold){.at = at, .moved_ns = s->set->now(), .next = s->holds};
    s->holds = h;
}

bool spool_hold_move(spool *s, spool_hold *h, uint64_t at)
{
    LOCK_SCOPE(&s->lock);

    if (at <= h->at)
        return false;
    h->at = at;
    h->moved_ns = s->set->now();
    s->waited_ns = 0;
    if (s->waits_ns)
        s->waits_ns = h->moved_ns;
    return let_go(s, at);
}

bool spool_hold_remove(spool *s, spool_hold *h)
{
    LOCK_SCOPE(&s->lock);

    for (spool_hold **at = &s->holds; *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            break;
        }
    return let_go(s, UINT64_MAX);
}

/* ---- writing ---- */

/* Drops an eighth of the ceiling from the middle, behind the head; so large pieces keep marks
 * few. */
static enum spool_status drop_middle(spool *s)
{
    uint64_t max = s->max, unit = max >= 4 * MIB ? MIB : max / 4 & ~UINT64_C(4095);
    uint64_t chunk = max / 8 / (unit ? unit : 1) * unit;
    uint64_t start;

    if (!s->set->punch || !unit)
        return SPOOL_CEILING;
    LOCK_SCOPE(&s->drop_lock);
    {
        LOCK_SCOPE(&s->lock);
        const span *h = hole_now(s);
        start = h ? h->to : (s->base + unit + unit - 1) / unit * unit;
    }
    uint64_t end = start + (chunk ? chunk : unit);
    if (end > atomic_load(&s->length) || hold_back(s, end))
        return SPOOL_HELD; /* bytes that are not written yet cannot be dropped, either */
    if (!s->mark(s->arg, s->stream, start, end))
        return SPOOL_NOSPACE;
    FAULT_KILL("exec.marked");
    spool_set_mark(s, start, end);
    int fd = spool_acquire(s, true);
    if (fd < 0)
        return spool_trouble(s, -fd);
    if (!spool_punch(fd, start, end))
        log_warn("spool", "%s: cannot make a hole: %s", s->path, strerrordesc_np(errno));
    FAULT_KILL("exec.punched");
    spool_release(s);
    return SPOOL_MORE;
}

/* Returns up to where bytes may be dropped, at most `to`: not what a follower that advances has
 * still to read. Lock held. */
static uint64_t held_from(const spool *s, uint64_t to)
{
    uint64_t now = s->set->now();

    if (s->awaited && s->waited_ns < s->set->patience_ns)
        return 0;
    for (const spool_hold *h = s->holds; h; h = h->next)
        if (h->at < to && now < h->moved_ns + s->set->patience_ns)
            to = h->at;
    return to;
}

/* Returns up to where the beginning must be dropped so that at most max bytes before base are kept.
 * Lock held. */
static uint64_t too_old(const spool *s)
{
    uint64_t kept = s->base - spans_bytes(&s->holes, 0, s->base), at = 0;

    if (kept <= s->max)
        return 0;
    uint64_t excess = kept - s->max;
    for (size_t i = 0; i < s->holes.n && s->holes.at[i].from < at + excess; i++) {
        excess -= s->holes.at[i].from - at;
        at = s->holes.at[i].to;
    }
    return held_from(s, at + excess) & ~(MIB - 1); /* in steps: marks stay few */
}

void spool_set_base(spool *s, uint64_t base)
{
    uint64_t to = 0, done = 0;

    LOCK_SCOPE(&s->drop_lock);
    {
        LOCK_SCOPE(&s->lock);
        if (base <= s->base)
            return;
        s->base = base;
        done = s->holes.n && !s->holes.at[0].from ? s->holes.at[0].to : 0;
        if (s->set->punch && base > s->max)
            to = too_old(s);
    }
    if (to <= done || !s->mark(s->arg, s->stream, done, to))
        return;
    spool_set_mark(s, done, to);
    int fd = spool_acquire(s, true);
    if (fd < 0)
        return;
    spool_punch(fd, done, to);
    spool_release(s);
}

/* Returns up to where the oldest bytes can be dropped; at most *ret_done: none can. Lock held. */
static uint64_t trim_end(spool *s, uint64_t keep, uint64_t *ret_done)
{
    uint64_t length = atomic_load(&s->length);

    *ret_done = s->holes.n && !s->holes.at[0].from ? s->holes.at[0].to : 0;
    return length > keep ? held_from(s, length - keep) & ~UINT64_C(4095) : 0;
}

bool spool_trim(spool *s, uint64_t keep)
{
    uint64_t to, done;

    if (!s->set->punch)
        return false;
    LOCK_SCOPE(&s->drop_lock);
    {
        LOCK_SCOPE(&s->lock);
        to = trim_end(s, keep, &done);
    }
    if (to <= done || !s->mark(s->arg, s->stream, done, to))
        return false;
    spool_set_mark(s, done, to);
    int fd = spool_acquire(s, true);
    if (fd < 0)
        return true; /* the next open for writing makes the hole */
    spool_punch(fd, done, to);
    spool_release(s);
    return true;
}

/* Returns in *ret_room how many bytes fit below the ceiling; makes room if it can. */
static enum spool_status make_room(spool *s, size_t *ret_room)
{
    for (;;) {
        uint64_t length = atomic_load(&s->length), kept;
        {
            LOCK_SCOPE(&s->lock);
            kept = length - s->base - spans_bytes(&s->holes, s->base, length);
        }
        if (kept < s->max) {
            size_t allowed = spool_allowance(s->set);
            *ret_room = s->max - kept < allowed ? (size_t)(s->max - kept) : allowed;
            return allowed ? SPOOL_MORE : SPOOL_NOSPACE;
        }
        enum spool_status st = drop_middle(s);
        if (st != SPOOL_MORE)
            return st;
    }
}

/* Checks a pipe for bytes without a file: an empty stream never gets one. */
static enum spool_status spool_peek(int pipe)
{
    struct pollfd p = {pipe, POLLIN, 0};
    int avail = 0;

    poll(&p, 1, 0);
    if (!ioctl(pipe, FIONREAD, &avail) && avail > 0)
        return SPOOL_MORE;
    return p.revents & POLLHUP ? SPOOL_EOF : SPOOL_EMPTY;
}

static bool has_holes(spool *s)
{
    LOCK_SCOPE(&s->lock);
    return s->holes.n > 0;
}

enum spool_status spool_splice(spool *s, int pipe, size_t max, size_t *ret_moved)
{
    size_t room;
    loff_t at = (loff_t)atomic_load(&s->length);

    *ret_moved = 0;
    if (!at || has_holes(s)) { /* also: do not punch for a pipe that is empty */
        enum spool_status st = spool_peek(pipe);
        if (st != SPOOL_MORE)
            return st;
    }
    enum spool_status st = make_room(s, &room);
    if (st != SPOOL_MORE)
        return st;
    int fd = spool_acquire(s, true);
    if (fd < 0)
        return spool_trouble(s, -fd);
    ssize_t n = splice(pipe, NULL, fd, &at, max < room ? max : room, SPLICE_F_NONBLOCK);
    int errnum = n < 0 ? errno : 0;
    if (n > 0)
        FAULT_KILL("exec.moved");
    spool_release(s);
    if (n > 0) {
        atomic_fetch_add(&s->length, (uint64_t)n);
        atomic_fetch_sub(&s->set->allowance, n);
        *ret_moved = (size_t)n;
        return SPOOL_MORE;
    }
    if (!n)
        return SPOOL_EOF;
    if (errnum == EINTR)
        return SPOOL_MORE;
    return errnum == EAGAIN ? SPOOL_EMPTY : spool_trouble(s, errnum);
}

enum spool_status spool_write(spool *s, uint64_t offset, const void *p, size_t n, size_t *ret_new)
{
    const char *at = p;

    *ret_new = 0;
    for (;;) {
        uint64_t length = atomic_load(&s->length);
        size_t room;
        if (offset > length)
            return SPOOL_GAP;
        if (offset + n <= length)
            return SPOOL_EMPTY;
        at += length - offset;
        n -= (size_t)(length - offset);
        offset = length;
        enum spool_status st = make_room(s, &room);
        if (st != SPOOL_MORE)
            return st;
        int fd = spool_acquire(s, true);
        if (fd < 0)
            return spool_trouble(s, -fd);
        ssize_t k = pwrite(fd, at, n < room ? n : room, (off_t)offset);
        int errnum = k < 0 ? errno : 0;
        spool_release(s);
        if (k < 0 && errnum != EINTR)
            return spool_trouble(s, errnum);
        if (k > 0) {
            atomic_fetch_add(&s->length, (uint64_t)k);
            atomic_fetch_sub(&s->set->allowance, k);
            *ret_new += (size_t)k;
        }
    }
}

/* Returns true if the range begins in a hole; otherwise clips it to end before the next one. */
static bool in_hole(spool *s, uint64_t offset, size_t *n, uint64_t *ret_gap_to)
{
    LOCK_SCOPE(&s->lock);
    const span *h = spans_find(&s->holes, offset);
    if (h && offset >= h->from) {
        *ret_gap_to = h->to;
        return true;
    }
    if (h && offset + *n > h->from)
        *n = (size_t)(h->from - offset);
    return false;
}

err *spool_read(spool *s, uint64_t offset, void *p, size_t max, size_t *ret_n, uint64_t *ret_gap_to)
{
    uint64_t length = atomic_load(&s->length), gap_to = 0;
    size_t n = max;
    ssize_t got = 0;

    if (offset > length)
        return err_new(ERR_RANGE, "offset %lu lies beyond the stream's length %lu", offset, length);
    /* The file may be ahead of the length for a moment: a pump has spliced and not yet counted. */
    if (n > length - offset)
        n = (size_t)(length - offset);
    if (!in_hole(s, offset, &n, &gap_to) && offset < length && n) {
        int fd = spool_acquire(s, false);
        if (fd >= 0) {
            do
                got = pread(fd, p, n, (off_t)offset);
            while (got < 0 && errno == EINTR);
            int errnum = errno;
            spool_release(s);
            if (got < 0)
                return err_sys(ERR_INTERNAL, errnum, "cannot read %s", s->path);
        } else if (fd != -ENOENT) {
            return err_sys(ERR_INTERNAL, -fd, "cannot open %s", s->path);
        }
        /* Check again: bytes that were punched meanwhile are zeros in p, and their mark came
         * first. */
        n = (size_t)got;
        if (in_hole(s, offset, &n, &gap_to))
            n = 0;
        else if (fd < 0)
            return err_new(ERR_NOT_FOUND, "the stream's bytes are no longer kept");
    } else {
        n = 0;
    }
    *ret_n = n;
    *ret_gap_to = gap_to;
    return NULL;
}

bool spool_forget(spool *s)
{
    uint64_t length = atomic_load(&s->length);

    if (length)
        spool_set_mark(s, 0, length);
    LOCK_SCOPE(&s->lock);
    if (!s->users && s->fd >= 0) { /* in use: open until the sweep */
        LOCK_SCOPE(&s->set->lock);
        close(TAKE_FD(s->fd));
        list_take(s);
    }
    return !unlinkat(s->set->root, s->path, 0) || errno == ENOENT;
}

bool spool_drop(spool *s)
{
    uint64_t length = atomic_load(&s->length);

    LOCK_SCOPE(&s->drop_lock);
    if (!length || spool_dropped(s, 0, length) == length)
        return true;
    return s->mark(s->arg, s->stream, 0, length) && spool_forget(s);
}
