/* The calls of link.h for warm containers, claims and boxes. They encode and queue; the loop does
 * the rest. */
#include "backend/link.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "backend/link_internal.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"
#include "wire/spine_seal.h"

#define CREDIT (256u * 1024) /* output in flight for each stream: the spool writes at once */

/* ---- warm ---- */

static err *backend_link_begin(link_host *h, box *x)
{
    err *e = link_register(h, x);

    if (e) {
        link_unref(x);
        link_unref(x);
        return e;
    }
    link_post(h, link_box_begin, x);
    return NULL;
}

static err *check_container(const link_container *c)
{
    size_t n = strnlen(c->handle, LINK_HANDLE_MAX);

    if (!n || n == LINK_HANDLE_MAX)
        return err_new(ERR_INTERNAL, "a container's handle has %zu bytes", n);
    return NULL;
}

err *link_warm_new(link_host *h, const link_container *c, const link_warm_events *ev, void *arg,
                   link_warm **ret_warm)
{
    TRY(check_container(c));
    box *x = link_box_new(h, c);
    x->wev = ev;
    x->warg = arg;
    TRY(backend_link_begin(h, x));
    *ret_warm = x;
    return NULL;
}

const char *link_warm_handle(const link_warm *w)
{
    return w->handle;
}

bool link_warm_ready(link_warm *w)
{
    LOCK_SCOPE(&w->lock);
    return w->phase == LINK_WARM && w->state == LINK_OPEN;
}

/* Drops the owner's reference, and the list's unless the box had ended. */
static void link_leave(void *arg)
{
    box *x = arg;

    /* no event: the box has no user */
    link_box_end(x, ERR_INTERNAL, 0, "nobody wants it any more");
    link_unref(x);
}

void link_warm_drop(link_warm *w)
{
    bool gone;

    if (!w)
        return;
    {
        LOCK_SCOPE(&w->lock);
        w->phase = LINK_DROPPED;
        gone = w->state == LINK_GONE; /* also when the host has ended */
    }
    if (gone)
        link_unref(w);
    else
        link_post(w->h, link_leave, w);
}

/* ---- claims ---- */

#define ID_LETTERS "0123456789abcdefghijklmnopqrstuvwxyz"
#define ID_MARK    0xb07d1du /* above the 104 bits that 36^20 needs */

/* Packs a sandbox id into 16 bytes, reversibly: after a kill between a claim and its record, only
 * HELLO says which sandbox owns the container. */
static void pack_sandbox(const char *id, uint32_t ret_packed[4])
{
    unsigned __int128 n = 0;

    for (const char *at = id; *at; at++) {
        const char *letter = strchr(ID_LETTERS, *at);
        n = n * 36 + (letter ? (unsigned)(letter - ID_LETTERS) : 0);
    }
    n |= (unsigned __int128)ID_MARK << 104;
    for (int i = 0; i < 4; i++)
        ret_packed[i] = (uint32_t)(n >> 32 * i);
}

bool link_id_unpack(const uint32_t packed[4], char ret_id[SANDBOX_ID_LEN + 1])
{
    unsigned __int128 n = 0;

    for (int i = 0; i < 4; i++)
        n |= (unsigned __int128)packed[i] << 32 * i;
    if ((uint32_t)(n >> 104) != ID_MARK)
        return false;
    n &= ((unsigned __int128)1 << 104) - 1;
    for (int i = SANDBOX_ID_LEN; i-- > 0; n /= 36)
        ret_id[i] = ID_LETTERS[(unsigned)(n % 36)];
    ret_id[SANDBOX_ID_LEN] = 0;
    return n == 0;
}

const char *link_warm_whose(const link_warm *w)
{
    return w->whose;
}

/* Puts HOSTNAME in front of env, as a warm container keeps its own hostname. Copies only pointers,
 * because the strings contain secrets. */
static char **with_hostname(char **env, char *hostname)
{
    size_t n = env ? strv_len(env) : 0;
    char **all = xcalloc(n + 2, sizeof *all);

    all[0] = hostname; /* later wins */
    if (n)
        memcpy(all + 1, env, n * sizeof *all);
    return all;
}

