/* bothy-kit: file verbs inside a sandbox, with the identity of its user. What its files share.
 *
 * One verb a run, one thread, no libc. Requests and records are wire/kit.h's. Whatever the user
 * could do with a shell it can do here and nothing else (but KIT_F_FOR); what protects others is
 * the sandbox. What protects the kit from the tenant's own files: nothing is opened that could
 * block (FIFOs, devices), a walk goes by descriptors and follows no link, nothing grows with what
 * is found but the arena. */
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
#define NO_CHANGE 0xffffffffu /* an owner that stays */
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK)

/* ---- main.c ---- */
typedef void verb_fn(const kit_request *rq);
verb_fn verb_stat, verb_read, verb_write, verb_list, verb_search, verb_mkdir, verb_move,
    verb_remove, verb_watch, verb_pack, verb_unpack, verb_dial, verb_usage;
u64 clock_ms(void);
__attribute__((noreturn)) void kit_exit(int status);

/* ---- out.c: the stream on stdout ---- */
/* Counted for END. */
extern struct tally {
    u64 entries, bytes;
    u32 flags; /* KIT_E_MORE */
} tally;
void out_record(const kit_record *r);
void out_entry(const char *name, size_t n, const struct statx *st, const char *target, size_t tn,
               u32 flags);
/* Room for the bytes of a DATA record, KIT_DATA_MAX of them; then how many there are. */
char *out_data_room(void);
void out_data(u64 offset, size_t n);
void out_extents(const struct kit_extent *v, u32 n);
void out_flush(void);
/* To be called in loops that may stay silent for long: now and then says PING. */
void out_alive(void);
void out_error(long r, const char *name, size_t n); /* r: -errno; this entry is left out */
__attribute__((noreturn)) void out_end(void);
/* The verb has failed with r (-errno). */
__attribute__((noreturn)) void out_fail(long r);
__attribute__((noreturn)) void out_fail_at(long r, const char *name, size_t n); /* at this entry */

/* ---- in.c: the stream on stdin ---- */
/* The next record, which lives until the next call. The end of the input before END, and what is
 * no record, is -EPIPE and -EPROTO. */
long in_record(kit_record *ret);

/* ---- file.c ---- */
/* A name nobody else has, and a new file of such a name. */
#define TEMP_LEN 32
long temp_name(char ret_name[TEMP_LEN]);
/* fresh: it is going to be a name that is not there yet; the temporary one says so to those who
 * watch (wire/kit.h). */
long temp_open(int dir, u32 mode, bool fresh, char ret_name[TEMP_LEN]);
/* Removes it. Its room on the disk is free when this returns, not some time after. */
void temp_drop(int dir, const char *name, int fd);
long write_full(int fd, const char *p, size_t n, u64 at);

/* ---- tree.c ---- */
long path_stat(int dir, const char *path, u32 flags, struct statx *ret);
/* Opens the directory that `path` lies in and says what it is called there. parents: makes what is
 * missing. A trailing slash does not matter. */
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
/* ENTRY of what `base` in dir is, with the target of a link. */
void entry_of(int dir, const char *base, const struct statx *st, const char *name, size_t n);

/* ---- who.c: home, owners, what a link leads to ---- */
/* Before the verb begins. KIT_F_HOME: the request's paths become absolute, and AT is told. */
void who_begin(kit_request *rq);
/* One path of a person's as an absolute one, and AT. */
long who_path(const char *path, char ret_path[KIT_PATH_MAX + 1]);
void who_tell_at(const char *path);
/* With KIT_F_DETAIL: DETAIL and XATTRs of the entry that was told last, `base` in dir. */
void detail_of(int dir, const char *base, const struct statx *st);
bool with_detail(void);
/* With KIT_F_FOR: a directory (an absolute path) that the user may not make. -EACCES: nor may we.
 */
long who_make_dir(const char *path, u32 mode);

/* ---- walk.c ---- */
#define WALK_DEPTH_MAX 200 /* a descriptor each */
/* Everything below a directory, parents first, sorted by bytes within each. */
typedef struct walk {
    char name[KIT_PATH_MAX + 1]; /* of the entry being visited, relative to the root */
    size_t len;
    u32 depth;         /* levels to go down */
    const char *after; /* names up to and with this one are not visited; "" none */
    /* base in dir; false: no further. */
    bool (*visit)(struct walk *w, int dir, const char *base, const struct statx *st);
    /* After what lies in a directory; or NULL. */
    bool (*leave)(struct walk *w, int dir, const char *base);
    const kit_request *rq;
    bool shallow; /* visit sets it: what lies in this directory is not visited */
    bool stopped;
} walk;
void walk_below(walk *w, int dir);
/* Memory that is never given back to the system; released by its mark. NULL: out of memory. */
void *arena_take(size_t n);
size_t arena_mark(void);
void arena_release(size_t mark);

/* ---- glob.c ---- */
/* '*' (not '/'), '**', '?', '[a-z]', '\': on bytes. */
bool glob_match(const char *pattern, const char *s);
