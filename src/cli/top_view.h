/* The view of `bothy top`: samples of the sandbox list, sorted, as lines that fit a screen.
 * Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"

typedef struct top_row {
    char *id, *name, *image, *state;
    bool counted;   /* the node measures its usage */
    double cpu;     /* CPU seconds since the create */
    double at;      /* when they were measured, seconds since 1970 */
    double load;    /* percent of a core since the last sample; < 0: there is none */
    double io, net; /* bytes per second, both directions; < 0 likewise */
    uint64_t memory, limit, pids, io_bytes, net_bytes, execs, age;
    bool idles;              /* it has an idle time: */
    uint64_t idle, idle_for; /* seconds */
} top_row;

typedef struct top_sample {
    top_row *rows;
    size_t n;
} top_sample;
void top_sample_done(top_sample *s);
/* Reads the list's items. before (or NULL): the sample against which rates are computed. */
void top_sample_read(const json_t *items, const top_sample *before, uint64_t now_ns,
                     top_sample *ret);

/* Returns the index of a column ("cpu", "memory", …) for top_sort(), or -1. */
int top_column(const char *name);
/* Returns the column that this key sorts by, or -1. */
int top_column_of_key(char key);
const char *top_column_name(int column);
/* Sorts the largest first; reverse: the smallest. Equal rows by id. */
void top_sort(top_sample *s, int column, bool reverse);

typedef struct top_look {
    unsigned rows, cols;  /* size of the screen; 0: no limit */
    int column;           /* sorted by */
    const char *trouble;  /* why there is no newer sample, or NULL */
    bool screen, colours; /* screen: with a heading, each line erased to its end */
} top_look;
void top_draw(const top_sample *s, const top_look *l, buf *out);
json_t *top_json(const top_sample *s);
