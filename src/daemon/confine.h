/* The confinement that bothyd sets up before it opens anything (README.md has the picture).
 *
 *   all of bothyd    no core, no new code in memory; Landlock: its own directories, and reading
 *                    what it needs; system calls by an allow list
 *   its threads      in addition: no program can be started
 *   "starter"        the one thread that can start a program: skopeo, and nothing else
 *   skopeo           the limits of bothyd, and: Landlock: its scratch directory, certificates, name
 *                    service; no listening; few descriptors, small files
 *
 * Threads share memory: a restriction on only some of them is a hurdle, not a wall. */
#pragma once

#include "base/err.h"
#include "base/spawn.h"
#include "daemon/config.h"

/* Call before the second thread. A restriction that fails is an error; features that the kernel
 * lacks (Landlock, MDWE) are logged. With the backend fake, whose sandboxes are our own children,
 * only core dumps are disabled. */
err *confine_daemon(const config *c) ERR_MUST;
/* Starts skopeo confined: an image_options.start. Call from any thread, after confine_daemon(). */
err *confine_start(const spawn_spec *spec, const char *scratch, bool local,
                   pid_t *ret_pid) ERR_MUST;
