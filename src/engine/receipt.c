/* The receipt of a sandbox's walls, and its form in the store:
 *
 *     {"refill":[ns,bits],"claim":[ns,bits],"open":bits,"class":name}
 *
 * Bits are those of wire/walls.h, which never change their meaning. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "engine/internal.h"

static const char *const CLASSES[] = {BOX_CLASSES};

size_t receipt_class(const char *klass)
{
    size_t i = 0;

    while (i < ARRAY_LEN(CLASSES) && !str_eq(CLASSES[i], klass))
        i++;
    return i;
}

/* Returns the static text of a class, or NULL. */
static const char *class_named(const char *name)
{
    size_t i = receipt_class(name);

    return i < ARRAY_LEN(CLASSES) ? CLASSES[i] : NULL;
}

static uint32_t open_if(enum cap_level cap, uint32_t bit)
{
    return cap == CAP_ABSENT ? bit : 0;
}

void receipt_take(sandbox *sb, const box_walls *w, const char *klass)
{
    const backend_caps *c = &sb->engine->o.backend->caps;

    sb->receipt = (receipt){.walls = *w, .klass = class_named(klass)};
    sb->receipt.open =
        open_if(c->disk_limit, RECEIPT_OPEN_DISK) | open_if(c->swap_limit, RECEIPT_OPEN_SWAP) |
        open_if(c->memory_limit, RECEIPT_OPEN_MEMORY) | open_if(c->cpu_limit, RECEIPT_OPEN_CPU) |
        open_if(c->pids_limit, RECEIPT_OPEN_PIDS);
}

/* Prints the JSON without a JSON library, because a create waits for it. */
char *receipt_text(const receipt *r)
{
    const box_walls *w = &r->walls;

    if (!w->refill && !r->klass)
        return NULL;
    return str_printf("{\"refill\":[%" PRIu64 ",%" PRIu32 "],\"claim\":[%" PRIu64 ",%" PRIu32
                      "],\"open\":%" PRIu32 ",\"class\":\"%s\"}",
                      w->refill_ns, w->refill, w->claim_ns, w->claim, r->open,
                      str_or(r->klass, ""));
}

static void read_pair(const json_t *o, const char *name, uint64_t *ret_ns, uint32_t *ret_bits)
{
    const json_t *pair = json_object_get(o, name);

    *ret_ns = (uint64_t)json_integer_value(json_array_get(pair, 0));
    *ret_bits = (uint32_t)json_integer_value(json_array_get(pair, 1)) & WALLS_ALL;
}

void receipt_read(receipt *r, const char *text)
{
    CLEANUP(json_decrefp) json_t *o = NULL;

    *r = (receipt){0};
    if (!text)
        return;
    err *e = json_parse(text, strlen(text), &o);
    if (e) { /* a damaged receipt must not fail the sandbox */
        err_drop(e, "receipt");
        return;
    }
    read_pair(o, "refill", &r->walls.refill_ns, &r->walls.refill);
    read_pair(o, "claim", &r->walls.claim_ns, &r->walls.claim);
    r->open = (uint32_t)json_int(o, "open", 0);
    r->klass = class_named(json_string_value(json_object_get(o, "class")));
}
