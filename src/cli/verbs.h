/* Each verb's row; the file verb_<name>.c has it. */
#pragma once

#include "cli/cli.h"

extern const verb VERB_RUN, VERB_CREATE, VERB_LS, VERB_SHOW, VERB_RM, VERB_EXEC, VERB_LOGS, VERB_CP,
    VERB_FORWARD, VERB_IMAGE, VERB_LOGIN, VERB_LOGOUT, VERB_REGISTRY, VERB_KEY, VERB_POOL,
    VERB_DOCTOR, VERB_INFO, VERB_VERSION, VERB_HELP;
