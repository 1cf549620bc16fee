/* Resource usage of sandboxes: counted by the node, or else read by the kit inside. The kit's
 * numbers cannot be trusted: a tenant who is root in the sandbox can forge them. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "base/thread.h"
#include "engine/files.h"
#include "engine/internal.h"

#define WAIT_NS  (2 * NS_PER_S)
#define KIT_MS   3000 /* then a run is given up, and the next may begin */
#define FRESH_NS NS_PER_S
#define AT_ONCE  32u /* kit runs in all sandboxes together */

/* Measurements of a sandbox by the kit: one run at a time, and the last result. Under
 * usage.lock. */
struct usage_meter {
    bool running;
    uint64_t at_ns; /* monotonic; 0: never */
    box_usage last;
};

void usage_open(engine *e)
{
    pthread_mutex_init(&e->usage.lock, NULL);
    cond_init(&e->usage.changed);
}

void usage_close(engine *e)
{
    {
        LOCK_SCOPE(&e->usage.lock);
        while (e->usage.running) /* each run has a time limit */
            cond_wait_until(&e->usage.changed, &e->usage.lock, 0);
    }
    pthread_cond_destroy(&e->usage.changed);
    pthread_mutex_destroy(&e->usage.lock);
}

static bool by_kit(const engine *e)
{
    return engine_files_cap(e) == CAP_NATIVE &&
           (e->o.prefer_kit || e->o.backend->caps.stats == CAP_ABSENT);
}

enum cap_level engine_stats_cap(const engine *e)
{
    return by_kit(e) ? CAP_EMULATED : e->o.backend->caps.stats;
}

/* ---- by the kit ---- */

static bool is_fresh(const sandbox *sb, uint64_t now)
{
    return sb->measured && sb->measured->at_ns && now - sb->measured->at_ns < FRESH_NS;
}

static void usage_told(sandbox *sb, const box_usage *u)
{
    engine *e = sb->engine;
    LOCK_SCOPE(&e->usage.lock);

    if (u) {
        sb->measured->last = *u;
        sb->measured->at_ns = now_mono_ns();
    }
    sb->measured->running = false;
    e->usage.running--;
    pthread_cond_broadcast(&e->usage.changed);
}

static bool read_answer(int fd, box_usage *ret)
{
    char said[sizeof(struct kit_usage)];
    struct kit_usage u;
    ssize_t n = recv(fd, said, sizeof said, MSG_DONTWAIT);

    if (n < 0 || !kit_usage_read(said, (size_t)n, &u) || !(u.flags & KIT_USAGE_CPU))
        return false; /* without a cgroup its CPU usage is not known */
    *ret = (box_usage){.known = true,
                       .cpu_us = u.cpu_us,
                       .cpu_throttled_us = u.cpu_throttled_us,
                       .memory = u.memory,
                       .memory_peak = u.memory_peak,
                       .memory_limit = u.memory_limit,
                       .oom_kills = u.oom_kills,
                       .io_read = u.io_read,
                       .io_written = u.io_written,
                       .net_rx = u.net_rx,
                       .net_tx = u.net_tx,
                       .net_dropped = u.net_dropped,
                       .pids = u.pids};
    return true;
}

static void usage_came(void *arg, err *failure, int fd)
{
    sandbox *sb = arg;
    box_usage u;

    usage_told(sb, !failure && read_answer(fd, &u) ? &u : NULL);
    closep(&fd);
    err_drop(failure, "usage");
    sandbox_unref(sb);
}

/* Starts a kit run. Takes the reference if it succeeds. */
static err *usage_order(sandbox *sb)
{
    char numbers[KIT_NUMBERS];
    const char *argv[KIT_ARGC + 1];
    exec_spec spec;

    TRY(sandbox_usable(sb));
    kit_spec(sb->engine, &(kit_request){.verb = KIT_USAGE, .path = "/"}, numbers, argv, &spec);
    spec.timeout_ms = KIT_MS;
    return exec_tunnel(sb->table, &spec, sizeof(struct kit_usage), usage_came, sb);
}

