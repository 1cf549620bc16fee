/* File verbs: runs the kit as a transient exec and decodes its answers. */
#include "engine/files.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/internal.h"
#include "engine/kit_sh.h"

#define SILENCE_NS (30 * NS_PER_S)
#define READ_MAX   (2 * KIT_RECORD_MAX)
#define PINGS_MAX  512  /* in a row; then one is returned, so that other calls get a turn */
#define SLICE_MS   1000 /* of a wait on a thread: how often silence is checked */

struct kit_call {
    enum kit_verb verb;
    char *path;
    exec *x;
    exec_hold *hold;
    exec_watch watch;
    bool watched, over, failed;
    kit_sh *sh; /* the answers are a shell's; NULL: the kit's */
    buf in;     /* bytes from `done` on are not decoded yet; freed while nothing comes */
    size_t done;
    uint64_t at; /* offset of the next byte to read */
    kit_order order;
    uint64_t begun_ns;
    uint64_t waits_ns;   /* since when nothing has come; 0: it is not waiting */
    uint64_t held_ns;    /* how long snapshots had held the sandbox by then */
    uint64_t taken_seen; /* bytes of stdin read by then */
    int event;           /* for waits on a thread */
    kit_wait *wait;
    void *wait_arg;
};

/* ---- errors ---- */

enum {
    REMEDY_NONE,
    REMEDY_USER,
    REMEDY_ROOM,
    REMEDY_KIND,
    REMEDY_EXISTS
};
static const char *const REMEDIES[] = {
    [REMEDY_USER] = "Use a path that the sandbox's user may reach, or name another 'user'.",
    [REMEDY_ROOM] = "Remove files in the sandbox, or give it a larger disk limit.",
    [REMEDY_KIND] = "Look at the path with .../files/stat first.",
    [REMEDY_EXISTS] = "Remove what is there first, or choose another path.",
};

static const struct {
    int errnum;
    err_code code;
    const char *what;
    int remedy;
} ERRNOS[] = {
    {ENOENT, ERR_NOT_FOUND, "there is no such file or directory", REMEDY_NONE},
    {ENOTDIR, ERR_NOT_FOUND, "a part of the path is no directory", REMEDY_NONE},
    {EACCES, ERR_FORBIDDEN, "the sandbox's user may not do this", REMEDY_USER},
    {EPERM, ERR_FORBIDDEN, "the sandbox's user may not do this", REMEDY_USER},
    {EROFS, ERR_FORBIDDEN, "the file system is read-only", REMEDY_USER},
    {EEXIST, ERR_CONFLICT, "it exists already", REMEDY_EXISTS},
    {ENOTEMPTY, ERR_CONFLICT, "the directory is not empty", REMEDY_EXISTS},
    {EISDIR, ERR_CONFLICT, "it is a directory", REMEDY_KIND},
    {EINVAL, ERR_CONFLICT, "it is not a regular file, or would become a part of itself",
     REMEDY_KIND},
    {EBUSY, ERR_CONFLICT, "it is a mount point or the root", REMEDY_KIND},
    {EXDEV, ERR_CONFLICT, "the two paths are on different file systems", REMEDY_KIND},
    {ELOOP, ERR_CONFLICT, "too many links or levels", REMEDY_KIND},
    {ETXTBSY, ERR_CONFLICT, "a program is being run from it", REMEDY_NONE},
    {ESTALE, ERR_CONFLICT, "it became shorter while it was read", REMEDY_NONE},
    {EFBIG, ERR_TOO_LARGE, "the file would be too large", REMEDY_NONE},
    {ENAMETOOLONG, ERR_INVALID_REQUEST, "the path is too long", REMEDY_NONE},
    {EPIPE, ERR_INVALID_REQUEST, "the content ended too early", REMEDY_NONE},
    {EPROTO, ERR_INVALID_REQUEST, "the content is not an entry stream", REMEDY_NONE},
    {ENOSPC, ERR_DISK_FULL, "the sandbox's disk is full", REMEDY_ROOM},
    {EDQUOT, ERR_DISK_FULL, "the sandbox's disk limit is reached", REMEDY_ROOM},
    {EMFILE, ERR_SANDBOX_EXHAUSTED, "the sandbox has too many open files", REMEDY_NONE},
    {ENFILE, ERR_SANDBOX_EXHAUSTED, "the sandbox has too many open files", REMEDY_NONE},
    {ENOMEM, ERR_SANDBOX_EXHAUSTED, "the sandbox has no memory for this", REMEDY_NONE},
    {ENOSYS, ERR_UNSUPPORTED, "this node cannot do that", REMEDY_NONE},
    {ENOKEY, ERR_USER_NOT_FOUND, "the image has no such user", REMEDY_NONE},
};

