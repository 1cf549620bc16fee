/* Turns: of many that want a place and few places, each owner's next one in turn. Who comes with
 * fifty keeps one who comes with one waiting for no more than the one before. Any thread. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct turns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct turn *waiting; /* in the order of arrival */
    uint64_t begun;       /* turns so far */
    unsigned places;      /* free ones */
    bool closed;
} turns;

void turns_init(turns *t, unsigned places);
void turns_done(turns *t); /* nobody waits any more */
/* True: a place, until turns_give(). False: there was none until then, or it was closed. */
bool turns_take(turns *t, const char *owner, uint64_t until_ns);
void turns_give(turns *t);
/* Who waits goes, and nobody else comes. */
void turns_close(turns *t);
