#include "wire/kit.h"

/* Declared by the compiler: the kit has no string.h. */
#define copy __builtin_memcpy

/* ---- requests ---- */

static const char *const VERBS[KIT_VERBS] = {
    [KIT_STAT] = "stat",   [KIT_READ] = "read",     [KIT_WRITE] = "write",
    [KIT_LIST] = "list",   [KIT_SEARCH] = "search", [KIT_MKDIR] = "mkdir",
    [KIT_MOVE] = "move",   [KIT_REMOVE] = "remove", [KIT_WATCH] = "watch",
    [KIT_PACK] = "pack",   [KIT_UNPACK] = "unpack", [KIT_DIAL] = "dial",
    [KIT_USAGE] = "usage",
};

const char *kit_verb_name(enum kit_verb verb)
{
    return VERBS[verb];
}

#define NUMBERS 6

static char *put_number(char *at, uint64_t v)
{
    char digits[20], *end = digits + sizeof digits, *p = end;

    do
        *--p = (char)('0' + v % 10);
    while (v /= 10);
    while (p < end)
        *at++ = *p++;
    return at;
}

void kit_request_write(const kit_request *rq, char numbers[KIT_NUMBERS],
                       const char *argv[KIT_ARGC + 1])
{
    const uint64_t v[NUMBERS] = {rq->flags, rq->mode, rq->depth, rq->offset, rq->length, rq->max};
    char *at = numbers;

    for (int i = 0; i < NUMBERS; i++) {
        if (i)
            *at++ = ',';
        at = put_number(at, v[i]);
    }
    *at = 0;
    argv[0] = "bothy-kit";
    argv[1] = KIT_VERSION;
    argv[2] = VERBS[rq->verb];
    argv[3] = numbers;
    argv[4] = rq->path;
    argv[5] = rq->to ? rq->to : "";
    argv[6] = rq->text ? rq->text : "";
    argv[7] = NULL;
}

static bool kit_same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static const char *take_number(const char *p, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;

    if (*p < '0' || *p > '9')
        return NULL;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return NULL;
        v = v * 10 + digit;
    }
    *ret = v;
    return v <= max ? p : NULL;
}

static bool read_numbers(const char *p, uint64_t v[NUMBERS])
{
    static const uint64_t MAX[NUMBERS] = {KIT_FLAGS_ALL, UINT32_MAX, UINT32_MAX,
                                          UINT64_MAX,    UINT64_MAX, UINT64_MAX};

    for (int i = 0; i < NUMBERS; i++) {
        p = take_number(p, MAX[i], &v[i]);
        if (!p || *p != (i + 1 < NUMBERS ? ',' : 0))
            return false;
        p++;
    }
    return true;
}

bool kit_request_read(int argc, char *const *argv, kit_request *ret_request)
{
    uint64_t v[NUMBERS];
    uint32_t verb = 0;

    if (argc != KIT_ARGC || !kit_same(argv[1], KIT_VERSION) || !read_numbers(argv[3], v))
        return false;
    while (verb < KIT_VERBS && !kit_same(argv[2], VERBS[verb]))
        verb++;
    if (verb == KIT_VERBS)
        return false;
    *ret_request = (kit_request){.verb = (enum kit_verb)verb,
                                 .flags = (uint32_t)v[0],
                                 .mode = (uint32_t)v[1],
                                 .depth = (uint32_t)v[2],
                                 .offset = v[3],
                                 .length = v[4],
                                 .max = v[5],
                                 .path = argv[4],
                                 .to = argv[5],
                                 .text = argv[6]};
    return true;
}

/* ---- decoding ---- */

static bool has_nul(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!p[i])
            return true;
    return false;
}

/* Returns true if the component [p, p + n) is neither empty nor "." nor "..". */
static bool is_component(const char *p, size_t n)
{
    return n && !(n == 1 && p[0] == '.') && !(n == 2 && p[0] == '.' && p[1] == '.');
}

bool kit_name_valid(const char *name, size_t n)
{
    size_t from = 0;

    if (!n)
        return true;
    if (n > KIT_PATH_MAX || has_nul(name, n))
        return false;
    for (size_t i = 0; i <= n; i++)
        if (i == n || name[i] == '/') {
            if (!is_component(name + from, i - from))
                return false;
            from = i + 1;
        }
    return true;
}

