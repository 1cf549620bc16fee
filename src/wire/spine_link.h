/* The spine over a byte stream that a container engine carries: bothyd ... `bothy-init attach` ...
 * init. Version 1. Normative. No I/O, no memory, no clock, no libc: both ends are this code.
 *
 * Between the ends lies a process inside the tenant's pid namespace. A tenant can stop it, kill it,
 * start another, and connect to init's socket as well. So every connection is proved and every
 * message is sealed. A proof or seal that fails ends the connection and changes nothing.
 *
 *     init   -> GREETING{version, state, instance, nonce}          not sealed
 *     bothyd -> ATTACH{version, nonce, fresh: secret | owned: proof}   not sealed
 *     init   -> HELLO, sealed          or REFUSED{err}, not sealed, and the end
 *     then, both ways, sealed: the records of spine.h and the messages of spine_data.h.
 *
 * The first ATTACH, before any tenant code, leaves the secret in init ("owned"). Later ones prove
 * knowledge of it: HMAC-SHA-256(secret, "bothy-attach" || init's nonce || bothyd's nonce). Seals
 * are SipHash-2-4 with a key for each direction, HMAC-SHA-256(secret, "bothy-to-init" or
 * "bothy-from-init" || both nonces), the first 16 bytes, over a counter that begins at 0 in each
 * connection and the whole message. They keep a tenant from forging, repeating and dropping
 * messages and from mixing connections; they hide nothing.
 *
 * A message: head {size of the record, extra bytes}, record, extra bytes, both padded with zeros to
 * 8, seal (8 bytes). All of it is a multiple of 8, so a buffer that begins aligned stays so. Host
 * byte order: little endian, which both machines are.
 *
 * Rules beyond spine.h:
 *  - SP_F_KEEP and SP_F_EXECFD: STARTED with EOPNOTSUPP, before fork. SP_F_MEMFD: the payload is
 *    the extra bytes. STARTED.fds is 0. SP_TO_ALL spares the attach process of this connection.
 *  - Output of an exec flows on the connection that started it; on a later one from FETCH on (or
 *    from the same SPAWN sent again). STARTED and FDS are followed by STDIO from the lowest offset
 *    that was not RECEIVED, without gap or repetition, then by EXIT once everything that was
 *    written before the end has been sent. FDS is followed at once by TAKEN.
 *  - Credit for output: init may send a stream up to RECEIVED.offset + RECEIVED.b, an absolute
 *    offset; the highest one received in this connection counts. Before the first in a connection
 *    it is the last RECEIVED.offset (0 at the start) + SPL_CREDIT. A piece of no bytes (the end of
 *    a stream) needs none. EXIT waits for the bytes before it, so it waits for credit too.
 *  - Credit for stdin: bothyd may send up to TAKEN.offset + TAKEN.b, the highest received; before
 *    the first TAKEN of an exec that this connection started: SPL_STDIN_CREDIT. Bytes beyond it,
 *    or after a gap, end the connection. Bytes that init already has are dropped.
 *  - After a lost connection bothyd repeats its unanswered requests: SPAWN is executed once per
 *    id; STDIN goes by offsets; FETCH, RECEIVED, CLOSE, ACK, PING may be repeated; a SIGNAL
 *    without answer may have been sent.
 *  - HELLO of a claimed init has CLAIM.sandbox as extra bytes (SPS_SANDBOX of them), of an
 *    unclaimed one none: a bothyd that sent a CLAIM and lost the connection learns whether its
 *    CLAIM was the one that was taken.
 *  - STARTED, too, is followed at once by TAKEN, unless the exec has no stdin (NOSTDIN).
 *  - A later proved connection replaces the earlier. PING is answered in order. An end that
 *    receives no PONG for SPL_SILENCE_MS considers the connection dead and dials again.
 *  - `instance` is new for each pid 1. A box once claimed whose init greets as fresh or with
 *    another instance has been restarted: it is tainted, never attached or claimed again. Only
 *    bothyd can know that: the tenant can write wherever init can.
 *
 *     bothyd                                     init
 *     spl_begin_link(&e, nonce)                  spl_begin_init(&e, nonce, instance, owned, out)
 *     n = spl_next(&e, p, len, &m, &why)         n = spl_next(&e, p, len, &m, &why)
 *       m is GREETING: check it, then              m is ATTACH:
 *       spl_attach(&e, secret, out)                spl_admit(&e, m.record, secret, &owned)
 *       m is HELLO or REFUSED                    then spl_put(), spl_next()
 *     then each message: sps_check(&m, SPS_ANSWERS) */
