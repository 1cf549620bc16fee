/* bothyd --user: a bothyd for one user, on Docker or Podman, without a node.
 *
 * Its paths come from base/home.h. As with every bothyd, the lock of its state directory makes it
 * the only one. It exits after user.idle_exit without work, because the user did not start it:
 * 'bothy' does, when none answers (cli/user.c). */
#pragma once

#include "daemon/config.h"
#include "engine/engine.h"
#include "net/server.h"

/* Sets the defaults, as config_preset: state, socket, backend, and programs that lie beside bothyd.
 */
void user_preset(config *c);
/* Creates the directories, mode 0700. */
err *user_prepare(const config *c) ERR_MUST;

typedef struct user_watch {
    engine *engine;
    server *server;
} user_watch;
/* Called when bothyd listens. Leaves a link to the socket in the state directory, for callers with
 * another $XDG_RUNTIME_DIR or none. Starts to watch for idleness. */
err *user_begin(const config *c, int state_dir, const user_watch *w) ERR_MUST;
