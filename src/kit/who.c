/* Users and owners: becoming a user (KIT_F_FOR), paths with a home directory or "~", and the
 * details of a file: its owner's name, where a link leads, its user.* attributes. */
#include <linux/capability.h>
#include <linux/openat2.h>

#include "kit/kit.h"

#define XATTR_LIST 65536u
#define FD_PATH    32 /* "/proc/self/fd/N/" */

static u32 flags; /* the request's */

/* ---- names of ids ---- */

struct id_name {
    u32 id;
    const char *name;
    size_t len;
};
static struct names {
    struct id_name *v;
    size_t n;
    const struct id_name *last; /* neighbouring files usually have the same owner */
} users, groups;
static const char *home;

enum {
    NAME,
    ID = 2,
    HOME = 5
};

/* Loads the names of ids; the first line of an id counts. From passwd it also takes the home of our
 * own user. */
static void who_load(struct names *to, const char *path, u32 self)
{
    const char *field[TEXT_FIELDS];
    char *at = text_file(path);
    size_t room = 0;
    u64 id;

    for (const char *p = at; p && *p; p++)
        room += *p == '\n';
    to->v = at ? map_anon_lazy((room + 1) * sizeof *to->v) : NULL;
    while (to->v && text_fields(&at, field)) {
        size_t len = text_len(field[NAME]);
        if (!text_number(field[ID], field[ID] + text_len(field[ID]), &id) || id >= NO_CHANGE ||
            len > KIT_OWNER_MAX)
            continue;
        to->v[to->n++] = (struct id_name){.id = (u32)id, .name = field[NAME], .len = len};
        if (id == self && !home && field[HOME][0] == '/')
            home = field[HOME];
    }
}

static const struct id_name *who_find(struct names *in, u32 id)
{
    static const struct id_name NONE = {.name = ""};

    if (in->last && in->last->id == id)
        return in->last;
    for (size_t i = 0; i < in->n; i++)
        if (in->v[i].id == id)
            return in->last = &in->v[i];
    return &NONE;
}

/* ---- paths ---- */

/* Makes the path absolute, without ".", ".." and empty components. */
static void who_clean(char *path)
{
    char *to = path;

    for (const char *p = path; *p;) {
        size_t n = 0;
        while (*p == '/')
            p++;
        while (p[n] && p[n] != '/')
            n++;
        if (n == 2 && p[0] == '.' && p[1] == '.') {
            while (to > path && *--to != '/')
                continue;
        } else if (n && !(n == 1 && p[0] == '.')) {
            *to++ = '/';
            for (size_t i = 0; i < n; i++)
                *to++ = p[i];
        }
        p += n;
    }
    if (to == path)
        *to++ = '/';
    *to = 0;
}

long who_path(const char *path, char ret_path[KIT_PATH_MAX + 1])
{
    const char *from = home ? home : "/";
    size_t n = text_len(path), base = text_len(from);

    if (path[0] == '~') {
        if (path[1] && path[1] != '/')
            return -EINVAL; /* another user's home */
        path++;
        n--;
    } else if (path[0] == '/') {
        if (n > KIT_PATH_MAX)
            return -ENAMETOOLONG;
        memcpy(ret_path, path, n + 1);
        return 0;
    }
    if (base + 1 + n > KIT_PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(ret_path, from, base);
    ret_path[base] = '/';
    memcpy(ret_path + base + 1, path, n + 1);
    who_clean(ret_path);
    return 0;
}

void who_tell_at(const char *path)
{
    out_record(&(kit_record){.type = KIT_AT, .bytes = path, .bytes_len = text_len(path)});
}

/* ---- for whom ---- */

static struct user whom;
static bool is_for;

/* Becomes the user but keeps root as saved id, to raise its rights later. Other processes of the
 * user may signal the kit, but not look inside it. */
static void who_become(const char *name)
{
    long r = user_resolve(name, &whom);

    if (r < 0)
        out_fail(-ENOKEY);
    r = SYS(setgroups, whom.ngroups, whom.groups);
    if (r >= 0)
        r = SYS(setresgid, whom.gid, whom.gid, 0);
    if (r >= 0)
        r = SYS(setresuid, whom.uid, whom.uid, 0);
    if (r < 0)
        out_fail(r);
    is_for = true;
}

/* Opens the directory that `path` lies in; ret_base is its name there. Follows no link, because
 * another user may have made it. The "." at the end checks that the user may search the directory.
 */
static long open_way(const char *path, const char **ret_base)
{
    static char way[KIT_PATH_MAX + 3];
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS};
    size_t n = text_len(path);

    if (path[0] != '/' || n > KIT_PATH_MAX)
        return -EACCES;
    while (path[n - 1] != '/')
        n--;
    memcpy(way, path, n);
    way[n] = '.';
    way[n + 1] = 0;
    *ret_base = path + n;
    return SYS(openat2, K_AT_FDCWD, way, &how, sizeof how);
}

/* Creates a directory as the user, but with root's right to write in any directory. It belongs to
 * the user from the start, so no directory that is put in its place can be given away. */