/* Starts the kit's measurement of a sandbox, unless one is under way or the last result is fresh.
 * If AT_ONCE others are under way, waits for one to end, at most until `until`. */
static void usage_begin(sandbox *sb, uint64_t until)
{
    engine *e = sb->engine;

    {
        LOCK_SCOPE(&e->usage.lock);
        if (!sb->measured)
            sb->measured = xcalloc(1, sizeof *sb->measured);
        while (e->usage.running >= AT_ONCE && now_mono_ns() < until)
            cond_wait_until(&e->usage.changed, &e->usage.lock, until);
        if (sb->measured->running || is_fresh(sb, now_mono_ns()) || e->usage.running >= AT_ONCE)
            return;
        sb->measured->running = true;
        e->usage.running++;
    }
    err *failure = usage_order(sandbox_ref(sb));
    if (!failure)
        return;
    err_drop(failure, "usage");
    usage_told(sb, NULL);
    sandbox_unref(sb);
}

static void usage_collect(sandbox *sb, uint64_t begun, uint64_t until, box_usage *ret)
{
    engine *e = sb->engine;
    LOCK_SCOPE(&e->usage.lock);

    while (sb->measured->running && now_mono_ns() < until)
        cond_wait_until(&e->usage.changed, &e->usage.lock, until);
    if (sb->measured->at_ns && sb->measured->at_ns + FRESH_NS > begun)
        *ret = sb->measured->last;
}

static void ask_kits(sandbox *const *sbs, size_t n, box_usage *ret)
{
    uint64_t begun = now_mono_ns(), until = begun + WAIT_NS;

    for (size_t i = 0; i < n; i++)
        if (sbs[i])
            usage_begin(sbs[i], until);
    for (size_t i = 0; i < n; i++)
        if (sbs[i])
            usage_collect(sbs[i], begun, until, &ret[i]);
}

/* ---- by the node or the kit ---- */

void usage_of_live(engine *e, sandbox *const *sbs, size_t n, box_usage *ret)
{
    char(*ids)[SANDBOX_ID_LEN + 1] = xcalloc(n + 1, sizeof *ids);
    err *failure = NULL;

    memset(ret, 0, n * sizeof *ret);
    if (by_kit(e)) {
        ask_kits(sbs, n, ret);
    } else {
        for (size_t i = 0; i < n; i++)
            memcpy(ids[i], sandbox_box(sbs[i]).id, sizeof *ids);
        failure = e->o.backend->ops->usage_many(e->o.backend,
                                                (const char(*)[SANDBOX_ID_LEN + 1]) ids, n, ret);
    }
    if (failure)
        memset(ret, 0, n * sizeof *ret);
    err_drop(failure, "usage");
    free(ids);
}

static sandbox *usage_live(engine *e, const char *id)
{
    LOCK_SCOPE(&e->lock);
    sandbox *sb = map_get_str(&e->live, id);

    return sb ? sandbox_ref(sb) : NULL;
}

static void ask_kits_of(engine *e, const sandbox_view *views, size_t n, box_usage *ret)
{
    sandbox **sbs = xcalloc(n + 1, sizeof(sandbox *));

    for (size_t i = 0; i < n; i++)
        sbs[i] = usage_live(e, views[i].id);
    ask_kits(sbs, n, ret);
    for (size_t i = 0; i < n; i++)
        sandbox_unref(sbs[i]);
    free(sbs);
}

box_usage *engine_usage(engine *e, const sandbox_view *views, size_t n)
{
    backend *b = e->o.backend;
    box_usage *all = xcalloc(n + 1, sizeof *all);

    if (n && by_kit(e)) {
        ask_kits_of(e, views, n, all);
    } else if (n && b->caps.stats != CAP_ABSENT) {
        char(*ids)[SANDBOX_ID_LEN + 1] = xcalloc(n + 1, sizeof *ids);
        for (size_t i = 0; i < n; i++)
            memcpy(ids[i], views[i].box, sizeof ids[i]);
        err_drop(b->ops->usage_many(b, (const char(*)[SANDBOX_ID_LEN + 1]) ids, n, all), "usage");
        free(ids);
    }
    return all;
}
