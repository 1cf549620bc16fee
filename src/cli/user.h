/* A daemon that nobody named: the node's, else the user's own, which is started if none answers.
 *
 * Never when an option or the environment names one, as root, or on a machine that has a node
 * (/etc/bothy/bothy.yaml, or a socket in /run/bothy): there the absence of a daemon is an error. */
#pragma once

#include "cli/cli.h"

/* The machine has no node, or none that we may ask: sandboxes are Docker's or Podman's. */
bool user_has_no_node(void);
/* Where one answers, "unix:/path"; if none does, where the user's own would. */
char *user_address(void);
/* Starts the user's own, at most one for any number of callers, and waits until it answers. tell: a
 * line on stderr about it. */
err *user_start(bool tell, char **ret_url) ERR_MUST;
