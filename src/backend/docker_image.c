/* Images of the engine's own store: fetches and describes them. */
#include <poll.h>
#include <string.h>

#include "backend/docker.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#define LAYERS_MAX 512
#define TELL_NS    (NS_PER_S / 4)

typedef struct layer {
    char id[16];
    uint64_t bytes, done;
    bool fetched, whole;
} layer;

typedef struct pulling {
    const image_request *rq;
    layer layer[LAYERS_MAX];
    size_t n;
    uint64_t told_ns;
    const char *stage;
    bool cancelled, too_late;
} pulling;

static docker *docker_of(backend *b)
{
    return (docker *)b;
}

/* ---- progress ---- */

static bool goes_on(void *arg)
{
    pulling *p = arg;
    struct pollfd cancel = {.fd = p->rq->cancel_fd, .events = POLLIN};

    p->cancelled = p->cancelled || (cancel.fd >= 0 && poll(&cancel, 1, 0) > 0);
    p->too_late = p->too_late || (p->rq->until && now_mono_ns() >= p->rq->until);
    return !p->cancelled && !p->too_late;
}

static layer *layer_of(pulling *p, const char *id)
{
    char word[sizeof p->layer->id];

    str_copy(word, sizeof word, id);
    for (size_t i = 0; i < p->n; i++)
        if (!strcmp(p->layer[i].id, word))
            return &p->layer[i];
    if (p->n == LAYERS_MAX)
        return NULL;
    layer *l = &p->layer[p->n++];
    memcpy(l->id, word, sizeof word);
    return l;
}

/* Reads a progress line. Not every id is a layer: a line may be about a tag ("latest") or
 * unknown. */
static void take_line(pulling *p, const docker_progress *line)
{
    static const char *const FETCHED[] = {"Download complete", "Verifying Checksum", "Extracting"};
    static const char *const WHOLE[] = {"Pull complete", "Already exists"};
    static const char *const OTHER[] = {"Pulling fs layer", "Waiting", "Downloading", "Retrying"};
    bool fetched = false, whole = false, other = false;

    for (size_t i = 0; i < ARRAY_LEN(FETCHED); i++)
        fetched |= str_starts(line->status, FETCHED[i]);
    for (size_t i = 0; i < ARRAY_LEN(WHOLE); i++)
        whole |= str_starts(line->status, WHOLE[i]);
    for (size_t i = 0; i < ARRAY_LEN(OTHER); i++)
        other |= str_starts(line->status, OTHER[i]);
    if (!*line->layer || (!fetched && !whole && !other))
        return;
    layer *l = layer_of(p, line->layer);
    if (!l)
        return;
    l->fetched |= fetched || whole;
    l->whole |= whole;
    if (str_starts(line->status, "Downloading")) {
        l->bytes = line->total;
        l->done = line->current;
    } else if (l->fetched) {
        l->done = l->bytes;
    }
}

static void docker_image_tell(pulling *p, const char *stage)
{
    pull_progress now = {.stage = stage, .layers = (unsigned)p->n};
    bool all = p->n > 0;

    for (size_t i = 0; i < p->n; i++) {
        now.layers_done += p->layer[i].whole;
        now.bytes += p->layer[i].bytes;
        now.bytes_done += p->layer[i].done;
        all &= p->layer[i].fetched;
    }
    if (all && str_eq(stage, "fetch"))
        now.stage = "unpack";
    bool changed = !str_eq(now.stage, p->stage);
    if (!p->rq->progress || (!changed && now_mono_ns() < p->told_ns + TELL_NS))
        return;
    p->stage = now.stage;
    p->told_ns = now_mono_ns();
    p->rq->progress(p->rq->arg, &now);
}

static bool on_progress(void *arg, const docker_progress *line)
{
    pulling *p = arg;

    take_line(p, line);
    docker_image_tell(p, "fetch");
    return goes_on(p);
}