static err *encode_claim(const box_spec *s, link_out **ret_out)
{
    CLEANUP(spine_out_done) spine_out record = {0};
    CLEANUP(freep) char *hostname = str_printf("HOSTNAME=%s", str_or(s->hostname, s->id));
    CLEANUP(freep) char **env = with_hostname(s->env, hostname);
    spine_claim c = {.user = s->user,
                     .cwd = s->cwd,
                     .env = env,
                     .umask = s->umask,
                     .grants = s->spec->setuid ? SP_GRANT_SETUID : 0};

    pack_sandbox(s->id, c.sandbox);
    TRY(spine_encode_claim(&c, &record));
    *ret_out = link_out_spine(&record);
    return NULL;
}

err *link_claim(link_warm *w, const box_spec *spec, unsigned timeout_ms, const box_events *ev,
                void *arg, create_done *done, void *done_arg)
{
    link_out *claim;

    TRY(encode_claim(spec, &claim));
    {
        LOCK_SCOPE(&w->lock);
        w->phase = LINK_CLAIMING;
        str_copy(w->id, sizeof w->id, spec->id);
        pack_sandbox(w->id, w->sandbox);
        w->ev = ev;
        w->arg = arg;
        w->done = done;
        w->done_arg = done_arg;
        w->claim = claim;
        w->claim_ns = now_mono_ns();
        w->claim_due_ns = w->claim_ns + timeout_ms * NS_PER_MS;
        atomic_store(&w->users, 1);
        link_ref(w); /* done may run, and the box may be gone, before this returns */
        if (w->state == LINK_OPEN)
            link_send_claim(w);
    }
    link_register_id(w);
    link_box_look_soon(w);
    link_unref(w);
    return NULL;
}

/* ---- boxes ---- */

err *link_attach(link_host *h, const char *id, const link_container *c, const box_events *ev,
                 void *arg, box **ret_box)
{
    TRY(check_container(c));
    box *x = link_box_new(h, c);
    x->phase = LINK_BOX;
    str_copy(x->id, sizeof x->id, id);
    pack_sandbox(id, x->sandbox);
    x->ev = ev;
    x->arg = arg;
    atomic_store(&x->users, 1);
    TRY(backend_link_begin(h, x));
    *ret_box = x;
    return NULL;
}

const char *link_box_id(const box *x)
{
    return x->id;
}

const char *link_box_handle(const box *x)
{
    return x->handle;
}

void *link_box_arg(const box *x)
{
    return x->h->o.arg;
}

void link_box_ref(box *x)
{
    atomic_fetch_add(&x->users, 1);
}

/* Drops a user's reference. After the last one no event comes any more; the sandbox itself lives
 * on. */
void link_box_unref(box *x)
{
    if (!x || atomic_fetch_sub(&x->users, 1) != 1)
        return;
    pthread_mutex_lock(&x->lock);
    bool gone = x->state == LINK_GONE; /* also when the host has ended */
    pthread_mutex_unlock(&x->lock);
    if (gone)
        link_unref(x);
    else
        link_post(x->h, link_leave, x);
}

typedef struct ending {
    box *x;
    char *why;
} ending;

static void end_now(void *arg)
{
    ending *e = arg;

    link_box_end(e->x, ERR_SANDBOX_GONE, 0, e->why);
    link_unref(e->x);
    free(e->why);
    free(e);
}

void link_gone(box *x, const char *why)
{
    {
        LOCK_SCOPE(&x->lock);
        if (x->state == LINK_GONE)
            return;
    }
    ending *e = xcalloc(1, sizeof *e);
    link_ref(x);
    *e = (ending){x, xstrdup(why)};
    link_post(x->h, end_now, e);
}

/* ---- execs ---- */

static uint32_t spawn_flags(const exec_spec *s)
{
    uint32_t f = 0;

    if (s->stdio == STDIO_PTY)
        f |= SP_F_PTY;
    else if (!s->stdin_open)
        f |= SP_F_NOSTDIN;
    if (s->stdio == STDIO_MERGED)
        f |= SP_F_MERGE;
    return f | (s->setuid ? SP_F_SETUID : 0);
}

/* Replaces argv[0] by the kit's path: this link carries no descriptors, and only the kit is run by
 * descriptor. */
static err *by_path(const box *x, const exec_spec *s, char ***ret_argv)
{
    size_t n = strv_len(s->argv);

    if (!x->h->o.kit)
        return err_sys(ERR_UNSUPPORTED, ENOSYS, "%s has no kit to run", x->h->o.name);
    char **argv = xcalloc(n + 1, sizeof *argv);
    memcpy(argv, s->argv, n * sizeof *argv);
    argv[0] = (char *)x->h->o.kit;
    *ret_argv = argv;
    return NULL;
}

