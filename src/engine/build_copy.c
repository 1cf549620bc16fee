/* COPY: unpacks entries of an upload in the sandbox by its kit, as root inside, directly to their
 * place. The archive is read here, without privilege, and nothing of it is kept.
 *
 * As in E2B and Docker: of a directory the content is copied, into what exists; a file is copied to
 * the path, or below it if the path is a directory or ends with '/'. Existing directories stay as
 * they are. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "engine/build_internal.h"
#include "engine/files.h"
#include "wire/archive.h"

#define BATCH    (256u * 1024)
#define SLICE_MS 1000

/* ---- paths ---- */

char *build_copy_source(const char *pattern)
{
    CLEANUP(freep) char *whole = build_copy_target("", pattern);
    size_t wild = strcspn(whole, "*?[{\\"), n = wild;

    if (whole[wild])
        while (n && whole[n - 1] != '/')
            n--; /* drop the part that has the wildcard */
    while (n && whole[n - 1] == '/')
        n--;
    return xstrndup(whole, n);
}

char *build_copy_target(const char *cwd, const char *path)
{
    CLEANUP(freep) char *whole = *path == '/' ? xstrdup(path) : str_printf("%s/%s", cwd, path);
    CLEANUP(buf_done) buf out = {0};
    char *state = NULL;

    for (char *part = strtok_r(whole, "/", &state); part; part = strtok_r(NULL, "/", &state)) {
        if (str_eq(part, "."))
            continue;
        if (str_eq(part, "..")) {
            while (out.len && out.p[--out.len] != '/')
                ;
            continue;
        }
        buf_printf(&out, "%s%s", out.len ? "/" : "", part);
    }
    return xstrdup(buf_cstr(&out));
}

/* ---- owner ---- */

static const char OWNER[] =
    "set -e\n"
    "number() { case $1 in ''|*[!0-9]*) return 1;; esac; }\n"
    "if number \"$1\"; then u=$1; else u=$(id -u \"$1\"); fi\n"
    "if [ -z \"$2\" ]; then g=$(id -g \"$1\" 2>/dev/null || echo \"$u\")\n"
    "elif number \"$2\"; then g=$2\n"
    "else while IFS=: read -r name x id rest; do [ \"$name\" != \"$2\" ] || g=$id; done </etc/group; fi\n"
    "[ -n \"$g\" ] || { echo \"there is no group $2\" >&2; exit 1; }\n"
    "echo \"$u $g\"\n";

static err *find_owner(build *b, const char *owner, uint32_t *ret_uid, uint32_t *ret_gid)
{
    CLEANUP(buf_done) buf out = {0};
    size_t n = strcspn(owner, ":");
    CLEANUP(freep) char *user = xstrndup(owner, n);
    char *argv[] = {(char *)"/bin/sh",
                    (char *)"-c",
                    (char *)OWNER,
                    (char *)"build",
                    user,
                    (char *)(owner[n] ? owner + n + 1 : ""),
                    NULL};
    char *rest = NULL;

    TRY(err_wrap(
        build_command_run(
            b,
            &(build_command){.argv = argv, .user = "0", .cwd = "/", .bare = true, .level = "debug"},
            &out),
        "owner '%.64s'", owner));
    errno = 0;
    unsigned long uid = strtoul(buf_cstr(&out), &rest, 10);
    unsigned long gid = strtoul(rest, &rest, 10);
    if (errno || *rest != '\n' || uid > UINT16_MAX || gid > UINT16_MAX)
        return err_new(ERR_INVALID_REQUEST, "owner '%.64s' is not known in the image", owner);
    *ret_uid = (uint32_t)uid;
    *ret_gid = (uint32_t)gid;
    return NULL;
}

static err *parse_mode(const char *text, uint32_t *ret_mode)
{
    char *end = NULL;
    unsigned long mode;

    *ret_mode = KIT_MODE_NONE;
    if (!text || !*text)
        return NULL;
    errno = 0;
    mode = strtoul(text, &end, 8);
    if (errno || *end || mode > 07777 || *text == '-' || *text == '+')
        return err_new(ERR_INVALID_REQUEST, "'%.16s' is no mode, as 0755 is", text);
    *ret_mode = (uint32_t)mode;
    return NULL;
}

/* ---- the kit ---- */

