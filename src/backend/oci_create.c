/* Create and attach: sends a claim to the warden, hands its answer to the loop. */
#include <errno.h>
#include <string.h>

#include "backend/oci.h"
#include "base/fault.h"

#define GRACE_MS 30000 /* for the claim itself, after its time in the queue */

typedef struct creation { /* an answer on its way from the warden's thread to the loop */
    box *x;
    int errnum;
    bool local;
    uint32_t retry_after;
    int fd;
    char text[WP_ERROR_TEXT + 1];
    void *hello;
    size_t nhello;
} creation;

static void create_arrived(void *arg)
{
    creation *c = arg;
    box *x = c->x;

    oci_loop_add(x->b->loop, x);
    if (!c->errnum) {
        oci_box_connected(x, c->fd, c->hello, c->nhello);
    } else if (c->errnum == EEXIST && !c->local && !x->b->closing) {
        oci_box_attach(x); /* made by an earlier request with the same id */
    } else {
        err *e = oci_error(&(warden_answer){.errnum = c->errnum,
                                            .local = c->local,
                                            .text = c->text,
                                            .retry_after = c->retry_after},
                           "cannot make the sandbox");
        if (c->errnum == ENOENT)
            e = err_kind(e, "image");
        oci_box_failed(x, e);
    }
    free(c->hello);
    free(c);
}

static void take_claimed(creation *c, warden_answer *a)
{
    const struct wp_claimed *w = a->body;

    if (a->fd < 0 || a->n != sizeof *w + w->hello) {
        c->errnum = EPROTO;
        return;
    }
    c->x->timing = (box_timing){.queue_ns = w->queue_ns,
                                .build_ns = w->build_ns,
                                .swap_ns = w->swap_ns,
                                .walls = {.claim = w->walls}};
    c->nhello = w->hello;
    c->hello = xmalloc(c->nhello);
    memcpy(c->hello, w + 1, c->nhello);
    c->fd = TAKE_FD(a->fd);
    FAULT_KILL("create.claimed");
    oci_box_claim(c->x, c->fd, c->hello, c->nhello);
    FAULT_KILL("create.claim_record");
}

/* Returns whether a slot may be claimed although this create fails: the answer did not come, or
 * came incomplete (no free descriptor here). After any other error the warden has refused the claim
 * or cleaned up itself. */
static bool may_be_claimed(const creation *c)
{
    return c->errnum && (c->local ? c->errnum == ETIMEDOUT
                                  : c->errnum == EPROTO || c->errnum == EIO || c->errnum == ENOMEM);
}

static void create_answered(void *arg, warden_answer *a)
{
    creation *c = xcalloc(1, sizeof *c);

    c->x = arg;
    c->fd = -1;
    c->errnum = a->errnum;
    c->local = a->local;
    c->retry_after = a->retry_after;
    strncpy(c->text, a->text, sizeof c->text - 1);
    if (!a->errnum)
        take_claimed(c, a);
    if (may_be_claimed(c)) /* no create owns it */
        oci_destroy_soon(&c->x->b->base, c->x->id);
    oci_loop_post(c->x->b->loop, create_arrived, c);
}

static err *encode_claim(const box_spec *s, oci_out **ret_out)
{
    CLEANUP(spine_out_done) spine_out record = {0};
    spine_claim c = {.user = s->user,
                     .cwd = s->cwd,
                     .env = s->env,
                     .umask = s->umask,
                     .grants = s->spec->setuid ? SP_GRANT_SETUID : 0};

    TRY(spine_encode_claim(&c, &record));
    return oci_out_new(&record, NULL, 0, ret_out);
}

/* Builds the claim's frame. A warden of an earlier release takes no owner; its claims wait in one
 * common queue. */
