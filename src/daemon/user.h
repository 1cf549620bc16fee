/* bothyd --user: a bothyd of one user, on Docker or Podman, without a node.
 *
 * Its places are base/home.h's; single by the lock of its state directory, as every bothyd. It ends
 * by itself when it has had nothing to do for user.idle_exit, because nobody started it on purpose:
 * 'bothy' does, when none answers (cli/user.c). */
#pragma once

#include "daemon/config.h"
#include "engine/engine.h"
#include "net/server.h"

/* A config_preset: state, socket, backend, and programs that lie beside us. */
void user_preset(config *c);
/* Makes the directories, 0700. */
err *user_prepare(const config *c) ERR_MUST;

typedef struct user_watch {
    engine *engine;
    server *server;
} user_watch;
/* When it listens: leaves the way to the socket in the state directory, for callers who have
 * another $XDG_RUNTIME_DIR or none, and watches for having nothing to do. */
err *user_begin(const config *c, int state_dir, const user_watch *w) ERR_MUST;
