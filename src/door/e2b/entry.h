/* Builds E2B's filesystem.EntryInfo from a kit's records, and its events from the records of a
 * watch. Pure: records in, JSON out. */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "wire/kit.h"

/* A file as E2B reports it. Zero-initialised it is empty. */
typedef struct fs_entry {
    bool is;
    struct kit_entry e;
    char *name; /* relative to the path asked for */
    char *owner, *group, *real;
    uint32_t real_mode;
    json_t *metadata; /* or NULL */
} fs_entry;
/* Takes ENTRY (which begins a new entry), DETAIL and XATTR records; ignores others. */
void fs_entry_take(fs_entry *x, const kit_record *r);
void fs_entry_done(fs_entry *x); /* frees, and makes it empty again */

/* Writes the entry as JSON. path is absolute. brief: only name, type and path, for clients that
 * fail on other members. */
void fs_entry_write(buf *out, const fs_entry *x, const char *path, bool brief);
/* Writes permissions as Go's os.FileMode prints them. */
#define FS_PERMISSIONS_LEN 24
void fs_permissions(uint32_t mode, char ret_text[FS_PERMISSIONS_LEN]);
/* Adds an attribute "user.e2b.KEY" of a file to the metadata as {"KEY":"value"}; ignores other
 * attributes. Makes the object if *metadata is NULL. */
#define FS_METADATA_PREFIX "user.e2b."
void fs_metadata_add(json_t **metadata, const kit_record *xattr);
/* Returns the last component; "/" for "/" itself. Free it. */
char *fs_base_name(const char *path);
char *fs_join(const char *path, const char *name, size_t n);

/* Turns one record of a watch into {"name","type","entry"?} objects, at most two; the entry is the
 * one that came before the record. Events of the temporary files the kit itself writes are left
 * out. The caller frees the names. */
enum fs_told {
    FS_NOTHING,
    FS_EVENTS,
    FS_LOST /* events were lost: nothing after this can be trusted */
};
typedef struct fs_event {
    char *name;
    const char *type;
    bool has_entry;
} fs_event;
enum fs_told fs_event_of(const kit_record *r, fs_event ret_events[2], size_t *ret_n);
void fs_event_write(buf *out, const fs_event *ev, const fs_entry *x, const char *root, bool brief);
