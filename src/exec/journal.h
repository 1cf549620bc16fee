/* The journal of a sandbox: what was begun and how it ended, in fixed records of 256 bytes.
 *
 * A record is appended by one write and never changed. 256 divides a page, so a killed write leaves
 * a whole record or none; what a full disk or a power loss left torn is ignored at the next open.
 * The codec does no I/O (fuzz target `journal`); the file part belongs to one exec_table, which
 * locks. Host byte order: a journal never leaves its machine. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/spine.h"

#define JOURNAL_REC         256u
#define JOURNAL_MAGIC       0x314a5942u /* "BYJ1" */
#define JOURNAL_FORMAT      1u
#define JOURNAL_COMMAND_MAX 128u

enum journal_type {
    JOURNAL_BEGIN = 1,
    JOURNAL_END = 2,
    JOURNAL_MARK = 3,
    JOURNAL_COMMAND = 4,     /* of a session: exec is its id, as for COMMAND_END and SESSION */
    JOURNAL_COMMAND_END = 5, /* how it ended */
    JOURNAL_ASKED = 6,       /* a caller sent a signal that ends it */
    JOURNAL_SESSION = 7,     /* its shell is started, or it is closed; the last record holds */
    JOURNAL_PAUSE = 8,       /* the sandbox was paused; exec is 1 */
    JOURNAL_RESET = 9,       /* the sandbox continues in another box; exec is the first id there */
    JOURNAL_IDS = 10,        /* ids from exec on may belong to tunnels, which have no BEGIN */
    JOURNAL_TYPES
};
static inline bool journal_is_session(unsigned type)
{
    return type == JOURNAL_COMMAND || type == JOURNAL_COMMAND_END || type == JOURNAL_SESSION;
}

#define JOURNAL_F_MERGED    (1u << 0)
#define JOURNAL_F_PTY       (1u << 1)
#define JOURNAL_F_STDIN     (1u << 2)
#define JOURNAL_F_TRANSIENT (1u << 3) /* for a verb: not listed; its streams go with the verb */
#define JOURNAL_F_START     (1u << 4) /* the sandbox's start command; the last one counts */

struct journal_begin {
    uint8_t key[16], body[16]; /* zero: no key */
    uint64_t real_ns;
    uint64_t timeout_ms;
    uint32_t flags; /* JOURNAL_F_* */
    uint32_t zero;
    char command[JOURNAL_COMMAND_MAX]; /* NUL-terminated */
};

#define JOURNAL_E_OOM (1u << 0)

struct journal_end {
    struct sp_rec rec; /* state 0: there was no process */
    uint64_t length[2];
    uint32_t how; /* enum exec_how */
    int32_t errnum;
    uint32_t flags; /* JOURNAL_E_* */
    uint32_t ooms;  /* with JOURNAL_E_OOM: the box's count of such kills */
};

/* Bytes [from, to) of the stream (1 out, 2 err) are gone, or will be in a moment. */
struct journal_mark {
    uint32_t stream;
    uint32_t zero;
    uint64_t from, to;
};

struct journal_asked {
    uint32_t signo; /* 1 to 31 */
    uint32_t zero;
};

/* In real time. The last one of those with the same beginning holds. */
struct journal_pause {
    uint64_t from_ns, to_ns;
};

/* Written before the store's commit: it counts only if the store says that this is the sandbox's
 * box. */
#define JOURNAL_BOX_MAX 24u
struct journal_reset {
    uint8_t key[16], body[16]; /* zero: no key */
    uint64_t real_ns;
    char box[JOURNAL_BOX_MAX]; /* NUL-terminated */
};

struct journal_ids {
    uint64_t until; /* the first id that is not included */
};

#define JOURNAL_TOKEN     8u
#define JOURNAL_NAME_MAX  36u
#define JOURNAL_USER_MAX  64u
#define JOURNAL_SHELL_MAX 100u

#define JOURNAL_S_MERGE    (1u << 0)
#define JOURNAL_S_DETACHED (1u << 1)
#define JOURNAL_S_CLOSED   (1u << 2)

struct journal_session {
    uint64_t shell; /* the exec that it runs in */
    uint64_t real_ns;
    uint8_t token[JOURNAL_TOKEN];
    uint32_t flags; /* JOURNAL_S_* */
    uint32_t restarts;
    char name[JOURNAL_NAME_MAX], user[JOURNAL_USER_MAX], program[JOURNAL_SHELL_MAX];
};

