/* What people see: tables, colours, ages, sizes, errors.
 *
 * Everything that came from a sandbox or a peer is printed with control characters escaped, so that
 * a name or a command line cannot drive the reader's terminal. A command's own output is the one
 * thing that is passed on as it is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* A terminal that wants colours: isatty, no $NO_COLOR, $TERM other than dumb. */
bool out_colours(FILE *f);
/* `bothy: <message>`, then the cause and the remedy; or {"error":{...}} on one line. */
void out_error(FILE *f, const err *e, bool json, bool colours);
/* Nothing more can be written to where `what` goes; errnum 0 where it is not known any more why. */
err *out_failed(int errnum, const char *what) ERR_MUST;
/* JSON with a newline: indented on a terminal, else compact. */
void out_json(FILE *f, const json_t *j);
/* Escapes control characters and bytes that are not UTF-8. NULL prints as "-". */
void out_safe(buf *out, const char *text);
/* A line of that. */
/* "name        value" for people: one line, null as a dash. */
void out_field(const char *name, const json_t *v);
void out_line(FILE *f, const char *text);
/* "512 B", "64.0 KiB", "1.5 GiB" */
void out_size(buf *out, uint64_t bytes);
/* "5s", "12m", "3h", "2d" */
void out_age(buf *out, uint64_t seconds);
/* Real time in ns of "2026-01-02T03:04:05.678Z", 0 if it is not one. */
uint64_t out_parse_time(const char *text);

typedef struct out_table {
    size_t columns;
    char **cells; /* rows one after the other; the first is the head */
    size_t n;
} out_table;
/* heads: "ID NAME STATE", separated by single spaces. */
void out_table_init(out_table *t, const char *heads);
void out_table_cell(out_table *t, const char *text);
void out_table_done(out_table *t);
/* Columns two spaces apart; no trailing spaces. */
void out_table_print(const out_table *t, FILE *f, bool colours);
