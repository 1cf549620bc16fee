/* The backend `oci`: sandboxes are the warden's slots, commands run through their init. */
#include "backend/oci.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "core/admit.h"
#include "core/pool.h"

#define WARDEN_WAIT_MS 10000
#define SOCKET_MS      10000
#define UNPACK_MS      (30 * 60 * 1000)

/* ---- errors ---- */

static err_code code_of(int errnum)
{
    switch (errnum) {
    case EAGAIN:
    case ETIMEDOUT:
        return ERR_POOL_EXHAUSTED;
    case ENOTSUP:
        return ERR_UNSUPPORTED;
    case ENOENT:
        return ERR_NOT_FOUND;
    case ENOSPC:
    case EDQUOT:
        return ERR_DISK_FULL;
    case EROFS:
        return ERR_UNAVAILABLE;
    case WP_EWALL:
        return ERR_WALL_FAILED;
    default:
        return ERR_CREATE_FAILED;
    }
}

err *oci_error(const warden_answer *a, const char *what)
{
    err_code code = a->local ? ERR_UNAVAILABLE : code_of(a->errnum);
    err *e = err_sys(code, a->errnum, "%s", what);

    if (*a->text)
        e = err_because(e, "%s", a->text);
    if (!a->local && a->errnum == EROFS)
        e = err_remedy(e, "The disk of the warden's state is read-only: 'bothy doctor' on the node "
                          "has what to do. Sandboxes that run go on, without writing.");
    if (code == ERR_POOL_EXHAUSTED || a->retry_after)
        e = err_retry_after(e, a->retry_after ? (int)a->retry_after : OCI_RETRY_S);
    return e;
}

err *oci_call_error(const warden_reply *r, const char *what)
{
    err *e =
        oci_error(&(warden_answer){.errnum = r->errnum, .local = r->local, .text = r->text}, what);

    if (e->code == ERR_CREATE_FAILED || e->code == ERR_POOL_EXHAUSTED)
        e->code = r->errnum == ETIMEDOUT ? ERR_TIMEOUT : ERR_INTERNAL;
    return e;
}

/* ---- execs ---- */

static uint32_t spawn_flags(const exec_spec *s, int keep_fd)
{
    uint32_t f = 0;

    if (s->stdio == STDIO_PTY)
        f |= SP_F_PTY;
    else if (!s->stdin_open)
        f |= SP_F_NOSTDIN;
    if (s->stdio == STDIO_MERGED)
        f |= SP_F_MERGE;
    return f | (s->exec_fd >= 0 ? SP_F_EXECFD : 0) | (keep_fd >= 0 ? SP_F_KEEP : 0) |
           (s->setuid ? SP_F_SETUID : 0);
}

/* Appends a duplicate of fd to fds, unless fd is negative. On failure closes all of fds. */
static err *dup_behind(int fd, int *fds, size_t *n)
{
    if (fd < 0)
        return NULL;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy >= 0) {
        fds[(*n)++] = copy;
        return NULL;
    }
    int errnum = errno;
    while (*n)
        close(fds[--*n]);
    return err_sys(ERR_INTERNAL, errnum, "cannot duplicate a descriptor");
}

static err *oci_exec(box *x, uint64_t id, const exec_spec *s, int keep_fd)
{
    CLEANUP(spine_out_done) spine_out record = {0};
    uint32_t hard = s->nofile_hard ? s->nofile_hard : SPEC_NOFILE_HARD;
    struct sp_rlimit nofile = {s->nofile, hard, RLIMIT_NOFILE, 0};
    spine_spawn q = {.id = id,
                     .flags = spawn_flags(s, keep_fd),
                     .umask = SP_UMASK_CLAIM,
                     .rows = s->rows,
                     .cols = s->cols,
                     .rlimits = &nofile,
                     .nrlimits = s->nofile != 0,
                     .user = s->user,
                     .cwd = s->cwd,
                     .argv = s->argv,
                     .env = s->env};
    oci_out *o;
    int fds[2];
    size_t n = 0;

    TRY(spine_encode_spawn(&q, &record));
    TRY(dup_behind(s->exec_fd, fds, &n));
    TRY(dup_behind(keep_fd, fds, &n));
    TRY(oci_out_new(&record, fds, n, &o));
    return oci_box_push(x, o);
}

static err *oci_fetch(box *x, uint64_t id)
{
    struct sp_op op = spine_fetch(id);
    return oci_box_push(x, oci_out_op(&op, 0));
}