/* Takes name and target, which follow a fixed part of `fixed` bytes. */
static bool take_names(kit_record *r, const char *p, size_t n, size_t fixed, uint16_t name,
                       uint16_t target)
{
    r->name = p + fixed;
    r->name_len = name;
    r->bytes = r->name + name;
    r->bytes_len = target;
    return n == fixed + name + target && target <= KIT_PATH_MAX && kit_name_valid(r->name, name) &&
           !has_nul(r->bytes, target);
}

static bool decode_entry(kit_record *r, const char *p, size_t n)
{
    if (n < sizeof r->entry)
        return false;
    copy(&r->entry, p, sizeof r->entry);
    if (!take_names(r, p, n, sizeof r->entry, r->entry.name_len, r->entry.target_len) ||
        r->entry.size > INT64_MAX || r->entry.mtime_ns > 999999999u || r->entry.uid == UINT32_MAX ||
        r->entry.gid == UINT32_MAX) /* -1 is not a valid id */
        return false;
    if (r->entry.flags & KIT_E_HARDLINK)
        return r->bytes_len && kit_name_valid(r->bytes, r->bytes_len);
    return true;
}

static bool decode_xattr(kit_record *r, const char *p, size_t n)
{
    if (n < 2)
        return false;
    size_t name = (unsigned char)p[0];
    r->name = p + 1;
    r->name_len = name;
    r->bytes = r->name + name;
    r->bytes_len = n - 1 - name;
    return name && name < n && r->bytes_len <= KIT_XATTR_MAX && !has_nul(r->name, name);
}

static bool decode_extents(kit_record *r, const char *p, size_t n)
{
    uint64_t at = 0;

    r->bytes = p;
    r->bytes_len = n;
    if (n % sizeof(struct kit_extent) || n / sizeof(struct kit_extent) > KIT_EXTENTS_MAX)
        return false;
    r->extents = (uint32_t)(n / sizeof(struct kit_extent));
    for (uint32_t i = 0; i < r->extents; i++) {
        struct kit_extent e = kit_extent_get(r, i);
        if (e.from < at || e.from > INT64_MAX || e.size > INT64_MAX - e.from)
            return false;
        at = e.from + e.size;
    }
    return true;
}

static bool decode_data(kit_record *r, const char *p, size_t n)
{
    if (n <= sizeof r->offset || n - sizeof r->offset > KIT_DATA_MAX)
        return false;
    copy(&r->offset, p, sizeof r->offset);
    r->bytes = p + sizeof r->offset;
    r->bytes_len = n - sizeof r->offset;
    return r->offset <= (uint64_t)INT64_MAX - KIT_DATA_MAX;
}

static bool decode_match(kit_record *r, const char *p, size_t n)
{
    if (n < sizeof r->match || n - sizeof r->match > KIT_TEXT_MAX)
        return false;
    copy(&r->match, p, sizeof r->match);
    r->bytes = p + sizeof r->match;
    r->bytes_len = n - sizeof r->match;
    return r->match.line <= INT64_MAX && r->match.offset <= INT64_MAX;
}

static bool decode_event(kit_record *r, const char *p, size_t n)
{
    if (n < sizeof r->event)
        return false;
    copy(&r->event, p, sizeof r->event);
    return r->event.change && r->event.change < KIT_CHANGES && r->event.directory <= 1 &&
           take_names(r, p, n, sizeof r->event, r->event.name_len, r->event.target_len) &&
           kit_name_valid(r->bytes, r->bytes_len);
}

static bool decode_error(kit_record *r, const char *p, size_t n)
{
    if (n < sizeof r->error || n - sizeof r->error > KIT_PATH_MAX)
        return false;
    copy(&r->error, p, sizeof r->error);
    r->name = p + sizeof r->error;
    r->name_len = n - sizeof r->error;
    return r->error.errnum > 0 && r->error.errnum < 4096 && kit_name_valid(r->name, r->name_len);
}

static bool decode_end(kit_record *r, const char *p, size_t n)
{
    if (n != sizeof r->end)
        return false;
    copy(&r->end, p, sizeof r->end);
    return r->end.entries <= INT64_MAX && r->end.bytes <= INT64_MAX;
}

static bool decode_at(kit_record *r, const char *p, size_t n)
{
    r->bytes = p;
    r->bytes_len = n;
    return n && n <= KIT_PATH_MAX && p[0] == '/' && !has_nul(p, n);
}

