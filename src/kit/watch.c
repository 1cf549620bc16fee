/* watch: reports changes as they happen, by inotify. Each watched directory is a node, with its
 * parent's watch and its own name, so that a rename changes one node and all names below follow.
 *
 * Uncertainty is reported: OVERFLOW when the kernel dropped events, and for a directory that
 * appears with content, CREATED for each entry found in it (which may be sent twice). */
#include <linux/inotify.h>

#include "kit/kit.h"

#define WATCHES_MAX (1u << 20) /* highest watch number; numbers ascend */
#define PING_MS     10000
#define PAIR_MS     20 /* the second half of a move follows the first at once */
#define MASK                                                                       \
    (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | \
     IN_DELETE_SELF | IN_MOVE_SELF)

struct node {
    int32_t parent; /* watch number; 0: this is the root */
    bool used;
    char name[256];
};

static struct node *nodes; /* by watch number */
static int notify = -1;
static int root_wd, highest;
static const char *root; /* its path */
static bool recursive;
static struct { /* the first half of a move that waits for the second */
    bool is, dir;
    u32 cookie;
    size_t len;
    char name[KIT_PATH_MAX + 1];
} half;

/* ---- names ---- */

static size_t put_before(char *room, size_t at, const char *s)
{
    size_t n = text_len(s);

    if (n + 1 > at)
        return 0;
    if (at < KIT_PATH_MAX)
        room[--at] = '/';
    at -= n;
    memcpy(room + at, s, n);
    return at;
}

/* Builds the name of `base` in the directory of a watch, or of the directory itself if base is "".
 * Returns false if the path is too long, or a parent is unknown. */
static bool name_of(int wd, const char *base, char ret[KIT_PATH_MAX + 1], size_t *ret_len)
{
    static char room[KIT_PATH_MAX + 1];
    size_t at = KIT_PATH_MAX;

    if (*base)
        at = put_before(room, at, base);
    for (int i = 0; at && wd != root_wd; i++) {
        if (wd <= 0 || (u32)wd >= WATCHES_MAX || !nodes[wd].used || i == WALK_DEPTH_MAX * 20)
            return false;
        at = put_before(room, at, nodes[wd].name);
        wd = nodes[wd].parent;
    }
    if (!at)
        return false;
    *ret_len = KIT_PATH_MAX - at;
    memcpy(ret, room + at, *ret_len);
    ret[*ret_len] = 0;
    return true;
}

static void watch_tell(enum kit_change what, bool dir, const char *name, size_t n, const char *to,
                       size_t to_len)
{
    kit_record r = {
        .type = KIT_EVENT, .name = name, .name_len = n, .bytes = to, .bytes_len = to_len};

    r.event = (struct kit_event){.change = what, .directory = dir};
    out_record(&r);
}

static const char *path_of(const char *name);

/* Sends the ENTRY that an event is about, before the event. */
static void tell_entry(const char *name, size_t n)
{
    const char *path = with_detail() ? path_of(name) : NULL;
    struct statx st;

    if (path && path_stat(K_AT_FDCWD, path, K_AT_SYMLINK_NOFOLLOW, &st) >= 0)
        entry_of(K_AT_FDCWD, path, &st, name, n);
}

/* ---- watching a tree ---- */

/* Returns a name below the root as a path; NULL if it is too long. The kit does not change into the
 * root directory: inotify does not report a directory as deleted while a process is in it. */
static const char *path_of(const char *name)
{
    static char room[KIT_PATH_MAX + 1];
    size_t n = text_len(root), more = text_len(name);

    if (!more)
        return root;
    if (n + 1 + more > KIT_PATH_MAX)
        return NULL;
    memcpy(room, root, n);
    room[n] = '/';
    memcpy(room + n + 1, name, more + 1);
    return room;
}

/* Watches a name relative to the root; "" is the root itself. */
static long watch_add(const char *path, int parent, const char *base, bool *ret_known)
{
    const char *full = path_of(path);
    long wd = full ? SYS(inotify_add_watch, notify, full,
                         MASK | IN_ONLYDIR | IN_EXCL_UNLINK | (*path ? IN_DONT_FOLLOW : 0))
                   : -ENAMETOOLONG;

    if (wd < 0)
        return wd;
    if (wd >= (long)WATCHES_MAX)
        return -ENOSPC;
    if (ret_known)
        *ret_known = nodes[wd].used;
    if (wd > highest)
        highest = (int)wd;
    nodes[wd].used = true;
    nodes[wd].parent = parent;
    memcpy(nodes[wd].name, base, text_len(base) + 1);
    return wd;
}

