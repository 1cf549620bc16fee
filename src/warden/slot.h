/* A slot: a container without an image, its directory and its place in the table.
 *
 *   slots/<n>/config.json   the bundle
 *   slots/<n>/lock          flocked by the refill and by crun while they make the slot
 *   slots/<n>/spine         the socket pid 1 listens on
 *   slots/<n>/state         "1 <pid> <start time> <boot id> <release>": it was ready once
 *   slots/<n>/snapshot      it is frozen for a copy of what it wrote (snapshot.h)
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
 * The table owns slots. Code that uses one outside the lock holds a reference. */
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
    bool frozen;      /* or about to be, by a FREEZE; not for a copy */
    bool still;       /* a copy of it is under way, for which it is frozen */
    bool freezing;    /* a FREEZE or THAW is under way */
    uint32_t freezes; /* FREEZEs and THAWs so far: the last one holds */
    bool network;     /* it has a network, or making one has begun */
    bool foreign;     /* made by a warden of another release */
    bool limiting;    /* a LIMITS is under way */
    pid_t pid;
    uint64_t start; /* start time of pid, in clock ticks: a recycled pid has another */
    int dirfd;
    int pidfd;
    int userns; /* while unclaimed */
    int conn;   /* to pid 1, while unclaimed */
    dev_t proc; /* device of its /proc, which no other slot has */
    struct sp_hello hello;
    char id[SANDBOX_ID_LEN + 1];
    struct wp_digest image;
    layers_stack ahead;       /* held: this image's root is under it already; zeroed: it is bare */
    uint64_t ready_ns;        /* when it became ready */
    struct wp_limits made;    /* limits of its cgroup; 0: not known, after a restart */
    struct wp_limits limits;  /* of the claim */
    cpus_set cpus;            /* the processors it may use */
    uint32_t promised;        /* the thousandths of them that warden.cpus counts for it */
    uint64_t shown_used;      /* memory in use, as last shown inside (view.c) */
    uint32_t project;         /* of its upper, for the disk limit; 0: none */
    bool tried;               /* taking it apart was tried in vain: retried soon */
    int stays;                /* no process is left; its files cannot be removed, for this errno */
    struct slot *prev, *next; /* list of the ready, or of the dying */
} slot;

/* All with warden.lock held. */
slot *slot_add(struct warden *w, uint32_t n, enum slot_state state);
slot *slot_find(const struct warden *w, const char *id);
void slot_ref(slot *s);
void slot_unref(struct warden *w, slot *s);
/* Gives up the image that the slot has ahead; slot_unlock_release() releases it. */
void slot_drop_ahead(struct warden *w, slot *s);
/* Takes a number for slot_add(); it is free again after the last reference. Returns UINT32_MAX if
 * none is free. */
uint32_t slot_take_number(struct warden *w);
void slot_enter_ready(struct warden *w, slot *s); /* at the end of the list */
/* Add a slot's limits to the sums that admission counts, or subtract them. */
void slot_promise(struct warden *w, const slot *s);
void slot_unpromise(struct warden *w, const slot *s);
void slot_leave_ready(struct warden *w, slot *s); /* the caller sets its state */

/* Gives the lock back, and then releases the images that slots had ahead: a prune may hold the lock
 * of the layers for as long as the disk takes, and claims must not wait for it. */
void slot_unlock_release(struct warden *w);

/* Returns the start time of a process from /proc, 0 if there is none. */
uint64_t slot_start_time(int proc_fd, pid_t pid);
bool slot_dead(const slot *s);
void slot_wait_dead(const slot *s, int wait_ms);
/* Tells how pid 1 ended, as of wait(2). Returns false if it lives, or if the kernel tells that to a
 * parent only. */
bool slot_status(int proc_fd, const slot *s, int *ret_status);

/* ---- slot_state.c ---- */
err *slot_write_state(int proc_fd, const slot *s) ERR_MUST;
enum slot_found {
    SLOT_NEVER_READY,
    SLOT_OF_EARLIER_BOOT, /* it ended with the machine, not by itself */
    SLOT_FOUND,
    SLOT_DAMAGED,
};
enum slot_found slot_read_state(const struct warden *w, slot *s);
/* Searches the cgroup for pid 1 and writes the state file again. Returns false if there is none. */
bool slot_rebuild_state(const struct warden *w, slot *s);
/* Refuses slots/<name>/state of a format that only a newer warden knows. */
err *slot_state_known(int slots_fd, const char *name) ERR_MUST;

/* Begins the claim file. Returns an error if there is a claim already. The caller owns *ret_fd and
 * passes it to slot_claim_done(). */
err *slot_claim_begin(slot *s, int *ret_fd) ERR_MUST;
err *slot_claim_done(int fd) ERR_MUST;
/* The same for an image that is put under the slot ahead of a claim. */
err *slot_ahead_begin(slot *s, int *ret_fd) ERR_MUST;
/* Marks the slot dead: from now on a restarted warden destroys it. */
void slot_mark_dead(slot *s);

/* Connects to pid 1 and waits for HELLO: fills conn, hello, pid, pidfd. */
err *slot_meet(slot *s, uint64_t timeout_ms) ERR_MUST;

/* Adds to HELLO, which bothyd will read, that the walls the warden tried hold. */
void slot_walls_held(const struct warden *w, slot *s);

/* Reads slots/ at start, adopts the living slots and gives the others to the cleaner. */
err *slot_recover(struct warden *w) ERR_MUST;
