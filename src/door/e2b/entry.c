#include "door/e2b/entry.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/str.h"

/* ---- values ---- */

void fs_permissions(uint32_t mode, char ret_text[FS_PERMISSIONS_LEN])
{
    static const char RWX[] = "rwxrwxrwx";
    static const struct {
        uint32_t type;
        const char *letters;
    } TYPES[] = {{S_IFDIR, "d"},  {S_IFLNK, "L"},  {S_IFIFO, "p"},
                 {S_IFSOCK, "S"}, {S_IFCHR, "Dc"}, {S_IFBLK, "D"}};
    char *to = ret_text;
    const char *letters = "";

    for (size_t i = 0; i < ARRAY_LEN(TYPES); i++)
        if ((mode & S_IFMT) == TYPES[i].type)
            letters = TYPES[i].letters;
    if (*letters)
        *to++ = *letters;
    if (mode & S_ISUID)
        *to++ = 'u';
    if (mode & S_ISGID)
        *to++ = 'g';
    if (*letters && letters[1])
        *to++ = letters[1];
    if (mode & S_ISVTX)
        *to++ = 't';
    if (to == ret_text)
        *to++ = '-';
    for (int i = 0; i < 9; i++)
        *to++ = mode & (0400u >> i) ? RWX[i] : '-';
    *to = 0;
}

/* Returns the type of a file, of a link's target for a link; NULL if the link is dangling or the
 * type is another. */
static const char *type_name(uint32_t mode)
{
    return S_ISREG(mode) ? "FILE_TYPE_FILE" : S_ISDIR(mode) ? "FILE_TYPE_DIRECTORY" : NULL;
}

char *fs_base_name(const char *path)
{
    size_t n = strlen(path), from;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from && path[from - 1] != '/';)
        from--;
    return from < n ? xstrndup(path + from, n - from) : xstrdup("/");
}

char *fs_join(const char *path, const char *name, size_t n)
{
    size_t len = strlen(path);

    while (len && path[len - 1] == '/')
        len--;
    return str_printf("%.*s/%.*s", (int)len, path, (int)n, name);
}

/* Appends a time as RFC 3339. Returns false if its year cannot be written that way. */
static bool put_time(buf *out, int64_t seconds, uint32_t ns)
{
    time_t t = (time_t)seconds;
    struct tm tm;
    char text[32];

    if (!gmtime_r(&t, &tm) || tm.tm_year < 1 - 1900 || tm.tm_year > 9999 - 1900)
        return false;
    strftime(text, sizeof text, "%m-%dT%H:%M:%S", &tm);
    buf_printf(out, "\"%04d-%s", tm.tm_year + 1900, text);
    if (ns)
        buf_printf(out, ".%09u", ns);
    buf_str(out, "Z\"");
    return true;
}

/* ---- an entry ---- */

void fs_entry_done(fs_entry *x)
{
    free(x->name);
    free(x->owner);
    free(x->group);
    free(x->real);
    json_decref(x->metadata);
    *x = (fs_entry){0};
}

void fs_metadata_add(json_t **metadata, const kit_record *r)
{
    size_t prefix = strlen(FS_METADATA_PREFIX);

    if (r->name_len <= prefix || memcmp(r->name, FS_METADATA_PREFIX, prefix) != 0 ||
        !utf8_valid(r->name, r->name_len) || !utf8_valid(r->bytes, r->bytes_len) ||
        memchr(r->bytes, 0, r->bytes_len))
        return;
    if (!*metadata)
        *metadata = json_object();
    CLEANUP(freep) char *key = xstrndup(r->name + prefix, r->name_len - prefix);
    json_object_set_new_nocheck(*metadata, key, json_stringn_nocheck(r->bytes, r->bytes_len));
}

static void take_detail(fs_entry *x, const kit_record *r)
{
    x->owner = xstrndup(r->name, r->name_len);
    x->group = xstrndup(r->group, r->group_len);
    x->real = r->bytes_len ? xstrndup(r->bytes, r->bytes_len) : NULL;
    x->real_mode = r->detail.mode;
}

void fs_entry_take(fs_entry *x, const kit_record *r)
{
    if (r->type == KIT_ENTRY) {
        fs_entry_done(x);
        x->is = true;
        x->e = r->entry;
        x->name = xstrndup(r->name, r->name_len);
    }
    if (r->type == KIT_DETAIL && x->is && !x->owner)
        take_detail(x, r);
    if (r->type == KIT_XATTR && x->is)
        fs_metadata_add(&x->metadata, r);
}

static void put_text(buf *out, const char *key, const char *value)
{
    buf_printf(out, ",\"%s\":", key);
    buf_json_string(out, value, strlen(value));
}

/* Appends the owner by name, or by number if the id has no name. */
static void put_owner(buf *out, const char *key, const char *name, uint32_t id)
{
    if (name && *name)
        put_text(out, key, name);
    else
        buf_printf(out, ",\"%s\":\"%u\"", key, id);
}

