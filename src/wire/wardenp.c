#include "wire/wardenp.h"

#include <string.h>

/* Ceilings of the values in a frame; the warden decides what the node can grant. */
#define MEMORY_MAX (UINT64_C(1) << 50)
#define CPU_MAX    (1024u * 1000)
#define PIDS_MAX   (4u << 20)
#define SHM_MAX    (1u << 20)
#define ID_LEN     20
#define USAGE_MAX  65536u /* the size a newer client may state for wp_usage */

static bool id_ok(const struct wp_id *id)
{
    for (size_t i = 0; i < sizeof id->id; i++) {
        char c = id->id[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (i < ID_LEN ? !letter : c != 0)
            return false;
    }
    return true;
}

/* Copies a part of the body into a variable: a frame's buffer may have any alignment. */
#define BODY(type, name)                     \
    struct type name;                        \
    if (n < sizeof name)                     \
        return false;                        \
    memcpy(&name, body, sizeof name);        \
    body = (const char *)body + sizeof name; \
    n -= sizeof name

static bool id_body_ok(const void *body, size_t n)
{
    BODY(wp_id, id);
    return !n && id_ok(&id);
}

static bool ids_ok(const void *body, size_t n, size_t count)
{
    if (n != count * sizeof(struct wp_id))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!id_body_ok((const char *)body + i * sizeof(struct wp_id), sizeof(struct wp_id)))
            return false;
    return true;
}

static bool limits_ok(const struct wp_limits *l)
{
    return l->memory <= MEMORY_MAX && l->disk <= MEMORY_MAX && l->cpu_milli <= CPU_MAX &&
           l->pids <= PIDS_MAX && l->shm_mib <= SHM_MAX && !l->reserved;
}

/* Returns true for a path that is absolute, not the root itself, without "..", NUL-padded to the
 * end. */
static bool path_ok(const char path[WP_PATH_MAX])
{
    size_t len = strnlen(path, WP_PATH_MAX);
    bool something = false;

    if (len == WP_PATH_MAX || path[0] != '/')
        return false;
    for (size_t i = len; i < WP_PATH_MAX; i++)
        if (path[i])
            return false;
    for (size_t i = 0; i < len;) {
        size_t from = ++i;
        while (i < len && path[i] != '/')
            i++;
        if (i - from == 2 && path[from] == '.' && path[from + 1] == '.')
            return false;
        something |= i > from && !(i - from == 1 && path[from] == '.');
    }
    return something;
}

static bool tmpfs_ok(const struct wp_tmpfs *t)
{
    return path_ok(t->path) && t->size && t->size <= MEMORY_MAX && t->mode <= 07777 &&
           !(t->flags & ~WP_TMPFS_EXEC);
}

static bool claim_ok(const void *body, size_t n)
{
    BODY(wp_claim, c);
    if (!id_ok(&c.sandbox) || !limits_ok(&c.limits) || c.ntmpfs > WP_TMPFS_MAX ||
        (c.flags & ~(WP_CLAIM_READ_ONLY | WP_CLAIM_SETUID | WP_CLAIM_NETWORK_OPEN | WP_CLAIM_NAMED |
                     WP_CLAIM_OWNED)))
        return false;
    for (uint32_t i = 0; i < c.ntmpfs; i++) {
        BODY(wp_tmpfs, t);
        if (!tmpfs_ok(&t))
            return false;
    }
    if (c.flags & WP_CLAIM_NAMED) {
        BODY(wp_id, name);
        if (!id_ok(&name))
            return false;
    }
    return n == (c.flags & WP_CLAIM_OWNED ? sizeof(struct wp_owner) : 0);
}

static bool hello_ok(const void *body, size_t n)
{
    BODY(wp_hello, h);
    return !n && h.min && h.min <= h.max && !h.caps && !h.reserved;
}

static bool list_ok(const void *body, size_t n)
{
    BODY(wp_list, l);
    return !n && !l.next && !l.n && !l.reserved;
}

static bool stats_ok(const void *body, size_t n)
{
    BODY(wp_stats, s);
    return s.n <= WP_STATS_MAX && s.size <= USAGE_MAX && ids_ok(body, n, s.n);
}

static bool limits_of_ok(const void *body, size_t n)
{
    BODY(wp_limits_of, l);
    return !n && id_ok(&l.sandbox) && limits_ok(&l.limits);
}