err *kit_error(enum kit_verb verb, int errnum, const char *path)
{
    /* These come from the kernel's inotify limits, not from a disk. */
    if (verb == KIT_WATCH && (errnum == ENOSPC || errnum == EMFILE))
        return err_remedy(err_kind(err_sys(ERR_SANDBOX_EXHAUSTED, errnum,
                                           "'%s': too much is watched in this sandbox", path),
                                   "path"),
                          "Watch less: without 'recursive', or a directory further down.");
    if (verb == KIT_UNPACK && errnum == EXDEV)
        return err_kind(err_sys(ERR_INVALID_REQUEST, errnum,
                                "'%s': it leads out of the directory over a symbolic link", path),
                        "path");
    for (size_t i = 0; i < ARRAY_LEN(ERRNOS); i++)
        if (ERRNOS[i].errnum == errnum) {
            err *e =
                err_kind(err_sys(ERRNOS[i].code, errnum, "'%s': %s", path, ERRNOS[i].what), "path");
            return ERRNOS[i].remedy ? err_remedy(e, "%s", REMEDIES[ERRNOS[i].remedy])
                   : ERRNOS[i].code == ERR_NOT_FOUND
                       ? err_remedy(e, "Check the path; relative ones begin at the sandbox's "
                                       "working directory.")
                       : e;
        }
    return err_kind(
        err_sys(ERR_UNAVAILABLE, errnum, "'%s': the sandbox's file system failed", path), "path");
}

static err *files_silent(const kit_call *k)
{
    return err_remedy(
        err_new(ERR_TIMEOUT, "'%s': no answer from inside the sandbox for 30 s", k->path),
        "Something in the sandbox has stopped the kit, or its disk hangs. Try again; "
        "end what runs there if it stays.");
}

static err *files_broken(const kit_call *k, const char *why)
{
    return err_because(
        err_remedy(err_new(ERR_UNAVAILABLE, "'%s': the kit in the sandbox failed", k->path),
                   "Try again; if it stays, something in the sandbox interferes."),
        "%s", why);
}

/* Returns the error for a kit that ended without END. */
static err *files_died(const kit_call *k, const exec_end *end)
{
    err *e = exec_end_error(end);

    if (e)
        return e;
    if (end->how == EXEC_UNKNOWN)
        return err_kind(err_new(ERR_SANDBOX_GONE, "the sandbox has ended"), "sandbox");
    if (end->how == EXEC_EXITED)
        return files_broken(k, "it ended early");
    return files_broken(k, end->oom ? "it was killed for want of memory" : "it was killed");
}

/* ---- starting ---- */

static bool files_changes(enum kit_verb verb)
{
    return verb == KIT_WRITE || verb == KIT_MKDIR || verb == KIT_MOVE || verb == KIT_REMOVE ||
           verb == KIT_UNPACK;
}

static bool takes_input(enum kit_verb verb)
{
    return verb == KIT_WRITE || verb == KIT_UNPACK;
}

enum cap_level engine_files_cap(const engine *e)
{
    return e->o.kit_fd >= 0 && e->o.backend->caps.files == CAP_NATIVE ? CAP_NATIVE : CAP_EMULATED;
}

void kit_spec(const engine *e, const kit_request *rq, char numbers[KIT_NUMBERS],
              const char *argv[KIT_ARGC + 1], exec_spec *ret_spec)
{
    kit_request_write(rq, numbers, argv);
    *ret_spec = (exec_spec){.argv = (char **)argv, .exec_fd = e->o.kit_fd, .cwd = "/"};
}

static err *check_text(const char *name, const char *text)
{
    if (text && strlen(text) > KIT_PATH_MAX)
        return err_new(ERR_INVALID_REQUEST, "%s: more than %u bytes", name, KIT_PATH_MAX);
    return NULL;
}

static err *files_check(const caller *c, const kit_request *rq)
{
    TRY(caller_require(c, files_changes(rq->verb) ? CALLER_USER : CALLER_READ));
    if (!rq->path || !*rq->path)
        return err_new(ERR_INVALID_REQUEST, "path: is empty");
    TRY(check_text("path", rq->path));
    TRY(check_text("to", rq->to));
    return check_text("text", rq->text);
}

