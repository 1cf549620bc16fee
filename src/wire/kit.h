/* The kit: requests from bothyd to bothy-kit inside a sandbox, and the entry stream between them.
 * Version 1. Normative. Needs no libc: the kit is built with kit.c, too.
 *
 * A request is the kit's argv. The kit answers with an entry stream on its stdout; its input
 * (write, unpack) is an entry stream on its stdin. A stream is a sequence of records, each a
 * kit_hdr and its payload; little-endian, packed, no alignment. Its last record is END: a stream
 * without END is unfinished, and a write or an unpack without END on stdin is undone.
 *
 *     stat     -> ENTRY END
 *     read     -> ENTRY DATA* END                       holes between DATA are zeros
 *     write    <- ENTRY XATTR* DATA* END    -> ENTRY END    given: only the size, or UNSIZED
 *              with KIT_F_MANY: <- (ENTRY XATTR* DATA*)* END    -> (AT? ENTRY)* END, each entry's
 *              target is the path it goes to; those before a failure have been written
 *     list     -> ENTRY* END                            sorted by name within a directory
 *     search   -> (ENTRY MATCH*)* END
 *     mkdir, move, remove            -> ENTRY? END
 *     watch    -> EVENT* (until it is killed)
 *     pack     -> (ENTRY XATTR* EXTENTS? DATA*)* END
 *     unpack   <- (ENTRY XATTR* EXTENTS? DATA*)* END    -> END
 *
 * Two verbs use no records. dial: stdout has a kit_dialled and, if that reports 0, the server's
 * bytes; stdin is sent to the server. usage: stdout has a kit_usage.
 *
 * With KIT_F_HOME paths are as people write them: relative ones and "~" begin at the user's home,
 * and an AT record first reports the resolved path (of a move: the new one). With KIT_F_DETAIL an
 * ENTRY of stat, list, mkdir, move and write is followed by DETAIL and the file's user.* XATTRs,
 * and an EVENT of watch comes after the ENTRY of the file that it is about, if that still exists.
 *
 * With KIT_F_FOR the kit starts as root and becomes the user that `to` names (ENOKEY: the image has
 * no such user) before it examines any path. Missing directories that this user may not make are
 * made with root's right to write, owned by the user; but not on a path through a symbolic link,
 * nor in a directory that the user may not search.
 *
 * ERROR may come at any place. With KIT_E_FATAL, END follows at once, and nothing was done except
 * what END's counters report; without it, one entry was left out. PING may come at any place and
 * says that the kit is alive. Names are relative to the request's path, "" is that path itself;
 * they have no NUL, no "..", no empty component, and do not begin with '/'. kit_decode() refuses
 * others, so that code that makes an archive or a list from a sandbox's answers needs no check of
 * its own. The target of a hard link is such a name, too; that of a symbolic link is any bytes
 * without NUL.
 *
 * Within pack and unpack: a directory comes before its entries. A hard link names an earlier entry
 * (KIT_E_HARDLINK, no DATA). DATA offsets ascend and end at or before `size`; bytes not sent are
 * zeros (a hole). EXTENTS, when present, comes before the first DATA and lists where data are, for
 * formats that need to know it first.
 *
 * bothyd's side: answers come from a sandbox and are not trusted. kit_decode() bounds each record,
 * kit_order_check() their order; the caller limits the length of the stream. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIT_VERSION "1"

/* ---- requests ---- */

enum kit_verb {
    KIT_STAT,
    KIT_READ,
    KIT_WRITE,
    KIT_LIST,
    KIT_SEARCH,
    KIT_MKDIR,
    KIT_MOVE,
    KIT_REMOVE,
    KIT_WATCH,
    KIT_PACK,
    KIT_UNPACK,
    KIT_FILE_VERBS,            /* number of the verbs above */
    KIT_DIAL = KIT_FILE_VERBS, /* this and the next are not about files */
    KIT_USAGE,
    KIT_VERBS
};

#define KIT_F_PARENTS   (1u << 0)  /* write, mkdir, move, unpack: make missing directories */
#define KIT_F_RECURSIVE (1u << 1)  /* remove, watch */
#define KIT_F_FOLLOW    (1u << 2)  /* stat: of the target of a last symbolic link */
#define KIT_F_SUFFIX    (1u << 3)  /* read: the last `length` bytes */
#define KIT_F_NEW       (1u << 4)  /* write, move: must not exist; mkdir: must be made */
#define KIT_F_CASELESS  (1u << 5)  /* search: ignores the case of ASCII letters */
#define KIT_F_XATTRS    (1u << 6)  /* pack, unpack */
#define KIT_F_OWNERS    (1u << 7)  /* unpack: sets uid and gid of the entries, where allowed */
#define KIT_F_COPIES    (1u << 8)  /* pack: a file with several links is sent once for each */
#define KIT_F_HOME      (1u << 9)  /* all but pack, unpack, search: paths as a person writes them */
#define KIT_F_DETAIL    (1u << 10) /* names of the owners, a link's final target, attributes */
#define KIT_F_MANY      (1u << 11) /* write: several files, the request's path is not used */
#define KIT_F_DIRECTORY (1u << 12) /* watch: must be a directory; mkdir with NEW: ENOTDIR if not */
#define KIT_F_FOR       (1u << 13) /* write, by root: for the user `to`; see above */
#define KIT_F_KEEP      (1u << 14) /* unpack: existing directories stay as they are */
#define KIT_FLAGS_ALL   ((1u << 15) - 1)

