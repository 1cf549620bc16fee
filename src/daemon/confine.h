/* The walls that bothyd builds around itself before it opens anything (README.md has the picture).
 *
 *   all of bothyd    no core, no new code in memory; Landlock: its own directories, and reading
 *                    what it needs; system calls by an allow list
 *   its threads      in addition: no program can be started
 *   "starter"        the one thread that can start a program: skopeo, and nothing else
 *   skopeo           the walls of bothyd, and: Landlock: its scratch directory, certificates, name
 *                    service; no listening; few descriptors, small files
 *
 * Threads share memory: what only some of them lack is a hurdle, not a wall. */
#pragma once

#include "base/err.h"
#include "base/spawn.h"
#include "daemon/config.h"

/* Before the second thread. A wall that cannot be built is an error; what the kernel does not have
 * (Landlock, MDWE) is told in the log. With the backend fake, whose sandboxes are our own children,
 * only cores are refused. */
err *confine_daemon(const config *c) ERR_MUST;
/* An image_options.start. From any thread, after confine_daemon(). */
err *confine_start(const spawn_spec *spec, const char *scratch, bool local,
                   pid_t *ret_pid) ERR_MUST;