static err *wait_on(void *arg, int fd, int ms)
{
    (void)ms;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    poll(&p, 1, SLICE_MS);
    return build_is_off(arg) ? err_new(ERR_CONFLICT, "it is not wanted any more") : NULL;
}

static void on_bytes(void *arg)
{
    eventfd_write(*(int *)arg, 1);
}

/* Reads records until the verb has ended. visit may be NULL. */
static err *kit_wait_over(build *b, kit_call *k, int event,
                          void (*visit)(void *, const kit_record *), void *arg)
{
    enum kit_next next = KIT_RECORD;
    kit_record r;
    eventfd_t v;

    while (next != KIT_OVER) {
        TRY(kit_call_next(k, now_mono_ns(), &next, &r));
        if (next == KIT_RECORD && visit)
            visit(arg, &r);
        if (next == KIT_WAIT) {
            TRY(wait_on(b, event, SLICE_MS));
            eventfd_read(event, &v);
        }
    }
    return NULL;
}

static void see_directory(void *arg, const kit_record *r)
{
    if (r->type == KIT_ENTRY)
        *(bool *)arg = S_ISDIR(r->entry.mode);
}

static err *is_directory(build *b, const char *path, bool *ret_is)
{
    CLEANUP(freep) char *whole = str_printf("/%s", path);
    const kit_request rq = {
        .verb = KIT_STAT, .flags = KIT_F_FOLLOW, .path = whole, .mode = KIT_MODE_NONE};
    CLEANUP(closep) int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CLEANUP(kit_call_freep) kit_call *k = NULL;

    *ret_is = false;
    if (event < 0)
        return err_new(ERR_UNAVAILABLE, "no descriptor is left");
    TRY(engine_kit(b->e, &b->who, b->sb, &rq, "0", &k));
    kit_call_watch(k, on_bytes, &event);
    err *failure = kit_wait_over(b, k, event, see_directory, ret_is);
    if (failure && failure->code == ERR_NOT_FOUND) {
        err_free(failure);
        return NULL;
    }
    return failure;
}

/* ---- the stream ---- */

typedef struct copying {
    build *b;
    int fd;
    kit_call *call;
    buf batch;
    char *source, *target; /* without '/' at either end */
    bool below;            /* a file is placed below the target */
    uint32_t mode, uid, gid;
    bool skips; /* skips the present entry */
    uint64_t entries;
} copying;

static err *on_read(void *arg, void *p, size_t max, size_t *ret_n)
{
    const copying *c = arg;
    ssize_t n;

    do
        n = read(c->fd, p, max);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot read the upload");
    *ret_n = (size_t)n;
    return build_is_off(c->b) ? err_new(ERR_CONFLICT, "it is not wanted any more") : NULL;
}

static err *on_packed(void *arg, const char *by)
{
    (void)arg;
    return str_eq(by, "zstd") ? err_new(ERR_UNSUPPORTED, "an upload is a tar, or one in gzip")
                              : NULL;
}

static err *build_copy_flush(copying *c, bool last)
{
    enum kit_next next = KIT_RECORD;
    kit_record r;

    TRY(kit_call_send_bytes(c->call, c->batch.p, c->batch.len, last));
    buf_clear(&c->batch);
    for (unsigned i = 0; !last && next == KIT_RECORD && i < 512; i++)
        TRY(kit_call_next(c->call, now_mono_ns(), &next, &r));
    return NULL;
}

/* Returns the path that an entry is copied to; NULL if it is not part of the source. */
static char *place_of(const copying *c, const char *name, size_t n, bool directory)
{
    size_t len = strlen(c->source);
    const char *t = c->target;

    if (len && (n < len || memcmp(name, c->source, len) != 0 || (n > len && name[len] != '/')))
        return NULL;
    if (n > len) { /* an entry of a directory */
        const char *rest = name + len + (len != 0);
        return str_printf("%s%s%.*s", t, *t ? "/" : "", (int)(name + n - rest), rest);
    }
    if (directory)
        return xstrdup(t);
    if (!c->below)
        return xstrdup(t);
    const char *slash = strrchr(c->source, '/');
    return str_printf("%s%s%s", t, *t ? "/" : "", slash ? slash + 1 : c->source);
}

static err *build_copy_put(copying *c, const kit_record *r)
{
    buf_reserve(&c->batch, KIT_RECORD_MAX);
    size_t n = kit_encode(r, c->batch.p + c->batch.len);

    if (!n)
        return err_new(ERR_INVALID_REQUEST, "an entry of the upload is too large");
    c->batch.len += n;
    return r->type == KIT_END || c->batch.len >= BATCH ? build_copy_flush(c, r->type == KIT_END)
                                                       : NULL;
}

