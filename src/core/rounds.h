/* A queue that many owners share: each has a line of its own, and the lines are served in turn. An
 * owner with a thousand entries delays the first entry of another by one turn. Within a line the
 * order is that of arrival. Entries are the caller's, who embeds a rounds_entry; not locked. */
#pragma once

#include <stdint.h>

#include "base/map.h"

typedef struct rounds_line { /* of an owner; it exists while it has an entry */
    struct rounds_line *prev, *next;
    struct rounds_entry *head, *tail;
    uint64_t owner;
    uint32_t n;
} rounds_line;

typedef struct rounds_entry {
    struct rounds_entry *before, *behind;
    rounds_line *line; /* NULL: it is in no queue */
} rounds_entry;

typedef struct rounds { /* zero-initialised it is empty; the last entry that leaves frees all */
    rounds_line *first, *last; /* in the order of their turns */
    map by_owner;
} rounds;

/* Behind the owner's others; a new owner's turn is the last. */
void rounds_add(rounds *r, rounds_entry *e, uint64_t owner);
/* Removes it; its owner keeps its turn. */
void rounds_remove(rounds *r, rounds_entry *e);
/* Removes it because it was served: its owner's next turn is behind all others'. */
void rounds_serve(rounds *r, rounds_entry *e);
/* The first entry of each owner, in the order of their turns; after NULL the first one's. */
rounds_entry *rounds_next(const rounds *r, const rounds_entry *after);
/* The last entry of the longest line, for a queue that is full. NULL: it is empty. */
rounds_entry *rounds_longest(const rounds *r);
uint32_t rounds_waiting(const rounds *r, uint64_t owner); /* entries of this owner */
