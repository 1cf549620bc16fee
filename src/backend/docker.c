/* The backend `docker`: sandboxes are containers of Docker or Podman, commands go through link.h.
 *
 * A create takes a warm container of its shape (class exact) or has one made (cold). Both are
 * claimed by one record on the stream that is open to their init. Names and labels are for people
 * and for the next bothyd: while this one lives, it does not decide by them. */
#include "backend/docker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define WORKERS    6
#define DIALERS    4
#define VOLUMES_MS 5000 /* by then the warm containers of an earlier release are gone */

static docker *docker_of(backend *b)
{
    return (docker *)b;
}

/* ---- errors ---- */

err *docker_away(err *e)
{
    return e && e->code == ERR_UNAVAILABLE ? err_retry_after(e, DOCKER_RETRY_S) : e;
}

/* ---- ends ---- */

static void docker_destroy_soon(backend *b, const char *id)
{
    char target[DOCKER_NAME_MAX];

    docker_target(docker_of(b), id, target);
    docker_box_remove_soon(docker_of(b), id, target);
}

/* The caller continues as if it were done: it will be, however long the engine is away. */
static err *docker_destroy(backend *b, const char *id)
{
    docker_destroy_soon(b, id);
    return NULL;
}

/* ---- after a restart ---- */

static err *docker_list_boxes(backend *b, box_status **ret_list, size_t *ret_n)
{
    docker *d = docker_of(b);
    CLEANUP(docker_list_done) docker_list l = {0};

    TRY(docker_away(docker_list_labelled(d->api, d->label, &l)));
    *ret_list = xcalloc(l.n + 1, sizeof **ret_list);
    *ret_n = docker_boxes_take(d, &l, *ret_list);
    return NULL;
}

static err *docker_attach(backend *b, const char *id, const box_events *ev, void *arg,
                          box **ret_box)
{
    docker *d = docker_of(b);
    char name[DOCKER_NAME_MAX];
    link_container c = {0};
    docker_box known = {0};

    if (!id_is_sandbox(id))
        return err_kind(err_new(ERR_NOT_FOUND, "%s is no sandbox id", id), "sandbox");
    /* of a box that list() did not return: the dial finds that it is gone */
    docker_name_of(id, name);
    c.handle = docker_box_get(d, id, &known) ? known.handle : name;
    memcpy(c.nonce, known.nonce, sizeof c.nonce);
    TRY(link_attach(d->links, id, &c, ev, arg, ret_box));
    if (known.frozen)
        link_hold(*ret_box, true);
    LOCK_SCOPE(&d->lock);
    docker_box *x = map_get_str(&d->boxes, id);
    if (x)
        x->making = false;
    return NULL;
}

/* Removes containers with neither a box's name nor a note: an earlier bothyd kept them warm. */
static err *docker_sweep(docker *d)
{
    CLEANUP(docker_list_done) docker_list l = {0};
    char id[SANDBOX_ID_LEN + 1];

    TRY(docker_list_labelled(d->api, d->label, &l));
    for (size_t i = 0; i < l.n; i++)
        if (!docker_id_of(d, &l.c[i], id))
            docker_remove_soon(d, l.c[i].id);
    return NULL;
}

/* ---- freezing ---- */

static bool is_in_state(docker *d, const char *handle, enum docker_state state)
{
    CLEANUP(docker_container_done) docker_container c = {0};
    err *e = docker_inspect(d->api, handle, &c);
    bool is = !e && c.state == state;

    err_free(e);
    return is;
}

static void set_frozen(docker *d, const char *handle, bool frozen)
{
    LOCK_SCOPE(&d->lock);
    docker_box *x = map_get_str(&d->handles, handle);

    if (x)
        x->frozen = frozen;
}

static err *docker_freeze(box *x)
{
    docker *d = link_box_arg(x);
    const char *handle = link_box_handle(x);

    link_hold(x, true);
    err *e = docker_pause(d->api, handle);
    if (e && is_in_state(d, handle, DOCKER_PAUSED)) {
        err_free(e);
        e = NULL;
    }
    if (e)
        link_hold(x, false);
    else
        set_frozen(d, handle, true);
    return docker_away(e);
}

