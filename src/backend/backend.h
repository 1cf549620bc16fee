/* The backend contract: what provides sandboxes (design, section 5).
 *
 * A backend gives create, attach, exec, fetch, signal, close, ack, destroy, list. Everything else
 * is built above it. Nothing here blocks on a peer: requests are queued, answers come as events.
 *
 * Events of one box are delivered one at a time, in order, by a thread of the backend that holds
 * no lock the receiver could want. The receiver may call any function of the contract from inside
 * an event. Exec ids are chosen by the caller, strictly increasing in a box's life.
 *
 * A proc's bytes come in one of two forms: descriptors (`started` brings them; the exec layer
 * splices) or frames (`frame` brings bytes with their offset; the exec layer writes them by
 * position, drops what it has, and then calls `received`). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "core/spec.h"
#include "wire/spine.h"

typedef struct backend backend;
typedef struct box box; /* refcounted: box_ref, box_unref */

typedef struct box_spec {
    char id[SANDBOX_ID_LEN + 1];
    const char *hostname; /* NULL: the id */
    uint8_t image[32];    /* config digest of an image the backend has */
    const sandbox_spec *spec;
    char **env; /* image, template, sandbox, secrets: merged, later wins; wiped by the caller */
    const char *user; /* default user, "" for 0 */
    const char *cwd;  /* default directory, "" for HOME */
    uint32_t umask;
    uint64_t queue_ms;
} box_spec;

typedef struct box_events {
    /* The box is reachable: after create, after attach, and again after a lost connection came
     * back. recs are what init remembers. */
    void (*attached)(void *arg, const struct sp_hello *hello, const struct sp_rec *recs);
    /* Answer to exec and fetch. errnum 0: it runs (or ran); fd[] is the receiver's to close, -1
     * where there is none (all -1 in the frames form). Otherwise it was refused before fork. */
    void (*started)(void *arg, uint64_t exec, int errnum, const struct sp_started *st,
                    int fd[SP_FDS_MAX]);
    /* n 0: the stream has ended at this offset. */
    void (*frame)(void *arg, uint64_t exec, int stream, uint64_t offset, const void *p, size_t n);
    /* The main process has ended. In the frames form all frames written before its end were
     * delivered before this, and after fetch of an ended exec frames and then this come again. */
    void (*exited)(void *arg, const struct sp_rec *rec);
    /* Frames form: the stdin bytes up to this offset have been written. Also after each fetch. */
    void (*stdin_taken)(void *arg, uint64_t exec, uint64_t offset);
    void (*signalled)(void *arg, uint64_t exec, uint64_t cookie, int errnum);
    /* Optional. What pid 1 says cannot be believed: the backend ends the box, `gone` follows. */
    void (*distrusted)(void *arg);
    /* May be NULL. Its pid 1 lives and speaks what this release does not know: it is out of reach
     * until `attached`, and not ours to end. */
    void (*newer)(void *arg);
    /* Pid 1 is dead. The last event of every box that was made or attached, exactly once, also
     * after destroy: the receiver may forget `arg` behind it. Never after a create that failed. */
    void (*gone)(void *arg, const char *why);
} box_events;

/* Which walls (bits of wire/walls.h) were found to hold, and when (CLOCK_REALTIME; 0: not known).
 * All zero from a backend that does not try. What does not hold fails the create. */
typedef struct box_walls {
    uint64_t refill_ns, claim_ns;
    uint32_t refill, claim;
} box_walls;
/* As the HELLO of a claimed init has them. */
static inline box_walls box_walls_of(const struct sp_hello *h)
{
    uint32_t tried = SP_TRIED(h->h.id) & WALLS_ALL;

    return (box_walls){.refill_ns = tried ? h->boot_real : 0,
                       .refill = SP_HELD(h->h.id) & WALLS_ALL,
                       .claim = h->flags >> SP_HELLO_WALLS & WALLS_ALL};
}

typedef struct box_timing {
    uint64_t queue_ns, build_ns, swap_ns, claim_ns;
    uint64_t commit_ns; /* the store's, beside the others: the engine's to fill */
    box_walls walls;
} box_timing;

/* Called once, from a thread of the backend. On success the box is the receiver's reference. */
typedef void create_done(void *arg, err *failure, box *made, const box_timing *timing);

typedef struct signal_spec {
    uint64_t exec;
    uint64_t cookie; /* given back by signalled */
    uint32_t signo, scope, pid;
    uint64_t since;
} signal_spec;

