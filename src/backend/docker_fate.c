/* Resource usage of boxes, changes of limits, and how boxes ended. */
#include <string.h>
#include <time.h>

#include "backend/docker.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"

#define FATE_STEP   20
#define OOM_WAIT_MS 50 /* the engine reports an OOM kill slightly after the end */

static docker *docker_of(backend *b)
{
    return (docker *)b;
}

static box_usage usage_of(const docker_stats *s, const docker_box *x)
{
    return (box_usage){.cpu_us = s->cpu_us,
                       .cpu_throttled_us = s->cpu_throttled_us,
                       .memory = s->memory,
                       .memory_peak = s->memory_peak,
                       .memory_limit = s->memory_limit,
                       .oom_kills = x->ooms,
                       .io_read = s->io_read,
                       .io_written = s->io_written,
                       .net_rx = s->net_rx,
                       .net_tx = s->net_tx,
                       .net_dropped = s->net_dropped,
                       .pids = s->pids,
                       .known = true,
                       .dead = x->dead,
                       .frozen = x->frozen};
}

err *docker_usage_of(backend *b, const char *id, box_usage *ret_usage)
{
    docker *d = docker_of(b);
    docker_box x = {0};
    docker_stats s = {0};
    char target[DOCKER_NAME_MAX];

    docker_box_get(d, id, &x);
    docker_target(d, id, target);
    err *e = docker_usage(d->api, target, &s);
    if (e && e->code == ERR_NOT_FOUND)
        e = err_kind(e, "sandbox");
    TRY(docker_away(e));
    *ret_usage = usage_of(&s, &x);
    return NULL;
}

err *docker_usage_many(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n, box_usage *ret)
{
    memset(ret, 0, n * sizeof *ret);
    for (size_t i = 0; i < n; i++) {
        err *e = docker_usage_of(b, ids[i], &ret[i]);
        if (e && e->code == ERR_UNAVAILABLE)
            return e;
        err_free(e); /* ret[i].known stays false */
    }
    return NULL;
}

static err *limits_error(err *e, const limits *l)
{
    if (!e)
        return NULL;
    if (e->code == ERR_NOT_FOUND) {
        e->code = ERR_SANDBOX_GONE;
        return e;
    }
    if (l->memory && e->cause && (strstr(e->cause, "busy") || strstr(e->cause, "memory"))) {
        e->code = ERR_CONFLICT;
        return err_remedy(err_kind(e, "memory"),
                          "End what uses it first, or ask for a higher limit.");
    }
    return docker_away(e);
}

/* Returns the first requested limit that the engine cannot enforce; NULL if it can enforce all. */
static const char *cannot_hold(const docker_engine *e, const limits *l)
{
    return l->memory && !e->memory_limit   ? "memory"
           : l->cpu_milli && !e->cpu_limit ? "cpu"
           : l->pids && !e->pids_limit     ? "pids"
           : l->disk                       ? "disk"
                                           : NULL;
}

err *docker_set_limits(backend *b, const char *id, const limits *l)
{
    docker *d = docker_of(b);
    const docker_engine *e = docker_api_engine(d->api);
    const char *absent = cannot_hold(e, l);
    char target[DOCKER_NAME_MAX];

    if (absent || !docker_can_update(d))
        return err_new(ERR_UNSUPPORTED, "%s %s cannot change the limit of %s here", e->name,
                       e->version, absent ? absent : "a container that runs");
    CLEANUP(json_decrefp) json_t *body = docker_limits_json(e, l);
    docker_target(d, id, target);
    TRY(limits_error(docker_update(d->api, target, body), l));
    LOCK_SCOPE(&d->lock);
    docker_box *x = map_get_str(&d->boxes, id);
    if (x && l->memory)
        x->memory_limit = l->memory;
    return NULL;
}

typedef struct fate_ask {
    docker *d;
    char id[SANDBOX_ID_LEN + 1];
    unsigned wait_ms;
    fate_done *done;
    void *arg;
} fate_ask;

/* Converts to the form of wait(2): 137 in a shell means killed by signal 9. */
static int status_of(int exit_code)
{
    return exit_code > 128 && exit_code < 128 + 65 ? exit_code - 128 : (exit_code & 0xff) << 8;
}

static void docker_fate_nap(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

static err *look_at_end(fate_ask *q, const docker_box *known, box_fate *f)
{
    char target[DOCKER_NAME_MAX];
    uint64_t until = now_mono_ns() + q->wait_ms * NS_PER_MS;

    docker_target(q->d, q->id, target);
    for (;;) {
        CLEANUP(docker_container_done) docker_container c = {0};
        err *e = docker_inspect(q->d->api, target, &c);
        if (e && e->code == ERR_NOT_FOUND && known->has_exit_code) { /* removed by another client */
            err_free(e);
            *f =
                (box_fate){.dead = true, .has_status = true, .status = status_of(known->exit_code)};
            return NULL;
        }
        TRY(docker_away(e));
        f->dead = c.state == DOCKER_DEAD;
        f->has_status = f->dead;
        f->status = status_of(c.exit_code);
        f->oom_kills = c.oom_killed;
        f->memory_limit = c.memory;
        if (f->dead || now_mono_ns() >= until)
            return NULL;
        docker_fate_nap(FATE_STEP);
    }
}

static void fate_job(void *arg)
{
    CLEANUP(freep) fate_ask *q = arg;
    docker_box x = {0};
    box_fate f = {0};
    err *e = NULL;

    if (!q->wait_ms)
        docker_fate_nap(OOM_WAIT_MS);
    bool known = docker_box_get(q->d, q->id, &x);
    /* a command is in question: the counted OOM kills suffice */
    if (known && !x.dead && !q->wait_ms)
        f.memory_limit = x.memory_limit;
    else
        e = look_at_end(q, &x, &f);
    docker_box_get(q->d, q->id, &x);
    if (x.ooms > f.oom_kills)
        f.oom_kills = x.ooms;
    q->done(q->arg, e, e ? NULL : &f);
}

void docker_fate(backend *b, const char *id, unsigned wait_ms, fate_done *done, void *arg)
{
    fate_ask *q = xcalloc(1, sizeof *q);

    *q = (fate_ask){.d = docker_of(b), .wait_ms = wait_ms, .done = done, .arg = arg};
    str_copy(q->id, sizeof q->id, id);
    docker_work_post(q->d->work, 0, fate_job, q);
}
