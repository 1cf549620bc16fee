/* A warden for tests of the oci backend: the real frames, slots that are guests (unit/init) or a
 * socket the test holds the other end of. One thread. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "wire/wardenp.h"

#include "guest.h"

#define SLOTS 4
typedef struct fake_slot {
    guest vm;
    struct wp_id sandbox; /* "" while free */
} fake_slot;

typedef struct fake_warden {
    char dir[64], path[96];
    pthread_t thread;
    int wake[2];
    pthread_mutex_t lock;
    /* under the lock: what the next requests meet */
    fake_slot slot[SLOTS];
    size_t nslots;
    int claim_errnum; /* CLAIM fails with it */
    const char *claim_text;
    uint32_t claim_retry;       /* seconds */
    struct wp_watermarks marks; /* as last set by POOL */
    uint32_t cut_on;            /* the next request of this type cuts the connection, unanswered */
    bool cut_after;             /* ... but after it was done */
    int give_fd;                /* the next CLAIM or ATTACH gets this one, with this HELLO */
    const void *give_hello;
    size_t give_n;
    int attach_errnum; /* the next `attach_fails` ATTACHes fail with it */
    unsigned attach_fails;
    int freeze_errnum; /* FREEZE fails with it */
    unsigned requests[WP_TYPES], connections;
    uint64_t last_deadline;
    bool lose_fd; /* the next CLAIM is done, and its answer comes without the descriptor */
    bool old;     /* its wp_usage is the first one's */
    bool mute;    /* it reads nothing, as if it were stopped */
    bool stop;
} fake_warden;

/* Starts n guests of this init (0: none). Before any thread of the backend. */
void fake_warden_start(fake_warden *w, const char *init_program, size_t n);
void fake_warden_stop(fake_warden *w);
unsigned fake_warden_count(fake_warden *w, uint32_t type);