static struct wp_claim claim_frame(const box_spec *s, bool owned)
{
    const limits *l = &s->spec->limits;
    struct wp_claim f = {.sandbox = oci_id(s->id),
                         .limits = {.memory = l->memory,
                                    .disk = l->disk,
                                    .cpu_milli = l->cpu_milli,
                                    .pids = l->pids,
                                    .shm_mib = l->shm_mib},
                         .deadline_ms = s->queue_ms,
                         .flags = (s->spec->read_only ? WP_CLAIM_READ_ONLY : 0) |
                                  (s->spec->setuid ? WP_CLAIM_SETUID : 0) |
                                  (s->spec->network == NETWORK_OPEN ? WP_CLAIM_NETWORK_OPEN : 0) |
                                  (s->hostname ? WP_CLAIM_NAMED : 0) | (owned ? WP_CLAIM_OWNED : 0),
                         .ntmpfs = (uint32_t)s->spec->ntmpfs};

    memcpy(f.image.sha256, s->image, sizeof f.image.sha256);
    return f;
}

static err *tmpfs_frames(const sandbox_spec *s, struct wp_tmpfs ret[WP_TMPFS_MAX])
{
    if (s->ntmpfs > WP_TMPFS_MAX)
        return err_new(ERR_INVALID_REQUEST, "more than %u tmpfs mounts", WP_TMPFS_MAX);
    memset(ret, 0, WP_TMPFS_MAX * sizeof *ret);
    for (size_t i = 0; i < s->ntmpfs; i++) {
        const tmpfs_spec *t = &s->tmpfs[i];
        if (strlen(t->path) >= WP_PATH_MAX)
            return err_new(ERR_INVALID_REQUEST, "tmpfs path %s is too long", t->path);
        memcpy(ret[i].path, t->path, strlen(t->path));
        ret[i].size = t->size;
        ret[i].mode = t->mode;
        ret[i].flags = t->exec ? WP_TMPFS_EXEC : 0;
    }
    return NULL;
}

typedef struct failure { /* a create that fails before the warden is asked */
    box *x;
    err *e;
} failure;

static void create_refused(void *arg)
{
    failure *f = arg;

    oci_loop_add(f->x->b->loop, f->x);
    oci_box_failed(f->x, f->e);
    free(f);
}

/* Appends the mounts, the name and the owner, which follow the frame. */
static void put_rest(const box_spec *s, const struct wp_tmpfs *tmpfs, bool owned, buf *out)
{
    buf_append(out, tmpfs, s->spec->ntmpfs * sizeof *tmpfs);
    if (s->hostname) {
        struct wp_id name = oci_id(s->hostname);
        buf_append(out, &name, sizeof name);
    }
    if (owned)
        buf_append(out, &(struct wp_owner){s->owner}, sizeof(struct wp_owner));
}

void oci_create(backend *b, const box_spec *s, const box_events *ev, void *arg, create_done *done)
{
    oci *o = oci_of(b);
    box *x = oci_box_new(o, s->id, ev, arg);
    bool owned = s->owner && oci_warden_caps(o->warden) & WP_CAP_OWNED;
    struct wp_claim frame = claim_frame(s, owned);
    struct wp_tmpfs tmpfs[WP_TMPFS_MAX];
    CLEANUP(buf_done) buf rest = {0};

    x->done = done;
    x->done_arg = arg;
    err *e = tmpfs_frames(s->spec, tmpfs);
    if (!e)
        e = encode_claim(s, &x->claim);
    if (e) {
        failure *f = xcalloc(1, sizeof *f);
        *f = (failure){x, e};
        oci_loop_post(o->loop, create_refused, f);
        return;
    }
    put_rest(s, tmpfs, owned, &rest);
    oci_warden_send(o->warden,
                    &(warden_ask){.type = WP_CLAIM,
                                  .body = {{&frame, sizeof frame}, {rest.p, rest.len}},
                                  .fd = -1,
                                  .timeout_ms = s->queue_ms + GRACE_MS,
                                  .deadline_ms = s->queue_ms},
                    create_answered, x);
}

static void attach_begin(void *arg)
{
    box *x = arg;

    oci_loop_add(x->b->loop, x);
    oci_box_attach(x);
}

err *oci_attach(backend *b, const char *id, const box_events *ev, void *arg, box **ret_box)
{
    if (!id_is_sandbox(id))
        return err_kind(err_new(ERR_NOT_FOUND, "%s is no sandbox id", id), "sandbox");
    box *x = oci_box_new(oci_of(b), id, ev, arg);
    oci_loop_post(oci_of(b)->loop, attach_begin, x);
    *ret_box = x;
    return NULL;
}
