#include "unpack/tally.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "unpack/report.h"

#define REPORT_RESERVE 4096u /* for the counts */

static const struct count {
    const char *key;
    size_t offset;
} COUNTS[] = {
    {"entries", offsetof(tally, entries)},
    {"files", offsetof(tally, files)},
    {"dirs", offsetof(tally, dirs)},
    {"links", offsetof(tally, links)},
    {"symlinks", offsetof(tally, symlinks)},
    {"fifos", offsetof(tally, fifos)},
    {"whiteouts", offsetof(tally, whiteouts)},
    {"opaques", offsetof(tally, opaques)},
    {"devices", offsetof(tally, devices)},
    {"xattrs", offsetof(tally, xattrs)},
    {"acls", offsetof(tally, acls)},
    {"duplicates", offsetof(tally, duplicates)},
    {"aufs", offsetof(tally, aufs)},
    {"bytes", offsetof(tally, bytes)},
    {"out", offsetof(tally, out)},
};

void escape_path(buf *out, const char *path, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)path[i];
        if (c > 0x20 && c < 0x7f && c != '%')
            buf_char(out, (char)c);
        else
            buf_printf(out, "%%%02x", c);
    }
}

static err *add_path(tally *t, const char *key, const char *path, size_t n)
{
    buf_printf(&t->paths, "%s=", key);
    escape_path(&t->paths, path, n);
    buf_char(&t->paths, '\n');
    if (t->paths.len > REPORT_MAX - REPORT_RESERVE)
        return refuse("too many directories without an entry of their own, or with whiteouts");
    return NULL;
}

err *tally_implicit(tally *t, const char *path)
{
    return add_path(t, "implicit", path, strlen(path));
}

err *tally_whiteout_dir(tally *t, const char *path, size_t n)
{
    const char *last = t->last_whiteout_dir;

    if (last && strlen(last) == n && memcmp(last, path, n) == 0)
        return NULL;
    free(t->last_whiteout_dir);
    t->last_whiteout_dir = xstrndup(path, n);
    return add_path(t, "whiteout_dir", path, n);
}

void tally_write(const tally *t, const unsigned char diff_id[32], buf *out)
{
    char hex[65];

    hex_encode(diff_id, 32, hex);
    buf_printf(out, "%s\ndiff_id=%s\n", REPORT_FIRST, hex);
    for (size_t i = 0; i < ARRAY_LEN(COUNTS); i++)
        buf_printf(out, "%s=%lu\n", COUNTS[i].key,
                   (unsigned long)*(const uint64_t *)((const char *)t + COUNTS[i].offset));
    buf_printf(out, "opaque_root=%d\n", t->opaque_root);
    buf_append(out, t->paths.p, t->paths.len);
    buf_printf(out, "%s\n", REPORT_LAST);
}

void tally_done(tally *t)
{
    buf_done(&t->paths);
    free(t->last_whiteout_dir);
    *t = (tally){0};
}
