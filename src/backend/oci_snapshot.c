/* A snapshot of a box's files: one request to the warden, never repeated. */
#include <errno.h>
#include <string.h>

#include "backend/oci.h"
#include "base/cleanup.h"

#define SNAPSHOT_MS (UINT64_C(180) * 1000)
#define GRACE_MS    (UINT64_C(10) * 1000) /* after its deadline the warden removes partial work */

static err *failure_of(const warden_reply *r, const char *id)
{
    if (r->local && r->errnum == ECONNRESET)
        return err_retry_after(
            err_new(ERR_UNAVAILABLE, "the warden was started again before the snapshot was done"),
            1);
    if (!r->local && r->errnum == ESRCH)
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", id), "sandbox");
    if (!r->local && (r->errnum == E2BIG || r->errnum == ETIMEDOUT))
        return err_remedy(
            err_because(err_sys(r->errnum == E2BIG ? ERR_TOO_LARGE : ERR_TIMEOUT, r->errnum,
                                r->errnum == E2BIG
                                    ? "the sandbox has written too much for a snapshot"
                                    : "the snapshot took too long"),
                        "%s", r->text),
            "Remove files that are not needed, and try again.");
    if (!r->local && (r->errnum == EBUSY || r->errnum == EAGAIN))
        return err_retry_after(
            err_because(err_sys(r->errnum == EBUSY ? ERR_CONFLICT : ERR_TIMEOUT, r->errnum,
                                "sandbox %s cannot stand still for a snapshot now", id),
                        "%s", r->text),
            1);
    if (!r->local && (r->errnum == ENOSPC || r->errnum == EDQUOT))
        return err_because(err_sys(ERR_DISK_FULL, r->errnum, "no room for the snapshot"), "%s",
                           r->text);
    return oci_call_error(r, "cannot take the snapshot");
}

err *oci_snapshot(backend *b, const char *id, const uint8_t layer[32], box_snapshot *ret_what)
{
    struct wp_snapshot ask = {.sandbox = oci_id(id), .deadline_ms = SNAPSHOT_MS};
    CLEANUP(warden_reply_done) warden_reply r;
    struct wp_snapshotted a;

    memcpy(ask.layer.sha256, layer, sizeof ask.layer.sha256);
    oci_warden_call(((oci *)b)->warden,
                    &(warden_ask){.type = WP_SNAPSHOT,
                                  .body = {{&ask, sizeof ask}},
                                  .fd = -1,
                                  .timeout_ms = SNAPSHOT_MS + GRACE_MS,
                                  .deadline_ms = SNAPSHOT_MS,
                                  .once = true},
                    &r);
    if (r.errnum)
        return failure_of(&r, id);
    memcpy(&a, r.body.p, sizeof a);
    *ret_what = (box_snapshot){.bytes = a.bytes, .entries = a.entries, .still_ns = a.still_ns};
    return NULL;
}