static err *oci_signal(box *x, const signal_spec *s)
{
    struct sp_op op = spine_signal(s->exec, s->signo, s->scope, s->pid, s->since);
    return oci_box_push(x, oci_out_op(&op, s->cookie));
}

/* Queues a record without an answer. Ignores errors: a box that is gone has nothing to close or
 * forget. */
static void oci_tell(box *x, struct sp_op op)
{
    err_free(oci_box_push(x, oci_out_op(&op, 0)));
}

static void oci_close(box *x, uint64_t id, uint32_t mask)
{
    oci_tell(x, spine_close(id, mask));
}

static void oci_ack(box *x, uint64_t id, uint32_t mask)
{
    oci_tell(x, spine_ack(id, mask));
}

static void oci_received(box *x, uint64_t id, int stream, uint64_t offset)
{
    (void)x, (void)id, (void)stream, (void)offset; /* splice moves bytes and offset in one step */
}

static err *frames_only(void)
{
    return err_new(ERR_UNSUPPORTED, "this backend gives descriptors, not frames");
}

static err *oci_stdin_write(box *x, uint64_t id, uint64_t offset, const void *p, size_t n, bool eof)
{
    (void)x, (void)id, (void)offset, (void)p, (void)n, (void)eof;
    return frames_only();
}

static err *oci_resize(box *x, uint64_t id, uint16_t rows, uint16_t cols)
{
    (void)x, (void)id, (void)rows, (void)cols;
    return frames_only();
}

/* ---- other requests to the warden ---- */

static enum cap_level oci_network(backend *b)
{
    return oci_warden_caps(oci_of(b)->warden) & WP_CAP_NETWORK ? CAP_NATIVE : CAP_ABSENT;
}

static bool oci_names(backend *b)
{
    return oci_warden_caps(oci_of(b)->warden) & WP_CAP_NAMED;
}

static void ignore_answer(void *arg, warden_answer *a)
{
    (void)arg;
    (void)a;
}

void oci_destroy_soon(backend *b, const char *id)
{
    struct wp_id w = oci_id(id);

    oci_warden_send(oci_of(b)->warden,
                    &(warden_ask){.type = WP_DESTROY, .body = {{&w, sizeof w}}, .fd = -1},
                    ignore_answer, NULL);
}

static err *oci_destroy(backend *b, const char *id)
{
    struct wp_id w = oci_id(id);
    CLEANUP(warden_reply_done) warden_reply r;

    oci_warden_call(
        oci_of(b)->warden,
        &(warden_ask){
            .type = WP_DESTROY, .body = {{&w, sizeof w}}, .fd = -1, .timeout_ms = OCI_SHORT_MS},
        &r);
    if (!r.errnum || (!r.local && (r.errnum == ENOENT || r.errnum == ESRCH)))
        return NULL;
    /* The warden is away, or refused. The caller continues as if it were done, so destroy later:
     * repeating it does no harm. */
    if (r.errnum != ECANCELED)
        oci_destroy_soon(b, id);
    return oci_call_error(&r, "cannot destroy the sandbox");
}

static void add_status(const struct wp_box *w, box_status *ret)
{
    memcpy(ret->id, w->sandbox.id, SANDBOX_ID_LEN);
    ret->id[SANDBOX_ID_LEN] = 0;
    ret->dead = w->flags & WP_BOX_DEAD;
    ret->frozen = w->flags & WP_BOX_FROZEN;
    ret->uid_base = w->uid_base;
    ret->pid = (int32_t)w->pid;
}

static err *oci_list(backend *b, box_status **ret_list, size_t *ret_n)
{
    CLEANUP(freep) box_status *all = NULL;
    struct wp_list ask = {0};
    size_t n = 0;

    do {
        CLEANUP(warden_reply_done) warden_reply r;
        oci_warden_call(oci_of(b)->warden,
                        &(warden_ask){.type = WP_LIST,
                                      .body = {{&ask, sizeof ask}},
                                      .fd = -1,
                                      .timeout_ms = OCI_SHORT_MS},
                        &r);
        if (r.errnum)
            return oci_call_error(&r, "cannot list the sandboxes");
        const struct wp_list *got = (const struct wp_list *)r.body.p;
        const struct wp_box *boxes = (const struct wp_box *)(got + 1);
        all = xrealloc(all, (n + got->n + 1) * sizeof *all);
        for (uint32_t i = 0; i < got->n; i++)
            add_status(&boxes[i], &all[n++]);
        if (got->next && got->next <= ask.from)
            return err_new(ERR_INTERNAL, "the warden's list does not end");
        ask.from = got->next;
    } while (ask.from);
    *ret_list = TAKE_PTR(all);
    *ret_n = n;
    return NULL;
}

