/* The sweeper: a thread that removes records and spools after their time, and makes room when the
 * disk of the spools is short. It waits for many files and for the store; the keeper, which must
 * end sandboxes in time, does not. */
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

#define SWEEP_EVERY_NS (60 * NS_PER_S)
#define SHED_AT_ONCE   256
#define SHED_MARGIN_NS (2 * NS_PER_S) /* an end is committed a moment after its time */
#define DROPPED        "dropped"      /* file with dropped_until of the previous process */

static bool is_stopping(engine *e)
{
    LOCK_SCOPE(&e->lock);
    return e->stopping;
}

/* Returns the time between sweeps, so short that no record stays for twice its time. */
static uint64_t sweep_every(const engine *e)
{
    uint64_t every = SWEEP_EVERY_NS, record = e->o.keep_record_ms * NS_PER_MS,
             spool = e->o.keep_spool_ms * NS_PER_MS;

    every = record < every ? record : every;
    every = spool < every ? spool : every;
    return every > NS_PER_S ? every : NS_PER_S;
}

/* ---- orphans ---- */

/* Returns false only for a spool whose sandbox is neither in memory nor in the store. A sandbox is
 * in memory before its spool is made, and until its row is written. */
static bool is_known(void *arg, const char *id)
{
    engine *e = arg;
    CLEANUP(sandbox_unrefp) sandbox *live = engine_find_live(e, id);
    CLEANUP(sandbox_unrefp) sandbox *ended = live ? NULL : ended_find(e, id);
    sandbox_row row = {0};

    if (live || ended || is_stopping(e))
        return true;
    CLEANUP(err_freep) err *failure = store_sandbox_get(e->o.store, id, &row);
    sandbox_row_done(&row);
    return !failure || failure->code != ERR_NOT_FOUND;
}

/* ---- stray boxes ---- */

#define STRAYS_EVERY_NS (60 * NS_PER_S)

/* Adds the ids of the boxes that a sandbox has, or is about to have. Engine's lock held. */
static void add_boxes(map *known, sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    if (sb->state != LIFE_HIBERNATED) /* its box was to be destroyed */
        map_put_str(known, sb->box_id, sb);
    if (sb->state == LIFE_CREATING)
        map_put_str(known, sb->id, sb);
    if (*sb->next_box_id)
        map_put_str(known, sb->next_box_id, sb);
}

static void collect_boxes(engine *e, map *known)
{
    LOCK_SCOPE(&e->lock);
    map_iter live = {0}, ended = {0};

    while (map_next(&e->live, &live))
        add_boxes(known, live.entry->value);
    while (map_next(&e->ended, &ended)) {
        sandbox *sb = ended.entry->value;
        if (sb->end_destroys) /* its box is destroyed when its row is written */
            add_boxes(known, sb);
    }
}

/* Returns true once a minute after reconciling. Never for a backend that removes such boxes itself:
 * its list may wait for an engine or a cluster, and the sweeper must make room on a short disk. */
static bool is_time_for_strays(engine *e, uint64_t looked, uint64_t now)
{
    return looked && now - looked >= STRAYS_EVERY_NS && !e->o.backend->caps.removes_strays;
}

/* Destroys boxes that belonged to no sandbox at two checks in a row. A destroy that the node
 * refused, because too many requests waited, is not repeated otherwise. */
static void destroy_strays(engine *e)
{
    CLEANUP(freep) box_status *list = NULL;
    map known = {0}, strays = {0};
    size_t n = 0;
    err *failure = e->o.backend->ops->list(e->o.backend, &list, &n); /* before collect_boxes() */

    if (failure) {
        err_drop(failure, "sweep");
        return;
    }
    collect_boxes(e, &known);
    for (size_t i = 0; i < n; i++) {
        if (map_get_str(&known, list[i].id))
            continue;
        if (map_get_str(&e->strays, list[i].id)) {
            log_warn("sweep", "box %s belongs to no sandbox: it is destroyed", list[i].id);
            engine_destroy_soon(e, list[i].id, "sweep");
        }
        map_put_str(&strays, list[i].id, e);
    }
    map_done(&known);
    map_done(&e->strays);
    e->strays = strays;
}

/* ---- retention ---- */

static void sweep_sweep(engine *e)
{
    uint64_t now = clock_real(e->o.clock), keep = e->o.keep_record_ms * NS_PER_MS;

    for (size_t n = 1; n && !is_stopping(e);) {
        char(*ids)[SANDBOX_ID_LEN + 1] = NULL;
        n = 0;
        err_drop(store_sandbox_forget(e->o.store, now > keep ? now - keep : 0, &ids, &n), "sweep");
        for (size_t i = 0; i < n; i++)
            err_drop(exec_table_remove(e->o.execs, ids[i], false), "sweep");
        free(ids);
    }
}

