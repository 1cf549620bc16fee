/* The table of images, in memory and in the store: find, commit, remove, prune. */
#include "image/image.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/str.h"
#include "image/images.h"

/* A row with this prefix stands for an image that lost its last name and waits for a prune. */
#define GONE_PREFIX "gone:"
#define HEX_MIN     12

/* ---- one image ---- */

image *image_ref(image *i)
{
    atomic_fetch_add(&i->refs, 1);
    return i;
}

void image_unref(image *i)
{
    if (!i || atomic_fetch_sub(&i->refs, 1) != 1)
        return;
    free(i->name);
    strv_free(i->env);
    free(i->user);
    free(i->cwd);
    strv_free(i->entrypoint);
    strv_free(i->cmd);
    free(i->os);
    free(i->architecture);
    free(i->diff_ids);
    free(i);
}

image *image_new(const uint8_t digest[32], const char *name, image_config *taken, uint64_t size,
                 uint64_t created_ns)
{
    image *i = xcalloc(1, sizeof *i);

    memcpy(i->digest, digest, 32);
    i->name = xstrdup(name);
    i->env = TAKE_PTR(taken->env);
    i->user = TAKE_PTR(taken->user);
    i->cwd = TAKE_PTR(taken->cwd);
    i->entrypoint = TAKE_PTR(taken->entrypoint);
    i->cmd = TAKE_PTR(taken->cmd);
    i->os = TAKE_PTR(taken->os);
    i->architecture = TAKE_PTR(taken->architecture);
    i->diff_ids = TAKE_PTR(taken->diff_ids);
    i->nlayers = taken->ndiff_ids;
    i->size = size;
    i->created_ns = created_ns;
    i->refs = 1;
    return i;
}

/* ---- its record: an OCI config of what we use, so that one parser reads both ---- */

static json_t *image_strings(char *const *v)
{
    json_t *list = json_array();

    for (; v && *v; v++)
        json_array_append_new(list, json_string(*v));
    return list;
}

static json_t *diff_id_strings(const image *i)
{
    json_t *list = json_array();
    char text[72] = "sha256:";

    for (size_t k = 0; k < i->nlayers; k++) {
        hex_encode(i->diff_ids[k], 32, text + strlen("sha256:"));
        json_array_append_new(list, json_string(text));
    }
    return list;
}

char *image_record(const image *i)
{
    CLEANUP(json_decrefp)
    json_t *j = json_pack("{s:s, s:s, s:I, s:{s:o, s:s, s:s, s:o, s:o}, s:{s:s, s:o}}", "os", i->os,
                          "architecture", i->architecture, "size", (json_int_t)i->size, "config",
                          "Env", image_strings(i->env), "User", i->user, "WorkingDir", i->cwd,
                          "Entrypoint", image_strings(i->entrypoint), "Cmd", image_strings(i->cmd),
                          "rootfs", "type", "layers", "diff_ids", diff_id_strings(i));
    buf text = {0};

    if (!j)
        return NULL;
    json_write(&text, j);
    return buf_take(&text);
}

err *image_of_row(const image_row *r, const platform *here, image **ret_image)
{
    CLEANUP(image_config_done) image_config c = {0};
    CLEANUP(json_decrefp) json_t *j = NULL;
    size_t n = strlen(r->config);

    TRY(json_parse(r->config, n, &j));
    TRY(image_config_parse(r->config, n, here, &c));
    *ret_image = image_new(r->digest, r->name, &c, (uint64_t)json_int(j, "size", 0), r->created_ns);
    return NULL;
}

/* ---- the table ---- */

static void hex_of(const uint8_t digest[32], char ret_text[65])
{
    hex_encode(digest, 32, ret_text);
}

/* Lock held. */
static bool digest_has_name(const image_store *s, const uint8_t digest[32])
{
    map_iter it = {0};

    while (map_next(&s->by_name, &it))
        if (memcmp(((image *)it.entry->value)->digest, digest, 32) == 0)
            return true;
    return false;
}

/* Records durably that the backend has the image, or may have it soon. Called before any step that
 * creates the image or removes its last name, so that after a kill a prune finds it. While the
 * image has a name the row means nothing. Called without the lock. */
