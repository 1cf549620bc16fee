/* The intruder: a static program that tries one named thing after another inside a sandbox. */
#pragma once

#include <stddef.h>

/* Gives -1 with errno, or anything else; what it say()s is printed instead of the result. */
typedef struct attempt {
    const char *name;
    long (*try)(void);
} attempt;

/* Each ends with an empty entry. */
extern const attempt PID1_ATTEMPTS[], MOUNT_ATTEMPTS[], KERNEL_ATTEMPTS[], NET_ATTEMPTS[];

__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
/* Appends "what:ERRNO", or "what:done" for a result that is not negative. */
void say_result(const char *what, long result);
/* Says so only if it was not refused with this errno. */
void say_unless(const char *what, long result, int expected);
const char *errno_name(int errnum);

/* open, and closed again at once */
long try_open(const char *path, int flags);
long try_write(const char *path, const char *text);
/* A user namespace (and what else flags name) of its own, in which we are root. */
long nest(int flags);

/* Takes all it can get of a pool, says how much, and holds it until it is killed. */
int hold(const char *pool);
/* Gets what a neighbour must always get, and lets go of it. */
int need(void);
/* Misuses the command's own stdio and processes. */
int misuse(const char *way);
