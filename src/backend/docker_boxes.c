/* Boxes and their containers, notes of claims until the container is renamed, and removal of
 * containers. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backend/docker.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define RETRY_MS  1000
#define RENAME_MS 30000 /* after the engine has refused it */
#define NAME      "bothy-"

void docker_name_of(const char *id, char ret_name[DOCKER_NAME_MAX])
{
    snprintf(ret_name, DOCKER_NAME_MAX, NAME "%s", id);
}

/* ---- boxes ---- */

docker_box *docker_box_add(docker *d, const char *id)
{
    docker_box *x = map_get_str(&d->boxes, id);

    if (!x) {
        x = xcalloc(1, sizeof *x);
        map_put_str(&d->boxes, id, x);
    } else if (*x->handle) {
        map_take_str(&d->handles, x->handle);
    }
    d->live += !*x->id || x->dead;
    *x = (docker_box){0};
    str_copy(x->id, sizeof x->id, id);
    return x;
}

void docker_box_contain(docker *d, docker_box *x, const docker_made *m)
{
    if (*x->handle)
        map_take_str(&d->handles, x->handle);
    d->live += x->dead; /* the previous container, which could not be claimed */
    x->dead = x->has_exit_code = false;
    str_copy(x->handle, sizeof x->handle, m->handle);
    memcpy(x->nonce, m->nonce, sizeof x->nonce);
    x->memory_limit = m->limits.memory;
    map_put_str(&d->handles, x->handle, x);
}

void docker_box_forget(docker *d, const char *id)
{
    docker_box *x = map_take_str(&d->boxes, id);

    if (!x)
        return;
    if (*x->handle)
        map_take_str(&d->handles, x->handle);
    d->live -= !x->dead;
    free(x);
}

bool docker_box_get(docker *d, const char *id, docker_box *ret)
{
    LOCK_SCOPE(&d->lock);
    const docker_box *x = map_get_str(&d->boxes, id);

    if (x)
        *ret = *x;
    return x;
}

void docker_target(docker *d, const char *id, char ret[DOCKER_NAME_MAX])
{
    docker_box x;

    if (docker_box_get(d, id, &x) && *x.handle)
        str_copy(ret, DOCKER_NAME_MAX, x.handle);
    else
        docker_name_of(id, ret);
}

void docker_box_died(docker *d, const char *handle, int exit_code, const char *why)
{
    {
        LOCK_SCOPE(&d->lock);
        docker_box *x = map_get_str(&d->handles, handle);
        if (x && !x->dead) {
            x->dead = true;
            d->live--;
        }
        if (x && exit_code >= 0) {
            x->has_exit_code = true;
            x->exit_code = exit_code;
        }
    }
    link_died(d->links, handle, why);
    docker_admit_next(d);
}

void docker_box_oom(docker *d, const char *handle)
{
    LOCK_SCOPE(&d->lock);
    docker_box *x = map_get_str(&d->handles, handle);

    if (x)
        x->ooms++;
}

char **docker_boxes_expected(docker *d)
{
    char **all = NULL;
    map_iter it = {0};
    LOCK_SCOPE(&d->lock);

    while (map_next(&d->handles, &it)) {
        const docker_box *x = it.entry->value;
        if (!x->dead && !x->making)
            strv_push(&all, xstrdup(x->handle));
    }
    return all;
}

/* Returns the list's entry for a container; NULL if it has none. */
static const docker_container *docker_boxes_listed(const docker_list *l, const char *handle)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->c[i].id, handle))
            return &l->c[i];
    return NULL;
}

void docker_boxes_compare(docker *d, char **expected, const docker_list *l)
{
    for (char **handle = expected; handle && *handle; handle++) {
        const docker_container *c = docker_boxes_listed(l, *handle);
        if (!c)
            docker_box_died(d, *handle, -1, "its container is not there any more");
        else if (c->state == DOCKER_DEAD)
            docker_box_died(d, *handle, -1, "its container does not run any more");
    }
}

void docker_making_begin(docker *d, const char *name)
{
    LOCK_SCOPE(&d->lock);
    map_put_str(&d->under_way, name, d);
}

void docker_making_end(docker *d, const char *name)
{
    LOCK_SCOPE(&d->lock);
    map_take_str(&d->under_way, name);
}

bool docker_knows(docker *d, const docker_container *c)
{
    char id[SANDBOX_ID_LEN + 1];
    bool has_id = docker_id_of(d, c, id);

    {
        LOCK_SCOPE(&d->lock);
        if (!d->listed || map_get_str(&d->handles, c->id) || map_get_str(&d->under_way, c->name) ||
            map_get_str(&d->under_way, c->id) || (has_id && map_get_str(&d->boxes, id)))
            return true;
    }
    return docker_pool_has(d->pool, c->id);
}

/* ---- notes of claims ---- */

err *docker_claim_write(docker *d, const char *handle, const char *id)
{
    if (!symlinkat(id, d->claims, handle))
        return NULL;
    return fs_error(errno, "cannot note whose a container is");
}

void docker_claim_erase(docker *d, const char *handle)
{
    unlinkat(d->claims, handle, 0);
}

bool docker_claim_read(docker *d, const char *handle, char ret_id[SANDBOX_ID_LEN + 1])
{
    char id[SANDBOX_ID_LEN + 2];
    ssize_t n = readlinkat(d->claims, handle, id, sizeof id);

    if (n != SANDBOX_ID_LEN)
        return false;
    id[n] = 0;
    memcpy(ret_id, id, SANDBOX_ID_LEN + 1);
    return id_is_sandbox(ret_id);
}