#pragma once

#include <stdbool.h>

#include "wire/spine_data.h"
#include "wire/spine_seal.h"

#define SPL_VERSION      1u
#define SPL_VERSION_MIN  1u
#define SPL_NONCE        32
#define SPL_SECRET       32
#define SPL_CREDIT       (64u * 1024)
#define SPL_STDIN_CREDIT 4096u
#define SPL_KEPT         (256u * 1024) /* output of one stream that init keeps until RECEIVED */
#define SPL_KEPT_ALL     (16u << 20)   /* of all streams; one stream always gets at least 4 KiB */
#define SPL_STDIN_KEPT   (64u * 1024)  /* stdin of one exec that init keeps until it is written */
#define SPL_SILENCE_MS   10000
#define SPL_PROOF_MS     10000 /* an unproved connection ends after it */
#define SPL_UNPROVED_MAX 8

enum spl_state {
    SPL_FRESH = 1, /* not owned: takes a secret */
    SPL_OWNED = 2, /* requires a proof */
};

struct spl_greeting { /* 72 bytes */
    struct sp_hdr h;
    uint32_t version;
    uint32_t state;
    uint64_t instance;
    uint8_t nonce[SPL_NONCE];
    uint64_t reserved;
};

struct spl_attach { /* 88 bytes */
    struct sp_hdr h;
    uint32_t version;
    uint32_t state; /* the meaning of `word`: must equal init's own state */
    uint8_t nonce[SPL_NONCE];
    uint8_t word[SPL_SECRET]; /* FRESH: the secret; OWNED: the proof */
};

/* REFUSED is a sp_hdr. Its err: EACCES wrong proof, EALREADY a secret for an init that has one,
 * ENOKEY a proof for one that has none (it was restarted), EPROTONOSUPPORT version. It is not
 * sealed: it only shows that the attach failed, not why. */

enum spl_phase {
    SPL_WANTS_GREETING, /* bothyd */
    SPL_WANTS_CALLER,   /* bothyd: spl_attach() comes next */
    SPL_WANTS_HELLO,    /* bothyd */
    SPL_WANTS_ATTACH,   /* init */
    SPL_WANTS_ADMIT,    /* init: spl_admit() comes next */
    SPL_OPEN,
    SPL_ENDED,
};

struct spl_way { /* one direction of one connection */
    uint64_t key[2];
    uint64_t count;
};

/* One end of one connection. A plain value; call spl_end_wipe() when done. */
typedef struct spl_end {
    struct spl_way in, out;
    uint8_t phase; /* enum spl_phase */
    uint8_t peer_state;
    bool is_init;
    uint8_t init_nonce[SPL_NONCE], link_nonce[SPL_NONCE];
} spl_end;

/* Returns the bytes of a message with head, padding and seal. Before the connection is proved there
 * is no seal, so it takes 8 bytes less; buffers must have room for them all the same. */
size_t spl_size(size_t record, size_t extra);
#define SPL_SIZE(record, extra) \
    (16 + (((size_t)(record) + 7) & ~(size_t)7) + (((size_t)(extra) + 7) & ~(size_t)7))