/* A file is written under a temporary name and then renamed. The name is KIT_TEMP, KIT_TEMP_FRESH
 * if no file of the final name existed, and hexadecimal digits. Watchers recognise it by this
 * form. */
#define KIT_TEMP       ".bothy-"
#define KIT_TEMP_FRESH '+'
#define KIT_TEMP_HEX   16

#define KIT_MODE_NONE UINT32_MAX
#define KIT_PATH_MAX  4095u /* of a path in a request, of a name, of a link's target */

typedef struct kit_request {
    enum kit_verb verb;
    uint32_t flags;   /* KIT_F_* */
    uint32_t mode;    /* write, mkdir: permissions; KIT_MODE_NONE: the default */
    uint32_t depth;   /* list, search: levels below path; 0: path itself only */
    uint64_t offset;  /* read; dial: the port */
    uint64_t length;  /* read: at most so many bytes; UINT64_MAX: all */
    uint64_t max;     /* list, search: at most so many entries or matches */
    const char *path; /* usage: the directory of /proc and /sys */
    const char *to;   /* move: the new path; list: names up to this one are left out; search: a
                         glob for the last component, or for the whole name if it has a '/';
                         with KIT_F_FOR a user, as init knows them */
    const char *text; /* search: bytes in the file */
} kit_request;

#define KIT_ARGC    7  /* bothy-kit, version, verb, numbers, path, to, text */
#define KIT_NUMBERS 96 /* room for the numbers as text */
/* Fills argv with the request's own strings and `numbers`. */
void kit_request_write(const kit_request *rq, char numbers[KIT_NUMBERS],
                       const char *argv[KIT_ARGC + 1]);
bool kit_request_read(int argc, char *const *argv, kit_request *ret_request);
const char *kit_verb_name(enum kit_verb verb);

/* ---- records ---- */

enum kit_type {
    KIT_ENTRY = 1,
    KIT_XATTR,
    KIT_EXTENTS,
    KIT_DATA,
    KIT_MATCH,
    KIT_EVENT,
    KIT_PING,
    KIT_ERROR,
    KIT_END,
    KIT_AT,
    KIT_DETAIL,
    KIT_TYPES
};

struct kit_hdr {
    uint32_t type;
    uint32_t size; /* of the payload */
};

#define KIT_DATA_MAX    65536u
#define KIT_EXTENTS_MAX 4096u
#define KIT_XATTR_MAX   65536u /* bytes of a value */
#define KIT_XATTRS_MAX  64u    /* per entry */
#define KIT_TEXT_MAX    512u   /* bytes per match */
#define KIT_OWNER_MAX   255u   /* bytes of the name of a user or group */
#define KIT_PAYLOAD_MAX (KIT_DATA_MAX + 512u)
#define KIT_RECORD_MAX  (sizeof(struct kit_hdr) + KIT_PAYLOAD_MAX)

#define KIT_E_HARDLINK (1u << 0) /* target: the name of an entry that came before */
#define KIT_E_UNSIZED  (1u << 1) /* size is not known in advance (files of /proc, uploads) */

/* ENTRY: this, then the name, then the target. */
struct kit_entry {
    uint32_t mode; /* type and permissions */
    uint32_t uid, gid, nlink;
    uint64_t size;
    int64_t mtime; /* seconds */
    uint32_t mtime_ns;
    uint32_t flags; /* KIT_E_* */
    uint64_t dev, ino;
    uint32_t rdev_major, rdev_minor;
    uint16_t name_len, target_len;
    uint32_t zero;
};

/* DETAIL: this, then the names of owner and group ("" if they have none), then the final target of
 * a symbolic link as a path without links ("" if it leads nowhere or is no link). */
struct kit_detail {
    uint32_t mode; /* mode of the link's target; 0: there is none */
    uint16_t owner_len, group_len;
};
/* AT: the path, absolute. */

struct kit_extent {
    uint64_t from, size;
};

/* MATCH: this, then the line (or the bytes around the match, cut at KIT_TEXT_MAX). */
struct kit_match {
    uint64_t line; /* from 1 */
    uint64_t offset;
};

enum kit_change {
    KIT_CREATED = 1,
    KIT_MODIFIED,
    KIT_DELETED,
    KIT_MOVED, /* name to target; one of them is empty if it lies outside the watched tree */
    KIT_ATTRIB,
    KIT_OVERFLOW, /* events were lost */
    KIT_READY,    /* from here on no event is missed */
    KIT_CHANGES
};
/* EVENT: this, then the name, then the target. */
struct kit_event {
    uint32_t change;
    uint32_t directory;
    uint16_t name_len, target_len;
    uint32_t zero;
};