static err *engine_files_start(engine *e, const caller *c, sandbox *sb, const kit_request *rq,
                               kit_call *k, exec_spec *spec)
{
    char numbers[KIT_NUMBERS];
    const char *argv[KIT_ARGC + 1];

    if (engine_files_cap(e) == CAP_NATIVE) {
        kit_request_write(rq, numbers, argv);
        spec->argv = (char **)argv;
        spec->exec_fd = e->o.kit_fd;
        return engine_exec_for_verb(e, c, sb, spec, &k->x);
    }
    TRY(kit_sh_new(rq, &k->sh));
    spec->argv = kit_sh_argv(k->sh);
    return engine_exec_for_verb(e, c, sb, spec, &k->x);
}

err *engine_kit(engine *e, const caller *c, sandbox *sb, const kit_request *rq, const char *user,
                kit_call **ret_call)
{
    TRY(files_check(c, rq));
    CLEANUP(kit_call_freep) kit_call *k = xcalloc(1, sizeof *k);
    exec_spec spec = {.user = (char *)user,
                      .stdin_open = takes_input(rq->verb),
                      .exec_fd = -1,
                      .transient = true,
                      .awaited = true};

    *k = (kit_call){.verb = rq->verb, .path = xstrdup(rq->path), .event = -1};
    k->begun_ns = now_mono_ns();
    TRY(engine_files_start(e, c, sb, rq, k, &spec));
    k->hold = exec_hold_new(k->x, 1, 0);
    *ret_call = TAKE_PTR(k);
    return NULL;
}

void kit_call_free(kit_call *k)
{
    if (!k)
        return;
    if (k->hold)
        engine_count_verb(k->verb, k->order.ended && !k->failed, now_mono_ns() - k->begun_ns);
    if (k->watched)
        exec_unwatch(k->x, &k->watch);
    exec_hold_free(k->hold);
    /* The kit undoes an upload that ends without END. A shell would take the received part for all
     * of it. */
    bool unfinished = takes_input(k->verb) && !k->order.ended;
    if (k->x)
        exec_discard(k->x, !unfinished && !k->order.ended ? DISCARD_KILL
                           : unfinished && k->sh          ? DISCARD_TERM
                                                          : DISCARD_END);
    exec_unref(k->x);
    kit_sh_free(k->sh);
    buf_done(&k->in);
    closep(&k->event);
    free(k->path);
    free(k);
}

void kit_call_watch(kit_call *k, void (*notify)(void *arg), void *arg)
{
    if (k->watched)
        exec_unwatch(k->x, &k->watch);
    k->watch = (exec_watch){.notify = notify, .arg = arg};
    k->watched = true;
    exec_watch_add(k->x, &k->watch);
}

/* ---- its answers ---- */

/* Reads bytes that have come since the last call. *ret_dry: there are none. */
static err *files_pull(kit_call *k, const exec_state *st, bool *ret_dry)
{
    uint64_t gap = 0;
    size_t n = 0, there = (size_t)(st->length[0] - k->at);

    buf_consume(&k->in, k->done);
    k->done = 0;
    size_t room = READ_MAX - k->in.len;
    if (!there) {
        *ret_dry = true;
        return NULL;
    }
    buf_reserve(&k->in, there < room ? there : room);
    TRY(exec_read(k->x, 1, k->at, k->in.p + k->in.len, there < room ? there : room, &n, &gap));
    if (gap > k->at)
        return err_new(ERR_TIMEOUT, "'%s': the answer was not read for 60 s", k->path);
    k->in.len += n;
    k->at += n;
    exec_hold_move(k->hold, k->at);
    *ret_dry = !n;
    return NULL;
}

static err *wait_more(kit_call *k, uint64_t now, const exec_state *st)
{
    uint64_t taken = exec_stdin_taken(k->x);

    if (!k->in.len)
        buf_done(&k->in); /* thousands of calls may wait */
    if (st->end.how != EXEC_RUNNING && k->at >= st->end.out_bytes)
        return files_died(k, &st->end);
    if (!k->waits_ns || taken != k->taken_seen) {
        k->waits_ns = now;
        k->held_ns = exec_held_ns(k->x);
    }
    k->taken_seen = taken;
    return now >= kit_call_deadline(k) ? files_silent(k) : NULL;
}

/* Decodes one record from the bytes that have been read. */
static enum kit_verdict files_take(kit_call *k, const exec_state *st, kit_record *ret)
{
    size_t used = 0, n = k->in.len - k->done;
    bool all = st->end.how != EXEC_RUNNING && k->at >= st->end.out_bytes;
    enum kit_verdict v = k->sh
                             ? kit_sh_decode(k->sh, k->in.p + k->done, n, all, &st->end, ret, &used)
                             : kit_decode(k->in.p + k->done, n, ret, &used);

