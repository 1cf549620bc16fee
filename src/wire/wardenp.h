/* Frames between bothyd and the warden. Version 1. Normative.
 *
 * SEQPACKET, one frame a packet, at most WP_FRAME_MAX bytes, fixed layout, host byte order. A
 * request carries an id that its answer repeats; answers come in any order. The warden treats every
 * frame as hostile: ids, never paths; exact lengths; reserved fields zero.
 *
 *   request       body                         answer's body        descriptors
 *   HELLO         wp_hello                     wp_hello             -
 *   CLAIM         wp_claim + wp_tmpfs[]        wp_claimed + the     <- the spine connection
 *                                              HELLO record read
 *   ATTACH        wp_id                        -                    <- a spine connection, unread
 *   DESTROY       wp_id                        -                    -
 *   LIST          wp_list                      wp_list + wp_box[]   -
 *   STATS         wp_stats + wp_id[]           wp_stats + wp_usage[] -   (of wp_stats.size)
 *   METRICS       -                            text, Prometheus     -
 *   FREEZE, THAW  wp_id                        -                    -
 *   LIMITS        wp_limits_of                 -                    -
 *   SOCKET        wp_id                        -                    <- a TCP socket of the slot's
 *   UNPACK        wp_unpack                    wp_unpacked          -> the blob
 *   IMAGE         wp_image + wp_digest[]       -                    -   (layers bottom first)
 *   PRUNE         wp_prune + wp_digest[]       wp_pruned            -   (images to forget)
 *   POOL          wp_watermarks                wp_pool              -
 *   WALLS         wp_walls                     -                    -   (counts, destroys)
 *   RELEASE       -                            text: its release -   (WP_CAP_RELEASE)
 *   LAYERS        wp_layers + wp_digest[]      wp_layers + a byte   -   (which are here: 1)
 *                                              for each
 *   FATE          wp_fate_of                   wp_fate              -   (how pid 1 is, or ended)
 *   SNAPSHOT      wp_snapshot                  wp_snapshotted       -   (WP_CAP_SNAPSHOT; what it
 *                                                                       wrote becomes a layer)
 *
 * An error answer has hdr.err = an errno and the body wp_error + up to 512 bytes of text for
 * people. WP_EWALL says that a wall of the sandbox could not be built, whatever the system call
 * said. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "wire/walls.h"

#define WP_VERSION     1u
#define WP_VERSION_MIN 1u /* the oldest version still spoken */
#define WP_FRAME_MAX   (64u * 1024)
#define WP_EWALL       ENOTRECOVERABLE
#define WP_ERROR_TEXT  512u
#define WP_TMPFS_MAX   8u
#define WP_PATH_MAX    256u
#define WP_STATS_MAX   256u
#define WP_LAYERS_MAX  500u
#define WP_POOL_ERROR  256u
#define WP_RELEASE_MAX 32u

enum wp_type {
    WP_HELLO = 1,
    WP_CLAIM,
    WP_ATTACH,
    WP_DESTROY,
    WP_LIST,
    WP_STATS,
    WP_METRICS,
    WP_FREEZE,
    WP_THAW,
    WP_LIMITS,
    WP_SOCKET,
    WP_UNPACK,
    WP_IMAGE,
    WP_PRUNE,
    WP_POOL,
    WP_LAYERS,
    WP_WALLS,
    WP_RELEASE,
    WP_FATE,
    WP_SNAPSHOT,
    WP_TYPES
};
#define WP_ANSWER 0x80000000u /* or'ed to the type */

struct wp_hdr { /* 16 bytes */
    uint32_t type;
    int32_t err;
    uint64_t request;
};

struct wp_error {         /* the beginning of an error answer's body */
    uint32_t retry_after; /* seconds, 0: not known or of no use */
    uint32_t reserved;
};

struct wp_id { /* 24 bytes: a sandbox id, NUL-padded */
    char id[24];
};
struct wp_digest { /* sha256 of an image's config, or a layer's diff id */
    uint8_t sha256[32];
};

#define WP_CAP_CGROUP_V2  1u
#define WP_CAP_DISK_LIMIT 2u
#define WP_CAP_SWAP_LIMIT 4u
#define WP_CAP_WALLS      8u    /* the warden knows WALLS */
#define WP_CAP_USAGE      16u   /* STATS takes wp_stats.size */
#define WP_CAP_NETWORK    32u   /* knows WP_CLAIM_NETWORK_OPEN and can grant it */
#define WP_CAP_RELEASE    64u   /* knows RELEASE */
#define WP_CAP_FATE       128u  /* knows FATE */
#define WP_CAP_SNAPSHOT   256u  /* knows SNAPSHOT */
#define WP_CAP_NAMED      512u  /* knows WP_CLAIM_NAMED */
#define WP_CAP_OWNED      1024u /* knows WP_CLAIM_OWNED */
struct wp_hello {               /* request: min, max; answer: version in both, caps */
    uint32_t min, max;
    uint32_t caps;
    uint32_t reserved;
};

