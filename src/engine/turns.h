/* Turns: of many that want a place and few places, each owner's next one in turn. An owner who comes
 * with fifty keeps one who comes with one waiting for no more than the one before; and where an
 * owner may have fewer places than there are, not even for that. Any thread. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct turns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct turn *waiting;   /* in the order of arrival */
    struct holder *holders; /* owners that have places */
    uint64_t begun;         /* turns so far */
    unsigned places;        /* free ones */
    unsigned each;          /* an owner may have so many */
    bool closed;
} turns;

void turns_init(turns *t, unsigned places, unsigned each);
void turns_done(turns *t); /* nobody waits any more */
/* True: a place, until turns_give(). False: there was none until then, or it was closed. */
bool turns_take(turns *t, const char *owner, uint64_t until_ns);
void turns_give(turns *t, const char *owner);
/* Who waits goes, and nobody else comes. */
void turns_close(turns *t);