static void put_rest(buf *out, const fs_entry *x, const char *path, uint32_t mode)
{
    char permissions[FS_PERMISSIONS_LEN];

    fs_permissions(x->e.mode, permissions);
    buf_printf(out, ",\"size\":\"%llu\",\"mode\":%u,\"permissions\":\"%s\"",
               (unsigned long long)x->e.size, mode & 0777, permissions);
    put_owner(out, "owner", x->owner, x->e.uid);
    put_owner(out, "group", x->group, x->e.gid);
    size_t before = out->len;
    buf_str(out, ",\"modifiedTime\":");
    if (!put_time(out, x->e.mtime, x->e.mtime_ns))
        out->len = before;
    if (S_ISLNK(x->e.mode))
        put_text(out, "symlinkTarget", x->real ? x->real : path);
    if (x->metadata) {
        buf_str(out, ",\"metadata\":");
        json_write(out, x->metadata);
    }
}

void fs_entry_write(buf *out, const fs_entry *x, const char *path, bool brief)
{
    CLEANUP(freep) char *name = fs_base_name(path);
    uint32_t mode = S_ISLNK(x->e.mode) ? x->real_mode : x->e.mode;
    const char *type = type_name(mode);

    buf_str(out, "{\"name\":");
    buf_json_string(out, name, strlen(name));
    if (type)
        put_text(out, "type", type);
    put_text(out, "path", path);
    if (!brief)
        put_rest(out, x, path, mode);
    buf_char(out, '}');
}

/* ---- events ---- */

/* Returns true for the temporary name of a file that the kit is writing. *ret_fresh: the file is
 * new. */
static bool is_temporary(const char *name, size_t n, bool *ret_fresh)
{
    size_t from = n;

    while (from && name[from - 1] != '/')
        from--;
    name += from;
    n -= from;
    if (n < strlen(KIT_TEMP) || memcmp(name, KIT_TEMP, strlen(KIT_TEMP)) != 0)
        return false;
    name += strlen(KIT_TEMP);
    n -= strlen(KIT_TEMP);
    *ret_fresh = n && *name == KIT_TEMP_FRESH;
    name += *ret_fresh;
    n -= *ret_fresh;
    if (n != KIT_TEMP_HEX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr("0123456789abcdef", name[i]))
            return false;
    return true;
}

static void entry_add(fs_event *ev, size_t *n, const char *type, const char *name, size_t len,
                      bool has_entry)
{
    ev[(*n)++] = (fs_event){
        .name = len ? xstrndup(name, len) : xstrdup("."), .type = type, .has_entry = has_entry};
}

#define CREATE "EVENT_TYPE_CREATE"
#define WRITE  "EVENT_TYPE_WRITE"
#define RENAME "EVENT_TYPE_RENAME"

static void entry_moved(const kit_record *r, fs_event *ev, size_t *n)
{
    bool fresh = false;

    if (is_temporary(r->name, r->name_len, &fresh) && r->bytes_len) {
        /* The rename that completes an upload. */
        if (fresh)
            entry_add(ev, n, CREATE, r->bytes, r->bytes_len, true);
        entry_add(ev, n, WRITE, r->bytes, r->bytes_len, true);
        return;
    }
    if (r->name_len)
        entry_add(ev, n, RENAME, r->name, r->name_len, false);
    if (r->bytes_len)
        entry_add(ev, n, CREATE, r->bytes, r->bytes_len, true);
}

enum fs_told fs_event_of(const kit_record *r, fs_event ret_events[2], size_t *ret_n)
{
    static const char *const TYPES[KIT_CHANGES] = {[KIT_CREATED] = CREATE,
                                                   [KIT_MODIFIED] = WRITE,
                                                   [KIT_DELETED] = "EVENT_TYPE_REMOVE",
                                                   [KIT_ATTRIB] = "EVENT_TYPE_CHMOD"};
    bool fresh;

    *ret_n = 0;
    if (r->type != KIT_EVENT)
        return FS_NOTHING;
    if (r->event.change == KIT_OVERFLOW)
        return FS_LOST;
    if (r->event.change == KIT_MOVED)
        entry_moved(r, ret_events, ret_n);
    else if (TYPES[r->event.change] && !is_temporary(r->name, r->name_len, &fresh))
        entry_add(ret_events, ret_n, TYPES[r->event.change], r->name, r->name_len,
                  r->event.change != KIT_DELETED);
    return *ret_n ? FS_EVENTS : FS_NOTHING;
}

void fs_event_write(buf *out, const fs_event *ev, const fs_entry *x, const char *root, bool brief)
{
    buf_str(out, "{\"name\":");
    buf_json_string(out, ev->name, strlen(ev->name));
    buf_printf(out, ",\"type\":\"%s\"", ev->type);
    if (ev->has_entry && x->is) {
        CLEANUP(freep) char *path = fs_join(root, x->name, strlen(x->name));
        buf_str(out, ",\"entry\":");
        fs_entry_write(out, x, path, brief);
    }
    buf_char(out, '}');
}
