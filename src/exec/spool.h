/* A spool: the file of one output stream. File offset = stream offset, always.
 *
 * The file is made at the first byte, opened on demand, shared by its writer and all readers (which
 * have positions of their own), and closed after some silence; a spool_set limits how many are
 * open. There is one writer at a time (the exec's pump or its backend's event thread) and any
 * number of readers.
 *
 * Beyond the ceiling, whole MiB behind the head are punched out. A session counts the ceiling from
 * each of its commands on (spool_set_base), so a spool may have several holes. The mark is in the
 * journal before the hole is made, and a reader checks the marks again after its pread. Bytes that
 * a follower has still to read are kept: the writer waits for it, as long as it advances. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "exec/spans.h"

struct spool;
typedef struct spool_set {
    int root;              /* not owned */
    uint64_t max;          /* ceiling of a stream */
    unsigned budget;       /* open files wanted at most; those in use may exceed it */
    bool punch;            /* the file system can make holes */
    uint64_t patience_ns;  /* how long a follower that reads nothing is waited for */
    uint64_t (*now)(void); /* monotonic, in ns */
    /* Returns the bytes that are free beyond those kept for the store and the journals; *ret_kept:
     * those. */
    uint64_t (*space)(int root, uint64_t *ret_kept);
    _Atomic int64_t allowance; /* bytes to write before the disk is checked again */
    pthread_mutex_t lock;
    struct spool *open; /* list */
    unsigned nopen;
} spool_set;
/* Initializes a set and probes its file system. */
err *spool_set_init(spool_set *s, int root, uint64_t max) ERR_MUST;
void spool_set_done(spool_set *s);
/* Closes files that were not used for idle_ns; when over the budget, all that are not in use. */
void spool_set_sweep(spool_set *s, uint64_t now_ns, uint64_t idle_ns);

/* Returns false if the rest of the disk is kept for the store and the journals. */
bool spool_set_has_space(spool_set *s);
/* Returns true if nothing is free beyond that part now, whatever the allowance was. */
bool spool_set_is_full(spool_set *s);
/* Returns true if that will be so soon: old output should be dropped. */
bool spool_set_is_short(spool_set *s);

typedef struct spool_hold { /* a follower's; the spool's lock guards it */
    uint64_t at;            /* the next byte it will read */
    uint64_t moved_ns;
    struct spool_hold *next;
} spool_hold;

/* Records that [from, to) is dropped. Returns false if it could not; then the hole is not made. */
typedef bool spool_marker(void *arg, int stream, uint64_t from, uint64_t to);

#define SPOOL_PATH_MAX 64
/* Writes the file's name, below the set's root. */
void spool_path(const char *sandbox, uint64_t exec, int stream, char ret_path[SPOOL_PATH_MAX]);
typedef struct spool {
    spool_set *set;
    spool_marker *mark;
    void *arg;
    int stream;   /* 1 out, 2 err */
    uint64_t max; /* its ceiling */
    char path[SPOOL_PATH_MAX];
    _Atomic uint64_t length;   /* grows; only the writer changes it */
    pthread_mutex_t drop_lock; /* taken before a table's: held while a mark and its hole are made */
    pthread_mutex_t lock;
    int fd;                    /* lock */
    unsigned users;            /* lock: calls that use fd now */
    uint64_t used_ns;          /* lock */
    spans holes;               /* lock: what was dropped */
    uint64_t base;             /* lock: the ceiling counts from here */
    spool_hold *holds;         /* lock */
    bool awaited;              /* lock: a follower from the first byte on is about to come */
    uint64_t wanted;           /* lock: the writer waits until all have read this far; 0: not */
    uint64_t waits_ns;         /* lock: since when it waits; 0: it does not */
    uint64_t waited_ns;        /* lock: earlier waits since a follower last advanced */
    struct spool *prev, *next; /* set->lock: among the open ones */
} spool;
void spool_init(spool *s, spool_set *set, const char *sandbox, uint64_t exec, int stream,
                spool_marker *mark, void *arg);
void spool_done(spool *s);
/* Lowers the ceiling below the set's. */
void spool_limit(spool *s, uint64_t max);
/* Adds a mark of the journal. */
void spool_set_mark(spool *s, uint64_t from, uint64_t to);
/* Finds the length after a restart: the file's, the end of the last mark, or `least`, which the
 * journal says that it had. Bytes below it that the file lacks were lost in a power loss and become
 * a hole. Returns how many of these no mark covers. */
uint64_t spool_load(spool *s, uint64_t least);
uint64_t spool_dropped(spool *s, uint64_t from, uint64_t to);
/* Counts the ceiling, and the head that stays, from base on. Of the bytes before base at most
 * another ceiling is kept, the newest. */
void spool_set_base(spool *s, uint64_t base);

enum spool_status {
    SPOOL_MORE,    /* the quantum is used up */
    SPOOL_EMPTY,   /* nothing there now */
    SPOOL_EOF,     /* no writer is left */
    SPOOL_CEILING, /* full, and holes cannot be made */
    SPOOL_NOSPACE, /* the disk is full (or fails): try later; nothing was lost */
    SPOOL_HELD,    /* full, and a follower has not read the bytes to drop yet: try later */
    SPOOL_GAP,     /* spool_write: bytes before these are missing */
};
/* Moves at most max bytes from a pipe: one step that a kill cannot split. */
enum spool_status spool_splice(spool *s, int pipe, size_t max, size_t *ret_moved);
/* Writes the bytes of [offset, offset + n) that are new. SPOOL_EMPTY: all of them are in the file
 * now. */
enum spool_status spool_write(spool *s, uint64_t offset, const void *p, size_t n, size_t *ret_new);
/* Reads as exec_read() does. */
err *spool_read(spool *s, uint64_t offset, void *p, size_t max, size_t *ret_n,
                uint64_t *ret_gap_to) ERR_MUST;
void spool_hold_add(spool *s, spool_hold *h, uint64_t at);
/* Returns true if the writer waited for this and can continue. */
bool spool_hold_move(spool *s, spool_hold *h, uint64_t at);
bool spool_hold_remove(spool *s, spool_hold *h);
/* Drops the oldest bytes of a live stream until at most `keep` are left, but none that a follower
 * has still to read. Any thread. Returns false if nothing could be dropped. */
bool spool_trim(spool *s, uint64_t keep);
/* Marks everything as dropped and removes the file. Only when there is no writer. */
bool spool_drop(spool *s);
/* Removes the file without a mark in the journal, of a stream that is not read again. */
bool spool_forget(spool *s);