static err *put_entry(copying *c, const kit_record *r)
{
    bool directory = S_ISDIR(r->entry.mode), link = r->entry.flags & KIT_E_HARDLINK;
    CLEANUP(freep) char *name = place_of(c, r->name, r->name_len, directory);
    CLEANUP(freep) char *target = NULL;
    kit_record mine = *r;

    c->skips = !name || (directory && !*name) || S_ISCHR(r->entry.mode) || S_ISBLK(r->entry.mode);
    c->entries += name != NULL;
    if (c->skips)
        return NULL;
    if (link) {
        target = place_of(c, r->bytes, r->bytes_len, false);
        if (!target)
            return err_new(ERR_INVALID_REQUEST, "'%.*s' is a link to what is not copied",
                           (int)r->name_len, r->name);
        mine.bytes = target;
        mine.bytes_len = strlen(target);
    }
    mine.name = name;
    mine.name_len = strlen(name);
    mine.entry.uid = c->uid;
    mine.entry.gid = c->gid;
    if (c->mode != KIT_MODE_NONE && !S_ISLNK(r->entry.mode))
        mine.entry.mode = (r->entry.mode & S_IFMT) | c->mode;
    return build_copy_put(c, &mine);
}

static err *on_record(void *arg, const kit_record *r)
{
    copying *c = arg;

    if (r->type == KIT_ENTRY)
        return put_entry(c, r);
    return c->skips && r->type != KIT_END ? NULL : build_copy_put(c, r);
}

static void see_error(void *arg, const kit_record *r)
{
    if (r->type == KIT_ERROR)
        build_say(arg, "warn", "left out: %.*s", (int)r->name_len, r->name);
}

static void copying_done(copying *c)
{
    if (c->fd >= 0)
        close(c->fd);
    buf_done(&c->batch);
    free(c->source);
    free(c->target);
}

static err *build_copy_stream(build *b, copying *c)
{
    const kit_request rq = {
        .verb = KIT_UNPACK, .flags = KIT_F_OWNERS | KIT_F_KEEP, .mode = KIT_MODE_NONE, .path = "/"};
    CLEANUP(closep) int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CLEANUP(kit_call_freep) kit_call *k = NULL;
    archive_in in = {.read = on_read, .emit = on_record, .packed = on_packed, .arg = c};

    if (event < 0)
        return err_new(ERR_UNAVAILABLE, "no descriptor is left");
    TRY(engine_kit(b->e, &b->who, b->sb, &rq, "0", &k));
    kit_call_watch(k, on_bytes, &event);
    kit_call_wait_by(k, wait_on, b);
    c->call = k;
    TRY(archive_in_run(&in));
    return kit_wait_over(b, k, event, see_error, b);
}

static err *expand_all(build *b, const build_step *s, char ***ret_args)
{
    for (size_t i = 0; s->args && s->args[i]; i++) {
        char *one = NULL;
        TRY(build_expand(b, s->args[i], &one));
        strv_push(ret_args, one);
    }
    return NULL;
}

err *build_copy(build *b, const build_step *s)
{
    CLEANUP(copying_done) copying c = {.b = b, .fd = -1};
    CLEANUP(strv_freep) char **args = NULL;
    bool directory = false;

    TRY(expand_all(b, s, &args));
    size_t n = strv_len(args);

    if (!args || n < 2 || !s->files)
        return err_new(ERR_INVALID_REQUEST, "it needs a source, a path and files");
    const char *owner = n > 2 && *args[2] ? args[2] : b->user;
    c.source = build_copy_source(args[0]);
    c.target = build_copy_target(str_or(b->cwd, ""), args[1]);
    TRY(parse_mode(n > 3 ? args[3] : NULL, &c.mode));
    TRY(find_owner(b, owner, &c.uid, &c.gid));
    TRY(upload_open(b->e, b->who.owner, s->files, &c.fd));
    TRY(is_directory(b, c.target, &directory));
    c.below = directory || !*c.target || str_ends(args[1], "/");
    TRY(build_copy_stream(b, &c));
    if (!c.entries)
        return err_new(ERR_INVALID_REQUEST, "'%.128s' is not in the upload", args[0]);
    return NULL;
}
