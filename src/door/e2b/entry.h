/* A file as E2B tells it (filesystem.EntryInfo), put together of a kit's records; and what an event
 * of a watch becomes. Pure: records in, JSON out. */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "wire/kit.h"

/* Zero-initialised is none. */
typedef struct fs_entry {
    bool is;
    struct kit_entry e;
    char *name; /* relative to what was asked for */
    char *owner, *group, *real;
    uint32_t real_mode;
    json_t *metadata; /* or NULL */
} fs_entry;
/* Takes ENTRY (a new one begins), DETAIL and XATTR; others are not its business. */
void fs_entry_take(fs_entry *x, const kit_record *r);
void fs_entry_done(fs_entry *x); /* and none again */

/* As JSON. path: absolute. brief: name, type and path only, for clients that know nothing else. */
void fs_entry_write(buf *out, const fs_entry *x, const char *path, bool brief);
/* Permissions as Go's os.FileMode prints them. */
#define FS_PERMISSIONS_LEN 24
void fs_permissions(uint32_t mode, char ret_text[FS_PERMISSIONS_LEN]);
/* Attributes "user.e2b.*" of a file as {"key":"value"}; adds one, NULL grows. */
#define FS_METADATA_PREFIX "user.e2b."
void fs_metadata_add(json_t **metadata, const kit_record *xattr);
/* The last component; of "/" that itself. Free it. */
char *fs_base_name(const char *path);
char *fs_join(const char *path, const char *name, size_t n);

/* One record of a watch as {"name","type","entry"?} objects, at most two; the entry is the one that
 * came before it. What only our own writing does is not told. Returns how many. */
enum fs_told {
    FS_NOTHING,
    FS_EVENTS,
    FS_LOST /* some were not seen: nothing after it can be believed */
};
typedef struct fs_event {
    char *name;
    const char *type;
    bool has_entry;
} fs_event;
enum fs_told fs_event_of(const kit_record *r, fs_event ret_events[2], size_t *ret_n);
void fs_event_write(buf *out, const fs_event *ev, const fs_entry *x, const char *root, bool brief);
