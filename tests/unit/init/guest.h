/* A hosted or freestanding bothy-init as pid 1 of a pid and mount namespace of its own: the
 * machine's programs below /usr, an /etc, /tmp and devpts of its own. Needs root or user
 * namespaces. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

typedef struct guest {
    pid_t pid;    /* on the host */
    char dir[64]; /* host side: holds the socket and is the mount point of the root */
    char socket[96];
} guest;

/* False when this machine does not let us; *ret_why says what is missing. Anything else that goes
 * wrong ends the test program. */
bool guest_possible(const char **ret_why);
/* The same for this program: the freestanding init ends where it cannot build its walls, which
 * need id 65533 and so more than the one id that a user namespace of ours maps. */
bool guest_runs(const char *init_program, const char **ret_why);
void guest_start(guest *g, const char *init_program);
/* The same in container mode (`/init serve`), as an engine would: in a network namespace of its
 * own, with the capabilities that Docker gives (uid 0) or none. */
typedef struct guest_serve {
    uid_t uid;
    gid_t gid;
    char *const *env; /* of pid 1; NULL: none */
} guest_serve;
void guest_start_serve(guest *g, const char *init_program, const guest_serve *o);
/* Runs argv inside as the engine's exec does: its parent is not visible there. Its stdin and stdout
 * are the socket that is returned; *ret_pid is to be reaped. */
int guest_exec(const guest *g, const guest_serve *o, char *const *argv, pid_t *ret_pid);
/* Another connection to the socket. */
int guest_connect(const guest *g);
void guest_stop(guest *g);
