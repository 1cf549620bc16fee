/* A claimer's staging mount namespace: builds roots that no other process can see, with one code
 * path for kernels 6.1 to 7.2. The thread that calls stage_enter() stays in it for good and sees
 * only a tmpfs and the state directory (at /store). One build at a time per stage. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct stage {
    int root;     /* "/" of the namespace */
    int home_mnt; /* mount and UTS namespace to return to */
    int home_uts;
    bool built; /* the mounts of a build exist */
} stage;

err *stage_enter(const char *store, stage *ret_stage) ERR_MUST;

typedef struct stage_spec {
    char *const *layers; /* top first, relative to the store */
    size_t nlayers;
    const char *upper; /* relative to the store; holds u/ and w/ */
    int userns;
    uint32_t uid_base;
    bool nosuid;
} stage_spec;
/* Builds an overlay of skel, layers and upper, id-mapped into userns, as one detached mount. */
err *stage_build(stage *st, const stage_spec *spec, int *ret_mount) ERR_MUST;
/* Unmounts a build, a failed one too; required before the next one. The mount does not need the
 * build, so this is done after the claim is answered. */
void stage_drop(stage *st);

/* Returns the thread to a namespace with setns(), and retries while memory is short. Returns -1
 * with errno. */
int stage_return(int ns, int kind);
/* Returns from a slot's namespaces. Aborts if that is not possible: sandboxes survive the
 * warden. */
void stage_home(const stage *st);

/* Makes the calling thread access files as the slot's root, with all capabilities of the warden:
 * files that it makes in an id-mapped mount get an owner that exists there. 0: as the warden
 * again. */
void stage_act_as(uint32_t uid);