static err *oci_unpack(backend *b, const uint8_t diff_id[32], int format, int blob_fd)
{
    struct wp_unpack ask = {.format = (uint32_t)format};
    CLEANUP(warden_reply_done) warden_reply r;

    memcpy(ask.diff_id.sha256, diff_id, sizeof ask.diff_id.sha256);
    oci_warden_call(oci_of(b)->warden,
                    &(warden_ask){.type = WP_UNPACK,
                                  .body = {{&ask, sizeof ask}},
                                  .fd = blob_fd,
                                  .timeout_ms = UNPACK_MS,
                                  .once = true},
                    &r);
    if (r.errnum == EBADMSG && !r.local) /* the layer itself is at fault; the text says how */
        return err_because(err_sys(ERR_IMAGE_UNSUPPORTED, EBADMSG, "a layer was refused"), "%s",
                           r.text);
    if (r.errnum == EILSEQ && !r.local)
        return err_because(err_sys(ERR_IMAGE_PULL_FAILED, EILSEQ,
                                   "a layer does not have the digest that the image says"),
                           "%s", r.text);
    return r.errnum ? oci_call_error(&r, "cannot unpack a layer") : NULL;
}

static err *oci_layers(backend *b, const uint8_t (*diff_ids)[32], size_t n, bool *ret_here)
{
    struct wp_layers ask = {.n = (uint32_t)n};
    CLEANUP(warden_reply_done) warden_reply r;

    oci_warden_call(oci_of(b)->warden,
                    &(warden_ask){.type = WP_LAYERS,
                                  .body = {{&ask, sizeof ask}, {(void *)diff_ids, n * 32}},
                                  .fd = -1,
                                  .timeout_ms = OCI_SHORT_MS},
                    &r);
    if (r.errnum)
        return oci_call_error(&r, "cannot ask for layers");
    if (((const struct wp_layers *)r.body.p)->n != n)
        return err_new(ERR_INTERNAL, "the warden answered about other layers");
    for (size_t i = 0; i < n; i++)
        ret_here[i] = ((const uint8_t *)r.body.p)[sizeof ask + i];
    return NULL;
}

static err *oci_image(backend *b, const uint8_t image[32], const uint8_t (*diff_ids)[32], size_t n)
{
    struct wp_image ask = {.n = (uint32_t)n};
    CLEANUP(warden_reply_done) warden_reply r;

    if (!n || n > WP_LAYERS_MAX)
        return err_new(ERR_IMAGE_UNSUPPORTED, "the image has %zu layers, 1 to %u are possible", n,
                       WP_LAYERS_MAX);
    memcpy(ask.image.sha256, image, sizeof ask.image.sha256);
    oci_warden_call(oci_of(b)->warden,
                    &(warden_ask){.type = WP_IMAGE,
                                  .body = {{&ask, sizeof ask}, {(void *)diff_ids, n * 32}},
                                  .fd = -1,
                                  .timeout_ms = UNPACK_MS}, /* the disk gets all layers first */
                    &r);
    if (r.errnum == EBADMSG && !r.local)
        return err_because(err_sys(ERR_IMAGE_UNSUPPORTED, EBADMSG, "the image was refused"), "%s",
                           r.text);
    return r.errnum ? oci_call_error(&r, "cannot register the image") : NULL;
}

static err *oci_prune(backend *b, const uint8_t (*images)[32], size_t n, bool unclaimed,
                      uint64_t *ret_bytes)
{
    enum {
        A_FRAME = (WP_FRAME_MAX - 64) / 32
    };
    uint64_t bytes = 0;

    for (size_t at = 0; at < n || !at;) {
        size_t k = n - at < A_FRAME ? n - at : A_FRAME;
        struct wp_prune ask = {.n = (uint32_t)k, .flags = unclaimed ? WP_PRUNE_UNCLAIMED : 0};
        CLEANUP(warden_reply_done) warden_reply r;
        oci_warden_call(oci_of(b)->warden,
                        &(warden_ask){.type = WP_PRUNE,
                                      .body = {{&ask, sizeof ask}, {(void *)(images + at), k * 32}},
                                      .fd = -1,
                                      .timeout_ms = UNPACK_MS},
                        &r);
        if (r.errnum)
            return oci_call_error(&r, "cannot prune images");
        bytes += ((const struct wp_pruned *)r.body.p)->bytes;
        at += k;
        if (!k)
            break;
    }
    *ret_bytes = bytes;
    return NULL;
}

