/* Writes the record stream on stdout. */
#include "kit/kit.h"

#define ROOM       (4 * KIT_RECORD_MAX)
#define ALIVE_MS   5000
#define ALIVE_STEP 256 /* calls between two checks of the clock */

struct tally tally;
static char room[ROOM];
static size_t used;
static u64 spoke_ms;

void out_flush(void)
{
    size_t at = 0;

    while (at < used) {
        long n = SYS(write, 1, room + at, used - at);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            kit_exit(1); /* the reader has gone */
        at += (size_t)n;
    }
    used = 0;
}

static char *out_reserve(size_t n)
{
    if (ROOM - used < n)
        out_flush();
    return room + used;
}

void out_record(const kit_record *r)
{
    used += kit_encode(r, out_reserve(KIT_RECORD_MAX));
}

char *out_data_room(void)
{
    return out_reserve(KIT_RECORD_MAX) + sizeof(struct kit_hdr) + sizeof(u64);
}

void out_data(u64 offset, size_t n)
{
    struct kit_hdr h = {.type = KIT_DATA, .size = (u32)(sizeof offset + n)};

    memcpy(room + used, &h, sizeof h);
    memcpy(room + used + sizeof h, &offset, sizeof offset);
    used += sizeof h + h.size;
    tally.bytes += n;
}

void out_extents(const struct kit_extent *v, u32 n)
{
    used += kit_encode_extents(v, n, out_reserve(KIT_RECORD_MAX));
}

void out_entry(const char *name, size_t n, const struct statx *st, const char *target, size_t tn,
               u32 flags)
{
    kit_record r = {
        .type = KIT_ENTRY, .name = name, .name_len = n, .bytes = target, .bytes_len = tn};

    r.entry = (struct kit_entry){
        .mode = st->stx_mode,
        .uid = st->stx_uid,
        .gid = st->stx_gid,
        .nlink = st->stx_nlink,
        .size = st->stx_size,
        .mtime = st->stx_mtime.tv_sec,
        .mtime_ns = st->stx_mtime.tv_nsec,
        .flags = flags,
        .dev = (u64)st->stx_dev_major << 32 | st->stx_dev_minor,
        .ino = st->stx_ino,
        .rdev_major = st->stx_rdev_major,
        .rdev_minor = st->stx_rdev_minor,
    };
    out_record(&r);
    tally.entries++;
}

void out_alive(void)
{
    static u32 calls;

    if (++calls % ALIVE_STEP)
        return;
    u64 now = clock_ms();
    if (!spoke_ms)
        spoke_ms = now;
    if (now - spoke_ms < ALIVE_MS)
        return;
    spoke_ms = now;
    out_record(&(kit_record){.type = KIT_PING});
    out_flush();
}

static void put_error(long r, u32 flags, const char *name, size_t n)
{
    kit_record rec = {.type = KIT_ERROR, .name = name, .name_len = n};

    rec.error = (struct kit_error){.errnum = (int32_t)-r, .flags = flags};
    out_record(&rec);
}

void out_error(long r, const char *name, size_t n)
{
    put_error(r, 0, name, n);
}

void out_end(void)
{
    kit_record r = {.type = KIT_END};

    r.end = (struct kit_end){.entries = tally.entries, .bytes = tally.bytes, .flags = tally.flags};
    out_record(&r);
    out_flush();
    kit_exit(0);
}

void out_fail_at(long r, const char *name, size_t n)
{
    put_error(r, KIT_E_FATAL, name, n);
    out_end();
}

void out_fail(long r)
{
    out_fail_at(r, "", 0);
}
