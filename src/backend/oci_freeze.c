/* Freeze and thaw of a box: asks the warden's freezer and holds the box's queue. */
#include <errno.h>

#include "backend/oci.h"

#define FREEZER_MS 15000 /* the warden itself gives up after two seconds a sandbox */

static void oci_freeze_ignored(void *arg, warden_answer *a)
{
    (void)arg;
    (void)a;
}

/* Undoes a request that timed out: a warden that only hung still carries that one out, and then
 * this opposite. */
static void send_behind(box *x, uint32_t type)
{
    struct wp_id w = oci_id(x->id);

    oci_warden_send(x->b->warden, &(warden_ask){.type = type, .body = {{&w, sizeof w}}, .fd = -1},
                    oci_freeze_ignored, NULL);
}

static err *freezer_call(box *x, uint32_t type, uint32_t undo, const char *what)
{
    struct wp_id w = oci_id(x->id);
    CLEANUP(warden_reply_done) warden_reply r;

    oci_warden_call(x->b->warden,
                    &(warden_ask){.type = type,
                                  .body = {{&w, sizeof w}},
                                  .fd = -1,
                                  .timeout_ms = FREEZER_MS,
                                  .prompt = true},
                    &r);
    if (!r.errnum)
        return NULL;
    if (!r.local && (r.errnum == ENOENT || r.errnum == ESRCH))
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", x->id), "sandbox");
    if (r.local && r.errnum == ETIMEDOUT)
        send_behind(x, undo);
    return oci_call_error(&r, what);
}

err *oci_freeze(box *x)
{
    oci_box_hold(x, true);
    err *e = freezer_call(x, WP_FREEZE, WP_THAW, "cannot freeze the sandbox");
    if (e)
        oci_box_hold(x, false);
    return e;
}

err *oci_thaw(box *x)
{
    TRY(freezer_call(x, WP_THAW, WP_FREEZE, "cannot thaw the sandbox"));
    oci_box_hold(x, false);
    return NULL;
}
