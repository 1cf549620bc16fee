/* Finds a daemon if none was named: the node's, else the user's own, which is started if it does
 * not answer.
 *
 * None is started if an option or the environment names a daemon, for root, or on a node (which has
 * /etc/bothy/bothy.yaml or a socket in /run/bothy): there a missing daemon is an error. */
#pragma once

#include "cli/cli.h"

bool user_machine_is_node(void);
/* Returns true if this machine has no node and the user is not root: sandboxes then run on Docker
 * or Podman. */
bool user_has_no_node(void);
/* Returns "unix:/path" of the daemon that answers; if none does, where the user's own would be. */
char *user_address(void);
/* Starts the user's own daemon, only one for any number of callers, and waits until it answers.
 * tell: print a line about it on stderr. */
err *user_start(bool tell, char **ret_url) ERR_MUST;
