/* What `bothy top` shows: samples of the list, sorted, as lines that fit a screen. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"

typedef struct top_row {
    char *id, *name, *image, *state;
    bool counted;   /* the node knows what it used */
    double cpu;     /* seconds in all */
    double at;      /* when that was, seconds of 1970 */
    double load;    /* percent of a core between two samples; < 0: there is no earlier one */
    double io, net; /* bytes a second, both directions; < 0 likewise */
    uint64_t memory, limit, pids, io_bytes, net_bytes, execs, age;
    bool idles;              /* it has an idle time: */
    uint64_t idle, idle_for; /* seconds */
} top_row;

typedef struct top_sample {
    top_row *rows;
    size_t n;
} top_sample;
void top_sample_done(top_sample *s);
/* From the list's items; before (or NULL) is the sample that rates are measured against. */
void top_sample_read(const json_t *items, const top_sample *before, uint64_t now_ns,
                     top_sample *ret);

/* "cpu", "memory", …: index for top_sort, or -1. */
int top_column(const char *name);
/* The column this key sorts by, or -1. */
int top_column_of_key(char key);
const char *top_column_name(int column);
/* The largest first; reverse: the smallest. Equal ones by id. */
void top_sort(top_sample *s, int column, bool reverse);

typedef struct top_look {
    unsigned rows, cols;  /* of the screen; 0: all, as wide as it is */
    int column;           /* sorted by */
    const char *trouble;  /* why there is nothing newer, or NULL */
    bool screen, colours; /* with its heading, each line erased to its end */
} top_look;
void top_draw(const top_sample *s, const top_look *l, buf *out);
json_t *top_json(const top_sample *s);
