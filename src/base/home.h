/* Locates one user's files of bothy (XDG base directories) and the sockets of container engines.
 * Reads the environment and the user's passwd entry; creates nothing. */
#pragma once

#include "base/err.h"

#define HOME_SOCKET "bothyd.sock" /* in home_run(), and a link to it in home_state() */

char *home_state(void);  /* $XDG_STATE_HOME/bothy */
char *home_config(void); /* $XDG_CONFIG_HOME/bothy/bothy.yaml */
char *home_run(void);    /* $XDG_RUNTIME_DIR/bothy; if that is unset, "run" in home_state() */

/* Returns the path of a program or data file of bothy, or NULL if no readable one is found.
 * Searches beside the running program, in an installation's directories (sbin, libexec/bothy,
 * share/bothy) and in the bin directory of a build tree. */
char *home_program(const char *name);

/* Returns the unix socket of a Docker or Podman that answers. A non-empty `named` is the only
 * candidate; otherwise $DOCKER_HOST, if set, is; otherwise the first of the usual sockets that
 * answers. The error says what was tried, why each attempt failed, and what to do. */
err *home_engine(const char *named, char **ret_path) ERR_MUST;
