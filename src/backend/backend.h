/* The backend contract: what provides sandboxes.
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
#include <stdlib.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "core/spec.h"
#include "wire/spine.h"

typedef struct backend backend;
typedef struct box box; /* refcounted: box_ref, box_unref */

typedef struct box_spec {
    char id[SANDBOX_ID_LEN + 1];
    const char *hostname;   /* NULL: the id */
    uint8_t image[32];      /* its digest; zero where images are names only */
    const char *image_name; /* as the store knows it, normalised; names only: as it was written */
    const sandbox_spec *spec;
    char **env; /* image, template, sandbox, secrets: merged, later wins; wiped by the caller */
    const char *user; /* default user, "" for 0 */
    const char *cwd;  /* default directory, "" for HOME */
    uint32_t umask;
    uint64_t queue_ms;
    uint64_t owner; /* the same number for all boxes of an owner, for queues in turn; 0: none */
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

/* What a box was made of, as answers name it. */
#define BOX_SLOT    "slot"    /* a slot, which takes any image */
#define BOX_EXACT   "exact"   /* one that was kept warm for just this */
#define BOX_COLD    "cold"    /* nothing: it was made when it was asked for */
#define BOX_KUBELET "kubelet" /* a warm pod whose image was changed in place */
#define BOX_CLASSES BOX_SLOT, BOX_EXACT, BOX_COLD, BOX_KUBELET

typedef struct box_timing {
    uint64_t queue_ns, build_ns, swap_ns, claim_ns;
    const char *klass;  /* one of BOX_CLASSES, static; NULL: not known */
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
/* What a sandbox of this backend has; /v1/info shows each (door/rest/operations.c has the table).
 * native: as design and documentation say. emulated: in another way, with the same result but for
 * what docs/internals/backend.md says. absent: a spec that asks for it is `unsupported`. */
typedef struct backend_caps {
    const char *name;
    /* native: our layers (unpack, layers, image, prune). emulated: the engine's own store
     * (image_get). absent: names only, whoever starts the box has it or fetches it. */
    enum cap_level images;
    enum cap_level user; /* absent: every command runs as the user of pid 1 */
    enum cap_level stats, freeze, socket, snapshot, disk_limit, swap_limit, read_only, tmpfs;
    /* absent: a spec that names the limit is `unsupported`; of one that does not, the receipt says
     * that it is not held. */
    enum cap_level memory_limit, cpu_limit, pids_limit;
    enum cap_level setuid; /* whether the grant is one */
    enum cap_level walls;  /* each is tried, and the receipt tells; absent: they are the engine's */
    /* Ids inside. native: a range of the machine's that is this sandbox's alone. emulated: one that
     * all sandboxes of an engine's user share (rootless). absent: they are the machine's own. */
    enum cap_level ids;
    enum cap_level hostname; /* its hostname is the sandbox's id; emulated: only $HOSTNAME is */
    /* Whether exec takes a program by descriptor (native: the kit can go there), or files are the
     * image's own tools' business. */
    enum cap_level files;
    bool frames;
} backend_caps;

#define BACKEND_RELEASE_MAX 32

/* ---- images of an engine's own store: caps.images is emulated ---- */

enum pull_policy {
    PULL_MISSING,
    PULL_ALWAYS,
    PULL_NEVER
};

/* Comes when the stage changes and up to four times a second; bytes and layers are 0 until they
 * are known, and count those that are here already as done. */
typedef struct pull_progress {
    const char *stage; /* "fetch", "unpack" (all bytes are here), "done" */
    unsigned layers, layers_done;
    uint64_t bytes, bytes_done; /* as they come from the registry */
} pull_progress;

/* Of the registry that the name has. A secret: the caller wipes it after the call. */
typedef struct pull_login {
    const char *username, *password;
} pull_login;

typedef struct image_request {
    /* "docker.io/library/busybox:latest", "host:5000/path@sha256:…" (never a tag and a digest), or
     * "sha256:…" with 12 to 64 hexadecimal digits (policy never: the engine's id of an image). */
    const char *name;
    enum pull_policy policy; /* missing: the engine's own image of that name first */
    const pull_login *login; /* NULL: none */
    void (*progress)(void *arg, const pull_progress *p); /* from the calling thread; may be NULL */
    void *arg;
    int cancel_fd;  /* becomes readable: give up with ERR_DRAINING; -1: never */
    uint64_t until; /* now_mono_ns(): give up with ERR_TIMEOUT */
} image_request;

/* Everything is a stranger's; the receiver keeps to MANIFEST_ENV_MAX and the like itself. */
typedef struct image_facts {
    uint8_t digest[32]; /* the engine's id of it: it stands for the content */
    char **env, **entrypoint, **cmd;
    char *user, *cwd; /* NULL or "": none */
    char *os, *architecture;
    uint64_t size; /* bytes, as the engine counts them */
} image_facts;
static inline void image_facts_done(image_facts *f)
{
    strv_free(f->env);
    strv_free(f->entrypoint);
    strv_free(f->cmd);
    free(f->user);
    free(f->cwd);
    free(f->os);
    free(f->architecture);
    *f = (image_facts){0};
}

/* Called once, from any thread: a TCP socket (AF_INET6 for both families, AF_INET where the kernel
 * has no other) that does not block and is not connected, the receiver's to close; or why not. */
typedef void socket_done(void *arg, err *failure, int fd);

/* What the node knows of a box and its end. */
typedef struct box_fate {
    bool dead;
    bool has_status;
    int status; /* as of wait(2): how pid 1 ended */
    uint64_t oom_kills, memory_peak, memory_limit;
    /* Somebody outside has ended it: who, "kubelet", in a few words; "": not known to be so. */
    char by[32];
    bool lost; /* with the machine it ran on */
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
    /* Frames form only: bytes of stdin at an offset; eof after them. errnum EAGAIN: no room for so
     * many until the next stdin_taken, perhaps for fewer. */
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
    /* Images of the engine's own store: has it fetch what the policy says, and tells what it is.
     * Blocking, as long as a registry takes (several threads of the caller's at a time).
     * ERR_NOT_FOUND (kind "image"): it is not here and may not be fetched, or the registry has
     * none. ERR_UNAUTHENTICATED, ERR_IMAGE_PULL_FAILED, ERR_IMAGE_UNSUPPORTED (another platform),
     * ERR_DISK_FULL, ERR_TIMEOUT, ERR_DRAINING; ERR_UNAVAILABLE: no engine answers. The engine's
     * words are the cause. */
    err *(*image_get)(backend *b, const image_request *rq, image_facts *ret_facts);
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
    /* Does not wait; may be NULL. The node does, for up to wait_ms (1000) if pid 1 still ends. With
     * 0 a caller waits for the answer: a node that is silent is an error after seconds. */
    void (*fate)(backend *b, const char *id, unsigned wait_ms, fate_done *done, void *arg);
    /* Changes memory, cpu_milli, pids and disk of a box where they are not 0, and reads them back;
     * blocking, may be NULL. ERR_CONFLICT (kind "memory"): it uses more than that. */
    err *(*limits)(backend *b, const char *id, const limits *l);
    /* What the box has written becomes a layer of this id, which is new, and waits for its image;
     * may be NULL (caps.snapshot). The box stands still meanwhile, and then as before. Blocking,
     * minutes at most. ERR_SANDBOX_GONE, ERR_TIMEOUT, ERR_TOO_LARGE, ERR_DISK_FULL. */
    err *(*snapshot)(backend *b, const char *id, const uint8_t layer[32],
                     box_snapshot *ret_what)ERR_MUST;
    /* Optional. This process ends: what others would wait for is given back. Waits, two seconds at
     * most; nothing is made or ended by it any more. */
    void (*leave)(backend *b);
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

/* Containers of a Docker or Podman engine. Texts are copied. */
#define BACKEND_KEY_LEN 32
typedef struct docker_options {
    const char *socket;     /* the engine's unix socket */
    const char *cell;       /* label of all that is ours: other cells' containers are not touched */
    const char *init, *kit; /* static programs for the read-only volume */
    const uint8_t *key;  /* BACKEND_KEY_LEN: what boxes' attach secrets are derived from; copied */
    int state_dir;       /* where it may keep a directory `claims`; not consumed */
    const char *network; /* the engine's network for who may have one; NULL: nobody has */
    uint32_t warm;       /* containers kept ready for each recipe that was used lately; 0: none */
    uint32_t max;        /* sandboxes at a time */
} docker_options;
err *backend_docker_new(const docker_options *o, backend **ret_backend) ERR_MUST;

/* Pods of a Kubernetes cluster. */
typedef struct kubernetes_options {
    const char *kubeconfig; /* file; NULL: the pod's own service account */
    const char *namespace;  /* of pods and pools; NULL: the kubeconfig's or the pod's own */
    const char *cell;
    const uint8_t *key;        /* as of Docker */
    const char *bothy_image;   /* the image that brings bothy-init and bothy-kit into a pod */
    const char *runtime_class; /* NULL: the cluster's default */
    /* Who we are in the lease, which is taken over at once from a holder of this name: it must be
     * certain that such a one is dead. NULL: a name that nobody had. */
    const char *identity;
    uint32_t warm; /* pods of the default pool; 0: only what pools say */
    uint32_t max;
    bool baseline;     /* root inside its pod; else what Pod Security calls restricted */
    bool image_volume; /* the cluster mounts images as volumes: no init container */
    bool unfenced;     /* without the cell's lease; for tests */
    bool vouched;      /* somebody else keeps pods without a network from one */
} kubernetes_options;
err *backend_kubernetes_new(const kubernetes_options *o, backend **ret_backend) ERR_MUST;
