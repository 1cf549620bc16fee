/* A slot: a container without an image, its directory and its place in the table.
 *
 *   slots/<n>/config.json   the bundle
 *   slots/<n>/lock          flocked by the refill and by crun: free means nobody makes it any more
 *   slots/<n>/spine         the socket pid 1 listens on
 *   slots/<n>/state         "1 <pid> <start time> <boot id> <release>": it was ready once
 *   slots/<n>/snapshot      it stands still for a copy of what it wrote (snapshot.h)
 *   slots/<n>/ahead         "<image>\n" before it is put under it ahead of a claim, "ok\n" after
 *   slots/<n>/claim         empty, "<sandbox>\n<image>\n" before the first move, "ok\n" after the
 *                           last
 *   slots/<n>/dead          the claim, renamed when destruction was decided
 *   uppers/<n>/{u,w}        the writable layer
 *   uppers/<n>/b/{u,w}      the writable layer of a slot that was claimed for another image than
 *                           the one put under it ahead
 *   trash/                  uppers of slots that are gone
 *
 *   view/<n>.{mem,cpu}      what it sees of its limits (view.h)
 *
 * A slot belongs to the table; who works on one outside the lock holds a reference. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/id.h"
#include "core/cpus.h"
#include "warden/layers.h"
#include "wire/spine.h"
#include "wire/wardenp.h"

struct warden;

enum slot_state {
    SLOT_MAKING,
    SLOT_READY,
    SLOT_CLAIMING,
    SLOT_CLAIMED,
    SLOT_DYING
};

typedef struct slot {
    uint32_t n;
    enum slot_state state;
    unsigned refs;
    bool doomed;      /* destruction was asked for while it was being claimed */
    bool frozen;      /* or about to be: asked for, not for a copy's sake */
    bool still;       /* a copy of it is under way, for which it stands still */
    bool freezing;    /* a FREEZE or THAW is under way */
    uint32_t freezes; /* FREEZEs and THAWs so far: the last one holds */
    bool network;     /* it has one, or the making of it has begun */
    bool foreign;     /* made by a warden of another release */
    bool limiting;    /* a LIMITS is under way */
    pid_t pid;
    uint64_t start; /* start time of pid, in clock ticks: a recycled pid has another */
    int dirfd;
    int pidfd;
    int userns; /* while unclaimed */
    int conn;   /* to pid 1, while unclaimed */
    dev_t proc; /* of its /proc, which no other has; since it was met */
    struct sp_hello hello;
    char id[SANDBOX_ID_LEN + 1];
    struct wp_digest image;
    layers_stack ahead;       /* held: it has this image's root already; zeroed: it is bare */
    uint64_t ready_ns;        /* when it became ready */
    struct wp_limits made;    /* what its cgroup has; 0: not known, after a restart */
    struct wp_limits limits;  /* of the claim */
    cpus_set cpus;            /* it may use these */
    uint32_t promised;        /* of them, in thousandths, in warden.cpus */
    uint64_t shown_used;      /* memory in use, as it sees it (view.c) */
    uint32_t project;         /* of its upper, for the disk limit; 0: none */
    bool tried;               /* to be taken apart, in vain: again soon */
    int stays;                /* nothing of it runs; its files cannot go, for this errno */
    struct slot *prev, *next; /* list of the ready, or of the dying */
} slot;

/* All with warden.lock held. */
slot *slot_add(struct warden *w, uint32_t n, enum slot_state state);
slot *slot_find(const struct warden *w, const char *id);
void slot_ref(slot *s);
void slot_unref(struct warden *w, slot *s);
/* The image it has ahead is not its own any more. */
void slot_drop_ahead(struct warden *w, slot *s);
/* A number for slot_add; it is free again after the last reference. UINT32_MAX: none. */
uint32_t slot_take_number(struct warden *w);
void slot_enter_ready(struct warden *w, slot *s); /* behind the others */
/* The sums that admission counts have its limits, or have them no more. */
void slot_promise(struct warden *w, const slot *s);
void slot_unpromise(struct warden *w, const slot *s);
void slot_leave_ready(struct warden *w, slot *s); /* its state is the caller's to set */

/* Gives the lock back, and then the images that slots had ahead: a prune may hold the lock of the
 * layers for as long as the disk takes, and claims must not wait for it. */
void slot_unlock_release(struct warden *w);

/* Start time of a process from /proc, 0 if there is none. */
uint64_t slot_start_time(int proc_fd, pid_t pid);
bool slot_dead(const slot *s);
void slot_wait_dead(const slot *s, int wait_ms);
/* How pid 1 ended, as of wait(2); false: it lives, or the kernel does not tell who is no parent. */
bool slot_status(int proc_fd, const slot *s, int *ret_status);

/* ---- slot_state.c ---- */
err *slot_write_state(int proc_fd, const slot *s) ERR_MUST;
enum slot_found {
    SLOT_NEVER_READY,
    SLOT_OF_EARLIER_BOOT, /* it did not end by itself */
    SLOT_FOUND,
    SLOT_DAMAGED,
};
enum slot_found slot_read_state(const struct warden *w, slot *s);
/* Looks for pid 1 in the cgroup and writes the file again. */
bool slot_rebuild_state(const struct warden *w, slot *s);
/* Refuses slots/<name>/state of a format that only a newer warden knows. */
err *slot_state_known(int slots_fd, const char *name) ERR_MUST;

/* Refused when there is one; the descriptor stays open for slot_claim_done(). */
err *slot_claim_begin(slot *s, int *ret_fd) ERR_MUST;
err *slot_claim_done(int fd) ERR_MUST;
/* The same for an image that is put under it ahead of a claim. */
err *slot_ahead_begin(slot *s, int *ret_fd) ERR_MUST;
/* From now on a restarted warden destroys it. */
void slot_mark_dead(slot *s);

/* Connects to pid 1 and waits for HELLO: fills conn, hello, pid, pidfd. */
err *slot_meet(slot *s, uint64_t timeout_ms) ERR_MUST;

/* The warden found its own walls to hold: HELLO, which bothyd will read, says so, too. */
void slot_walls_held(const struct warden *w, slot *s);

/* At start: reads slots/, adopts what lives, hands the rest to the cleaner. */
err *slot_recover(struct warden *w) ERR_MUST;
