/* A claimer's staging mount namespace: builds roots nobody else can see (reference: one code path
 * for kernels 6.1 to 7.2). The thread that calls stage_enter() stays in it for good and sees only a
 * tmpfs and the state directory (at /store). One build at a time per stage. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct stage {
    int root;     /* "/" of the namespace */
    int home_mnt; /* the way back */
    int home_uts;
    bool built; /* a scaffold stands */
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
/* An overlay of skel, layers and upper, id-mapped into userns, as one detached mount. */
err *stage_build(stage *st, const stage_spec *spec, int *ret_mount) ERR_MUST;
/* Takes the scaffold of a build down, failed ones too, before the next begins. The mount does not
 * need it: it is time the claim does not have to wait for. */
void stage_drop(stage *st);

/* setns() to where a thread came from; tried again while memory is short. -1 with errno. */
int stage_return(int ns, int kind);
/* Back from a slot's namespaces. Aborts when there is no way back: sandboxes survive us. */
void stage_home(const stage *st);

/* File system access of the calling thread as the slot's root, with all our capabilities: what it
 * makes in an id-mapped mount gets an owner that exists there. 0: as ourselves again. */
void stage_act_as(uint32_t uid);
