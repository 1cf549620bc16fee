/* Numbers below /proc/sys, by their dotted names. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The first number. proc_sys is a descriptor of /proc/sys (or of what a test has instead). 0 or a
 * negative errno; -ENOENT: this kernel does not have it. */
int sysctl_get(int proc_sys, const char *name, uint64_t *ret_value);
/* Writes it if it is less; never lowers. 0 or a negative errno. */
int sysctl_raise(int proc_sys, const char *name, uint64_t least);