static err *image_bury(image_store *s, const uint8_t digest[32])
{
    char hex[65];

    if (engine_has_images(s))
        return NULL; /* an engine manages its own store */
    hex_of(digest, hex);
    {
        LOCK_SCOPE(&s->lock);
        if (map_get_str(&s->gone, hex))
            return NULL;
    }
    CLEANUP(freep) char *name = str_printf("%s%s", GONE_PREFIX, hex);
    image_row r = {.name = name, .config = "{}", .created_ns = now_real_ns()};
    memcpy(r.digest, digest, 32);
    TRY(store_image_put(s->o.store, &r));
    LOCK_SCOPE(&s->lock);
    map_put_str(&s->gone, hex, s);
    return NULL;
}

/* Buries the image that has this name, before its row is overwritten or removed. */
static err *bury_named(image_store *s, const char *name)
{
    CLEANUP(image_unrefp) image *old = NULL;

    {
        LOCK_SCOPE(&s->lock);
        old = map_get_str(&s->by_name, name);
        if (old)
            image_ref(old);
    }
    return old ? image_bury(s, old->digest) : NULL;
}

static void image_unbury(image_store *s, const uint8_t digest[32])
{
    char hex[65];

    hex_of(digest, hex);
    {
        LOCK_SCOPE(&s->lock);
        if (!map_take_str(&s->gone, hex))
            return;
    }
    CLEANUP(freep) char *name = str_printf("%s%s", GONE_PREFIX, hex);
    err_drop(store_image_remove(s->o.store, name), "image");
}

err *image_commit(image_store *s, image *i)
{
    CLEANUP(freep) char *record = image_record(i);

    LOCK_SCOPE(&s->commit);
    TRY(image_bury(s, i->digest));
    TRY(bury_named(s, i->name));
    FAULT_KILL("pull.buried");
    if (s->o.backend->caps.images == CAP_NATIVE)
        TRY(s->o.backend->ops->image(s->o.backend, i->digest, (const uint8_t(*)[32])i->diff_ids,
                                     i->nlayers));
    image_row r = {.name = i->name, .config = record, .created_ns = i->created_ns};
    memcpy(r.digest, i->digest, 32);
    FAULT_KILL("pull.defined");
    TRY(store_image_put(s->o.store, &r));
    FAULT_KILL("pull.recorded");
    {
        LOCK_SCOPE(&s->lock);
        image_unref(map_put_str(&s->by_name, i->name, image_ref(i)));
    }
    image_unbury(s, i->digest);
    return NULL;
}

/* Returns true for a row of an image without a name. "gone:5000/app:latest" is not one, but an
 * image of the host "gone". */
static bool is_grave(const char *name)
{
    return str_starts(name, GONE_PREFIX) &&
           strspn(name + strlen(GONE_PREFIX), "0123456789abcdef") == 64 &&
           strlen(name) == strlen(GONE_PREFIX) + 64;
}

static err *image_load(image_store *s)
{
    image_row *rows = NULL;
    size_t n = 0;

    TRY(store_image_list(s->o.store, &rows, &n));
    for (size_t k = 0; k < n; k++) {
        image *i = NULL;
        char hex[65];
        if (is_grave(rows[k].name)) {
            hex_of(rows[k].digest, hex);
            map_put_str(&s->gone, hex, s);
        } else if (derive_is_note(rows[k].name)) {
            derive_load_note(s, rows[k].digest);
        } else {
            err *e = image_of_row(&rows[k], &s->here, &i);
            if (e)
                err_drop(e, rows[k].name); /* made for another machine: not usable here */
            else
                image_unref(map_put_str(&s->by_name, i->name, i));
        }
        image_row_done(&rows[k]);
    }
    free(rows);
    return NULL;
}

/* ---- finding ---- */

/* Finds an image by a prefix of its digest, if only one matches. Lock held. Skips derived images:
 * they belong to an owner, and every tenant can see digests. */
static image *find_digest(const image_store *s, const char *prefix)
{
    size_t n = strlen(prefix);
    image *found = NULL;
    map_iter it = {0};

    if (n < HEX_MIN || n > 64 || strspn(prefix, "0123456789abcdef") != n)
        return NULL;
    while (map_next(&s->by_name, &it)) {
        image *i = it.entry->value;
        char hex[65];
        hex_of(i->digest, hex);
        if (strncmp(hex, prefix, n) != 0 || image_is_derived(i))
            continue;
        if (found && memcmp(found->digest, i->digest, 32) != 0)
            return NULL;
        found = i;
    }
    return found;
}

