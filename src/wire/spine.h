/* The spine: records between a node's daemon and pid 1 of a slot. Version 1. Normative.
 *
 * One record is one message. On a SEQPACKET socket a record is a packet and descriptors ride along
 * (SCM_RIGHTS); other transports carry the same records over a byte stream. This header knows
 * nothing of transports and needs no libc: init includes it too.
 *
 * Host byte order (both ends are on one machine), natural alignment, no padding. Every record
 * begins with sp_hdr. The bytes after a fixed struct are called the payload. */
#pragma once

#include <stdint.h>

#include "wire/walls.h"

#define SP_VERSION     1u
#define SP_VERSION_MIN 1u    /* the oldest version still spoken: slots outlive bothyd */
#define SP_MAX_EXEC    1024u /* entries: live, exited but unacknowledged, lingering */
#define SP_INLINE_MAX \
    (32u * 1024) /* a whole record; a larger payload travels in a sealed memfd \
                  */
#define SP_PAYLOAD_MAX (8u << 20)
#define SP_UNANSWERED  64u /* SPAWN, FETCH, SIGNAL that the daemon may have unanswered */
#define SP_RLIMITS_MAX 16u

enum sp_type {
    /* to init */
    SP_SPAWN = 1,  /* answered by STARTED; later exactly one EXIT if it forked */
    SP_FETCH = 2,  /* answered by FDS */
    SP_SIGNAL = 3, /* answered by DONE */
    SP_CLOSE = 4,  /* no answer, idempotent */
    SP_ACK = 5,    /* no answer, idempotent */
    SP_CLAIM = 6,  /* once per slot; answered by DONE; a second one: EALREADY */
    /* from init */
    SP_HELLO = 65, /* first record of every connection */
    SP_STARTED = 66,
    SP_FDS = 67,
    SP_EXIT = 68,
    SP_DONE = 69,
};

struct sp_hdr { /* 16 bytes */
    uint32_t type;
    int32_t err; /* answers: 0 or errno */
    uint64_t id; /* exec id, > 0, strictly increasing in the life of a slot; CLAIM: 0; HELLO and the
                    DONE of a CLAIM: SP_WALLS */
};

/* Which isolation checks (bits of walls.h) were tried, and which of them held. In HELLO: before
 * init first listened. In the DONE that answers CLAIM: after the claim. Zero from an init that does
 * not try. */
#define SP_WALLS(tried, held) ((uint64_t)(held) << 32 | (uint32_t)(tried))
#define SP_TRIED(walls)       ((uint32_t)(walls))
#define SP_HELD(walls)        ((uint32_t)((walls) >> 32))
/* err of a DONE when a check failed: the claim was not taken. */
#define SP_EWALL 131 /* ENOTRECOVERABLE */

/* SPAWN flags */
#define SP_F_PTY     (1u << 0)
#define SP_F_MERGE   (1u << 1) /* stderr is the stdout pipe */
#define SP_F_NOSTDIN (1u << 2) /* stdin is the host's /dev/null */
#define SP_F_MEMFD   (1u << 3) /* the payload is in the first attached descriptor */
#define SP_F_KEEP    (1u << 4) /* the last attached descriptor is kept and handed back by FETCH */
#define SP_F_EXECFD  (1u << 5) /* the next attached descriptor (after MEMFD's) is the program */
#define SP_F_SETUID \
    (1u << 6) /* leave set-uid programs effective; EPERM unless the claim grants it */
#define SP_F_ACKED (1u << 31) /* only in sp_rec: acknowledged, the entry lingers for its fds */

struct sp_rlimit { /* 24 bytes */
    uint64_t soft, hard;
    uint32_t resource, zero;
};

/* SPAWN: 64 bytes, then the payload:
 *   sp_rlimit[nrlimits], user NUL, cwd NUL, argv[argc] each NUL, env[envc] each NUL.
 * user "": the claim's. "name", "uid", "name:group", "uid:gid" are resolved by the forked child in
 * the image's passwd and group. cwd "": the claim's (made if absent), else HOME, else "/".
 * The environment is built by the child, later wins: PATH's default; HOME USER LOGNAME SHELL from
 * passwd; HOSTNAME; the claim's env; TERM=xterm on a pty; env of this record. */
struct sp_spawn {
    struct sp_hdr h;
    uint32_t flags;
    uint32_t payload; /* bytes, inline or in the memfd */
    uint32_t argc, envc;
    uint32_t umask; /* SP_UMASK_CLAIM: the claim's */
    uint16_t rows, cols;
    uint32_t nrlimits;
    uint32_t reserved[5];
};
#define SP_UMASK_CLAIM 0xffffffffu

/* CLAIM: 64 bytes, then the payload: user NUL, cwd NUL, env[envc] each NUL (secrets are among
 * them). Init keeps it in its memory and nowhere else. */
struct sp_claim {
    struct sp_hdr h;
    uint32_t flags; /* SP_F_MEMFD */
    uint32_t payload;
    uint32_t envc;
    uint32_t umask;
    uint32_t grants;     /* SP_GRANT_* */
    uint32_t sandbox[4]; /* 0 except in the stream form (spine_stream.h): id of the sandbox that
                          * claims this init, as bothyd packs it; each later HELLO repeats it */
    uint32_t reserved[3];
};
#define SP_GRANT_SETUID 1u