    if (v == KIT_OK)
        k->done += used;
    return v == KIT_OK && !kit_order_check(&k->order, ret) ? KIT_BAD : v;
}

/* Returns the error of a fatal ERROR record, for the entry that it names, if any. */
static err *failed_at(const kit_call *k, const kit_record *r)
{
    CLEANUP(freep)
    char *path = r->name_len ? str_printf("%s/%.*s", k->path, (int)r->name_len, r->name) : NULL;

    return kit_error(k->verb, r->error.errnum, path ? path : k->path);
}

err *kit_call_next(kit_call *k, uint64_t now, enum kit_next *ret_next, kit_record *ret_record)
{
    exec_state st;
    unsigned pings = 0;

    /* State before bytes: an end seen here means that every byte can be read. */
    exec_get(k->x, &st);
    for (;;) {
        enum kit_verdict v = files_take(k, &st, ret_record);
        bool dry = false;
        if (v == KIT_BAD)
            return files_broken(k, "its answer is not an entry stream");
        if (v == KIT_SHORT) {
            TRY(files_pull(k, &st, &dry));
            if (!dry)
                continue;
            *ret_next = KIT_WAIT;
            return wait_more(k, now, &st);
        }
        k->waits_ns = 0;
        if (ret_record->type == KIT_PING && ++pings < PINGS_MAX)
            continue;
        k->failed |= ret_record->type == KIT_ERROR && ret_record->error.flags & KIT_E_FATAL;
        if (k->failed)
            return failed_at(k, ret_record);
        *ret_next = ret_record->type == KIT_END ? KIT_OVER : KIT_RECORD;
        return NULL;
    }
}

uint64_t kit_call_deadline(const kit_call *k)
{
    if (!k->waits_ns)
        return now_mono_ns() + SILENCE_NS;
    return k->waits_ns + SILENCE_NS + (exec_held_ns(k->x) - k->held_ns);
}

/* ---- its stdin ---- */

/* Returns true if the error says that the verb has ended: sending is then no failure, the verb's
 * answer says why. */
static bool is_over(const err *e)
{
    return e->code == ERR_CONFLICT && (str_eq(e->kind, "exec") || str_eq(e->kind, "stdin"));
}

/* Appends bytes to stdin. *ret_taken is false if too much of it is unread. */
static err *files_put(kit_call *k, const void *p, size_t n, bool last, bool *ret_taken)
{
    err *e = k->over ? NULL : exec_stdin(k->x, p, n, UINT64_MAX, last);

    *ret_taken = true;
    if (!e)
        return NULL;
    if (e->code == ERR_QUOTA_EXCEEDED && str_eq(e->kind, "stdin")) {
        err_free(e);
        *ret_taken = false;
        return NULL;
    }
    if (!is_over(e))
        return e;
    err_free(e);
    k->over = true;
    return NULL;
}

void kit_call_add(const kit_call *k, const kit_record *r, buf *batch)
{
    if (k->sh) { /* a shell reads the bytes as they are */
        if (r->type == KIT_DATA)
            buf_append(batch, r->bytes, r->bytes_len);
        return;
    }
    buf_reserve(batch, KIT_RECORD_MAX);
    batch->len += kit_encode(r, batch->p + batch->len);
}

bool kit_call_is_over(const kit_call *k)
{
    return k->over;
}

static void on_room(void *arg)
{
    eventfd_write(*(int *)arg, 1);
}

void kit_call_wait_by(kit_call *k, kit_wait *wait, void *arg)
{
    k->wait = wait;
    k->wait_arg = arg;
}

/* Waits until the kit has read some of its stdin, or has ended. */
static err *wait_room(kit_call *k)
{
    exec_state st;
    eventfd_t v;

    if (k->event < 0) {
        k->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (k->event < 0)
            return err_sys(ERR_INTERNAL, errno, "cannot wait for a sandbox");
        kit_call_watch(k, on_room, &k->event);
        return NULL; /* bytes read before the watch was set are seen by trying again */
    }
    TRY(k->wait(k->wait_arg, k->event, SLICE_MS));
    eventfd_read(k->event, &v);
    exec_get(k->x, &st);
    if (st.end.how != EXEC_RUNNING) {
        k->over = true;
        return NULL;
    }
    return wait_more(k, now_mono_ns(), &st);
}

err *kit_call_send_bytes(kit_call *k, const void *p, size_t n, bool last)
{
    bool taken = false;

    for (;;) {
        TRY(files_put(k, p, n, last, &taken));
        if (taken)
            break;
        TRY(wait_room(k));
    }
    k->waits_ns = 0;
    return NULL;
}