static err *oci_metrics(backend *b, buf *out)
{
    CLEANUP(warden_reply_done) warden_reply r;

    oci_warden_call(
        oci_of(b)->warden,
        &(warden_ask){
            .type = WP_METRICS, .fd = -1, .timeout_ms = OCI_COUNT_MS, .now = true, .prompt = true},
        &r);
    if (r.errnum)
        return oci_call_error(&r, "cannot read the warden's metrics");
    buf_append(out, r.body.p, r.body.len);
    return NULL;
}

static void pool_view(const struct wp_pool *p, pool_status *ret)
{
    *ret = (pool_status){.low = p->low,
                         .high = p->high,
                         .max = p->max,
                         .ready = p->ready,
                         .making = p->making,
                         .claimed = p->claimed,
                         .dying = p->dying,
                         .waiting = p->waiting,
                         .refills_failed = p->refills_failed,
                         .failures = p->failures,
                         .state = pool_why_text(p->why),
                         .disk_full = p->why == POOL_NO_ROOM,
                         .read_only = p->why == POOL_READ_ONLY,
                         .waits_for = p->waiting && p->held_by ? admit_text(p->held_by) : NULL,
                         .refill_ns = p->refill_ns,
                         .oldest_wait_ns = p->oldest_wait_ns,
                         .next_try_ns = p->next_try_ns,
                         .memory = p->memory,
                         .memory_limits = p->memory_limits,
                         .memory_limits_max = p->memory_limits_max};
    memcpy(ret->last_error, p->last_error, sizeof ret->last_error);
}

static err *oci_pool(backend *b, const pool_marks *set, pool_status *ret_status)
{
    struct wp_watermarks ask = {0};
    CLEANUP(warden_reply_done) warden_reply r;

    if (set)
        ask = (struct wp_watermarks){.low = set->low, .high = set->high, .flags = WP_POOL_SET};
    oci_warden_call(oci_of(b)->warden,
                    &(warden_ask){.type = WP_POOL,
                                  .body = {{&ask, sizeof ask}},
                                  .fd = -1,
                                  .timeout_ms = set ? OCI_SHORT_MS : OCI_LOOK_MS,
                                  .prompt = true},
                    &r);
    if (r.errnum == EINVAL && !r.local)
        return err_new(ERR_INVALID_REQUEST, "%s", r.text);
    if (r.errnum)
        return oci_call_error(&r, set ? "cannot change the pool" : "cannot read the pool's state");
    if (set) /* sent again when the warden restarts */
        oci_warden_remember(oci_of(b)->warden, &ask);
    pool_view((const struct wp_pool *)r.body.p, ret_status);
    return NULL;
}

static void oci_release(backend *b, char ret_release[BACKEND_RELEASE_MAX])
{
    _Static_assert(BACKEND_RELEASE_MAX == WP_RELEASE_MAX, "a release is handed on as it is");
    oci_warden_release(oci_of(b)->warden, ret_release);
}

/* ---- sockets inside ---- */

typedef struct socket_ask {
    socket_done *done;
    void *arg;
    char id[SANDBOX_ID_LEN + 1];
} socket_ask;

static err *socket_error(const socket_ask *q, const warden_answer *a)
{
    if (!a->local && (a->errnum == ENOENT || a->errnum == ESRCH))
        return err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", q->id);
    err *e = oci_error(a, "cannot reach the sandbox's network");
    if (!a->local && e->code != ERR_UNSUPPORTED)
        e->code = ERR_INTERNAL;
    return e;
}

static void socket_answered(void *arg, warden_answer *a)
{
    CLEANUP(freep) socket_ask *q = arg;

    if (a->errnum) {
        q->done(q->arg, socket_error(q, a), -1);
        return;
    }
    int type = 0;
    socklen_t n = sizeof type;
    if (a->fd < 0 || getsockopt(a->fd, SOL_SOCKET, SO_TYPE, &type, &n) || type != SOCK_STREAM ||
        fcntl(a->fd, F_SETFL, O_NONBLOCK)) {
        /* Most likely this process's descriptor table was full when it came. */
        q->done(q->arg, err_new(ERR_UNAVAILABLE, "no descriptor is left for a socket"), -1);
        return;
    }
    q->done(q->arg, NULL, TAKE_FD(a->fd));
}