struct wp_limits {      /* 0: the default of the warden's configuration */
    uint64_t memory;    /* bytes, swap included */
    uint64_t disk;      /* bytes; ENOTSUP when not 0 and the node has no quotas */
    uint32_t cpu_milli; /* thousandths of a core */
    uint32_t pids;
    uint32_t shm_mib;
    uint32_t reserved;
};
struct wp_tmpfs {
    char path[WP_PATH_MAX]; /* absolute inside the sandbox, resolved there */
    uint64_t size;
    uint32_t mode;
    uint32_t flags; /* WP_TMPFS_EXEC */
};
#define WP_TMPFS_EXEC 1u

struct wp_claim {
    struct wp_id sandbox;
    struct wp_digest image;
    struct wp_limits limits;
    uint64_t deadline_ms; /* how long it may wait for a slot, from the receipt of the frame */
    uint32_t flags;       /* WP_CLAIM_* */
    uint32_t ntmpfs;
};
#define WP_CLAIM_READ_ONLY 1u /* root file system read-only */
#define WP_CLAIM_SETUID    2u /* set-uid programs allowed: no nosuid on the root */
/* Grants a network; without the flag there is none. Grants with a list of destinations will have a
 * frame of their own. */
#define WP_CLAIM_NETWORK_OPEN 4u
/* After the tmpfs mounts a wp_id follows: the host name, if it is not the slot's own id. A sandbox
 * that was reset has a slot with another id, but keeps its name. */
#define WP_CLAIM_NAMED 8u
/* At the end a wp_owner follows. Each owner's claims wait in a queue of their own. */
#define WP_CLAIM_OWNED 16u
struct wp_owner {
    uint64_t number; /* opaque; the same for all claims of an owner while bothyd runs */
};
struct wp_claimed {
    uint32_t slot; /* number: ids of the slot begin at uid_base */
    uint32_t uid_base;
    uint32_t hello; /* bytes of the HELLO record that follow */
    uint32_t walls; /* bits of walls.h that the warden tried after the claim; all held */
    uint64_t queue_ns, build_ns, swap_ns; /* how long each step took */
};

#define WP_LIST_CLAIMED 1u
struct wp_list { /* request: from; answer: n boxes follow, next is 0 at the end */
    uint32_t from, next;
    uint32_t n, reserved;
};
struct wp_box {
    struct wp_id sandbox;
    uint32_t slot, uid_base;
    uint32_t pid;   /* of init on the host */
    uint32_t flags; /* WP_BOX_* */
};
#define WP_BOX_DEAD   1u /* pid 1 has ended */
#define WP_BOX_FROZEN 2u

/* wp_usage grows at its end. The request's size is the size of wp_usage that the client knows; the
 * answer's is the distance between two elements, never more than requested. 0 in either means
 * WP_USAGE_FIRST. */
struct wp_stats {
    uint32_t n, size;
};
struct wp_usage {
    struct wp_id sandbox;
    uint64_t cpu_us, memory, memory_peak, memory_limit, oom_kills;
    uint32_t pids, flags; /* WP_BOX_*; WP_USAGE_UNKNOWN */
    /* From here on a value is 0 if the node does not count it. */
    uint64_t cpu_throttled_us;
    uint64_t io_read, io_written;         /* bytes that went to a block device */
    uint64_t net_rx, net_tx, net_dropped; /* bytes; packets: as the sandbox sees them */
    uint64_t disk, inodes;                /* of its upper layer, where quotas count them */
};
#define WP_USAGE_FIRST   72u /* bytes: up to flags */
#define WP_USAGE_UNKNOWN 0x80000000u

struct wp_limits_of {
    struct wp_id sandbox;
    struct wp_limits limits;
};

struct wp_walls { /* checks that init found failed after the claim; the slot is destroyed */
    struct wp_id sandbox;
    uint32_t failed; /* bits of walls.h, not 0 */
    uint32_t reserved;
};

#define WP_FATE_WAIT_MAX 1000u
struct wp_fate_of {
    struct wp_id sandbox;
    uint32_t wait_ms; /* wait for pid 1 to be dead: its connection breaks a moment before */
    uint32_t reserved;
};
struct wp_fate {
    uint64_t oom_kills, memory_peak, memory_limit;
    int32_t status; /* as of wait(2), with WP_FATE_STATUS */
    uint32_t flags;
};
#define WP_FATE_DEAD   1u
#define WP_FATE_STATUS 2u /* status is known; of a reaped process only from Linux 6.15 on */

