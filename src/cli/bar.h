/* A line of progress on the terminal of stderr, drawn over itself: what pulls and copies show.
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
    uint64_t drawn_ns; /* 0: nothing is shown */
    int64_t first;     /* what was done when it began: not part of the rate; -1: not known yet */
} bar;

bar bar_start(const char *label);
/* Whether it is time for another line: ten a second are enough. */
bool bar_due(const bar *b);
/* "fetch  [=====>    ]  52 %  50.1 MiB of 96.2 MiB  2 of 4 layers  31.0 MiB/s", as wide as fits.
 * total 0: not known, and neither bar nor percentage. note may be NULL; it is ours, not a peer's.
 */
typedef struct bar_state {
    uint64_t done, total; /* bytes */
    int percent;          /* -1: that of the bytes */
    const char *note;
} bar_state;
void bar_draw(bar *b, const bar_state *s);
/* The same line with a text instead of numbers, which a peer may have written. */
void bar_say(bar *b, const char *text);
void bar_clear(bar *b);