static bool unpack_ok(const void *body, size_t n)
{
    BODY(wp_unpack, u);
    return !n && u.format <= WP_ZSTD && !u.reserved;
}

static bool image_ok(const void *body, size_t n)
{
    BODY(wp_image, i);
    return i.n && i.n <= WP_LAYERS_MAX && !i.reserved && n == i.n * sizeof(struct wp_digest);
}

static bool prune_ok(const void *body, size_t n)
{
    BODY(wp_prune, p);
    return !(p.flags & ~WP_PRUNE_UNCLAIMED) && p.n <= WP_FRAME_MAX / sizeof(struct wp_digest) &&
           n == p.n * sizeof(struct wp_digest);
}

static bool layers_ok(const void *body, size_t n)
{
    BODY(wp_layers, l);
    return !l.reserved && l.n <= WP_LAYERS_MAX && n == l.n * sizeof(struct wp_digest);
}

static bool layers_answer_ok(const void *body, size_t n)
{
    BODY(wp_layers, l);
    if (l.reserved || l.n > WP_LAYERS_MAX || n != l.n)
        return false;
    for (uint32_t i = 0; i < l.n; i++)
        if (((const uint8_t *)body)[i] > 1)
            return false;
    return true;
}

static bool watermarks_ok(const void *body, size_t n)
{
    BODY(wp_watermarks, p);
    if (n || (p.flags & ~WP_POOL_SET) || p.reserved)
        return false;
    return p.flags & WP_POOL_SET ? p.low <= p.high : !p.low && !p.high;
}

static bool walls_ok(const void *body, size_t n)
{
    BODY(wp_walls, f);
    return !n && id_ok(&f.sandbox) && f.failed && !(f.failed & ~WALLS_ALL) && !f.reserved;
}

static bool empty_ok(const void *body, size_t n)
{
    (void)body;
    return !n;
}

static bool claimed_ok(const void *body, size_t n)
{
    BODY(wp_claimed, c);
    return !(c.walls & ~WALLS_ALL) && c.hello == n;
}

static bool boxes_ok(const void *body, size_t n)
{
    BODY(wp_list, l);
    if (l.reserved || l.n > WP_FRAME_MAX / sizeof(struct wp_box) ||
        n != l.n * sizeof(struct wp_box))
        return false;
    for (uint32_t i = 0; i < l.n; i++) {
        BODY(wp_box, b);
        if (!id_ok(&b.sandbox) || (b.flags & ~(WP_BOX_DEAD | WP_BOX_FROZEN)))
            return false;
    }
    return true;
}

static uint32_t usage_size(const struct wp_stats *s)
{
    return s->size ? s->size : WP_USAGE_FIRST;
}

static bool usage_size_ok(uint32_t size)
{
    return !size || (size >= WP_USAGE_FIRST && size <= sizeof(struct wp_usage) && size % 8 == 0);
}

struct wp_usage wp_usage_at(const void *body, uint32_t i)
{
    struct wp_usage u = {0};
    struct wp_stats s;

    memcpy(&s, body, sizeof s);
    memcpy(&u, (const char *)body + sizeof s + (size_t)i * usage_size(&s), usage_size(&s));
    return u;
}

static bool usages_ok(const void *body, size_t n)
{
    const void *whole = body;
    BODY(wp_stats, s);
    if (s.n > WP_STATS_MAX || !usage_size_ok(s.size) || n != s.n * usage_size(&s))
        return false;
    for (uint32_t i = 0; i < s.n; i++) {
        struct wp_usage u = wp_usage_at(whole, i);
        if (!id_ok(&u.sandbox) || (u.flags & ~(WP_BOX_DEAD | WP_BOX_FROZEN | WP_USAGE_UNKNOWN)))
            return false;
    }
    return true;
}

static bool text_ok(const void *body, size_t n)
{
    return !n || !memchr(body, 0, n);
}

static bool release_ok(const void *body, size_t n)
{
    return n && n < WP_RELEASE_MAX && text_ok(body, n);
}

static bool hello_answer_ok(const void *body, size_t n)
{
    BODY(wp_hello, h);
    return !n && h.min && h.min == h.max && !h.reserved;
}

