/* One pull: reads the manifest, fetches the missing layers, writes the record. Retries when the
 * transport failed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "image/images.h"
#include "image/skopeo.h"

#define ATTEMPTS 3 /* a second and two seconds apart */

typedef struct attempt {
    const fetch_request *rq;
    skopeo_limit limit;
    proxy *proxy;
    json_int_t image;
    manifest manifest;
    image_config config;
} attempt;

static void attempt_freep(attempt **a)
{
    if (!*a)
        return;
    proxy_free((*a)->proxy);
    image_config_done(&(*a)->config);
    free(*a);
}

/* Returns skopeo's name of the source. Registries take a digest or a tag, not both; the digest is
 * the more specific. */
static char *source_of(const char *reference)
{
    if (image_is_local_source(reference))
        return xstrdup(reference);
    const char *at = strchr(reference, '@'),
               *colon = at ? memrchr(reference, ':', (size_t)(at - reference)) : NULL;
    if (colon && !memchr(colon, '/', (size_t)(at - colon)))
        return str_printf("docker://%.*s%s", (int)(colon - reference), reference, at);
    return str_printf("docker://%s", reference);
}

/* ---- what it is ---- */

static err *open_image(attempt *a)
{
    CLEANUP(proxy_reply_done) proxy_reply hello = {.fd = -1};
    CLEANUP(proxy_reply_done) proxy_reply r = {.fd = -1};
    CLEANUP(freep) char *source = source_of(a->rq->reference);

    TRY(proxy_call(a->proxy, &a->limit, "Initialize", json_array(), &hello));
    const char *version = json_string_value(hello.value);
    if (!version || !str_starts(version, "0.2."))
        return err_remedy(err_new(ERR_UNAVAILABLE, "skopeo speaks a protocol we do not know"),
                          "Install skopeo 1.5 or newer.");
    TRY(proxy_call(a->proxy, &a->limit, "OpenImage", json_pack("[s]", source), &r));
    a->image = json_integer_value(r.value);
    FAULT_KILL("pull.opened");
    return NULL;
}

/* Reads manifest and config. skopeo resolves manifest lists and converts Docker's manifests to OCI
 * form. */
static err *read_parts(const image_store *s, attempt *a)
{
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(buf_done) buf config = {0};

    TRY(proxy_text(a->proxy, &a->limit, "GetManifest", json_pack("[I]", a->image), MANIFEST_MAX,
                   &text));
    TRY(manifest_parse(text.p, text.len, &a->manifest));
    FAULT_KILL("pull.manifest");
    TRY(proxy_text(a->proxy, &a->limit, "GetFullConfig", json_pack("[I]", a->image), MANIFEST_MAX,
                   &config));
    TRY(image_config_parse(config.p, config.len, &s->here, &a->config));
    if (a->config.ndiff_ids != a->manifest.nlayers)
        return err_because(err_new(ERR_IMAGE_UNSUPPORTED, "the image cannot be used"),
                           "%zu layers, but %zu diff ids", a->manifest.nlayers,
                           a->config.ndiff_ids);
    return NULL;
}

static uint64_t size_of(const manifest *m)
{
    uint64_t size = 0;

    for (size_t i = 0; i < m->nlayers; i++)
        size += m->layer[i].size;
    return size;
}

/* ---- one attempt ---- */

static err *take_in(image_store *s, attempt *a, image **ret_image)
{
    CLEANUP(image_unrefp) image *i = NULL;

    TRY(open_image(a));
    TRY(read_parts(s, a));
    const layer_source src = {.proxy = a->proxy,
                              .limit = &a->limit,
                              .image = a->image,
                              .reference = a->rq->reference,
                              .manifest = &a->manifest,
                              .config = &a->config,
                              .progress = &a->rq->progress};
    FAULT_KILL("pull.config");
    TRY(stream_layers(s, &src));
    FAULT_KILL("pull.layers");
    pull_progress p = {.stage = "done",
                       .layers = (unsigned)a->manifest.nlayers,
                       .layers_done = (unsigned)a->manifest.nlayers,
                       .bytes = size_of(&a->manifest),
                       .bytes_done = size_of(&a->manifest)};
    i = image_new(a->manifest.config.sha256, a->rq->name, &a->config, p.bytes, now_real_ns());
    TRY(image_commit(s, i));
    a->rq->progress.tell(a->rq->progress.arg, &p);
    *ret_image = TAKE_PTR(i);
    return NULL;
}

static err *attempt_in(image_store *s, const fetch_request *rq, uint64_t until, const char *place,
                       image **ret_image)
{
    CLEANUP(attempt_freep) attempt *a = xcalloc(1, sizeof *a);
    CLEANUP(closep) int auth = -1;
    const skopeo_where where = {.program = s->o.skopeo,
                                .conf = s->o.conf_path,
                                .scratch = place,
                                .local = image_is_local_source(rq->reference),
                                .start = s->o.start};

    a->rq = rq;
    a->limit = (skopeo_limit){.until = until, .stop_fd = s->stop_fd};
    TRY(login_file(s, rq->owner, rq->reference, &auth));
    TRY(proxy_start(&where, auth, rq->reference, &a->proxy));
    err *e = take_in(s, a, ret_image);
    return e && e->code == ERR_TIMEOUT
               ? err_wrap(e, "image '%.200s' was not fetched", rq->reference)
               : e;
}

static err *attempt_once(image_store *s, const fetch_request *rq, uint64_t until, image **ret_image)
{
    CLEANUP(scratch_done) scratch x = {0};

    if (engine_has_images(s))
        return engine_fetch(s, rq, until, ret_image);
    TRY(scratch_make(s, &x));
    return attempt_in(s, rq, until, x.path, ret_image);
}

/* ---- trying again ---- */

/* Returns true if a retry may help: the connection, skopeo, an unpacker or the warden was lost, or
 * a prune removed a layer that had been found here. Errors such as an unknown name do not change.
 */
static bool may_help(const err *e)
{
    return e->errnum == FETCH_AGAIN || e->code == ERR_UNAVAILABLE ||
           (e->code == ERR_INTERNAL && e->errnum == EIO) ||
           (e->code == ERR_NOT_FOUND && e->errnum == ENOENT);
}

static bool pause_before(const image_store *s, unsigned nth, uint64_t until)
{
    struct pollfd p = {s->stop_fd, POLLIN, 0};
    uint64_t ms = UINT64_C(1000) << nth;

    return now_mono_ns() + ms * NS_PER_MS < until && poll(&p, 1, (int)ms) == 0;
}

err *fetch_image(image_store *s, const fetch_request *rq, image **ret_image)
{
    uint64_t until = now_mono_ns() + s->o.pull_timeout_ms * NS_PER_MS;
    err *e = NULL;

    rq->progress.tell(rq->progress.arg, &(pull_progress){.stage = "fetch"});
    TRY(registry_check(s, rq->reference));
    for (unsigned i = 0;; i++) {
        e = attempt_once(s, rq, until, ret_image);
        if (!e || i + 1 >= ATTEMPTS || !may_help(e) || !pause_before(s, i, until))
            break;
        log_info("image", "%.200s: %s; trying again", rq->reference, str_or(e->cause, e->message));
        err_free(e);
    }
    if (e && e->errnum == FETCH_AGAIN)
        e->errnum = 0;
    return e;
}