#define SPL_GREETING_ROOM SPL_SIZE(sizeof(struct spl_greeting), 0)
#define SPL_ATTACH_ROOM   SPL_SIZE(sizeof(struct spl_attach), 0)
#define SPL_REFUSED_ROOM  SPL_SIZE(sizeof(struct sp_hdr), 0)
/* The largest message that each end accepts. */
#define SPL_REQUEST_MAX SPL_SIZE(SP_INLINE_MAX, SP_PAYLOAD_MAX)
#define SPL_ANSWER_MAX  SPL_SIZE(SP_HELLO_MAX, SPS_CHUNK_MAX)

/* Starts bothyd's end. nonce: fresh random bytes for every connection. */
void spl_begin_link(spl_end *e, const uint8_t nonce[SPL_NONCE]);
/* Starts init's end and writes GREETING into out (SPL_GREETING_ROOM). Returns its length. */
size_t spl_begin_init(spl_end *e, const uint8_t nonce[SPL_NONCE], uint64_t instance, bool owned,
                      void *out);
void spl_end_wipe(spl_end *e);

/* Reads the first message of p[0..n), p 8-byte aligned. Returns its whole length, 0 if more bytes
 * are needed, -1 if the connection is over (*ret_why says why, for the log). Sizes are bounded by
 * what this end accepts in this phase, so a buffer of *_MAX is enough. Checks framing, padding,
 * seal and phase, and the content of GREETING, ATTACH, REFUSED. The receiver checks the content of
 * HELLO and all later messages: bothyd by sps_check() (spine_stream.h), init by itself. Each
 * returned message advances the counter: never read the same one twice. */
long spl_next(spl_end *e, const void *p, size_t n, sps_message *ret_message, const char **ret_why);
/* Returns how many bytes the message at p[0..n) will have; 0: not known yet (n < 8); -1: too
 * large. */
long spl_want(const spl_end *e, const void *p, size_t n);

/* bothyd, after GREETING: writes ATTACH into out (SPL_ATTACH_ROOM). Returns its length. The caller
 * must first compare `state` and `instance` with what it remembers: the secret travels in clear, so
 * it may only go to an init that is not owned and has never run tenant code. */
size_t spl_attach(spl_end *e, const uint8_t secret[SPL_SECRET], void *out);
/* init, after ATTACH. Returns 0 if the connection is proved, or if init is owned from now on
 * (secret and *owned are written); HELLO is sent next. Otherwise returns an errno; spl_refuse()
 * makes the answer. */
int spl_admit(spl_end *e, const struct spl_attach *a, uint8_t secret[SPL_SECRET], bool *owned);
size_t spl_refuse(spl_end *e, int errnum, void *out); /* SPL_REFUSED_ROOM; ends the link */

/* Writes a whole sealed message into out (spl_size() bytes, 8-byte aligned). Returns its length.
 * Send messages whole and in order: the seal covers the message's number. */
size_t spl_put(spl_end *e, void *out, const void *record, size_t size, const void *extra,
               size_t nextra);
/* Like spl_put() in two steps, for extra bytes that are gathered in place. The first returns where
 * the extra bytes go; the second seals. */
void *spl_put_begin(void *out, const void *record, size_t size, size_t nextra);
size_t spl_put_end(spl_end *e, void *out);

/* A stream's window as kept by the receiver of its bytes: bothyd for each output stream, init for
 * stdin. Offsets are absolute. */
typedef struct spl_window {
    uint64_t next;  /* the offset that comes next */
    uint64_t limit; /* may be sent up to here */
} spl_window;
enum spl_take {
    SPL_TAKE_OK,
    SPL_TAKE_ORDER, /* a gap or a repetition */
    SPL_TAKE_OVER,  /* beyond the credit */
};
/* Takes n bytes at offset. `next` advances if the result is OK. */
enum spl_take spl_window_take(spl_window *w, uint64_t offset, size_t n);
/* Notes the offset and credit sent to the peer. The resulting limit never moves back. */
void spl_window_grant(spl_window *w, uint64_t offset, uint32_t credit);

_Static_assert(sizeof(struct spl_greeting) == 72, "layout");
_Static_assert(sizeof(struct spl_attach) == 88, "layout");
