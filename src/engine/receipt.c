/* The receipt of a sandbox's walls, and its form in the store:
 * {"refill":[ns,bits],"claim":[ns,bits], "open":bits}. Bits are those of wire/walls.h, which never
 * change their meaning. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "engine/internal.h"

void receipt_take(sandbox *sb, const box_walls *w)
{
    const backend_caps *caps = &sb->engine->o.backend->caps;

    sb->receipt = (receipt){.walls = *w};
    if (caps->disk_limit == CAP_ABSENT)
        sb->receipt.open |= RECEIPT_OPEN_DISK;
    if (caps->swap_limit == CAP_ABSENT)
        sb->receipt.open |= RECEIPT_OPEN_SWAP;
}

/* Printed, not composed: a create waits for it. */
char *receipt_text(const receipt *r)
{
    const box_walls *w = &r->walls;

    if (!w->refill)
        return NULL;
    return str_printf("{\"refill\":[%" PRIu64 ",%" PRIu32 "],\"claim\":[%" PRIu64 ",%" PRIu32
                      "],\"open\":%" PRIu32 "}",
                      w->refill_ns, w->refill, w->claim_ns, w->claim, r->open);
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
    if (e) { /* a sandbox is more than its receipt */
        err_drop(e, "receipt");
        return;
    }
    read_pair(o, "refill", &r->walls.refill_ns, &r->walls.refill);
    read_pair(o, "claim", &r->walls.claim_ns, &r->walls.claim);
    r->open = (uint32_t)json_int(o, "open", 0);
}
