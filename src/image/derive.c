/* Derived images: a layer that the backend makes on top of another image's layers. */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/str.h"
#include "image/images.h"
#include "image/manifest.h"

_Static_assert(IMAGE_LAYERS_MAX == MANIFEST_LAYERS_MAX, "a record that is written can be read");

bool image_is_derived(const image *i)
{
    return str_starts(i->name, IMAGE_DERIVED);
}

/* Counts a derivation as a pull under way. While there is one, a prune keeps layers that wait for
 * their image. */
static void derive_making(image_store *s, int change)
{
    LOCK_SCOPE(&s->lock);
    s->pulling = (unsigned)((int)s->pulling + change);
}

/* ---- notes of layers under way ---- */

#define NOTE "@making:" /* then the layer's id; no reference can begin with it */

bool derive_is_note(const char *name)
{
    return str_starts(name, NOTE);
}

void derive_load_note(image_store *s, const uint8_t layer[32])
{
    char hex[65];

    hex_encode(layer, 32, hex);
    LOCK_SCOPE(&s->lock);
    map_put_str(&s->unmade, hex, s);
}

/* Records durably that a layer will be made, before it exists: after a kill the next start knows
 * that one may be left. Layers of pulls are kept for the next pull, so a start prunes only if there
 * is a note. */
static err *derive_note(image_store *s, const uint8_t layer[32])
{
    char name[sizeof NOTE + 64] = NOTE;
    image_row r = {.name = name, .config = (char *)"{}", .created_ns = now_real_ns()};

    hex_encode(layer, 32, name + strlen(NOTE));
    memcpy(r.digest, layer, 32);
    TRY(store_image_put(s->o.store, &r));
    derive_load_note(s, layer);
    return NULL;
}

static void drop_note(image_store *s, const char *hex)
{
    CLEANUP(freep) char *name = str_printf(NOTE "%s", hex);

    {
        LOCK_SCOPE(&s->lock);
        if (!map_take_str(&s->unmade, hex))
            return;
    }
    err_drop(store_image_remove(s->o.store, name), "image");
}

static void made_it(image_store *s, const uint8_t layer[32])
{
    char hex[65];

    hex_encode(layer, 32, hex);
    drop_note(s, hex);
}

char **derive_notes(image_store *s)
{
    char **notes = NULL;
    map_iter it = {0};

    LOCK_SCOPE(&s->lock);
    while (map_next(&s->unmade, &it))
        strv_push(&notes, xstrndup(it.entry->key, it.entry->len));
    return notes;
}

void derive_drop_notes(image_store *s, char *const *notes)
{
    for (; notes && *notes; notes++)
        drop_note(s, *notes);
}

bool image_derive_was_cut(image_store *s)
{
    LOCK_SCOPE(&s->lock);
    return s->unmade.count;
}

/* ---- making one ---- */

static image *derive_over(const derivation *d, const uint8_t layer[32], uint64_t bytes)
{
    const image *base = d->base;
    image_config c = {.env = strv_copy(d->env ? d->env : base->env),
                      .user = xstrdup(d->user ? d->user : base->user),
                      .cwd = xstrdup(d->cwd ? d->cwd : base->cwd),
                      .entrypoint = strv_copy(base->entrypoint),
                      .cmd = strv_copy(base->cmd),
                      .os = xstrdup(base->os),
                      .architecture = xstrdup(base->architecture),
                      .ndiff_ids = base->nlayers + 1};
    CLEANUP(freep) char *name = str_printf(IMAGE_DERIVED "%s", d->id);
    uint8_t digest[32];

    random_bytes(digest, sizeof digest);
    c.diff_ids = xcalloc(c.ndiff_ids, sizeof *c.diff_ids);
    memcpy(c.diff_ids, base->diff_ids, base->nlayers * sizeof *c.diff_ids);
    memcpy(c.diff_ids[base->nlayers], layer, 32);
    return image_new(digest, name, &c, bytes, now_real_ns());
}

err *image_derive(image_store *s, const derivation *d, image **ret_image)
{
    CLEANUP(image_unrefp) image *made = NULL;
    uint8_t layer[32];
    uint64_t bytes = 0;

    if (d->base->nlayers + 1 > IMAGE_LAYERS_MAX)
        return err_remedy(
            err_new(ERR_SANDBOX_EXHAUSTED, "the image has %zu layers already", d->base->nlayers),
            "Build an image of fewer layers with what is in the sandbox.");
    random_bytes(layer, sizeof layer);
    derive_making(s, 1);
    err *e = derive_note(s, layer);
    FAULT_KILL("derive.noted");
    if (!e)
        e = d->make(d->arg, layer, &bytes);
    if (!e) {
        FAULT_KILL("derive.made");
        made = derive_over(d, layer, bytes);
        e = image_commit(s, made);
    }
    if (!e)
        made_it(s, layer);
    derive_making(s, -1);
    if (e)
        return e;
    *ret_image = TAKE_PTR(made);
    return NULL;
}

err *image_derived(image_store *s, const char *id, image **ret_image)
{
    CLEANUP(freep) char *name = str_printf(IMAGE_DERIVED "%s", id);

    LOCK_SCOPE(&s->lock);
    image *i = map_get_str(&s->by_name, name);
    if (!i)
        return err_kind(err_new(ERR_NOT_FOUND, "the files of snapshot %s are not here", id),
                        "snapshot");
    *ret_image = image_ref(i);
    return NULL;
}

char **image_derived_ids(image_store *s)
{
    char **ids = NULL;
    map_iter it = {0};

    LOCK_SCOPE(&s->lock);
    while (map_next(&s->by_name, &it)) {
        const image *i = it.entry->value;
        if (image_is_derived(i))
            strv_push(&ids, xstrdup(i->name + strlen(IMAGE_DERIVED)));
    }
    return ids;
}