#define JOURNAL_C_MERGE     (1u << 0)
#define JOURNAL_C_SAVEPOINT (1u << 1)
#define JOURNAL_C_FOLD      (1u << 3) /* merged the shells that had exited into one first */
#define JOURNAL_C_KILLS     (1u << 2)
#define JOURNAL_TEXT_MAX    104u

/* Written before the command's frame is in the shell's stdin: a command whose frame is not complete
 * there was never run. */
struct journal_command {
    uint8_t key[16], body[16]; /* zero: no key */
    uint64_t seq;
    uint64_t shell; /* the exec it runs in */
    uint64_t real_ns, boot_ns;
    uint64_t timeout_ms;
    uint64_t in_offset, in_bytes; /* of its frame in stdin */
    uint64_t start[2];            /* where its output begins */
    uint8_t token[JOURNAL_TOKEN];
    uint32_t flags; /* JOURNAL_C_* */
    uint32_t zero;
    char text[JOURNAL_TEXT_MAX]; /* for people; NUL-terminated */
};

#define JOURNAL_CUTS    3u
#define JOURNAL_CWD_MAX 56u

struct journal_cut { /* bytes that the driver wrote, at this distance from the command's start */
    uint64_t at;
    uint32_t n;
    uint32_t zero;
};
struct journal_command_end {
    uint64_t seq;
    uint64_t real_ns;
    uint64_t stop[2]; /* where its output ends */
    uint32_t tail[2]; /* bytes of the trailer behind it */
    struct journal_cut cut[2][JOURNAL_CUTS];
    uint32_t kind, flags; /* session.h has their meaning */
    int32_t status;
    uint32_t shell_pid;
    uint16_t depth, rung;
    uint32_t ooms;             /* as in journal_end, if the flags say so */
    char cwd[JOURNAL_CWD_MAX]; /* empty: too long, it is in the trailer */
};

typedef struct journal_rec {
    uint32_t magic;
    uint16_t type;
    uint16_t format;
    uint32_t checksum; /* CRC-32 of the record with this field zero */
    uint32_t zero;
    uint64_t exec;
    union {
        struct journal_begin begin;
        struct journal_end end;
        struct journal_mark mark;
        struct journal_asked asked;
        struct journal_pause pause;
        struct journal_reset reset;
        struct journal_ids ids;
        struct journal_session session;
        struct journal_command command;
        struct journal_command_end command_end;
        uint8_t bytes[JOURNAL_REC - 24];
    };
} journal_rec;
_Static_assert(sizeof(journal_rec) == JOURNAL_REC, "layout");
_Static_assert(sizeof(struct journal_session) <= JOURNAL_REC - 24, "layout");
_Static_assert(sizeof(struct journal_command) <= JOURNAL_REC - 24, "layout");
_Static_assert(sizeof(struct journal_command_end) <= JOURNAL_REC - 24, "layout");

/* Fills magic, format and checksum. */
void journal_seal(journal_rec *r);
enum journal_verdict {
    JOURNAL_OK,
    JOURNAL_TORN,  /* not a record: ignored */
    JOURNAL_NEWER, /* a record of a newer format: refused */
};
/* Checks JOURNAL_REC bytes and copies them out. Every field of an OK record is within its range. */
enum journal_verdict journal_decode(const void *raw, journal_rec *ret_rec);

typedef struct journal {
    int fd;
    uint32_t count;        /* records in the file, torn ones included */
    bool damaged;          /* a record was torn: records may be missing */
    bool torn;             /* half a record is at its end and could not be cut */
    _Atomic bool unsynced; /* a record was appended that may not be on the disk yet */
} journal;
/* Opens or makes the journal, cuts a torn tail, and passes every valid record to each(). */
err *journal_open(int dirfd, const char *path, journal *j,
                  void (*each)(void *arg, uint32_t index, const journal_rec *r),
                  void *arg) ERR_MUST;
/* Seals and appends a record. *ret_index is its number. After ERR_DISK_FULL nothing of it is
 * left. */
err *journal_append(journal *j, journal_rec *r, uint32_t *ret_index) ERR_MUST;
err *journal_read(const journal *j, uint32_t index, journal_rec *ret_rec) ERR_MUST;
void journal_close(journal *j);