/* ---- errors: messages of registries, as engines pass them on ---- */

static err *docker_image_sort(err *e, const char *name)
{
    static const struct {
        const char *words;
        err_code code;
    } KNOWN[] = {{"unauthorized", ERR_UNAUTHENTICATED},
                 {"authentication required", ERR_UNAUTHENTICATED},
                 {"no basic auth credentials", ERR_UNAUTHENTICATED},
                 {"incorrect username or password", ERR_UNAUTHENTICATED},
                 {"no matching manifest", ERR_IMAGE_UNSUPPORTED},
                 {"no image found in manifest list", ERR_IMAGE_UNSUPPORTED},
                 {"no space left", ERR_DISK_FULL},
                 {"manifest unknown", ERR_NOT_FOUND},
                 {"name unknown", ERR_NOT_FOUND},
                 {"repository does not exist", ERR_NOT_FOUND},
                 {"not found", ERR_NOT_FOUND}};

    if (!e || e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT)
        return e;
    for (size_t i = 0; i < ARRAY_LEN(KNOWN); i++)
        if (e->cause && strcasestr(e->cause, KNOWN[i].words)) {
            e->code = KNOWN[i].code;
            e->retryable = err_info_of(e->code)->retryable;
            break;
        }
    if (e->code == ERR_NOT_FOUND)
        e = err_kind(err_wrap(e, "%s", name), "image");
    return e;
}

static err *docker_image_pull(docker *d, const image_request *rq)
{
    CLEANUP(freep) pulling *p = xcalloc(1, sizeof *p);
    size_t host = strcspn(rq->name, "/");
    CLEANUP(freep) char *registry = xstrndup(rq->name, host);
    docker_login login = {0};

    p->rq = rq;
    if (rq->login)
        login = (docker_login){rq->login->username, rq->login->password, registry};
    docker_image_tell(p, "fetch");
    err *e = docker_pull(d->api, &(docker_pull_request){.name = rq->name,
                                                        .login = rq->login ? &login : NULL,
                                                        .on_progress = on_progress,
                                                        .on_tick = goes_on,
                                                        .arg = p});
    if (p->cancelled || p->too_late) {
        err_free(e);
        return p->cancelled ? err_new(ERR_DRAINING, "the pull of %s was given up", rq->name)
                            : err_new(ERR_TIMEOUT, "the pull of %s took too long", rq->name);
    }
    TRY(docker_image_sort(e, rq->name));
    docker_image_tell(p, "done");
    return NULL;
}

/* ---- facts ---- */

static void facts_of(docker_image *i, image_facts *ret)
{
    *ret = (image_facts){.env = TAKE_PTR(i->env),
                         .entrypoint = TAKE_PTR(i->entrypoint),
                         .cmd = TAKE_PTR(i->cmd),
                         .user = TAKE_PTR(i->user),
                         .cwd = TAKE_PTR(i->cwd),
                         .os = xstrdup(i->os),
                         .architecture = xstrdup(i->arch),
                         .size = i->size};
    hex_decode(i->digest, ret->digest, sizeof ret->digest); /* the parser has checked its form */
}

static err *backend_docker_image_inspect(docker *d, const char *name, image_facts *ret)
{
    CLEANUP(docker_image_done) docker_image i = {0};

    TRY(docker_image_inspect(d->api, name, &i));
    facts_of(&i, ret);
    return NULL;
}

err *docker_image_get(backend *b, const image_request *rq, image_facts *ret_facts)
{
    docker *d = docker_of(b);

    if (rq->policy != PULL_ALWAYS) {
        err *e = backend_docker_image_inspect(d, rq->name, ret_facts);
        if (!e || e->code != ERR_NOT_FOUND || rq->policy == PULL_NEVER)
            return err_wrap(e, "image %s", rq->name);
        err_free(e);
    }
    TRY(docker_image_pull(d, rq));
    return backend_docker_image_inspect(d, rq->name, ret_facts);
}
