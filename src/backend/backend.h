/* The backend contract: how the engine obtains boxes and talks to them.
 *
 * A backend provides create, attach, exec, fetch, signal, close, ack, destroy, list. Everything
 * else is built above it. Nothing here blocks on a peer: requests are queued, answers come as
 * events.
 *
 * Events of one box are delivered one at a time, in order, by a thread of the backend that holds
 * no lock the receiver could want. The receiver may call any function of the contract from inside
 * an event. The caller chooses exec ids, strictly increasing during a box's life.
 *
 * The bytes of a process come in one of two forms: descriptors (`started` brings them; the exec
 * layer splices) or frames (`frame` brings bytes with their offset; the exec layer writes them by
 * position, skips bytes it already has, and then calls `received`). */
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
    uint8_t image[32];      /* its digest; all zero where images are only names */
    const char *image_name; /* normalised as in the store; names only: as written */
    const sandbox_spec *spec;
    char **env; /* image, template, sandbox, secrets: merged, later wins; the caller wipes it */
    const char *user; /* default user, "" for 0 */
    const char *cwd;  /* default directory, "" for HOME */
    uint32_t umask;
    uint64_t queue_ms;
    uint64_t owner; /* same number for all boxes of an owner, for fair queueing; 0: none */
} box_spec;

typedef struct box_events {
    /* The box is reachable: after create, after attach, and again after each reconnect. recs are
     * the records that init remembers. */
    void (*attached)(void *arg, const struct sp_hello *hello, const struct sp_rec *recs);
    /* Answer to exec and fetch. errnum 0: the command runs (or ran); fd[] is the receiver's to
     * close, -1 where there is none (all -1 in the frames form). errnum not 0: it was refused
     * before fork. */
    void (*started)(void *arg, uint64_t exec, int errnum, const struct sp_started *st,
                    int fd[SP_FDS_MAX]);
    /* n 0: the stream ends at this offset. */
    void (*frame)(void *arg, uint64_t exec, int stream, uint64_t offset, const void *p, size_t n);
    /* The main process has ended. In the frames form all frames written before its end were
     * delivered before this. After fetch of an ended exec its frames come again, then this
     * event. */
    void (*exited)(void *arg, const struct sp_rec *rec);
    /* Frames form: the stdin bytes up to this offset have been written. Also sent after each
     * fetch. */
    void (*stdin_taken)(void *arg, uint64_t exec, uint64_t offset);
    void (*signalled)(void *arg, uint64_t exec, uint64_t cookie, int errnum);
    /* Optional. Pid 1 violated the protocol: the backend ends the box, `gone` follows. */
    void (*distrusted)(void *arg);
    /* May be NULL. Pid 1 lives but speaks a newer protocol than this release: the box is
     * unreachable until `attached`, and the receiver must not end it. */
    void (*newer)(void *arg);
    /* Pid 1 is dead. The last event of every box that was made or attached, exactly once, also
     * after destroy: the receiver may free `arg` after it. Never sent after a failed create. */
    void (*gone)(void *arg, const char *why);
} box_events;

/* Which walls (bits of wire/walls.h) were checked and hold, and when (CLOCK_REALTIME; 0: not
 * known). All zero from a backend that does not check them. A wall that fails fails the create. */
typedef struct box_walls {
    uint64_t refill_ns, claim_ns;
    uint32_t refill, claim;
} box_walls;
/* Reads the walls from the HELLO of a claimed init. */
static inline box_walls box_walls_of(const struct sp_hello *h)
{
    uint32_t tried = SP_TRIED(h->h.id) & WALLS_ALL;

    return (box_walls){.refill_ns = tried ? h->boot_real : 0,
                       .refill = SP_HELD(h->h.id) & WALLS_ALL,
                       .claim = h->flags >> SP_HELLO_WALLS & WALLS_ALL};
}