struct adding {
    walk w;                     /* first member: watch_visit() casts it back */
    int wd[WALK_DEPTH_MAX + 1]; /* the watches of the parents, by level */
    char prefix[KIT_PATH_MAX + 1];
    size_t prefix_len;
    bool tell; /* send what is found: it appeared after the watch began */
};
static struct adding adding;

static u32 level_of(const walk *w)
{
    u32 n = 0;

    for (size_t i = 0; i < w->len; i++)
        n += w->name[i] == '/';
    return n;
}

static bool watch_visit(walk *w, int dir, const char *base, const struct statx *st)
{
    struct adding *a = (struct adding *)w;
    char path[KIT_PATH_MAX + 1];
    u32 level = level_of(w);
    size_t slash = a->prefix_len ? 1 : 0, n = a->prefix_len + slash + w->len;

    (void)dir;
    if (n > KIT_PATH_MAX)
        return true;
    memcpy(path, a->prefix, a->prefix_len);
    if (slash)
        path[a->prefix_len] = '/';
    memcpy(path + a->prefix_len + slash, w->name, w->len + 1);
    if (a->tell) {
        tell_entry(path, n);
        watch_tell(KIT_CREATED, is_dir(st), path, n, "", 0);
    }
    if (!is_dir(st))
        return true;
    long wd = watch_add(path, a->wd[level], base, NULL);
    if (wd < 0 && wd != -ENOENT && wd != -ENOTDIR && wd != -EACCES)
        out_fail(wd);
    a->wd[level + 1] = wd < 0 ? 0 : (int)wd;
    return true;
}

/* Watches everything below a directory that is already watched. */
static void add_below(const char *path, size_t len, int wd, bool say)
{
    const char *full = path_of(path);
    long dir =
        full ? SYS(openat, K_AT_FDCWD, full, DIR_FLAGS | (len ? O_NOFOLLOW : 0), 0) : -ENAMETOOLONG;

    if (dir < 0)
        return;
    adding.w = (walk){.depth = WALK_DEPTH_MAX, .visit = watch_visit};
    adding.wd[0] = wd;
    memcpy(adding.prefix, path, len + 1);
    adding.prefix_len = len;
    adding.tell = say;
    walk_below(&adding.w, (int)dir);
    SYS(close, dir);
}

static void watch_forget(int wd)
{
    nodes[wd].used = false;
    SYS(inotify_rm_watch, notify, wd);
    for (int i = 1; i <= highest; i++)
        if (nodes[i].used && nodes[i].parent == wd)
            watch_forget(i);
}

/* ---- events ---- */

/* Reports a move without a second half: the file has left the tree, and everything below it is no
 * longer watched. */
static void flush_half(void)
{
    static char name[KIT_PATH_MAX + 1];
    size_t len;

    if (!half.is)
        return;
    for (int i = 1; i <= highest && half.dir && recursive; i++)
        if (nodes[i].used && name_of(i, "", name, &len) && text_equal(name, half.name)) {
            watch_forget(i);
            break;
        }
    watch_tell(KIT_MOVED, half.dir, half.name, half.len, "", 0);
    half.is = false;
}

/* Watches a directory that appeared. If it was watched before, it has only moved; otherwise its
 * content is reported. */
static void watch_appeared(int wd, const char *base, const char *name, size_t len)
{
    bool known = false;

    if (!recursive)
        return;
    long sub = watch_add(name, wd, base, &known);
    if (sub >= 0 && !known)
        add_below(name, len, (int)sub, true);
    else if (sub < 0 && sub != -ENOENT && sub != -ENOTDIR && sub != -EACCES)
        out_fail(sub);
}