/* The sandbox is frozen during the copy and thawed afterwards, unless it was frozen before. The
 * client makes up the layer's id: EEXIST if it is taken. The layer waits for its IMAGE like an
 * unpacked one; as long as the connection lives, WP_PRUNE_UNCLAIMED does not remove it. EBUSY: a
 * copy of the sandbox is under way; ESRCH: it has ended; EAGAIN: it could not be frozen. */
struct wp_snapshot {
    struct wp_id sandbox;
    struct wp_digest layer;
    uint64_t deadline_ms; /* time allowed, from the receipt of the frame */
};
#define WP_SNAPSHOT_MS_MAX 3600000u
struct wp_snapshotted {
    uint64_t bytes, entries;
    uint64_t still_ns; /* how long it was frozen for the copy; 0: it was frozen before */
};

enum wp_format {
    WP_PLAIN = 0,
    WP_GZIP = 1,
    WP_ZSTD = 2
};
struct wp_unpack {
    struct wp_digest diff_id;
    uint32_t format;
    uint32_t reserved;
};
struct wp_unpacked {
    uint64_t bytes, entries;
    uint32_t was_there; /* 1: the layer was here already */
    uint32_t reserved;
};
struct wp_image {
    struct wp_digest image;
    uint32_t n, reserved;
};
struct wp_layers { /* diff ids; layers that are here are kept for an hour, unless told otherwise */
    uint32_t n, reserved;
};
struct wp_prune { /* images to forget; then every layer that no image and no slot uses is removed */
    uint32_t n;
    uint32_t flags; /* WP_PRUNE_* */
};
#define WP_PRUNE_UNCLAIMED 1u /* also recent layers that wait for their image */
struct wp_pruned {
    uint64_t layers, bytes;
};
struct wp_watermarks { /* low <= high; both 0 without WP_POOL_SET */
    uint32_t low, high;
    uint32_t flags;
    uint32_t reserved;
};
#define WP_POOL_SET 1u
struct wp_pool {
    uint32_t low, high, max;
    uint32_t ready, making, claimed, dying, waiting;
    uint32_t refills_failed; /* since the warden's start */
    uint32_t failures;       /* in a row, now */
    uint32_t why;            /* enum pool_why: state of the refills */
    uint32_t held_by;        /* enum admit_verdict: why the first claim in the queue waits */
    uint64_t refill_ns;      /* measured time to make one slot; 0: not known yet */
    uint64_t oldest_wait_ns;
    uint64_t next_try_ns; /* until the next refill after a failed one */
    uint64_t memory, memory_limits, memory_limits_max; /* the machine's; slots' sum; its ceiling */
    char last_error[WP_POOL_ERROR]; /* of a refill or a wall; "" if none failed */
};

_Static_assert(sizeof(struct wp_hdr) == 16, "layout");
_Static_assert(sizeof(struct wp_limits) == 32, "layout");
_Static_assert(sizeof(struct wp_tmpfs) == 272, "layout");
_Static_assert(sizeof(struct wp_claim) == 104, "layout");
_Static_assert(sizeof(struct wp_claimed) == 40, "layout");
_Static_assert(sizeof(struct wp_box) == 40, "layout");
_Static_assert(sizeof(struct wp_usage) == 136, "layout");
_Static_assert(offsetof(struct wp_usage, cpu_throttled_us) == WP_USAGE_FIRST, "layout");
_Static_assert(sizeof(struct wp_stats) + WP_STATS_MAX * sizeof(struct wp_usage) +
                       sizeof(struct wp_hdr) <=
                   WP_FRAME_MAX,
               "a whole answer is one frame");
_Static_assert(sizeof(struct wp_error) == 8, "layout");
_Static_assert(sizeof(struct wp_fate) == 32, "layout");
_Static_assert(sizeof(struct wp_snapshot) == 64, "layout");
_Static_assert(sizeof(struct wp_snapshotted) == 24, "layout");
_Static_assert(sizeof(struct wp_pool) == 352, "layout");

/* Checks of a received frame, without I/O (wardenp.c). body_n is the length after wp_hdr. */
#include <stdbool.h>

/* Returns true if a request of this type may have this body: exact lengths, counts in range,
 * reserved fields zero, strings terminated, ids of the right alphabet, paths absolute without
 * "..". */
bool wp_request_ok(uint32_t type, const void *body, size_t n);
/* Returns true if an answer without error may have this body. */
bool wp_answer_ok(uint32_t type, const void *body, size_t n);
/* Checks an error's body. Returns false if it is malformed; otherwise the text follows the
 * wp_error. */
bool wp_error_ok(const void *body, size_t n);
/* Returns how many descriptors a request of this type brings. */
size_t wp_request_fds(uint32_t type);
const char *wp_type_name(uint32_t type);
/* Returns the i-th usage of a checked answer; fields that an older warden does not know are 0. */
struct wp_usage wp_usage_at(const void *body, uint32_t i);