err *link_exec(box *x, uint64_t exec, const exec_spec *s, int keep_fd)
{
    CLEANUP(spine_out_done) spine_out record = {0};
    CLEANUP(freep) char **argv = NULL;
    uint32_t hard = s->nofile_hard ? s->nofile_hard : SPEC_NOFILE_HARD;
    struct sp_rlimit nofile = {s->nofile, hard, RLIMIT_NOFILE, 0};
    spine_spawn q = {.id = exec,
                     .flags = spawn_flags(s),
                     .umask = SP_UMASK_CLAIM,
                     .rows = s->rows,
                     .cols = s->cols,
                     .rlimits = &nofile,
                     .nrlimits = s->nofile != 0,
                     .user = s->user,
                     .cwd = s->cwd,
                     .argv = s->argv,
                     .env = s->env};

    (void)keep_fd; /* stdin comes in frames */
    if (s->exec_fd >= 0) {
        TRY(by_path(x, s, &argv));
        q.argv = argv;
    }
    TRY(spine_encode_spawn(&q, &record));
    return link_push(x, link_out_spine(&record));
}

static link_out *of_op(struct sp_op op)
{
    return link_out_new(op.h.type, op.h.id, &op, sizeof op);
}

err *link_fetch(box *x, uint64_t exec)
{
    return link_push(x, of_op(spine_fetch(exec)));
}

err *link_signal(box *x, const signal_spec *s)
{
    link_out *o = of_op(spine_signal(s->exec, s->signo, s->scope, s->pid, s->since));

    o->signo = s->signo;
    o->cookie = s->cookie;
    return link_push(x, o);
}

/* Queues a message without an answer. Ignores errors: a box that has ended does not need it. */
static void link_tell(box *x, link_out *o)
{
    err_free(link_push(x, o));
}

void link_close(box *x, uint64_t exec, uint32_t mask)
{
    link_tell(x, of_op(spine_close(exec, mask)));
}

void link_ack(box *x, uint64_t exec, uint32_t mask)
{
    {
        LOCK_SCOPE(&x->lock);
        if (mask & 1u << SP_FD_IN)
            free(map_take_u64(&x->stdins, exec));
    }
    link_tell(x, of_op(spine_ack(exec, mask)));
}

static link_out *of_data(uint32_t type, uint64_t exec, uint32_t a, uint32_t b, uint64_t offset)
{
    struct sps_data d = {{type, 0, exec}, a, b, offset};

    return link_out_new(type, exec, &d, sizeof d);
}

void link_received(box *x, uint64_t exec, int stream, uint64_t offset)
{
    link_tell(x, of_data(SPS_RECEIVED, exec, (uint32_t)stream, CREDIT, offset));
}

/* Checks that init accepts this piece in this connection. A refused piece is requested again by the
 * next stdin_taken. Lock held. */
static err *take_stdin(box *x, uint64_t exec, uint64_t offset, size_t n)
{
    link_stdin *in = x->state == LINK_OPEN ? map_get_u64(&x->stdins, exec) : NULL;

    if (x->state == LINK_GONE)
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", x->id), "sandbox");
    if (!in || offset > in->next || offset + n > in->limit)
        return err_sys(ERR_UNAVAILABLE, EAGAIN, "stdin of exec %lu has no room", exec);
    if (in->next < offset + n)
        in->next = offset + n;
    return NULL;
}

err *link_stdin_write(box *x, uint64_t exec, uint64_t offset, const void *p, size_t n, bool eof)
{
    if (n > SPS_CHUNK_MAX)
        return err_new(ERR_INTERNAL, "a piece of stdin has %zu bytes", n);
    LOCK_SCOPE(&x->lock);
    TRY(take_stdin(x, exec, offset, n)); /* before copying: a full stdin is tried often */
    link_out *o = of_data(SPS_STDIN, exec, eof ? SPS_STDIN_EOF : 0, 0, offset);
    if (n)
        buf_append(&o->extra, p, n);
    link_queue_push(&x->queue, o);
    link_flush(x);
    return NULL;
}

err *link_resize(box *x, uint64_t exec, uint16_t rows, uint16_t cols)
{
    return link_push(x, of_data(SPS_RESIZE, exec, rows, cols, 0));
}