static void oci_socket(backend *b, const char *id, socket_done *done, void *arg)
{
    struct wp_id w = oci_id(id);
    socket_ask *q = xcalloc(1, sizeof *q);

    *q = (socket_ask){.done = done, .arg = arg};
    str_copy(q->id, sizeof q->id, id);
    oci_warden_send(
        oci_of(b)->warden,
        &(warden_ask){
            .type = WP_SOCKET, .body = {{&w, sizeof w}}, .fd = -1, .timeout_ms = SOCKET_MS},
        socket_answered, q);
}

/* ---- life ---- */

static void oci_ref(box *x)
{
    atomic_fetch_add(&x->users, 1);
}

static void oci_forget(void *arg)
{
    box *x = arg;
    bool gone;

    pthread_mutex_lock(&x->lock);
    gone = x->state == BOX_GONE;
    pthread_mutex_unlock(&x->lock);
    if (!gone) {
        oci_box_shut(x);
        oci_loop_remove(x->b->loop, x);
    }
    oci_box_unref(x);
}

/* Drops a user's reference. After the last one no event comes any more; the sandbox itself lives
 * on. */
static void oci_unref(box *x)
{
    if (!x || atomic_fetch_sub(&x->users, 1) != 1)
        return;
    pthread_mutex_lock(&x->lock);
    bool gone = x->state == BOX_GONE; /* also when the backend has ended */
    pthread_mutex_unlock(&x->lock);
    if (gone)
        oci_box_unref(x);
    else
        oci_loop_post(x->b->loop, oci_forget, x);
}

static void oci_free(backend *b)
{
    oci *o = oci_of(b);

    oci_loop_stop(o->loop);
    o->closing = true;
    oci_warden_free(o->warden); /* answers creates that wait */
    oci_loop_free(o->loop);
    free(o);
}

static const backend_ops oci_ops = {
    .create = oci_create,
    .attach = oci_attach,
    .exec = oci_exec,
    .fetch = oci_fetch,
    .signal = oci_signal,
    .close = oci_close,
    .ack = oci_ack,
    .received = oci_received,
    .stdin_write = oci_stdin_write,
    .resize = oci_resize,
    .destroy = oci_destroy,
    .destroy_soon = oci_destroy_soon,
    .network = oci_network,
    .names = oci_names,
    .list = oci_list,
    .usage = oci_usage,
    .usage_many = oci_usage_many,
    .unpack = oci_unpack,
    .layers = oci_layers,
    .image = oci_image,
    .prune = oci_prune,
    .metrics = oci_metrics,
    .pool = oci_pool,
    .release = oci_release,
    .socket = oci_socket,
    .freeze = oci_freeze,
    .thaw = oci_thaw,
    .fate = oci_fate,
    .limits = oci_limits,
    .snapshot = oci_snapshot,
    .box_ref = oci_ref,
    .box_unref = oci_unref,
    .free = oci_free,
};

err *backend_oci_new(const char *warden_socket, const pool_marks *marks, backend **ret_backend)
{
    const struct wp_watermarks set = {
        .low = marks ? marks->low : 0, .high = marks ? marks->high : 0, .flags = WP_POOL_SET};
    CLEANUP(freep) oci *o = xcalloc(1, sizeof *o);

    TRY(oci_warden_new(warden_socket, marks ? &set : NULL, WARDEN_WAIT_MS, &o->warden));
    uint32_t caps = oci_warden_caps(o->warden);
    o->loop = oci_loop_new();
    o->base.ops = &oci_ops;
    o->base.caps = (backend_caps){
        .name = "oci",
        .images = CAP_NATIVE,
        .user = CAP_NATIVE,
        .stats = CAP_NATIVE,
        .freeze = CAP_NATIVE,
        .socket = CAP_NATIVE,
        .snapshot = caps & WP_CAP_SNAPSHOT ? CAP_NATIVE : CAP_ABSENT,
        .disk_limit = caps & WP_CAP_DISK_LIMIT ? CAP_NATIVE : CAP_ABSENT,
        .memory_limit = CAP_NATIVE,
        .cpu_limit = CAP_NATIVE,
        .pids_limit = CAP_NATIVE,
        .swap_limit = caps & WP_CAP_SWAP_LIMIT ? CAP_NATIVE : CAP_ABSENT,
        .read_only = CAP_NATIVE,
        .tmpfs = CAP_NATIVE,
        .setuid = CAP_NATIVE,
        .hostname = CAP_NATIVE,
        .walls = CAP_NATIVE,
        .ids = CAP_NATIVE,
        .files = CAP_NATIVE,
    };
    *ret_backend = &TAKE_PTR(o)->base;
    return NULL;
}
