/* What bench-client's parts share. Everything here ends the program when it fails: a sample that
 * could not be taken is no sample.
 *
 * A benchmark prints "NAME NANOSECONDS" lines; the drivers make figures of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"

#define NORETURN __attribute__((noreturn))
#define PRINTF   __attribute__((format(printf, 1, 2)))

NORETURN void die(const char *what); /* with errno */
NORETURN PRINTF void fail(const char *format, ...);
unsigned number(const char *text);
void note(const char *subject, uint64_t ns);

/* ---- HTTP over the unix socket (http.c) ---- */

#define ANSWER_MAX 65536
typedef struct conn {
    int fd;
    size_t got;
    char answer[ANSWER_MAX + 1]; /* of the last request, NUL-terminated */
} conn;

void conn_open(conn *c, const char *path);
void conn_send(conn *c, const char *method, const char *path, const char *body);
/* Length of the head, and of the whole answer (Content-Length is what the daemon sends for JSON);
 * 0 while they are not there. */
size_t answer_head(const conn *c);
size_t answer_length(const conn *c);
bool answer_is_ok(const conn *c); /* 2xx */
/* One request on the kept connection; fails unless the answer is a success. */
void ask(conn *c, const char *method, const char *path, const char *body);
/* Members of the last answer: the first of that name. */
void member(const conn *c, const char *name, char *ret, size_t size);
double member_number(const conn *c, const char *name);
void check_exit(const conn *c); /* the command ended with 0 */

/* ---- programs (spawn.c) ---- */

/* Spawns, waits, gives the time. {} in argv becomes a fresh name; stdin and stdout are /dev/null
 * unless out is a descriptor. Fails unless it ends with 0. */
uint64_t run_timed(char *const *argv, unsigned round, int out);

/* ---- the warden and pid 1, without bothyd (spine.c) ---- */

typedef struct pool_state {
    unsigned low, high, ready, waiting, dying;
} pool_state;

void warden_open(const char *path);
void warden_pool(pool_state *ret_state);
void warden_watermarks(unsigned low, unsigned high);
/* A sandbox and its connection, as bothyd would get them. */
int slot_claim(const char *id, const uint8_t image[32]);
/* Runs argv to its end with both streams drained. */
void slot_run(int fd, uint64_t exec, char *const *argv);
void slot_destroy(const char *id, int fd);

/* ---- the state of the machine before a sample (settle.c) ---- */

/* pool: fills it up to its high watermark, whatever the low one is, and waits until it is full and
 * nothing is taken apart any more. Then at most a second until no other task wants to run. */
void settle(bool pool);
void settle_report(void); /* "settled" and "unsettled" counts, to stderr */

/* ---- roots for runtimes (root.c) ---- */

typedef struct root_plan {
    const char *merged;  /* where the overlay goes */
    const char *scratch; /* below it: uppers, one a sample; on the file system of the slots' */
    const char *lower;   /* "A:B:...", top first */
    uint32_t uid_base;
} root_plan;
/* Clones of the layers, their ids mapped for uid_base, attached below scratch: once, not timed. */
void root_map_layers(root_plan *p);
void root_make_upper(const root_plan *p, const char *name);
void root_mount(const root_plan *p, const char *name);
void root_umount(const root_plan *p);

/* ---- rivals (rival.c) ---- */

#define RIVALS_MAX 8
typedef struct rival {
    const char *name;
    bool has_root;
    root_plan root;
    char **argv;
} rival;

/* The words from the first "--" on; their number. */
size_t rivals_read(char **word, rival ret[RIVALS_MAX]);
void rival_sample(const rival *r, unsigned round); /* notes its time under its name */
void digest_read(const char *hex, uint8_t ret[32]);

/* ---- the benchmarks ---- */

int bench_tti(int argc, char **argv);
int bench_exec(int argc, char **argv);
int bench_output(int argc, char **argv);
int bench_burst(int argc, char **argv);
int bench_session(int argc, char **argv);
int bench_root(int argc, char **argv); /* not one: a command on a root */
