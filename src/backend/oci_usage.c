/* Resource usage of sandboxes, as the warden counts it. */
#include "backend/oci.h"

static box_usage usage_from(const struct wp_usage *u)
{
    if (u->flags & WP_USAGE_UNKNOWN)
        return (box_usage){0};
    return (box_usage){.cpu_us = u->cpu_us,
                       .cpu_throttled_us = u->cpu_throttled_us,
                       .memory = u->memory,
                       .memory_peak = u->memory_peak,
                       .memory_limit = u->memory_limit,
                       .oom_kills = u->oom_kills,
                       .io_read = u->io_read,
                       .io_written = u->io_written,
                       .net_rx = u->net_rx,
                       .net_tx = u->net_tx,
                       .net_dropped = u->net_dropped,
                       .disk = u->disk,
                       .inodes = u->inodes,
                       .pids = u->pids,
                       .known = true,
                       .dead = u->flags & WP_BOX_DEAD,
                       .frozen = u->flags & WP_BOX_FROZEN};
}

/* Reads usage of at most WP_STATS_MAX boxes. now: fails at once without a warden; a caller that
 * reads many will ask again. An older warden takes no size and answers with the first fields. */
static err *oci_usage_stats(oci_warden *w, const struct wp_id *ids, uint32_t n, bool now,
                            box_usage *ret)
{
    struct wp_stats ask = {.n = n,
                           .size = oci_warden_caps(w) & WP_CAP_USAGE ? sizeof(struct wp_usage) : 0};
    CLEANUP(warden_reply_done) warden_reply r;

    oci_warden_call(w,
                    &(warden_ask){.type = WP_STATS,
                                  .body = {{&ask, sizeof ask}, {(void *)ids, n * sizeof *ids}},
                                  .fd = -1,
                                  .timeout_ms = OCI_LOOK_MS,
                                  .now = now,
                                  .prompt = true},
                    &r);
    if (r.errnum)
        return oci_call_error(&r, "cannot read the sandboxes' usage");
    const struct wp_stats *s = (const struct wp_stats *)r.body.p;
    if (s->n != n)
        return err_new(ERR_INTERNAL, "the warden answered for %u sandboxes instead of %u", s->n, n);
    for (uint32_t i = 0; i < n; i++) {
        struct wp_usage u = wp_usage_at(r.body.p, i);
        ret[i] = usage_from(&u);
    }
    return NULL;
}

err *oci_usage_many(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n, box_usage *ret)
{
    struct wp_id part[WP_STATS_MAX];

    for (size_t from = 0; from < n;) {
        uint32_t some = 0;
        while (some < WP_STATS_MAX && from + some < n) {
            part[some] = oci_id(ids[from + some]);
            some++;
        }
        TRY(oci_usage_stats(((oci *)b)->warden, part, some, true, ret + from));
        from += some;
    }
    return NULL;
}

err *oci_usage(backend *b, const char *id, box_usage *ret_usage)
{
    struct wp_id one = oci_id(id);
    box_usage u = {0};

    TRY(oci_usage_stats(((oci *)b)->warden, &one, 1, false, &u));
    if (!u.known)
        return err_kind(err_new(ERR_NOT_FOUND, "the node has no sandbox %s", id), "sandbox");
    *ret_usage = u;
    return NULL;
}
