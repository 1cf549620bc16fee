/* bothy doctor: one table of checks. Each reports ok, warn or fail, and what to do.
 *
 * Works without a daemon and without root; a check that needs root is then a warning. Kernel
 * features are tried in a child process (doctor_probe), never inferred from a version number.
 *
 * To simulate a faulty machine: $BOTHY_DOCTOR_FAIL names checks whose feature counts as missing
 * (separated by commas), $BOTHY_DOCTOR_PROC is read instead of /proc/sys, tools are searched in
 * $PATH. */
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
    const char *subject;     /* name of the probe, tool, sysctl or controller */
    const char *why;         /* what needs it */
    const char *remedy;      /* what to do if it is missing or too small */
    const sysctl_need *need; /* for sysctls */
    doctor_level level;      /* if it is missing */
    bool user;               /* a user's own daemon needs it, too */
    bool client;             /* also where the daemon is another machine's, or another user's */
};
extern const doctor_check DOCTOR_CHECKS[]; /* ends with a NULL name */

struct doctor {
    cli *c;
    json_t *lines; /* not owned: {"name","level","message","remedy"} */
    doctor_level worst;
    bool user; /* this machine is not a node */
};
/* Adds a line. remedy may be NULL. */
void doctor_say(doctor *d, const char *name, doctor_level level, const char *remedy,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Returns true if $BOTHY_DOCTOR_FAIL names the check. */
bool doctor_pretends(const char *name);

/* Returns true if a daemon was named and answers: this machine needs nothing else. */
bool doctor_is_client(doctor *d);

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

/* Tries one kernel feature, in the child. Prints on stderr why it fails. Returns the exit
 * status. */
int doctor_probe(const char *name);
/* Exit status of a probe that cannot be tried without root. */
#define DOCTOR_NEEDS_ROOT 77