static err *docker_thaw(box *x)
{
    docker *d = link_box_arg(x);
    const char *handle = link_box_handle(x);
    err *e = docker_unpause(d->api, handle);

    if (e && is_in_state(d, handle, DOCKER_RUNNING)) {
        err_free(e);
        e = NULL;
    }
    if (e)
        return docker_away(e);
    set_frozen(d, handle, false);
    link_hold(x, false);
    return NULL;
}

/* ---- network and pool ---- */

static enum cap_level docker_network(backend *b)
{
    docker *d = docker_of(b);

    if (!d->network)
        return CAP_ABSENT;
    err *e = docker_network_inspect(d->api, d->network);
    bool there = !e;
    err_free(e);
    return there ? CAP_EMULATED : CAP_ABSENT; /* emulated, because it also reaches the neighbours */
}

static err *docker_pool_op(backend *b, const pool_marks *set, pool_status *ret_status)
{
    docker *d = docker_of(b);

    docker_pool_status(d->pool, set, ret_status);
    docker_waiting(d, ret_status);
    LOCK_SCOPE(&d->lock);
    ret_status->max = d->max;
    ret_status->claimed = d->live;
    return NULL;
}

/* ---- streams ---- */

static ssize_t stream_read(void *s, void *p, size_t n)
{
    return docker_exec_read(s, p, n);
}

static ssize_t stream_write(void *s, const void *p, size_t n)
{
    return docker_exec_write(s, p, n);
}

static int stream_fd(void *s)
{
    return docker_exec_fd(s);
}

static char *stream_why(void *s)
{
    return docker_exec_why(s);
}

static void stream_close(void *s)
{
    docker_exec_close(s);
}

static const link_stream_ops STREAM = {.read = stream_read,
                                       .write = stream_write,
                                       .fd = stream_fd,
                                       .why = stream_why,
                                       .close = stream_close};

static err *docker_dial(void *arg, const char *handle, unsigned timeout_ms, link_stream *ret_stream)
{
    static const char *const ARGV[] = {DOCKER_AT "/bothy-init", "attach", NULL};
    docker *d = arg;
    docker_exec *x;
    err *e = docker_exec_open(d->api, handle, ARGV, timeout_ms, &x);

    if (e && e->code == ERR_CONFLICT && is_in_state(d, handle, DOCKER_DEAD))
        e->code = ERR_SANDBOX_GONE;
    /* An engine that restarts between the two calls of an exec does not know the first one's id. */
    if (e && e->code == ERR_NOT_FOUND &&
        (is_in_state(d, handle, DOCKER_RUNNING) || is_in_state(d, handle, DOCKER_PAUSED)))
        e->code = ERR_UNAVAILABLE;
    TRY(e);
    *ret_stream = (link_stream){&STREAM, x};
    return NULL;
}

static void docker_condemned(void *arg, const char *handle, const char *why)
{
    log_error("docker", "container %s is ended: %s", handle, why);
    docker_remove_soon(arg, handle);
}

/* ---- life ---- */

static void docker_free(backend *b)
{
    docker *d = docker_of(b);

    if (!d)
        return;
    atomic_store(&d->closing, true);
    docker_pool_stop(d->pool);
    docker_watch_stop(d);
    if (d->work)
        docker_create_expire(d); /* all that wait */
    docker_work_stop(d->work);
    link_host_free(d->links); /* answers claims under way */
    docker_work_free(d->work);
    docker_pool_free(d->pool);
    docker_api_free(d->api);
    map_iter it = {0};
    while (map_next(&d->boxes, &it))
        free(it.entry->value);
    map_done(&d->boxes);
    map_done(&d->handles);
    map_done(&d->under_way);
    closep(&d->claims);
    free(d->label);
    free(d->cell);
    free(d->network);
    free(d->volume);
    free(d->init);
    free(d->kit);
    free(d);
}

static const backend_ops docker_ops = {
    LINK_BOX_OPS,
    .network = docker_network,
    .create = docker_create_box,
    .attach = docker_attach,
    .destroy = docker_destroy,
    .destroy_soon = docker_destroy_soon,
    .list = docker_list_boxes,
    .usage = docker_usage_of,
    .usage_many = docker_usage_many,
    .image_get = docker_image_get,
    .pool = docker_pool_op,
    .freeze = docker_freeze,
    .thaw = docker_thaw,
    .fate = docker_fate,
    .limits = docker_set_limits,
    .free = docker_free,
};