static void on_move(const struct inotify_event *e, bool dir, const char *base, const char *name,
                    size_t len)
{
    if (e->mask & IN_MOVED_FROM) {
        flush_half();
        half.is = true;
        half.dir = dir;
        half.cookie = e->cookie;
        half.len = len;
        memcpy(half.name, name, len + 1);
        return;
    }
    bool pair = half.is && half.cookie == e->cookie;
    if (pair)
        half.is = false;
    else
        flush_half();
    tell_entry(name, len);
    watch_tell(KIT_MOVED, dir, pair ? half.name : "", pair ? half.len : 0, name, len);
    if (dir)
        watch_appeared(e->wd, base, name, len);
}

static void on_root_gone(void)
{
    flush_half();
    watch_tell(KIT_DELETED, true, "", 0, "", 0);
    out_end();
}

static void on_event(const struct inotify_event *e)
{
    static char name[KIT_PATH_MAX + 1];
    const char *base = e->len ? e->name : "";
    bool dir = e->mask & IN_ISDIR;
    size_t len;

    if (e->mask & IN_Q_OVERFLOW) {
        flush_half();
        watch_tell(KIT_OVERFLOW, false, "", 0, "", 0);
        return;
    }
    if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) {
        if (e->wd == root_wd)
            on_root_gone(); /* also after a rename: paths below it are no longer valid */
        if (e->wd > 0 && e->wd <= highest && e->mask & IN_IGNORED)
            nodes[e->wd].used = false;
        return;
    }
    /* The parent's watch reports a directory's own attributes, too. */
    if (!name_of(e->wd, base, name, &len) || (!*base && e->wd != root_wd))
        return;
    if (e->mask & (IN_MOVED_FROM | IN_MOVED_TO)) {
        on_move(e, dir, base, name, len);
        return;
    }
    flush_half();
    if (!(e->mask & IN_DELETE))
        tell_entry(name, len);
    if (e->mask & IN_CREATE) {
        watch_tell(KIT_CREATED, dir, name, len, "", 0);
        if (dir)
            watch_appeared(e->wd, base, name, len);
    } else {
        watch_tell(e->mask & IN_MODIFY   ? KIT_MODIFIED
                   : e->mask & IN_DELETE ? KIT_DELETED
                                         : KIT_ATTRIB,
                   dir, name, len, "", 0);
    }
}

static bool wait_for(int ms)
{
    struct pollfd p = {.fd = notify, .events = POLLIN};
    struct __kernel_timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    return SYS(ppoll, &p, 1, &t, 0, 0) > 0;
}

static void watch_loop(void)
{
    static char room[64 * 1024] __attribute__((aligned(8)));

    for (;;) {
        if (!wait_for(half.is ? PAIR_MS : PING_MS)) {
            if (half.is)
                flush_half();
            else
                out_record(&(kit_record){.type = KIT_PING});
            out_flush();
            continue;
        }
        long n = SYS(read, notify, room, sizeof room);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            out_fail(n ? n : -EIO);
        for (long at = 0; at < n;) {
            const struct inotify_event *e = (const struct inotify_event *)(room + at);
            at += (long)(sizeof *e + e->len);
            on_event(e);
        }
        if (!half.is)
            out_flush();
    }
}

/* Watches a single file: its events have the name "". */
static long watch_file(const char *path)
{
    return SYS(inotify_add_watch, notify, path, MASK);
}

void verb_watch(const kit_request *rq)
{
    struct statx st;
    long r = path_stat(K_AT_FDCWD, rq->path, 0, &st);

    recursive = rq->flags & KIT_F_RECURSIVE;
    root = rq->path;
    if (r >= 0 && rq->flags & KIT_F_DIRECTORY && !is_dir(&st))
        r = -ENOTDIR;
    if (r >= 0)
        r = SYS(inotify_init1, O_CLOEXEC | O_NONBLOCK);
    if (r >= 0) {
        notify = (int)r;
        nodes = map_anon_lazy(WATCHES_MAX * sizeof *nodes);
        r = nodes ? 0 : -ENOMEM;
    }
    if (r >= 0)
        r = is_dir(&st) ? watch_add("", 0, "", NULL) : watch_file(rq->path);
    if (r < 0)
        out_fail(r);
    root_wd = (int)r;
    if (recursive && is_dir(&st))
        add_below("", 0, root_wd, false);
    watch_tell(KIT_READY, false, "", 0, "", 0);
    out_flush();
    watch_loop();
}
