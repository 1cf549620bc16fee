/* Reads and raises numbers below /proc/sys, by their dotted names. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Reads the first number of a file. proc_sys is a descriptor of /proc/sys, or of a test's
 * substitute. Returns 0 or a negative errno; -ENOENT: this kernel does not have it. */
int sysctl_get(int proc_sys, const char *name, uint64_t *ret_value);
/* Writes `least` if the value is lower; never lowers it. Returns 0 or a negative errno. */
int sysctl_raise(int proc_sys, const char *name, uint64_t least);