static image *find_any(const image_store *s, const char *reference, const char *name)
{
    bool digest = str_starts(reference, "sha256:"); /* a name never matches a digest */
    image *i = find_digest(s, digest ? reference + strlen("sha256:") : reference);

    if (str_starts(reference, IMAGE_DERIVED))
        return NULL;
    if (!i && !digest)
        i = map_get_str(&s->by_name, reference);
    if (!i && !digest && name)
        i = map_get_str(&s->by_name, name);
    return i;
}

err *image_find(image_store *s, const char *reference, image **ret_image)
{
    CLEANUP(freep) char *name = NULL;
    CLEANUP(err_freep) err *bad = image_normalise(reference, &name);

    LOCK_SCOPE(&s->lock);
    image *i = find_any(s, reference, name);
    if (i) {
        *ret_image = image_ref(i);
        return NULL;
    }
    if (bad)
        return TAKE_PTR(bad);
    return err_kind(
        err_remedy(err_new(ERR_NOT_FOUND, "image '%.200s' is not here", reference),
                   "Pull it with 'bothy image pull'; 'bothy image ls' lists what is here."),
        "image");
}

image *image_by_digest(image_store *s, const uint8_t digest[32])
{
    map_iter it = {0};

    LOCK_SCOPE(&s->lock);
    while (map_next(&s->by_name, &it)) {
        image *i = it.entry->value;
        if (memcmp(i->digest, digest, sizeof i->digest) == 0)
            return image_ref(i);
    }
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(image *const *)a)->name, (*(image *const *)b)->name);
}

void image_list(image_store *s, image ***ret_images, size_t *ret_n)
{
    map_iter it = {0};
    size_t n = 0;

    LOCK_SCOPE(&s->lock);
    image **list = xcalloc(s->by_name.count + 1, sizeof(image *));
    while (map_next(&s->by_name, &it))
        if (!image_is_derived(it.entry->value))
            list[n++] = image_ref(it.entry->value);
    qsort(list, n, sizeof(image *), by_name);
    *ret_images = list;
    *ret_n = n;
}

/* ---- forgetting ---- */

/* Returns the names that a reference means: its own, or for a digest all names of that image. */
static char **names_of(image_store *s, const char *reference, const image *found)
{
    CLEANUP(freep) char *name = NULL;
    char **names = NULL;
    map_iter it = {0};

    err_free(image_normalise(reference, &name)); /* fails for a short digest */
    LOCK_SCOPE(&s->lock);
    if (str_eq(found->name, reference) || str_eq(found->name, name)) {
        strv_push(&names, xstrdup(found->name));
        return names;
    }
    while (map_next(&s->by_name, &it))
        if (memcmp(((image *)it.entry->value)->digest, found->digest, 32) == 0)
            strv_push(&names, xstrdup(((image *)it.entry->value)->name));
    return names;
}

static err *forget_name(image_store *s, const char *name)
{
    TRY(bury_named(s, name));
    FAULT_KILL("remove.buried");
    TRY(store_image_remove(s->o.store, name));
    FAULT_KILL("remove.recorded");
    LOCK_SCOPE(&s->lock);
    image_unref(map_take_str(&s->by_name, name));
    return NULL;
}

err *image_remove(image_store *s, const char *reference)
{
    CLEANUP(image_unrefp) image *found = NULL;

    LOCK_SCOPE(&s->commit);
    TRY(image_find(s, reference, &found));
    assert(found);
    CLEANUP(strv_freep) char **names = names_of(s, reference, found);
    for (char **name = names; name && *name; name++)
        TRY(forget_name(s, *name));
    return NULL;
}

err *image_derived_remove(image_store *s, const char *id)
{
    CLEANUP(freep) char *name = str_printf(IMAGE_DERIVED "%s", id);
    CLEANUP(image_unrefp) image *there = NULL;

    LOCK_SCOPE(&s->commit);
    err *missing = image_derived(s, id, &there);
    if (!missing)
        return forget_name(s, name);
    err_free(missing);
    return NULL;
}