#define KIT_E_FATAL (1u << 0)
/* ERROR: this, then the name. */
struct kit_error {
    int32_t errnum;
    uint32_t flags; /* KIT_E_FATAL */
};

#define KIT_E_MORE (1u << 0) /* `max` was reached */
struct kit_end {
    uint64_t entries, bytes;
    uint32_t flags; /* KIT_E_MORE */
    uint32_t zero;
};

_Static_assert(sizeof(struct kit_entry) == 72 && sizeof(struct kit_match) == 16 &&
                   sizeof(struct kit_event) == 16 && sizeof(struct kit_error) == 8 &&
                   sizeof(struct kit_end) == 24 && sizeof(struct kit_detail) == 8,
               "layout");

/* A decoded record; pointers lead into the bytes it was decoded from; nothing is NUL-terminated. */
typedef struct kit_record {
    enum kit_type type;
    union {
        struct kit_entry entry;
        struct kit_match match;
        struct kit_event event;
        struct kit_error error;
        struct kit_end end;
        struct kit_detail detail;
        uint64_t offset;  /* DATA */
        uint32_t extents; /* EXTENTS: how many; kit_extent_get() */
    };
    const char *name; /* ENTRY, XATTR, EVENT, ERROR; DETAIL: the owner */
    size_t name_len;
    const char *bytes; /* ENTRY, EVENT: the target; XATTR: the value; DATA; MATCH: the text; AT;
                          DETAIL: where a link leads */
    size_t bytes_len;
    const char *group; /* DETAIL */
    size_t group_len;
} kit_record;
struct kit_extent kit_extent_get(const kit_record *r, uint32_t i);

enum kit_verdict {
    KIT_OK,
    KIT_SHORT, /* give it more bytes */
    KIT_BAD
};
/* Decodes the record at the start of [p, p + n) and returns its length in *ret_used. */
enum kit_verdict kit_decode(const void *p, size_t n, kit_record *ret_record, size_t *ret_used);

/* State of the check that records follow each other in a legal order. Zero-initialised. */
typedef struct kit_order {
    bool in_entry, has_data, has_detail, ended, failed;
    uint32_t xattrs;
    uint64_t at;   /* DATA has come up to here */
    uint64_t size; /* of the entry, UINT64_MAX: not known */
} kit_order;
bool kit_order_check(kit_order *o, const kit_record *r);

/* Writes a record to `to`, which has room for KIT_RECORD_MAX bytes. Returns its length, or 0 if a
 * field is beyond its ceiling. Lengths within the structs are taken from the record. */
size_t kit_encode(const kit_record *r, void *to);
/* Encodes EXTENTS, which kit_encode() does not. */
size_t kit_encode_extents(const struct kit_extent *v, uint32_t n, void *to);

/* Returns true for a valid entry name. */
bool kit_name_valid(const char *name, size_t n);

/* ---- dial: a connection to a port of the sandbox's own loopback ----
 *
 * The first bytes of stdout report the result of the connect, over 127.0.0.1 and then ::1. Then
 * bytes flow both ways and each side ends by itself: the end of stdin ends the server's input; when
 * the server ends its side, the kit writes a byte to stderr and closes stdout. A stdout that ends
 * without that byte was cut off: the connection was reset, or the kit was killed. */
struct kit_dialled {
    uint32_t magic;
    int32_t errnum; /* 0: connected */
};
#define KIT_DIALLED_MAGIC 0x314c4944u /* "DIL1" */
/* Returns false if these n bytes are no kit_dialled. */
bool kit_dialled_read(const void *p, size_t n, int *ret_errnum);

/* ---- usage: counters of the container's own cgroup and network ---- */
/* Values that are not counted are 0. A cgroup's counters may cover more than the sandbox's life. */
struct kit_usage {
    uint32_t magic;
    uint32_t flags; /* KIT_USAGE_CPU */
    uint32_t pids, zero;
    uint64_t cpu_us, cpu_throttled_us;
    uint64_t memory, memory_peak, memory_limit, oom_kills;
    uint64_t io_read, io_written;
    uint64_t net_rx, net_tx, net_dropped;
};
#define KIT_USAGE_CPU   (1u << 0)           /* cpu_us was counted: the cgroup is visible */
#define KIT_USAGE_MAGIC 0x31475355u         /* "USG1" */
#define KIT_USAGE_MAX   (UINT64_C(1) << 62) /* of each value; sums cannot overflow */
_Static_assert(sizeof(struct kit_dialled) == 8 && sizeof(struct kit_usage) == 104, "layout");
/* Returns false if these n bytes are no kit_usage, or a value is beyond KIT_USAGE_MAX. */
bool kit_usage_read(const void *p, size_t n, struct kit_usage *ret_usage);
