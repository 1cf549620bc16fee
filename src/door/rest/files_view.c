#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "door/rest/files.h"

json_t *view_name(const char *p, size_t n)
{
    if (!n)
        return json_string("");
    if (utf8_valid(p, n) && !memchr(p, 0, n))
        return json_stringn_nocheck(p, n);
    return json_bytes(p, n);
}

static const char *type_name(uint32_t mode)
{
    static const struct {
        uint32_t type;
        const char *name;
    } TYPES[] = {
        {S_IFREG, "file"},    {S_IFDIR, "directory"}, {S_IFLNK, "symlink"}, {S_IFIFO, "fifo"},
        {S_IFSOCK, "socket"}, {S_IFCHR, "char"},      {S_IFBLK, "block"},
    };

    for (size_t i = 0; i < ARRAY_LEN(TYPES); i++)
        if (TYPES[i].type == (mode & S_IFMT))
            return TYPES[i].name;
    return "other";
}

/* Returns a file's time; null for times outside the range of uint64_t nanoseconds. */
static json_t *mtime_json(const struct kit_entry *e)
{
    if (e->mtime < 0 || (uint64_t)e->mtime > UINT64_MAX / NS_PER_S - 1)
        return json_null();
    uint64_t ns = (uint64_t)e->mtime * NS_PER_S + e->mtime_ns;
    return ns ? view_time(ns) : json_string("1970-01-01T00:00:00.000Z");
}

json_t *view_file(const kit_record *r, const char *name, size_t n)
{
    const struct kit_entry *e = &r->entry;
    char mode[8];
    json_t *o = json_object();

    snprintf(mode, sizeof mode, "%04o", e->mode & 07777);
    json_object_set_new(o, "name", view_name(name, n));
    json_object_set_new(o, "type", json_string(type_name(e->mode)));
    json_object_set_new(o, "mode", json_string(mode));
    json_object_set_new(o, "uid", json_integer(e->uid));
    json_object_set_new(o, "gid", json_integer(e->gid));
    json_object_set_new(o, "size", json_integer((json_int_t)e->size));
    json_object_set_new(o, "mtime", mtime_json(e));
    json_object_set_new(o, "links", json_integer(e->nlink));
    if (S_ISLNK(e->mode))
        json_object_set_new(o, "target", view_name(r->bytes, r->bytes_len));
    if (S_ISREG(e->mode)) {
        CLEANUP(freep) char *etag = file_etag(e);
        json_object_set_new(o, "etag", json_string(etag));
    }
    return o;
}

json_t *view_file_error(const kit_record *r)
{
    return json_pack("{s:o,s:s}", "name", view_name(r->name, r->name_len), "error",
                     str_or(strerrordesc_np(r->error.errnum), "unknown error"));
}
