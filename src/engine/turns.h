/* Turns: shares few places among many threads, by owner in turn.
 *
 * An owner with fifty waiting threads delays another owner's single thread by at most one turn. If
 * an owner may have fewer places than there are, it does not delay others at all. Any thread. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct turns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct turn *waiting;   /* in the order of arrival */
    struct holder *holders; /* owners that hold places */
    uint64_t begun;         /* turns taken so far */
    unsigned places;        /* free places */
    unsigned each;          /* places that one owner may have */
    bool closed;
} turns;

void turns_init(turns *t, unsigned places, unsigned each);
void turns_done(turns *t); /* no thread may be waiting */
/* Waits for a place. Returns true if it got one, to be returned by turns_give(); false if none was
 * free until until_ns, or if turns_close() was called. */
bool turns_take(turns *t, const char *owner, uint64_t until_ns);
void turns_give(turns *t, const char *owner);
/* Makes all waiting and later turns_take() calls return false. */
void turns_close(turns *t);