static bool unpacked_ok(const void *body, size_t n)
{
    BODY(wp_unpacked, u);
    return !n && u.was_there <= 1 && !u.reserved;
}

static bool pruned_ok(const void *body, size_t n)
{
    (void)body;
    return n == sizeof(struct wp_pruned);
}

static bool pool_ok(const void *body, size_t n)
{
    BODY(wp_pool, p);
    return !n && p.low <= p.high && memchr(p.last_error, 0, sizeof p.last_error);
}

static bool fate_of_ok(const void *body, size_t n)
{
    BODY(wp_fate_of, f);
    return !n && id_ok(&f.sandbox) && f.wait_ms <= WP_FATE_WAIT_MAX && !f.reserved;
}

static bool fate_ok(const void *body, size_t n)
{
    BODY(wp_fate, f);
    return !n && !(f.flags & ~(WP_FATE_DEAD | WP_FATE_STATUS));
}

static bool snapshot_ok(const void *body, size_t n)
{
    BODY(wp_snapshot, s);
    return !n && id_ok(&s.sandbox) && s.deadline_ms && s.deadline_ms <= WP_SNAPSHOT_MS_MAX;
}

static bool snapshotted_ok(const void *body, size_t n)
{
    (void)body;
    return n == sizeof(struct wp_snapshotted);
}

bool wp_error_ok(const void *body, size_t n)
{
    BODY(wp_error, e);
    return !e.reserved && n <= WP_ERROR_TEXT;
}

static const struct {
    const char *name;
    bool (*request)(const void *body, size_t n);
    bool (*answer)(const void *body, size_t n);
    size_t fds; /* descriptors that a request brings */
} TYPES[WP_TYPES] = {
    [WP_HELLO] = {"HELLO", hello_ok, hello_answer_ok, 0},
    [WP_CLAIM] = {"CLAIM", claim_ok, claimed_ok, 0},
    [WP_ATTACH] = {"ATTACH", id_body_ok, empty_ok, 0},
    [WP_DESTROY] = {"DESTROY", id_body_ok, empty_ok, 0},
    [WP_LIST] = {"LIST", list_ok, boxes_ok, 0},
    [WP_STATS] = {"STATS", stats_ok, usages_ok, 0},
    [WP_METRICS] = {"METRICS", empty_ok, text_ok, 0},
    [WP_FREEZE] = {"FREEZE", id_body_ok, empty_ok, 0},
    [WP_THAW] = {"THAW", id_body_ok, empty_ok, 0},
    [WP_LIMITS] = {"LIMITS", limits_of_ok, empty_ok, 0},
    [WP_SOCKET] = {"SOCKET", id_body_ok, empty_ok, 0},
    [WP_UNPACK] = {"UNPACK", unpack_ok, unpacked_ok, 1},
    [WP_IMAGE] = {"IMAGE", image_ok, empty_ok, 0},
    [WP_PRUNE] = {"PRUNE", prune_ok, pruned_ok, 0},
    [WP_POOL] = {"POOL", watermarks_ok, pool_ok, 0},
    [WP_LAYERS] = {"LAYERS", layers_ok, layers_answer_ok, 0},
    [WP_WALLS] = {"WALLS", walls_ok, empty_ok, 0},
    [WP_RELEASE] = {"RELEASE", empty_ok, release_ok, 0},
    [WP_FATE] = {"FATE", fate_of_ok, fate_ok, 0},
    [WP_SNAPSHOT] = {"SNAPSHOT", snapshot_ok, snapshotted_ok, 0},
};

static bool wardenp_known(uint32_t type)
{
    return type >= WP_HELLO && type < WP_TYPES;
}

static bool wardenp_fits(size_t n)
{
    return n <= WP_FRAME_MAX - sizeof(struct wp_hdr);
}

bool wp_request_ok(uint32_t type, const void *body, size_t n)
{
    return wardenp_known(type) && wardenp_fits(n) && TYPES[type].request(body, n);
}

bool wp_answer_ok(uint32_t type, const void *body, size_t n)
{
    return wardenp_known(type) && wardenp_fits(n) && TYPES[type].answer(body, n);
}

size_t wp_request_fds(uint32_t type)
{
    return wardenp_known(type) ? TYPES[type].fds : 0;
}

const char *wp_type_name(uint32_t type)
{
    return wardenp_known(type) ? TYPES[type].name : "unknown";
}