typedef struct box_status {
    char id[SANDBOX_ID_LEN + 1];
    bool dead;
    bool frozen;
    uint32_t uid_base;
    int32_t pid;
} box_status;

/* What a sandbox has used since its claim. 0 where the node does not count it. */
typedef struct box_usage {
    uint64_t cpu_us, cpu_throttled_us;
    uint64_t memory, memory_peak, memory_limit, oom_kills;
    uint64_t io_read, io_written;         /* bytes that went to a block device */
    uint64_t net_rx, net_tx, net_dropped; /* bytes; packets: the sandbox's own view */
    uint64_t disk, inodes;
    uint32_t pids;
    bool known; /* false: the node has no such sandbox, all else is 0 */
    bool dead, frozen;
} box_usage;

typedef struct pool_marks {
    uint32_t low, high;
} pool_marks;

#define POOL_ERROR_MAX 256
typedef struct pool_status {
    uint32_t low, high, max;
    uint32_t ready, making, claimed, dying, waiting;
    uint32_t refills_failed;   /* in all */
    uint32_t failures;         /* in a row */
    const char *state;         /* what refills do and why, for people; static */
    bool disk_full, read_only; /* slots cannot be made for that reason */
    const char *waits_for;     /* what the first that waits needs besides a slot; NULL: nothing */
    uint64_t refill_ns, oldest_wait_ns, next_try_ns;
    uint64_t memory, memory_limits, memory_limits_max;
    char last_error[POOL_ERROR_MAX];
} pool_status;

enum cap_level {
    CAP_ABSENT,
    CAP_EMULATED,
    CAP_NATIVE
};
typedef struct backend_caps {
    const char *name;
    enum cap_level images, user, stats, freeze, socket, snapshot, disk_limit, swap_limit, read_only,
        tmpfs;
    /* Whether exec takes a program by descriptor (native: the kit can go there), or files are the
     * image's own tools' business. */
    enum cap_level files;
    bool frames;
} backend_caps;

#define BACKEND_RELEASE_MAX 32

/* Called once, from any thread: a TCP socket (AF_INET6 for both families, AF_INET where the kernel
 * has no other) that does not block and is not connected, the receiver's to close; or why not. */
typedef void socket_done(void *arg, err *failure, int fd);

/* What the node knows of a box and its end. */
typedef struct box_fate {
    bool dead;
    bool has_status;
    int status; /* as of wait(2): how pid 1 ended */
    uint64_t oom_kills, memory_peak, memory_limit;
} box_fate;
/* Called once, from any thread. ERR_NOT_FOUND: the node has no such box. */
typedef void fate_done(void *arg, err *failure, const box_fate *fate);

typedef struct box_snapshot {
    uint64_t bytes, entries;
    uint64_t still_ns; /* how long it stood still */
} box_snapshot;