/* Returns whether containers can be frozen: a rootless engine needs cgroup v2 for it. */
static bool stands_still(const docker_engine *e)
{
    return !(e->rootless && e->cgroup == 1);
}

static void choose_ops(docker *d)
{
    d->ops = docker_ops;
    if (!docker_can_update(d))
        d->ops.limits = NULL;
    if (!stands_still(docker_api_engine(d->api)))
        d->ops.freeze = d->ops.thaw = NULL;
    d->base.ops = &d->ops;
}

static enum cap_level docker_held(bool has_controller)
{
    return has_controller ? CAP_NATIVE : CAP_ABSENT;
}

static backend_caps caps_of(const docker_engine *e, const docker_options *o)
{
    return (backend_caps){.name = "docker",
                          .images = CAP_EMULATED,
                          .user = CAP_NATIVE,
                          .stats = CAP_NATIVE,
                          .freeze = stands_still(e) ? CAP_NATIVE : CAP_ABSENT,
                          .memory_limit = docker_held(e->memory_limit),
                          .cpu_limit = docker_held(e->cpu_limit),
                          .pids_limit = docker_held(e->pids_limit),
                          .swap_limit = docker_held(e->swap_limit),
                          .read_only = CAP_NATIVE,
                          .tmpfs = CAP_NATIVE,
                          .setuid = CAP_NATIVE,
                          .hostname = o->warm ? CAP_EMULATED : CAP_NATIVE,
                          .ids = e->rootless ? CAP_EMULATED : CAP_ABSENT,
                          .files = o->kit ? CAP_NATIVE : CAP_EMULATED,
                          .frames = true,
                          .removes_strays = true};
}

static err *open_parts(docker *d, const docker_options *o)
{
    CLEANUP(freep) char *url = str_printf("unix:%s", o->socket);
    link_options links = {.name = "docker",
                          .dial = docker_dial,
                          .condemned = docker_condemned,
                          .arg = d,
                          .kit = o->kit ? DOCKER_AT "/bothy-kit" : NULL,
                          .dialers = DIALERS};

    TRY(docker_volume_name(o->init, o->kit, &d->volume));
    TRY(docker_api_new(url, &d->api));
    memcpy(links.key, o->key, sizeof links.key);
    err *e = link_host_new(&links, &d->links);
    secret_wipe(links.key, sizeof links.key);
    TRY(e);
    d->work = docker_work_new(WORKERS);
    d->pool = docker_pool_new(d, o->warm);
    TRY(docker_sweep(d));
    docker_work_post(d->work, VOLUMES_MS, docker_volumes_sweep, d);
    docker_watch_start(d);
    return NULL;
}

static void tell_engine(const docker_engine *e)
{
    log_info("docker", "%s %s, %s, cgroup v%u; limits of%s%s%s%s", e->name, e->version,
             e->rootless ? "rootless" : "as root", e->cgroup, e->memory_limit ? " memory" : "",
             e->cpu_limit ? " cpu" : "", e->pids_limit ? " pids" : "",
             e->memory_limit || e->cpu_limit || e->pids_limit ? "" : " nothing");
}

static void freep_docker(docker **d)
{
    if (*d)
        docker_free(&(*d)->base);
}

err *backend_docker_new(const docker_options *o, backend **ret_backend)
{
    CLEANUP(freep_docker) docker *d = xcalloc(1, sizeof *d);

    d->claims = -1;
    d->last = &d->waiting;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->volume_lock, NULL);
    d->cell = xstrdup(o->cell);
    d->label = str_printf(DOCKER_LABEL_CELL "=%s", o->cell);
    d->network = o->network ? xstrdup(o->network) : NULL;
    d->init = xstrdup(o->init);
    d->kit = o->kit ? xstrdup(o->kit) : NULL;
    d->max = o->max;
    TRY(fs_dir(o->state_dir, "claims", 0700, &d->claims));
    TRY(open_parts(d, o));
    choose_ops(d);
    d->base.caps = caps_of(docker_api_engine(d->api), o);
    tell_engine(docker_api_engine(d->api));
    *ret_backend = &TAKE_PTR(d)->base;
    return NULL;
}