/* Returns the names of images that are not in use. */
static char **unused_names(image_store *s, bool (*in_use)(void *arg, const uint8_t digest[32]),
                           void *arg)
{
    char **names = NULL;
    image **list;
    size_t n;

    image_list(s, &list, &n);
    for (size_t i = 0; i < n; i++) {
        if (!in_use || !in_use(arg, list[i]->digest))
            strv_push(&names, xstrdup(list[i]->name));
        image_unref(list[i]);
    }
    free(list);
    return names;
}

static size_t gone_digests(image_store *s, uint8_t (**ret_digests)[32])
{
    map_iter it = {0};
    size_t n = 0;

    LOCK_SCOPE(&s->lock);
    uint8_t(*digests)[32] = xcalloc(s->gone.count + 1, sizeof *digests);
    while (map_next(&s->gone, &it)) {
        CLEANUP(freep) char *hex = xstrndup(it.entry->key, it.entry->len);
        if (hex_decode(hex, digests[n], 32) && !digest_has_name(s, digests[n]))
            n++;
    }
    *ret_digests = digests;
    return n;
}

/* Returns true while a pull is under way. Without one, no image will come for layers that have
 * none. A pull that begins now and finds a layer just before it is removed gets an error and
 * fetches it again. */
static bool is_pulling(image_store *s)
{
    LOCK_SCOPE(&s->lock);
    return s->pulling > 0;
}

err *image_prune(image_store *s, bool (*in_use)(void *arg, const uint8_t digest[32]), void *arg,
                 bool all, uint64_t *ret_bytes)
{
    CLEANUP(freep) uint8_t(*digests)[32] = NULL;
    CLEANUP(strv_freep) char **names = NULL;
    CLEANUP(strv_freep) char **notes = derive_notes(s);
    uint64_t bytes = 0;
    size_t n = 0;

    LOCK_SCOPE(&s->commit);
    bool unclaimed = !is_pulling(s);
    if (all)
        names = unused_names(s, in_use, arg);
    for (char **name = names; name && *name; name++)
        TRY(forget_name(s, *name));
    size_t total = gone_digests(s, &digests);
    for (size_t i = 0; i < total; i++)
        if (!in_use || !in_use(arg, digests[i]))
            memmove(digests[n++], digests[i], 32);
    if (s->o.backend->caps.images == CAP_NATIVE)
        TRY(s->o.backend->ops->prune(s->o.backend, (const uint8_t(*)[32])digests, n, unclaimed,
                                     &bytes));
    FAULT_KILL("prune.answered");
    for (size_t i = 0; i < n; i++)
        image_unbury(s, digests[i]);
    if (unclaimed)
        derive_drop_notes(s, notes);
    *ret_bytes = bytes;
    return NULL;
}

/* ---- life ---- */

err *image_store_new(const image_options *o, image_store **ret_images)
{
    image_store *s = xcalloc(1, sizeof *s);

    s->o = *o;
    s->o.staging_path = s->staging_path = xstrdup(o->staging_path);
    s->o.skopeo = s->skopeo = xstrdup(o->skopeo);
    s->o.conf_path = s->conf_path = o->conf_path ? xstrdup(o->conf_path) : NULL;
    s->here = platform_here();
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->commit, NULL);
    pthread_mutex_init(&s->logins, NULL);
    cond_init(&s->changed);
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    err *e = s->stop_fd < 0 ? err_sys(ERR_INTERNAL, errno, "cannot make an event descriptor")
                            : fs_empty(s->o.staging_dir);
    if (!e)
        e = login_clean(s);
    if (!e)
        e = registry_write_conf(s);
    if (!e)
        e = image_load(s);
    if (e) {
        image_store_free(s);
        return e;
    }
    pull_start(s);
    *ret_images = s;
    return NULL;
}

void image_store_free(image_store *s)
{
    map_iter it = {0};

    if (!s)
        return;
    pull_stop(s);
    while (map_next(&s->by_name, &it))
        image_unref(it.entry->value);
    map_done(&s->by_name);
    map_done(&s->gone);
    map_done(&s->unmade);
    map_done(&s->jobs);
    map_done(&s->fetching);
    closep(&s->stop_fd);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->commit);
    pthread_mutex_destroy(&s->logins);
    pthread_cond_destroy(&s->changed);
    free(s->staging_path);
    free(s->skopeo);
    free(s->conf_path);
    free(s);
}
