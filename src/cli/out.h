/* Output for people: tables, colours, ages, sizes, errors.
 *
 * Text from a sandbox or a peer is printed with control characters escaped, so that a name or a
 * command line cannot control the reader's terminal. Only a command's own output is passed on
 * unchanged. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* Returns true if colours are wanted: a terminal, no $NO_COLOR, $TERM other than dumb. */
bool out_colours(FILE *f);
/* Prints `bothy: <message>`, then cause and remedy; with json {"error":{...}} on one line. */
void out_error(FILE *f, const err *e, bool json, bool colours);
/* Returns the error for output that cannot be written. what: the output; errnum 0: reason
 * unknown. */
err *out_failed(int errnum, const char *what) ERR_MUST;
/* Prints JSON and a newline: indented on a terminal, else compact. */
void out_json(FILE *f, const json_t *j);
/* Appends text with control characters and invalid UTF-8 escaped. NULL becomes "-". */
void out_safe(buf *out, const char *text);
/* Returns true for null, false, "", [] and {}. */
bool out_is_empty(const json_t *v);
/* Appends a value as people write it: the words of a list with spaces between them, the members of
 * an object that are not empty as "cpu 1, pids 512", null as a dash. */
void out_value(const json_t *v, buf *out);
/* Prints "name        value" on one line; labels as "a=b, c=d". Nothing if all members of an object
 * are empty. */
void out_field(const char *name, const json_t *v);
/* Prints a line of escaped text. */
void out_line(FILE *f, const char *text);
/* Appends "512 B", "64.0 KiB", "1.5 GiB". */
void out_size(buf *out, uint64_t bytes);
/* Appends "5s", "12m", "3h", "2d". */
void out_age(buf *out, uint64_t seconds);
/* Returns the real time in ns of "2026-01-02T03:04:05.678Z", 0 if it is not a time. */
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
/* Prints columns two spaces apart, without trailing spaces. */
void out_table_print(const out_table *t, FILE *f, bool colours);
