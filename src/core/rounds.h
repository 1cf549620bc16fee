/* A queue shared by many owners: each has a line of its own, and the lines are served in turn. An
 * owner with a thousand entries delays the first entry of another by one turn. Within a line
 * entries keep their order of arrival. The caller embeds a rounds_entry and owns it. Not locked. */
#pragma once

#include <stdint.h>

#include "base/map.h"

typedef struct rounds_line { /* one owner's entries; freed with the last of them */
    struct rounds_line *prev, *next;
    struct rounds_entry *head, *tail;
    uint64_t owner;
    uint32_t n;
} rounds_line;

typedef struct rounds_entry {
    struct rounds_entry *before, *behind;
    rounds_line *line; /* NULL: not queued */
} rounds_entry;

typedef struct rounds { /* zero-initialised is empty; removing the last entry frees all memory */
    rounds_line *first, *last; /* in the order of their turns */
    map by_owner;
} rounds;

/* Appends an entry to its owner's line. A new owner takes the last turn. */
void rounds_add(rounds *r, rounds_entry *e, uint64_t owner);
/* Removes an entry; its owner keeps its turn. */
void rounds_remove(rounds *r, rounds_entry *e);
/* Removes an entry because it was served; its owner goes to the end of the turns. */
void rounds_serve(rounds *r, rounds_entry *e);
/* Iterates over the first entry of each owner, in the order of turns: returns the entry of the
 * owner after that of `after` (NULL: of the first owner), or NULL at the end. */
rounds_entry *rounds_next(const rounds *r, const rounds_entry *after);
/* Returns the last entry of the longest line, to drop when a queue is full. NULL if the queue is
 * empty. */
rounds_entry *rounds_longest(const rounds *r);
uint32_t rounds_waiting(const rounds *r, uint64_t owner); /* entries of this owner */
