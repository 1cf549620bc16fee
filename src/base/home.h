/* Where what belongs to one user lies (XDG's base directories), and where engines of containers
 * listen. All from the environment and the user's passwd entry; nothing is made here. */
#pragma once

#include "base/err.h"

#define HOME_SOCKET "bothyd.sock" /* in home_run(), and a link to it in home_state() */

char *home_state(void);  /* $XDG_STATE_HOME/bothy */
char *home_config(void); /* $XDG_CONFIG_HOME/bothy/bothy.yaml */
char *home_run(void);    /* $XDG_RUNTIME_DIR/bothy; without one "run" in home_state() */

/* Returns the path of a program or data file of bothy's own, or NULL if there is none to be read. It is looked for
 * beside the running program, where an installation has it (sbin, libexec/bothy, share/bothy), and
 * in the bin directory of a build tree. */
char *home_program(const char *name);

/* The unix socket of Docker or Podman that answers. `named` is the only one that is asked; NULL or
 * "": the one of $DOCKER_HOST, else those there may be, the first that answers. The error says what
 * was tried, what came of it and what to do. */
err *home_engine(const char *named, char **ret_path) ERR_MUST;
