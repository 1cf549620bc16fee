/* A progress line on stderr's terminal, redrawn in place: used by pulls and copies.
 *
 *     bar b = bar_start("copy");
 *     bar_draw(&b, &(bar_state){.done = n, .total = all, .percent = -1, .note = "12 files"});
 *     bar_clear(&b);     before anything else is printed there */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct bar {
    const char *label; /* up to 8 columns */
    uint64_t began_ns;
    uint64_t drawn_ns; /* 0: nothing is drawn */
    int64_t first;     /* bytes done at the first draw, not counted in the rate; -1: none yet */
} bar;

bar bar_start(const char *label);
/* Returns true if the line may be drawn again: at most ten times a second. */
bool bar_due(const bar *b);
/* Draws "fetch  [=====>    ]  52 %  50.1 MiB of 96.2 MiB  2 of 4 layers  31.0 MiB/s", as wide as
 * fits. total 0: unknown, so no bar and no percentage. note may be NULL; it must not come from a
 * peer. */
typedef struct bar_state {
    uint64_t done, total; /* bytes */
    int percent;          /* -1: computed from the bytes */
    const char *note;
} bar_state;
void bar_draw(bar *b, const bar_state *s);
/* Draws the line with a text instead of numbers. The text may come from a peer. */
void bar_say(bar *b, const char *text);
void bar_clear(bar *b);