static bool decode_detail(kit_record *r, const char *p, size_t n)
{
    if (n < sizeof r->detail)
        return false;
    copy(&r->detail, p, sizeof r->detail);
    size_t owner = r->detail.owner_len, group = r->detail.group_len;
    p += sizeof r->detail;
    n -= sizeof r->detail;
    if (owner > KIT_OWNER_MAX || group > KIT_OWNER_MAX || owner + group > n)
        return false;
    r->name = p;
    r->name_len = owner;
    r->group = p + owner;
    r->group_len = group;
    r->bytes = r->group + group;
    r->bytes_len = n - owner - group;
    return r->bytes_len <= KIT_PATH_MAX && !has_nul(p, n) && (!r->bytes_len || *r->bytes == '/');
}

static bool decode_ping(kit_record *r, const char *p, size_t n)
{
    (void)r;
    (void)p;
    return !n;
}

static bool (*const DECODERS[KIT_TYPES])(kit_record *r, const char *p, size_t n) = {
    [KIT_ENTRY] = decode_entry, [KIT_XATTR] = decode_xattr,   [KIT_EXTENTS] = decode_extents,
    [KIT_DATA] = decode_data,   [KIT_MATCH] = decode_match,   [KIT_EVENT] = decode_event,
    [KIT_PING] = decode_ping,   [KIT_ERROR] = decode_error,   [KIT_END] = decode_end,
    [KIT_AT] = decode_at,       [KIT_DETAIL] = decode_detail,
};

struct kit_extent kit_extent_get(const kit_record *r, uint32_t i)
{
    struct kit_extent e;

    copy(&e, r->bytes + i * sizeof e, sizeof e);
    return e;
}

enum kit_verdict kit_decode(const void *p, size_t n, kit_record *ret_record, size_t *ret_used)
{
    struct kit_hdr h;

    if (n < sizeof h)
        return KIT_SHORT;
    copy(&h, p, sizeof h);
    if (!h.type || h.type >= KIT_TYPES || h.size > KIT_PAYLOAD_MAX)
        return KIT_BAD;
    if (n - sizeof h < h.size)
        return KIT_SHORT;
    *ret_record = (kit_record){.type = (enum kit_type)h.type};
    *ret_used = sizeof h + h.size;
    return DECODERS[h.type](ret_record, (const char *)p + sizeof h, h.size) ? KIT_OK : KIT_BAD;
}

/* ---- order ---- */

static bool begin_entry(kit_order *o, const kit_record *r)
{
    o->in_entry = true;
    o->has_data = o->has_detail = false;
    o->xattrs = 0;
    o->at = 0;
    o->size = r->entry.flags & KIT_E_UNSIZED    ? (uint64_t)INT64_MAX
              : r->entry.flags & KIT_E_HARDLINK ? 0
                                                : r->entry.size;
    return true;
}

static bool take_data(kit_order *o, const kit_record *r)
{
    if (r->offset < o->at || r->offset + r->bytes_len > o->size)
        return false;
    o->at = r->offset + r->bytes_len;
    o->has_data = true;
    return true;
}

bool kit_order_check(kit_order *o, const kit_record *r)
{
    if (o->ended || (o->failed && r->type != KIT_END))
        return false;
    switch (r->type) {
    case KIT_ENTRY:
        return begin_entry(o, r);
    case KIT_XATTR:
        return o->in_entry && !o->has_data && o->xattrs++ < KIT_XATTRS_MAX;
    case KIT_EXTENTS:
        return o->in_entry && !o->has_data;
    case KIT_DETAIL: {
        bool first = o->in_entry && !o->has_data && !o->has_detail && !o->xattrs;
        o->has_detail = true;
        return first;
    }
    case KIT_AT:
        o->in_entry = false;
        return true;
    case KIT_DATA:
        return o->in_entry && take_data(o, r);
    case KIT_MATCH:
        return o->in_entry;
    case KIT_ERROR:
        o->failed = r->error.flags & KIT_E_FATAL;
        return true;
    case KIT_END:
        o->ended = true;
        return true;
    default:
        return true;
    }
}

/* ---- encoding ---- */

