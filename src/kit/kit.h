/* bothy-kit: file verbs inside a sandbox, with the identity of its user. Declarations its files
 * share.
 *
 * One verb per run, one thread, no libc. Requests and records are defined in wire/kit.h. The kit
 * can do what the user could do with a shell and nothing else (except KIT_F_FOR); the sandbox
 * protects everyone else. Three rules protect the kit from the tenant's own files: nothing is
 * opened that could block (FIFOs, devices), a walk uses descriptors and follows no link, and only
 * the arena grows with the number of files found. */
#pragma once

#include "bare/lib.h"
#include "bare/passwd.h"
#include "wire/kit.h"

enum {
    K_AT_REMOVEDIR = 0x200,
    K_AT_SYMLINK_NOFOLLOW = 0x100,
    K_SEEK_DATA = 3,
    K_SEEK_HOLE = 4,
    K_S_IFDIR = 0040000,
    K_S_IFLNK = 0120000,
};
#define NO_CHANGE 0xffffffffu /* an owner that is not changed */
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK)

/* ---- main.c ---- */
typedef void verb_fn(const kit_request *rq);
verb_fn verb_stat, verb_read, verb_write, verb_list, verb_search, verb_mkdir, verb_move,
    verb_remove, verb_watch, verb_pack, verb_unpack, verb_dial, verb_usage;
u64 clock_ms(void);
__attribute__((noreturn)) void kit_exit(int status);

/* ---- out.c: the stream on stdout ---- */
/* Counts for END. */
extern struct tally {
    u64 entries, bytes;
    u32 flags; /* KIT_E_MORE */
} tally;
void out_record(const kit_record *r);
void out_entry(const char *name, size_t n, const struct statx *st, const char *target, size_t tn,
               u32 flags);
/* Returns room for the bytes of a DATA record, KIT_DATA_MAX of them; out_data() then sends n of
 * them. */
char *out_data_room(void);
void out_data(u64 offset, size_t n);
void out_extents(const struct kit_extent *v, u32 n);
void out_flush(void);
/* Sends PING now and then. Called in loops that may be silent for long. */
void out_alive(void);
void out_error(long r, const char *name, size_t n); /* r: -errno; this entry is left out */
__attribute__((noreturn)) void out_end(void);
/* Reports that the verb failed with r (-errno), and exits. */
__attribute__((noreturn)) void out_fail(long r);
__attribute__((noreturn)) void out_fail_at(long r, const char *name, size_t n); /* at entry */

/* ---- in.c: the stream on stdin ---- */
/* Reads the next record, valid until the next call. -EPIPE if the input ends before END, -EPROTO if
 * it is not a valid record. */
long in_record(kit_record *ret);

/* ---- file.c ---- */
/* temp_name() makes a unique name; temp_open() creates a new file with one. */
#define TEMP_LEN 32
long temp_name(char ret_name[TEMP_LEN]);
/* fresh: the final name does not exist yet; the temporary name shows that to a watch (wire/kit.h).
 */
long temp_open(int dir, u32 mode, bool fresh, char ret_name[TEMP_LEN]);
/* Removes the file. Its disk space is free when this returns, not some time later. */
void temp_drop(int dir, const char *name, int fd);
long write_full(int fd, const char *p, size_t n, u64 at);

/* ---- tree.c ---- */
long path_stat(int dir, const char *path, u32 flags, struct statx *ret);
/* Opens the directory that `path` lies in and returns its name there. parents: creates missing
 * directories. A trailing slash does not matter. */
long path_parent(const char *path, bool parents, int *ret_dir, char ret_base[256]);
static inline bool is_dir(const struct statx *st)
{
    return (st->stx_mode & K_S_IFMT) == K_S_IFDIR;
}
static inline bool is_file(const struct statx *st)
{
    return (st->stx_mode & K_S_IFMT) == K_S_IFREG;
}
static inline bool is_link(const struct statx *st)
{
    return (st->stx_mode & K_S_IFMT) == K_S_IFLNK;
}
/* Sends the ENTRY of `base` in dir, with the target if it is a link. */
void entry_of(int dir, const char *base, const struct statx *st, const char *name, size_t n);

/* ---- who.c: home, owners, what a link leads to ---- */
/* Prepares a request; called before its verb. KIT_F_FOR: becomes the user. KIT_F_HOME: makes the
 * paths absolute, from the home directory, and sends the result to bothyd in an AT record. */
void who_begin(kit_request *rq);
/* Makes a path relative to the home directory, or with "~", absolute. */
long who_path(const char *path, char ret_path[KIT_PATH_MAX + 1]);
void who_tell_at(const char *path);
/* With KIT_F_DETAIL: sends DETAIL and XATTRs of the entry sent last, `base` in dir. */
void detail_of(int dir, const char *base, const struct statx *st);
bool with_detail(void);
/* With KIT_F_FOR: makes a directory (an absolute path) where the user may not make one. -EACCES if
 * the kit may not either. */
long who_make_dir(const char *path, u32 mode);

/* ---- walk.c ---- */
#define WALK_DEPTH_MAX 200 /* each level takes a descriptor */
/* Visits everything below a directory, parents first, sorted by bytes within each directory. */
typedef struct walk {
    char name[KIT_PATH_MAX + 1]; /* of the entry being visited, relative to the root */
    size_t len;
    u32 depth;         /* levels to descend */
    const char *after; /* names up to and including this one are not visited; "" none */
    /* Called for base in dir. Returns false to stop the walk. */
    bool (*visit)(struct walk *w, int dir, const char *base, const struct statx *st);
    /* Called after the content of a directory; may be NULL. */
    bool (*leave)(struct walk *w, int dir, const char *base);
    const kit_request *rq;
    bool shallow; /* set by visit: the content of this directory is not visited */
    bool stopped;
} walk;
void walk_below(walk *w, int dir);
/* Memory that is never returned to the system; arena_release() frees all taken after a mark. NULL
 * if out of memory. */
void *arena_take(size_t n);
size_t arena_mark(void);
void arena_release(size_t mark);

/* ---- glob.c ---- */
/* Matches '*' (not '/'), '**', '?', '[a-z]' and '\', by bytes. */
bool glob_match(const char *pattern, const char *s);