bool docker_id_of(docker *d, const docker_container *c, char ret_id[SANDBOX_ID_LEN + 1])
{
    if (docker_claim_read(d, c->id, ret_id))
        return true;
    if (!str_starts(c->name, NAME) || !id_is_sandbox(c->name + strlen(NAME)))
        return false;
    memcpy(ret_id, c->name + strlen(NAME), SANDBOX_ID_LEN + 1);
    return true;
}

typedef struct renaming {
    docker *d;
    char id[SANDBOX_ID_LEN + 1], handle[DOCKER_ID_LEN + 1];
} renaming;

static void rename_job(void *arg)
{
    renaming *r = arg;
    docker *d = r->d;
    char name[DOCKER_NAME_MAX];

    char id[SANDBOX_ID_LEN + 1];

    docker_name_of(r->id, name);
    bool wanted = !atomic_load(&d->closing) && docker_claim_read(d, r->handle, id);
    err *e = wanted ? docker_rename(d->api, r->handle, name) : NULL;
    FAULT_KILL("docker.renamed");
    /* Until it is renamed, only the note names the box: erase it only after the rename, or when the
     * container is gone. */
    if (wanted && (!e || e->code == ERR_NOT_FOUND))
        docker_claim_erase(d, r->handle);
    if (e && (e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT || e->code == ERR_INTERNAL))
        docker_work_post(d->work, e->code == ERR_UNAVAILABLE ? RETRY_MS : RENAME_MS, rename_job, r);
    else
        free(r);
    err_free(e);
}

void docker_rename_soon(docker *d, const char *handle, const char *id, unsigned delay_ms)
{
    renaming *r = xcalloc(1, sizeof *r);

    r->d = d;
    str_copy(r->id, sizeof r->id, id);
    str_copy(r->handle, sizeof r->handle, handle);
    docker_work_post(d->work, delay_ms, rename_job, r);
}

/* ---- boxes that an earlier bothyd left ---- */

static void docker_box_learn(docker *d, const docker_container *c, const char *id)
{
    docker_made m = {0};
    LOCK_SCOPE(&d->lock);
    docker_box *x = map_get_str(&d->boxes, id);

    if (x)
        return;
    x = docker_box_add(d, id);
    str_copy(m.handle, sizeof m.handle, c->id);
    docker_nonce_of(c->labels, m.nonce);
    docker_box_contain(d, x, &m);
    x->frozen = c->state == DOCKER_PAUSED;
    x->making = true; /* until it is attached */
    if (c->state == DOCKER_DEAD || c->state == DOCKER_CREATED) {
        x->dead = true;
        d->live--;
    }
}

/* Schedules the rename that an earlier bothyd did not complete. Until then only the claim's note
 * says which sandbox a warm container became. Called after the container's list entry and its note
 * were read: a rename between the two reads changes the name and erases the note, so that neither
 * shows the sandbox, and the container counts as an orphan. */
static void rename_noted(docker *d, const docker_container *c)
{
    char id[SANDBOX_ID_LEN + 1];

    if (docker_claim_read(d, c->id, id))
        docker_rename_soon(d, c->id, id, 0);
}

static bool docker_has_listed(docker *d)
{
    LOCK_SCOPE(&d->lock);
    return d->listed;
}

/* Later lists may show a box that was removed while the engine wrote them: nothing is learned. */
size_t docker_boxes_take(docker *d, const docker_list *l, box_status *ret)
{
    bool first = !docker_has_listed(d);
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        box_status *s = &ret[n];
        if (!docker_id_of(d, &l->c[i], s->id))
            continue;
        if (first) {
            rename_noted(d, &l->c[i]);
            docker_box_learn(d, &l->c[i], s->id);
        }
        s->dead = l->c[i].state == DOCKER_DEAD || l->c[i].state == DOCKER_CREATED;
        s->frozen = l->c[i].state == DOCKER_PAUSED;
        n++;
    }
    LOCK_SCOPE(&d->lock);
    d->listed = true;
    return n;
}

/* ---- removing ---- */

typedef struct removal {
    docker *d;
    char id[SANDBOX_ID_LEN + 1]; /* "": not a box's */
    char target[DOCKER_NAME_MAX];
    unsigned tries;
} removal;

static void docker_boxes_removed(const removal *r)
{
    docker_box x;

    docker_claim_erase(r->d, r->target);
    if (!*r->id)
        return;
    if (docker_box_get(r->d, r->id, &x) && !atomic_load(&r->d->closing))
        docker_box_died(r->d, x.handle, -1, "destroyed");
    LOCK_SCOPE(&r->d->lock);
    docker_box_forget(r->d, r->id);
}

static void remove_job(void *arg)
{
    removal *r = arg;
    err *e = docker_remove(r->d->api, r->target);
    bool again = e && e->code != ERR_NOT_FOUND && !atomic_load(&r->d->closing);

    if (again) {
        if (!r->tries++)
            log_warn("docker", "%s is not removed yet: %s (%s)", r->target, e->message,
                     str_or(e->cause, "-"));
        docker_work_post(r->d->work, RETRY_MS * (r->tries < 10 ? r->tries : 10), remove_job, r);
    } else {
        docker_boxes_removed(r);
        free(r);
    }
    err_free(e);
}

void docker_box_remove_soon(docker *d, const char *id, const char *target)
{
    removal *r = xcalloc(1, sizeof *r);

    r->d = d;
    str_copy(r->id, sizeof r->id, id);
    str_copy(r->target, sizeof r->target, target);
    docker_work_post(d->work, 0, remove_job, r);
}

void docker_remove_soon(docker *d, const char *handle)
{
    docker_box_remove_soon(d, "", handle);
}