static size_t put_fixed(const kit_record *r, char *to)
{
    struct kit_entry entry = r->entry;
    struct kit_event event = r->event;
    struct kit_detail detail = r->detail;
    unsigned char name_len = (unsigned char)r->name_len;

#define PUT(x) (copy(to, &(x), sizeof(x)), sizeof(x))
    switch (r->type) {
    case KIT_ENTRY:
        entry.name_len = (uint16_t)r->name_len;
        entry.target_len = (uint16_t)r->bytes_len;
        entry.zero = 0;
        return PUT(entry);
    case KIT_EVENT:
        event.name_len = (uint16_t)r->name_len;
        event.target_len = (uint16_t)r->bytes_len;
        event.zero = 0;
        return PUT(event);
    case KIT_DETAIL:
        detail.owner_len = (uint16_t)r->name_len;
        detail.group_len = (uint16_t)r->group_len;
        return PUT(detail);
    case KIT_XATTR:
        return PUT(name_len);
    case KIT_DATA:
        return PUT(r->offset);
    case KIT_MATCH:
        return PUT(r->match);
    case KIT_ERROR:
        return PUT(r->error);
    case KIT_END:
        return PUT(r->end);
    default:
        return 0;
    }
#undef PUT
}

static bool kit_fits(const kit_record *r)
{
    static const struct {
        uint32_t name, bytes;
    } MAX[KIT_TYPES] = {
        [KIT_ENTRY] = {KIT_PATH_MAX, KIT_PATH_MAX},
        [KIT_XATTR] = {255, KIT_XATTR_MAX},
        [KIT_DATA] = {0, KIT_DATA_MAX},
        [KIT_MATCH] = {0, KIT_TEXT_MAX},
        [KIT_EVENT] = {KIT_PATH_MAX, KIT_PATH_MAX},
        [KIT_ERROR] = {KIT_PATH_MAX, 0},
        [KIT_AT] = {0, KIT_PATH_MAX},
        [KIT_DETAIL] = {KIT_OWNER_MAX, KIT_PATH_MAX},
    };

    return r->group_len <= KIT_OWNER_MAX && r->name_len <= MAX[r->type].name &&
           r->bytes_len <= MAX[r->type].bytes;
}

size_t kit_encode(const kit_record *r, void *to)
{
    struct kit_hdr h = {.type = r->type};
    char *at = (char *)to + sizeof h;

    if (!kit_fits(r))
        return 0;
    at += put_fixed(r, at);
    if (r->name_len)
        copy(at, r->name, r->name_len);
    at += r->name_len;
    if (r->group_len)
        copy(at, r->group, r->group_len);
    at += r->group_len;
    if (r->bytes_len)
        copy(at, r->bytes, r->bytes_len);
    at += r->bytes_len;
    h.size = (uint32_t)(at - (char *)to - (ptrdiff_t)sizeof h);
    copy(to, &h, sizeof h);
    return sizeof h + h.size;
}

size_t kit_encode_extents(const struct kit_extent *v, uint32_t n, void *to)
{
    struct kit_hdr h = {.type = KIT_EXTENTS, .size = n * (uint32_t)sizeof *v};

    if (n > KIT_EXTENTS_MAX)
        return 0;
    copy(to, &h, sizeof h);
    copy((char *)to + sizeof h, v, h.size);
    return sizeof h + h.size;
}

/* ---- verbs without records ---- */

bool kit_dialled_read(const void *p, size_t n, int *ret_errnum)
{
    struct kit_dialled d;

    if (n != sizeof d)
        return false;
    copy(&d, p, sizeof d);
    if (d.magic != KIT_DIALLED_MAGIC || d.errnum < 0 || d.errnum > 4095)
        return false;
    *ret_errnum = d.errnum;
    return true;
}

bool kit_usage_read(const void *p, size_t n, struct kit_usage *ret_usage)
{
    struct kit_usage u;

    if (n != sizeof u)
        return false;
    copy(&u, p, sizeof u);
    const uint64_t all[] = {u.cpu_us,       u.cpu_throttled_us, u.memory,     u.memory_peak,
                            u.memory_limit, u.oom_kills,        u.io_read,    u.io_written,
                            u.net_rx,       u.net_tx,           u.net_dropped};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] > KIT_USAGE_MAX)
            return false;
    if (u.magic != KIT_USAGE_MAGIC)
        return false;
    *ret_usage = u;
    return true;
}