typedef struct backend_ops {
    /* Whether a sandbox may have a network, now: the node may have been started again. NULL: none.
     */
    enum cap_level (*network)(backend *b);
    /* Whether a box may have another id than its sandbox, and box_spec.hostname; now. NULL: it may.
     */
    bool (*names)(backend *b);
    /* Idempotent on the id: a box that exists already is attached. */
    void (*create)(backend *b, const box_spec *spec, const box_events *ev, void *arg,
                   create_done *done);
    /* After a restart. `attached` follows when it answers, or `gone`. */
    err *(*attach)(backend *b, const char *id, const box_events *ev, void *arg, box **ret_box);
    /* keep_fd (-1: none) is kept with the exec and handed back by fetch (descriptors form: the
     * stdin file, read by position). Not consumed. `started` answers exactly once, also across a
     * lost connection, unless the box is gone. */
    err *(*exec)(box *x, uint64_t exec, const exec_spec *spec, int keep_fd);
    err *(*fetch)(box *x, uint64_t exec); /* frames form: asks from `received` offsets */
    err *(*signal)(box *x, const signal_spec *s);
    void (*close)(box *x, uint64_t exec, uint32_t mask);
    void (*ack)(box *x, uint64_t exec, uint32_t mask);
    /* Frames form only: bytes up to offset are safe; after a restart called before fetch. */
    void (*received)(box *x, uint64_t exec, int stream, uint64_t offset);
    /* Frames form only: bytes of stdin at an offset; eof after them. */
    err *(*stdin_write)(box *x, uint64_t exec, uint64_t offset, const void *p, size_t n, bool eof);
    err *(*resize)(box *x, uint64_t exec, uint16_t rows, uint16_t cols); /* frames form only */
    /* Returns when the kill is sent; the rest is background work. A missing id is success. */
    err *(*destroy)(backend *b, const char *id);
    /* Optional: the same without waiting. It is done when the node can, however long that takes. */
    void (*destroy_soon)(backend *b, const char *id);
    /* Blocking; for start-up. ret_list is malloc'ed. */
    err *(*list)(backend *b, box_status **ret_list, size_t *ret_n);
    /* Blocking, short. ERR_UNSUPPORTED where caps says absent. */
    err *(*usage)(backend *b, const char *id, box_usage *ret_usage);
    /* The same of many in few steps (256 each): ret[i] is for ids[i]; one that is not there is not
     * an error but not `known`. */
    err *(*usage_many)(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n, box_usage *ret);
    /* Images: a layer from a blob, an image from its layers, forgetting. Blocking (a thread of the
     * caller's); ERR_UNSUPPORTED where images are the backend's own business. */
    err *(*unpack)(backend *b, const uint8_t diff_id[32], int format, int blob_fd);
    /* Which layers are here already, and kept for an image to come; may be NULL: none. */
    err *(*layers)(backend *b, const uint8_t (*diff_ids)[32], size_t n, bool *ret_here);
    err *(*image)(backend *b, const uint8_t image[32], const uint8_t (*diff_ids)[32], size_t n);
    /* unclaimed: also layers that came lately and have no image, because no pull is under way. */
    err *(*prune)(backend *b, const uint8_t (*images)[32], size_t n, bool unclaimed,
                  uint64_t *ret_bytes);
    err *(*metrics)(backend *b, buf *out); /* may be NULL */
    /* What is kept warm; may be NULL. With `set` the watermarks change first (until the backend's
     * end: they are in its hands again then). Blocking, short. */
    err *(*pool)(backend *b, const pool_marks *set, pool_status *ret_status);
    /* Writes the release of the program behind it, "" if it does not tell; may be NULL. Does
     * not wait. */
    void (*release)(backend *b, char ret_release[BACKEND_RELEASE_MAX]);
    /* A socket of the sandbox's network, for its loopback; may be NULL (caps.socket). Does not
     * wait. ERR_SANDBOX_GONE if it has none any more. */
    void (*socket)(backend *b, const char *id, socket_done *done, void *arg);
    /* Everything inside, init too, stands still when freeze returns, and goes on when thaw does;
     * may be NULL (caps.freeze). Blocking, seconds at most; either may be repeated. What is asked
     * of the box in between waits in order: nothing is sent to init. ERR_TIMEOUT: it would not
     * stand still, and goes on. A failed thaw leaves it frozen. Not from an event. */
    err *(*freeze)(box *x);
    err *(*thaw)(box *x);
    /* Does not wait; may be NULL. The node does, for up to wait_ms (1000) if pid 1 still ends. */
    void (*fate)(backend *b, const char *id, unsigned wait_ms, fate_done *done, void *arg);
    /* Changes memory, cpu_milli, pids and disk of a box where they are not 0, and reads them back;
     * blocking, may be NULL. ERR_CONFLICT (kind "memory"): it uses more than that. */
    err *(*limits)(backend *b, const char *id, const limits *l);
    /* What the box has written becomes a layer of this id, which is new, and waits for its image;
     * may be NULL (caps.snapshot). The box stands still meanwhile, and then as before. Blocking,
     * minutes at most. ERR_SANDBOX_GONE, ERR_TIMEOUT, ERR_TOO_LARGE, ERR_DISK_FULL. */
    err *(*snapshot)(backend *b, const char *id, const uint8_t layer[32],
                     box_snapshot *ret_what)ERR_MUST;
    void (*box_ref)(box *x);
    void (*box_unref)(box *x);
    void (*free)(backend *b);
} backend_ops;

struct backend { /* first member of each backend's own struct */
    const backend_ops *ops;
    backend_caps caps;
};

/* Constructors; each in its own file. */
/* marks (NULL: its own) are told to the warden at each connection. */
err *backend_oci_new(const char *warden_socket, const pool_marks *marks,
                     backend **ret_backend) ERR_MUST;
/* A test backend: real processes without walls, run by bothy-fake-node as the calling user, bytes
 * as frames. cut_every and repeat: every n-th frame cuts the connection / is delivered again. */
typedef struct fake_options {
    const char *dir; /* state and sockets */
    const char *node_program;
    const char *kit; /* what an exec by descriptor runs, by its path; NULL: there is none */
    unsigned cut_every, repeat_every;
} fake_options;
err *backend_fake_new(const fake_options *o, backend **ret_backend) ERR_MUST;
