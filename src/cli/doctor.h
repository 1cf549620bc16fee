/* bothy doctor: one table of checks. Each says ok, warn or fail, and what to do.
 *
 * Works without a daemon and without root; what only root can try is a warning then. Kernel
 * features are found by trying them in a child process (doctor_probe), never by version number.
 *
 * To play a sick machine: $BOTHY_DOCTOR_FAIL names checks whose feature is missing (separated by
 * commas), $BOTHY_DOCTOR_PROC is a directory read instead of /proc/sys, $PATH is where tools are.
 */
#pragma once

#include <stdint.h>

#include "cli/cli.h"
#include "core/sysctl.h"

typedef enum doctor_level {
    DOCTOR_OK,
    DOCTOR_WARN,
    DOCTOR_FAIL
} doctor_level;

typedef struct doctor doctor;
typedef struct doctor_check doctor_check;
struct doctor_check {
    const char *name; /* "kernel.openat2" */
    void (*run)(doctor *d, const doctor_check *k);
    const char *subject;     /* of the probe, tool, sysctl, controller */
    const char *why;         /* what it is needed for */
    const char *remedy;      /* when it is missing or too small */
    const sysctl_need *need; /* sysctl */
    doctor_level level;      /* when it is missing */
    bool user;               /* a user's own daemon needs it, too */
};
extern const doctor_check DOCTOR_CHECKS[]; /* ends with a NULL name */

struct doctor {
    cli *c;
    json_t *lines; /* not owned: {"name","level","message","remedy"} */
    doctor_level worst;
    bool user; /* this machine is no node */
};
/* Adds a line. remedy may be NULL. */
void doctor_say(doctor *d, const char *name, doctor_level level, const char *remedy,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* $BOTHY_DOCTOR_FAIL names it. */
bool doctor_pretends(const char *name);

/* Kinds of checks. */
void doctor_try_probe(doctor *d, const doctor_check *k);
void doctor_try_controller(doctor *d, const doctor_check *k);
void doctor_try_tool(doctor *d, const doctor_check *k);
void doctor_try_sysctl(doctor *d, const doctor_check *k);
void doctor_try_user(doctor *d, const doctor_check *k);
void doctor_try_group(doctor *d, const doctor_check *k);
void doctor_try_file(doctor *d, const doctor_check *k);
void doctor_try_filesystem(doctor *d, const doctor_check *k);
void doctor_try_daemon(doctor *d, const doctor_check *k);
void doctor_try_engine(doctor *d, const doctor_check *k);

/* In the child: tries one kernel feature. Prints why not on stderr. Returns the exit status. */
int doctor_probe(const char *name);
/* A probe that cannot be tried without root exits with this. */
#define DOCTOR_NEEDS_ROOT 77
