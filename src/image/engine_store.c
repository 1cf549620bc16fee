/* Images of an engine's own store (Docker, Podman). The backend fetches them; bothyd keeps only the
 * facts it needs. The engine's store is authoritative: a name is looked up there each time, because
 * its users build, tag and remove images without notifying bothyd. */
#include <assert.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "image/images.h"

bool engine_has_images(const image_store *s)
{
    return s->o.backend->caps.images == CAP_EMULATED;
}

/* ---- what it is ---- */

/* Turns facts into an image. They are untrusted, so they become a record, which is parsed as one.
 */
static err *image_of_facts(const image_store *s, const char *name, const image_facts *f,
                           image **ret_image)
{
    image raw = {.env = f->env,
                 .user = (char *)str_or(f->user, ""),
                 .cwd = (char *)str_or(f->cwd, ""),
                 .entrypoint = f->entrypoint,
                 .cmd = f->cmd,
                 .os = (char *)str_or(f->os, ""),
                 .architecture = (char *)str_or(f->architecture, ""),
                 .size = f->size};
    CLEANUP(freep) char *record = image_record(&raw);
    image_row row = {.name = (char *)name, .config = record, .created_ns = now_real_ns()};

    if (!record)
        return err_because(err_new(ERR_IMAGE_UNSUPPORTED, "image '%.200s' cannot be used", name),
                           "its configuration is not UTF-8");
    memcpy(row.digest, f->digest, sizeof row.digest);
    return image_of_row(&row, &s->here, ret_image);
}

/* Returns the name to record. A digest is not recorded: the next request asks the engine again. */
static err *name_of(const char *name, const image_facts *f, char **ret_name)
{
    char hex[65];

    if (!str_starts(name, "sha256:")) {
        *ret_name = xstrdup(name);
        return NULL;
    }
    hex_encode(f->digest, sizeof f->digest, hex);
    if (strncmp(hex, name + strlen("sha256:"), strlen(name) - strlen("sha256:")) != 0)
        return err_new(ERR_INTERNAL, "the engine gave another image than '%.80s'", name);
    *ret_name = str_printf("sha256:%s", hex);
    return NULL;
}

static bool is_same(const image *a, const image *b)
{
    CLEANUP(freep) char *one = image_record(a);
    CLEANUP(freep) char *two = image_record(b);

    return memcmp(a->digest, b->digest, sizeof a->digest) == 0 && str_eq(one, two);
}

/* Stores the image if it changed; usually it has not, and nothing is written. */
static err *take_in(image_store *s, const char *name, const image_facts *f, image **ret_image)
{
    CLEANUP(image_unrefp) image *got = NULL;
    CLEANUP(image_unrefp) image *known = NULL;
    CLEANUP(freep) char *own = NULL;

    TRY(name_of(name, f, &own));
    TRY(image_of_facts(s, own, f, &got));
    assert(got);
    bool named = !str_starts(own, "sha256:");
    if (named)
        err_free(image_find(s, own, &known));
    if (known && str_eq(known->name, own) && is_same(known, got)) {
        *ret_image = TAKE_PTR(known);
        return NULL;
    }
    if (named)
        TRY(image_commit(s, got));
    *ret_image = TAKE_PTR(got);
    return NULL;
}

/* ---- asking ---- */

/* Returns the name to ask for. Registries and engines take a digest or a tag, not both; the digest
 * is the more specific. */
static char *asked_name(const char *reference)
{
    const char *at = strchr(reference, '@'),
               *colon = at ? memrchr(reference, ':', (size_t)(at - reference)) : NULL;

    if (colon && !memchr(colon, '/', (size_t)(at - colon)))
        return str_printf("%.*s%s", (int)(colon - reference), reference, at);
    return xstrdup(reference);
}

static err *engine_store_get(image_store *s, const image_request *rq, const char *name,
                             image **ret_image)
{
    CLEANUP(image_facts_done) image_facts f = {0};

    TRY(s->o.backend->ops->image_get(s->o.backend, rq, &f));
    return take_in(s, name, &f, ret_image);
}

err *engine_look(image_store *s, const char *name, image **ret_image)
{
    CLEANUP(freep) char *asked = asked_name(name);

    return engine_store_get(
        s,
        &(image_request){.name = asked,
                         .policy = PULL_NEVER,
                         .cancel_fd = s->stop_fd,
                         .until = now_mono_ns() + s->o.pull_timeout_ms * NS_PER_MS},
        name, ret_image);
}

static void forget_login(pull_login *l)
{
    secret_freep((char **)&l->password);
    free((char *)l->username);
}

err *engine_fetch(image_store *s, const fetch_request *rq, uint64_t until, image **ret_image)
{
    CLEANUP(freep) char *asked = asked_name(rq->reference);
    CLEANUP(forget_login) pull_login who = {0};

    TRY(login_words(s, rq->owner, rq->reference, &who));
    return engine_store_get(s,
                            &(image_request){.name = asked,
                                             .policy = PULL_ALWAYS, /* it was looked for already */
                                             .login = who.username ? &who : NULL,
                                             .progress = rq->progress.tell,
                                             .arg = rq->progress.arg,
                                             .cancel_fd = s->stop_fd,
                                             .until = until},
                            rq->name, ret_image);
}

/* ---- what it cannot be asked ---- */

err *engine_check(const char *reference, const char *as)
{
    if (image_is_local_source(reference))
        return err_remedy(
            err_new(ERR_UNSUPPORTED, "'%.100s': images are in the engine's own store here",
                    reference),
            "Bring it there ('docker load', 'podman load', 'skopeo copy … docker-daemon:NAME'), "
            "then use its name.");
    if (as && !str_eq(as, reference))
        return err_remedy(err_new(ERR_UNSUPPORTED, "names of images are the engine's to give here"),
                          "Pull it under its own name, then 'docker tag' or 'podman tag'.");
    return NULL;
}