static long make_anywhere(int dir, const char *base, u32 mode)
{
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct own[2] = {{0}}, more[2];
    long r = SYS(capget, &h, own);

    if (r < 0)
        return r;
    memcpy(more, own, sizeof more);
    more[0].effective |= 1u << CAP_DAC_OVERRIDE;
    r = SYS(capset, &h, more);
    if (r < 0)
        return -EACCES; /* root lacks the capability here */
    r = SYS(mkdirat, dir, base, mode);
    if (SYS(capset, &h, own) < 0)
        kit_exit(1);
    return r;
}

long who_make_dir(const char *path, u32 mode)
{
    const char *base;
    long dir = is_for ? open_way(path, &base) : -EACCES;

    if (dir < 0)
        return -EACCES;
    long r = make_anywhere((int)dir, base, mode);
    SYS(close, dir);
    return r;
}

void who_begin(kit_request *rq)
{
    static char path[KIT_PATH_MAX + 1], to[KIT_PATH_MAX + 1];
    bool move = rq->verb == KIT_MOVE;

    flags = rq->flags;
    if (flags & KIT_F_FOR)
        who_become(rq->to);
    if (flags & (KIT_F_HOME | KIT_F_DETAIL))
        who_load(&users, "/etc/passwd", (u32)SYS(geteuid));
    if (flags & KIT_F_DETAIL)
        who_load(&groups, "/etc/group", NO_CHANGE);
    if (!(flags & KIT_F_HOME) || flags & KIT_F_MANY)
        return;
    long r = who_path(rq->path, path);
    if (r >= 0 && move)
        r = who_path(rq->to, to);
    if (r < 0)
        out_fail(r);
    rq->path = path;
    if (move)
        rq->to = to;
    who_tell_at(move ? to : path);
}

/* ---- detail ---- */

bool with_detail(void)
{
    return flags & KIT_F_DETAIL;
}

/* Writes base in dir as a path, for system calls that take no directory. */
static bool path_in(int dir, const char *base, char *room, size_t size)
{
    static const char BEFORE[] = "/proc/self/fd/";
    char digits[24], *number = text_from_number(digits + sizeof digits, (u64)(u32)dir);
    size_t n = text_len(base), at = 0, len = (size_t)(digits + sizeof digits - number);

    if (FD_PATH + n + 2 > size)
        return false;
    if (dir != K_AT_FDCWD) {
        memcpy(room, BEFORE, sizeof BEFORE - 1);
        at = sizeof BEFORE - 1;
        memcpy(room + at, number, len);
        at += len;
        if (n)
            room[at++] = '/';
    }
    memcpy(room + at, base, n + 1);
    return true;
}

static void send_xattr(const char *path, const char *key, size_t n)
{
    static char value[KIT_XATTR_MAX];
    long len = n <= 255 ? SYS(getxattr, path, key, value, sizeof value) : -E2BIG;

    if (len >= 0)
        out_record(&(kit_record){.type = KIT_XATTR,
                                 .name = key,
                                 .name_len = n,
                                 .bytes = value,
                                 .bytes_len = (size_t)len});
}

static void send_xattrs(int dir, const char *base)
{
    static char list[XATTR_LIST], path[FD_PATH + KIT_PATH_MAX + 2];
    long n = path_in(dir, base, path, sizeof path) ? SYS(listxattr, path, list, sizeof list) : 0;
    u32 sent = 0;

    for (long at = 0; at < n && sent < KIT_XATTRS_MAX;) {
        size_t len = text_len(list + at);
        if (text_starts(list + at, "user.")) {
            send_xattr(path, list + at, len);
            sent++;
        }
        at += (long)len + 1;
    }
}

/* Resolves a link: the kernel names the file that was opened. Nothing is opened for its content. */
static size_t who_follow(int dir, const char *base, char *room, size_t size, u32 *ret_mode)
{
    char path[FD_PATH + 2];
    struct statx st;
    int fd = (int)SYS(openat, dir, base, O_PATH | O_CLOEXEC, 0);
    long n = fd < 0 ? fd : SYS(statx, fd, "", K_AT_EMPTY_PATH, STATX_BASIC_STATS, &st);

    if (n >= 0) {
        *ret_mode = st.stx_mode;
        n = path_in(fd, "", path, sizeof path) ? SYS(readlinkat, K_AT_FDCWD, path, room, size) : 0;
    }
    fd_close(&fd);
    return n > 0 && room[0] == '/' ? (size_t)n : 0;
}

void detail_of(int dir, const char *base, const struct statx *st)
{
    static char real[KIT_PATH_MAX];

    if (!with_detail())
        return;
    const struct id_name *owner = who_find(&users, st->stx_uid),
                         *group = who_find(&groups, st->stx_gid);
    kit_record r = {.type = KIT_DETAIL,
                    .name = owner->name,
                    .name_len = owner->len,
                    .group = group->name,
                    .group_len = group->len,
                    .bytes = real};
    if (is_link(st))
        r.bytes_len = who_follow(dir, base, real, sizeof real, &r.detail.mode);
    out_record(&r);
    if (is_file(st) || is_dir(st))
        send_xattrs(dir, base);
}