/* Loads dropped_until. Without a complete file every ended sandbox is examined again. */
void engine_recall_dropped(engine *e)
{
    CLEANUP(buf_done) buf b = {0};

    if (e->o.state_dir < 0)
        return;
    err *failure = fs_read(e->o.state_dir, DROPPED, sizeof e->dropped_until, &b);
    if (!failure && b.len == sizeof e->dropped_until)
        memcpy(&e->dropped_until, b.p, sizeof e->dropped_until);
    err_free(failure);
}

static void note_dropped(engine *e, uint64_t until)
{
    e->dropped_until = until;
    if (e->o.state_dir >= 0)
        err_drop(fs_write(e->o.state_dir, DROPPED, &until, sizeof until, 0600, false), "sweep");
}

/* Removes streams of sandboxes that ended long enough ago; their journals stay with the record.
 * Each run begins a little before the end of the last one: an end is committed a moment after its
 * time. */
static void drop_spools(engine *e)
{
    uint64_t now = clock_real(e->o.clock), keep = e->o.keep_spool_ms * NS_PER_MS;
    uint64_t before = now > keep ? now - keep : 0;
    char(*ids)[SANDBOX_ID_LEN + 1] = NULL;
    size_t n = 0, i = 0;

    if (before < e->dropped_until) /* the clock was set back */
        e->dropped_until = 0;
    uint64_t from = e->dropped_until > SWEEP_EVERY_NS ? e->dropped_until - SWEEP_EVERY_NS : 0;
    err *failure = store_sandbox_ended(e->o.store, from, before, &ids, &n);
    if (failure) {
        err_drop(failure, "sweep");
        return;
    }
    for (; i < n && !is_stopping(e); i++)
        err_drop(exec_table_remove(e->o.execs, ids[i], true), "sweep");
    free(ids);
    if (i == n)
        note_dropped(e, before);
}

/* ---- a short disk ---- */

/* Makes room on a short disk: removes streams of ended sandboxes, the oldest first, then of ended
 * commands of the sandbox with the most output. Running commands keep theirs, and wait. */
static void sweep_shed(engine *e)
{
    uint64_t now = clock_real(e->o.clock);
    uint64_t from = e->shed_until > e->dropped_until ? e->shed_until : e->dropped_until;
    char(*ids)[SANDBOX_ID_LEN + 1] = NULL;
    size_t n = 0, i = 0, commands = 0;

    from = from > SHED_MARGIN_NS && from <= now ? from - SHED_MARGIN_NS : 0;
    err_drop(store_sandbox_ended(e->o.store, from, now, &ids, &n), "shed");
    for (; i < n && exec_hub_is_short(e->o.execs) && !is_stopping(e); i++)
        err_drop(exec_table_remove(e->o.execs, ids[i], true), "shed");
    free(ids);
    if (i == n)
        e->shed_until = now;
    while (commands < SHED_AT_ONCE && exec_hub_is_short(e->o.execs) && exec_hub_evict(e->o.execs))
        commands++;
    if (i || commands)
        log_warn("disk_full",
                 "the spools' disk is short: output of %zu sandboxes that have ended "
                 "and of %zu commands is gone",
                 i, commands);
}

/* ---- the thread ---- */

/* Waits a second; returns false if the engine stops. *ret_orphans: reconciling is over, and spools
 * without a sandbox are to be removed. */
static bool wait_a_second(engine *e, bool *ret_orphans)
{
    LOCK_SCOPE(&e->lock);

    if (!e->stopping && !e->orphans)
        cond_wait_until(&e->sweep_wake, &e->lock, now_mono_ns() + NS_PER_S);
    *ret_orphans = e->orphans;
    e->orphans = false;
    return !e->stopping;
}

void sweep_orphans(engine *e)
{
    LOCK_SCOPE(&e->lock);

    e->orphans = true;
    pthread_cond_signal(&e->sweep_wake);
}

void *engine_sweeper(void *arg)
{
    engine *e = arg;
    uint64_t swept = clock_mono(e->o.clock), looked = 0; /* looked 0: reconciling is not over */
    bool orphans;

    while (wait_a_second(e, &orphans)) {
        if (exec_hub_is_short(e->o.execs))
            sweep_shed(e); /* first: it makes room for the writes below */
        uint64_t now = clock_mono(e->o.clock);
        if (orphans) {
            looked = now;
            err_drop(exec_hub_sweep(e->o.execs, is_known, e), "sweep");
        }
        if (is_time_for_strays(e, looked, now)) {
            looked = now;
            destroy_strays(e);
        }
        if (clock_mono(e->o.clock) - swept <= sweep_every(e))
            continue;
        swept = clock_mono(e->o.clock);
        sweep_sweep(e);
        drop_spools(e);
    }
    map_done(&e->strays);
    return NULL;
}
