/* Watches the engine's events for ends of containers. The stream of events is cut when the engine
 * restarts, so all containers are also listed after each start of the stream and periodically: to
 * find boxes whose container is gone, and orphaned containers, such as one whose create's answer
 * was lost. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/docker.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define LOOK_NS      (30 * NS_PER_S)
#define FIRST_LOOK   (NS_PER_S / 2) /* after the start of a stream */
#define BACK_OFF_MAX 2000
#define STRAY_NS     (10 * NS_PER_S) /* orphaned for so long before it is removed */
#define STRAY_LOOK   (5 * NS_PER_S)

typedef struct watching {
    docker *d;
    uint64_t since_ns; /* of the engine's clock: all events before were received */
    uint64_t look_ns;  /* when to list all containers */
    map strays;        /* containers orphaned at the last check -> since when */
} watching;

static void docker_watch_die(docker *d, const docker_event *e)
{
    char why[64];

    if (e->exit_code >= 0)
        snprintf(why, sizeof why, "its container has ended with status %d", e->exit_code);
    else
        snprintf(why, sizeof why, "its container has ended");
    docker_box_died(d, e->id, e->exit_code, why);
}

static bool on_event(void *arg, const docker_event *e)
{
    watching *w = arg;

    if (e->time_ns > w->since_ns)
        w->since_ns = e->time_ns;
    /* Podman matches any of several filters, Docker all. */
    if (!str_eq(docker_label(e->labels, DOCKER_LABEL_CELL), w->d->cell))
        return !atomic_load(&w->d->closing);
    if (e->action == DOCKER_DIE)
        docker_watch_die(w->d, e);
    else if (e->action == DOCKER_DESTROY)
        docker_box_died(w->d, e->id, -1, "its container was removed");
    else if (e->action == DOCKER_OOM)
        docker_box_oom(w->d, e->id);
    return !atomic_load(&w->d->closing);
}

/* Returns when a container was first seen as orphaned. */
static uint64_t astray_since(const map *strays, const char *id, uint64_t now)
{
    const uint64_t *since = map_get_str(strays, id);

    return since ? *since : now;
}

static void forget_strays(map *strays)
{
    map_iter it = {0};

    while (map_next(strays, &it))
        free(it.entry->value);
    map_done(strays);
}

static void remove_strays(watching *w, const docker_list *l)
{
    uint64_t now = now_mono_ns();
    map still = {0};

    for (size_t i = 0; i < l->n; i++) {
        const docker_container *c = &l->c[i];
        if (docker_knows(w->d, c))
            continue;
        uint64_t since = astray_since(&w->strays, c->id, now);
        if (now - since >= STRAY_NS) {
            log_warn("docker", "container %s is nobody's: it is removed",
                     *c->name ? c->name : c->id);
            docker_remove_soon(w->d, c->id);
            continue;
        }
        uint64_t *kept = xcalloc(1, sizeof *kept);
        *kept = since;
        map_put_str(&still, c->id, kept);
    }
    forget_strays(&w->strays);
    w->strays = still;
}

static void docker_watch_look(watching *w)
{
    CLEANUP(strv_freep) char **expected = docker_boxes_expected(w->d);
    CLEANUP(docker_list_done) docker_list l = {0};
    err *e = docker_list_labelled(w->d->api, w->d->label, &l);

    if (!e) {
        docker_boxes_compare(w->d, expected, &l);
        remove_strays(w, &l);
    }
    err_free(e); /* the engine is away again; the stream reports it */
    w->look_ns = now_mono_ns() + (w->strays.count ? STRAY_LOOK : LOOK_NS);
}

static bool on_tick(void *arg)
{
    watching *w = arg;

    if (now_mono_ns() >= w->look_ns)
        docker_watch_look(w);
    return !atomic_load(&w->d->closing);
}

static void docker_watch_nap(docker *d, unsigned ms)
{
    for (unsigned i = 0; i < ms && !atomic_load(&d->closing); i += 50)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

static void *docker_watch_watch(void *arg)
{
    docker *d = arg;
    watching w = {.d = d};
    unsigned back_off = 50;

    while (!atomic_load(&d->closing)) {
        docker_watch q = {.label = d->label,
                          .since_ns = w.since_ns,
                          .on_event = on_event,
                          .on_tick = on_tick,
                          .arg = &w};
        uint64_t began = now_mono_ns();
        w.look_ns = began + FIRST_LOOK;
        err *e = docker_events(d->api, &q);
        if (e && !atomic_load(&d->closing) && back_off == 50)
            log_warn("docker", "no events of the engine: %s (%s)", e->message,
                     str_or(e->cause, "-"));
        err_free(e);
        back_off = now_mono_ns() - began > 5 * NS_PER_S ? 50 : back_off * 2;
        back_off = back_off < BACK_OFF_MAX ? back_off : BACK_OFF_MAX;
        docker_watch_nap(d, back_off);
    }
    forget_strays(&w.strays);
    return NULL;
}

void docker_watch_start(docker *d)
{
    d->watcher = thread_start("docker-events", docker_watch_watch, d);
}

void docker_watch_stop(docker *d)
{
    if (d->watcher)
        pthread_join(d->watcher, NULL);
}