/* How a box was obtained, as the API reports it. */
#define BOX_SLOT    "slot"    /* a slot, which takes any image */
#define BOX_EXACT   "exact"   /* a container or pod kept warm with exactly this configuration */
#define BOX_COLD    "cold"    /* made from nothing when it was requested */
#define BOX_KUBELET "kubelet" /* a warm pod whose image was changed in place */
#define BOX_CLASSES BOX_SLOT, BOX_EXACT, BOX_COLD, BOX_KUBELET

typedef struct box_timing {
    uint64_t queue_ns, build_ns, swap_ns, claim_ns;
    const char *klass;  /* one of BOX_CLASSES, static; NULL: not known */
    uint64_t commit_ns; /* the store's commit, beside the others; the engine fills it */
    box_walls walls;
} box_timing;

/* Called once, from a thread of the backend. On success the receiver owns a reference to the
 * box. */
typedef void create_done(void *arg, err *failure, box *made, const box_timing *timing);

typedef struct signal_spec {
    uint64_t exec;
    uint64_t cookie; /* passed back by signalled */
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

/* Resource usage of a sandbox since its claim. 0 where the node does not count it. */
typedef struct box_usage {
    uint64_t cpu_us, cpu_throttled_us;
    uint64_t memory, memory_peak, memory_limit, oom_kills;
    uint64_t io_read, io_written;         /* bytes that reached a block device */
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
    uint32_t refills_failed;   /* in total */
    uint32_t failures;         /* in a row */
    const char *state;         /* what refills do now and why, for people; static */
    bool disk_full, read_only; /* the reason why slots cannot be made */
    const char *waits_for;     /* needed by the first queued create besides a slot; or NULL */
    uint64_t refill_ns, oldest_wait_ns, next_try_ns;
    uint64_t memory, memory_limits, memory_limits_max;
    char last_error[POOL_ERROR_MAX];
} pool_status;

enum cap_level {
    CAP_ABSENT,
    CAP_EMULATED,
    CAP_NATIVE
};
/* Features that sandboxes of this backend have; /v1/info shows each (door/rest/operations.c has the
 * table). native: as the documentation says. emulated: done in another way, with the same result
 * except for what docs/internals/backend.md lists. absent: a spec that asks for it is
 * `unsupported`. */
typedef struct backend_caps {
    const char *name;
    /* native: bothy's own layers (unpack, layers, image, prune). emulated: the engine's own store
     * (image_get). absent: images are only names; whatever starts the box fetches them. */
    enum cap_level images;
    enum cap_level user; /* absent: every command runs as the user of pid 1 */
    enum cap_level stats, freeze, socket, snapshot, disk_limit, swap_limit, read_only, tmpfs;
    /* absent: a spec that names the limit is `unsupported`; for other specs the receipt says that
     * the limit is not enforced. */
    enum cap_level memory_limit, cpu_limit, pids_limit;
    enum cap_level setuid; /* whether granting setuid has an effect */
    enum cap_level walls;  /* each is checked, the receipt tells; absent: they are the engine's */
    /* User ids inside. native: a range of the machine's ids for this sandbox alone. emulated: a
     * range that all sandboxes of the engine's user share (rootless). absent: the machine's own
     * ids. */
    enum cap_level ids;
    enum cap_level hostname; /* the hostname is the sandbox's id; emulated: only $HOSTNAME is */
    /* native: exec takes a program by descriptor, so the kit can run. Otherwise file verbs use the
     * image's own tools. */
    enum cap_level files;
    bool frames;
    /* The backend retries a destroy until the box is gone, and removes boxes that it does not know:
     * the engine compares boxes with sandboxes at its start only. */
    bool removes_strays;
} backend_caps;

#define BACKEND_RELEASE_MAX 32

/* ---- images of an engine's own store: used when caps.images is emulated ---- */

enum pull_policy {
    PULL_MISSING,
    PULL_ALWAYS,
    PULL_NEVER
};

/* Reported when the stage changes and up to four times a second. Bytes and layers are 0 until they
 * are known; those already present count as done. */
typedef struct pull_progress {
    const char *stage; /* "fetch", "unpack" (all bytes have arrived), "done" */
    unsigned layers, layers_done;
    uint64_t bytes, bytes_done; /* as the registry sends them */
} pull_progress;

/* For the registry in the image's name. A secret: the caller wipes it after the call. */
typedef struct pull_login {
    const char *username, *password;
} pull_login;

typedef struct image_request {
    /* "docker.io/library/busybox:latest", "host:5000/path@sha256:…" (never a tag and a digest), or
     * "sha256:…" with 12 to 64 hexadecimal digits (PULL_NEVER only: the container engine's id of
     * an image). */
    const char *name;
    enum pull_policy policy; /* PULL_MISSING: the container engine's local image comes first */
    const pull_login *login; /* NULL: none */
    void (*progress)(void *arg, const pull_progress *p); /* from the calling thread; may be NULL */
    void *arg;
    int cancel_fd;  /* becomes readable: give up with ERR_DRAINING; -1: never */
    uint64_t until; /* now_mono_ns(): give up with ERR_TIMEOUT */
} image_request;

/* All fields are untrusted; the receiver enforces MANIFEST_ENV_MAX and the like itself. */
typedef struct image_facts {
    uint8_t digest[32]; /* the engine's id of the image; identifies its content */
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

/* Called once, from any thread, with a TCP socket or an error. The socket is non-blocking and not
 * connected (AF_INET6 for both families, AF_INET where the kernel has no other). The receiver owns
 * it. */
typedef void socket_done(void *arg, err *failure, int fd);

/* How a box ended, as the node knows it. */
typedef struct box_fate {
    bool dead;
    bool has_status;
    int status; /* as of wait(2): how pid 1 ended */
    uint64_t oom_kills, memory_peak, memory_limit;
    /* The cause outside of bothy that ended it, in a few words, e.g. "kubelet"; "": unknown. */
    char by[32];
    bool lost; /* the machine it ran on was lost */
} box_fate;
/* Called once, from any thread. ERR_NOT_FOUND: the node has no such box. */
typedef void fate_done(void *arg, err *failure, const box_fate *fate);

typedef struct box_snapshot {
    uint64_t bytes, entries;
    uint64_t still_ns; /* how long the box was frozen */
} box_snapshot;

typedef struct backend_ops {
    /* Returns whether a sandbox may have a network now; the answer may change when the node
     * restarts. NULL: none may. */
    enum cap_level (*network)(backend *b);
    /* Returns whether a box may now have an id other than its sandbox's, and box_spec.hostname.
     * NULL: it may. */
    bool (*names)(backend *b);
    /* Makes a box, then calls done. Idempotent on the id: a box that already exists is attached. */
    void (*create)(backend *b, const box_spec *spec, const box_events *ev, void *arg,
                   create_done *done);
    /* Connects to a box after a restart of bothyd. `attached` follows when it answers, or
     * `gone`. */
    err *(*attach)(backend *b, const char *id, const box_events *ev, void *arg, box **ret_box);
    /* Starts a command. keep_fd (-1: none) is kept with the exec and returned by fetch (descriptors
     * form: the stdin file, read by position). Not consumed. `started` answers exactly once, also
     * across a lost connection, unless the box is gone. */
    err *(*exec)(box *x, uint64_t exec, const exec_spec *spec, int keep_fd);
    err *(*fetch)(box *x, uint64_t exec); /* frames form: from the `received` offsets on */
    err *(*signal)(box *x, const signal_spec *s);
    void (*close)(box *x, uint64_t exec, uint32_t mask);
    void (*ack)(box *x, uint64_t exec, uint32_t mask);
    /* Frames form only: reports bytes up to offset as stored. After a restart, call it before
     * fetch. */
    void (*received)(box *x, uint64_t exec, int stream, uint64_t offset);
    /* Frames form only: writes bytes of stdin at an offset, then eof if set. errnum EAGAIN: no room
     * for that many until the next stdin_taken; fewer may fit. */
    err *(*stdin_write)(box *x, uint64_t exec, uint64_t offset, const void *p, size_t n, bool eof);
    err *(*resize)(box *x, uint64_t exec, uint16_t rows, uint16_t cols); /* frames form only */
    /* Ends a box. Returns once the kill is sent; the rest is background work. A missing id is
     * success. */
    err *(*destroy)(backend *b, const char *id);
    /* Optional: as destroy, but does not wait. Done when the node is able to, however late. */
    void (*destroy_soon)(backend *b, const char *id);
    /* Lists all boxes. Blocking; for start-up. ret_list is malloc'ed. */
    err *(*list)(backend *b, box_status **ret_list, size_t *ret_n);
    /* Reads resource usage. Blocking, short. ERR_UNSUPPORTED where caps says absent. */
    err *(*usage)(backend *b, const char *id, box_usage *ret_usage);
    /* As usage, for many boxes in few steps (256 each): ret[i] is for ids[i]. A missing box is not
     * an error; its `known` is false. */
    err *(*usage_many)(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n, box_usage *ret);
    /* Images: unpack a layer from a blob, register an image from its layers, prune. Blocking (on a
     * thread of the caller). ERR_UNSUPPORTED where the backend manages images itself. */
    err *(*unpack)(backend *b, const uint8_t diff_id[32], int format, int blob_fd);
    /* Reports which layers are here already, and keeps them for a coming image; may be NULL. */
    err *(*layers)(backend *b, const uint8_t (*diff_ids)[32], size_t n, bool *ret_here);
    err *(*image)(backend *b, const uint8_t image[32], const uint8_t (*diff_ids)[32], size_t n);
    /* Forgets these images, then removes the layers that nothing uses. unclaimed: also recent
     * layers without an image; to be set only while no pull is under way. */
    err *(*prune)(backend *b, const uint8_t (*images)[32], size_t n, bool unclaimed,
                  uint64_t *ret_bytes);
    /* Images of the engine's own store: fetches the image as the policy says and describes it.
     * Blocking, as long as the registry takes; several threads may call it at a time.
     * ERR_NOT_FOUND (kind "image"): it is not here and must not be fetched, or the registry has
     * none. ERR_UNAVAILABLE: no engine answers. ERR_IMAGE_UNSUPPORTED: another platform. Also
     * ERR_UNAUTHENTICATED, ERR_IMAGE_PULL_FAILED, ERR_DISK_FULL, ERR_TIMEOUT, ERR_DRAINING. The
     * engine's own message is the cause. */
    err *(*image_get)(backend *b, const image_request *rq, image_facts *ret_facts);
    err *(*metrics)(backend *b, buf *out); /* may be NULL */
    /* Returns the state of the pool; may be NULL. With `set` it changes the watermarks first, until
     * the backend is freed; then the backend's own apply again. Blocking, short. */
    err *(*pool)(backend *b, const pool_marks *set, pool_status *ret_status);
    /* Writes the release of the program behind the backend, "" if unknown; may be NULL. Does not
     * wait. */
    void (*release)(backend *b, char ret_release[BACKEND_RELEASE_MAX]);
    /* Opens a socket in the sandbox's network, for its loopback; may be NULL (caps.socket). Does
     * not wait. ERR_SANDBOX_GONE if the sandbox has no network any more. */
    void (*socket)(backend *b, const char *id, socket_done *done, void *arg);
    /* Stops everything inside, init too, until thaw; may be NULL (caps.freeze). Blocking, seconds
     * at most; both may be repeated. Requests to the box queue up in order meanwhile: nothing is
     * sent to init. ERR_TIMEOUT: it could not be stopped and continues to run. A failed thaw leaves
     * it frozen. Must not be called from an event. */
    err *(*freeze)(box *x);
    err *(*thaw)(box *x);
    /* Asks how a box ended. Does not wait; may be NULL. If pid 1 is still ending, the node waits up
     * to wait_ms (1000) for it. 0: a caller waits for the answer, so a silent node fails after
     * seconds. */
    void (*fate)(backend *b, const char *id, unsigned wait_ms, fate_done *done, void *arg);
    /* Changes memory, cpu_milli, pids and disk of a box where they are not 0, and reads them back;
     * blocking, may be NULL. ERR_CONFLICT (kind "memory"): the box uses more than that. */
    err *(*limits)(backend *b, const char *id, const limits *l);
    /* Turns the files that the box has written into a new layer with this id, which is kept for an
     * image to come; may be NULL (caps.snapshot). The box is frozen meanwhile and then returns to
     * its former state. Blocking, minutes at most. ERR_SANDBOX_GONE, ERR_TIMEOUT, ERR_TOO_LARGE,
     * ERR_DISK_FULL. */
    err *(*snapshot)(backend *b, const char *id, const uint8_t layer[32],
                     box_snapshot *ret_what)ERR_MUST;
    /* Optional. This process is about to end: gives up whatever another process would wait for.
     * Waits two seconds at most. Afterwards this process neither makes nor ends boxes. */
    void (*leave)(backend *b);
    void (*box_ref)(box *x);
    void (*box_unref)(box *x);
    void (*free)(backend *b);
} backend_ops;

struct backend { /* first member of each backend's own struct */
    const backend_ops *ops;
    backend_caps caps;
};

/* Constructors, each in its own file. */
/* marks (NULL: the warden's own) are sent to the warden at each connection. */
err *backend_oci_new(const char *warden_socket, const pool_marks *marks,
                     backend **ret_backend) ERR_MUST;
/* A test backend: real processes without isolation, run by bothy-fake-node as the calling user,
 * bytes as frames. cut_every: every n-th frame cuts the connection. repeat_every: every n-th frame
 * is delivered twice. */
typedef struct fake_options {
    const char *dir; /* state and sockets */
    const char *node_program;
    const char *kit; /* the program of an exec by descriptor, by its path; NULL: none */
    unsigned cut_every, repeat_every;
} fake_options;
err *backend_fake_new(const fake_options *o, backend **ret_backend) ERR_MUST;

/* Containers of a Docker or Podman engine. Strings are copied. */
#define BACKEND_KEY_LEN 32
typedef struct docker_options {
    const char *socket;     /* the engine's unix socket */
    const char *cell;       /* in labels; containers of other cells are not touched */
    const char *init, *kit; /* static programs for the read-only volume */
    const uint8_t *key;     /* BACKEND_KEY_LEN bytes, copied; attach secrets derive from it */
    int state_dir;          /* a directory `claims` is kept in it; not consumed */
    const char *network; /* the engine's network for sandboxes with one; NULL: none may have one */
    uint32_t warm;       /* containers kept ready for each recently used recipe; 0: none */
    uint32_t max;        /* sandboxes at a time */
} docker_options;
err *backend_docker_new(const docker_options *o, backend **ret_backend) ERR_MUST;

/* Pods of a Kubernetes cluster. */
typedef struct kubernetes_options {
    const char *kubeconfig; /* file; NULL: the pod's own service account */
    const char *namespace;  /* of pods and pools; NULL: the kubeconfig's or the pod's own */
    const char *cell;
    const uint8_t *key;        /* as in docker_options */
    const char *bothy_image;   /* the image that brings bothy-init and bothy-kit into a pod */
    const char *runtime_class; /* NULL: the cluster's default */
    /* Our name in the lease, which is taken over at once from a holder of the same name: the caller
     * must be certain that such a holder is dead. NULL: a new unique name. */
    const char *identity;
    uint32_t warm; /* pods of the default pool; 0: only those of configured pools */
    uint32_t max;
    bool baseline;     /* root inside its pod; otherwise what Pod Security calls restricted */
    bool image_volume; /* the cluster mounts images as volumes: no init container */
    bool unfenced;     /* without the cell's lease; for tests */
    bool vouched;      /* something other than bothy enforces `network: none` */
} kubernetes_options;
err *backend_kubernetes_new(const kubernetes_options *o, backend **ret_backend) ERR_MUST;
