/* How a sandbox ended, and the limits of a running one. */
#include <errno.h>
#include <stdlib.h>

#include "backend/oci.h"
#include "base/str.h"

typedef struct fate_ask {
    fate_done *done;
    void *arg;
} fate_ask;

static void fate_answered(void *arg, warden_answer *a)
{
    CLEANUP(freep) fate_ask *q = arg;

    if (a->errnum) {
        err *e = oci_error(a, "cannot learn how the sandbox ended");
        e->code = !a->local && a->errnum == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE;
        q->done(q->arg, e, NULL);
        return;
    }
    const struct wp_fate *f = a->body;
    q->done(q->arg, NULL,
            &(box_fate){.dead = f->flags & WP_FATE_DEAD,
                        .has_status = f->flags & WP_FATE_STATUS,
                        .status = f->status,
                        .oom_kills = f->oom_kills,
                        .memory_peak = f->memory_peak,
                        .memory_limit = f->memory_limit});
}

void oci_fate(backend *b, const char *id, unsigned wait_ms, fate_done *done, void *arg)
{
    struct wp_fate_of w = {.sandbox = oci_id(id), .wait_ms = wait_ms};
    fate_ask *q = xcalloc(1, sizeof *q);

    if (!(oci_warden_caps(((oci *)b)->warden) & WP_CAP_FATE)) {
        free(q);
        done(arg, err_new(ERR_UNSUPPORTED, "the warden is of an earlier version"), NULL);
        return;
    }
    *q = (fate_ask){done, arg};
    oci_warden_send(((oci *)b)->warden,
                    &(warden_ask){.type = WP_FATE,
                                  .body = {{&w, sizeof w}},
                                  .fd = -1,
                                  .timeout_ms = wait_ms ? OCI_SHORT_MS : OCI_LOOK_MS},
                    fate_answered, q);
}

err *oci_limits(backend *b, const char *id, const limits *l)
{
    struct wp_limits_of ask = {
        .sandbox = oci_id(id),
        .limits = {
            .memory = l->memory, .cpu_milli = l->cpu_milli, .pids = l->pids, .disk = l->disk}};
    CLEANUP(warden_reply_done) warden_reply r;

    oci_warden_call(((oci *)b)->warden,
                    &(warden_ask){.type = WP_LIMITS,
                                  .body = {{&ask, sizeof ask}},
                                  .fd = -1,
                                  .timeout_ms = OCI_SHORT_MS,
                                  .prompt = true},
                    &r);
    if (!r.errnum)
        return NULL;
    if (!r.local && r.errnum == ENOMEM)
        return err_remedy(
            err_kind(err_new(ERR_CONFLICT, "memory cannot be limited to %llu bytes: %s",
                             (unsigned long long)l->memory, r.text),
                     "memory"),
            "End what uses it first, or ask for a higher limit.");
    if (!r.local && r.errnum == ENOENT)
        return err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", id);
    if (!r.local && r.errnum == EAGAIN)
        return err_retry_after(
            err_because(err_new(ERR_UNAVAILABLE, "the node has no room for this limit now"), "%s",
                        r.text),
            OCI_RETRY_S);
    return oci_call_error(&r, "cannot change the sandbox's limits");
}