/* FETCH, SIGNAL, CLOSE, ACK: 48 bytes */
struct sp_op {
    struct sp_hdr h;
    uint32_t signo;
    uint32_t scope; /* SIGNAL: enum sp_scope. PROC and no signal: EINPROGRESS before its exec */
    uint32_t mask;  /* CLOSE, ACK: bit n closes init's fd[n] */
    uint32_t pid;   /* SIGNAL, scopes PID and BELOW: in the slot's pid namespace */
    uint64_t since; /* SIGNAL, scope BELOW: CLOCK_BOOTTIME ns */
    uint64_t reserved;
};
enum sp_scope {
    SP_TO_PROC = 0,    /* the exec's main process */
    SP_TO_GROUP = 1,   /* its process group */
    SP_TO_SESSION = 2, /* everything with its session id */
    SP_TO_ALL = 3,     /* everything in the slot but init; id is ignored */
    SP_TO_TREE = 4,    /* the session and all present descendants, in rounds until two find none */
    SP_TO_PID = 5,     /* one descendant of the exec */
    SP_TO_BELOW = 6,   /* pid's children that began at or after `since` and before the SIGNAL came,
                        * and all their descendants */
    SP_SCOPES
};

/* STARTED, FDS: 56 bytes. Attached are the descriptors whose bit in `fds` is set, in order. */
struct sp_started {
    struct sp_hdr h;
    uint32_t pid; /* in the slot's pid namespace */
    uint32_t flags;
    uint32_t fds; /* bit n: fd[n] is attached */
    uint32_t reserved;
    uint64_t start_mono, start_real; /* ns */
    uint64_t reserved2;
};
/* fd[]:      pipes             merged             pty
 *   0        stdin write end   stdin write end    master
 *   1        stdout read end   both, read end     relay read end
 *   2        stderr read end   -                  relay write end
 *   3        keep: the descriptor given with SP_F_KEEP */
enum {
    SP_FD_IN = 0,
    SP_FD_OUT = 1,
    SP_FD_ERR = 2,
    SP_FD_KEEP = 3,
    SP_FDS_MAX = 4
};

enum sp_state {
    SP_LIVE = 1,
    SP_EXITED = 2,
    SP_FAILED = 3 /* forked, never exec'ed */
};
enum sp_stage {
    SP_ST_PARSE = 1,
    SP_ST_RLIMIT,
    SP_ST_TTY,
    SP_ST_CWD,
    SP_ST_GROUPS,
    SP_ST_GID,
    SP_ST_UID,
    SP_ST_EXEC,
    SP_ST_USER, /* the name is not in passwd (ENOENT), or the id is not mapped (EINVAL) */
    SP_ST_PRIVS,
};

struct sp_rec { /* 112 bytes: EXIT's body, HELLO's elements, the body of an end record */
    uint64_t id;
    uint32_t state;
    uint32_t pid;
    int32_t status; /* EXITED: wait status; FAILED: errno */
    uint32_t stage; /* FAILED: enum sp_stage */
    uint32_t open;  /* bit n: init still holds fd[n] */
    uint32_t flags;
    uint64_t start_mono, start_real, end_mono, end_real; /* ns */
    uint64_t utime_us, stime_us;
    uint64_t maxrss_kb;
    uint32_t minflt, majflt;
    uint32_t uid, gid; /* as resolved; 0xffffffff while not known */
    uint64_t reserved;
};

struct sp_exit {
    struct sp_hdr h;
    struct sp_rec r;
};

struct sp_hello { /* 64 bytes + nrec * sp_rec */
    struct sp_hdr h;
    uint32_t version, nrec;
    uint64_t instance; /* random, new for each pid 1 */
    uint64_t high;     /* highest exec id that was forked */
    uint64_t boot_mono, boot_real;
    uint32_t capacity;
    uint32_t flags; /* SP_HELLO_CLAIMED; from bit 8 on, the walls that held after the claim */
};
#define SP_HELLO_CLAIMED 1u
#define SP_HELLO_WALLS   8u        /* shift */
#define SP_ID_MAX        INT64_MAX /* largest exec id; a larger one would let ids overflow */
#define SP_HELLO_MAX     (sizeof(struct sp_hello) + SP_MAX_EXEC * sizeof(struct sp_rec))

_Static_assert(sizeof(struct sp_hdr) == 16, "layout");
_Static_assert(sizeof(struct sp_rlimit) == 24, "layout");
_Static_assert(sizeof(struct sp_spawn) == 64, "layout");
_Static_assert(sizeof(struct sp_claim) == 64, "layout");
_Static_assert(sizeof(struct sp_op) == 48, "layout");
_Static_assert(sizeof(struct sp_started) == 56, "layout");
_Static_assert(sizeof(struct sp_rec) == 112, "layout");
_Static_assert(sizeof(struct sp_hello) == 64, "layout");
