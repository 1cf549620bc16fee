/* All verbs, in the order of help. */
#include "cli/verbs.h"

#include "cli/cli.h"

const verb *const CLI_VERBS[] = {
    &VERB_RUN,     &VERB_CREATE,   &VERB_LS,       &VERB_TOP,   &VERB_SHOW,     &VERB_RM,
    &VERB_UPDATE,  &VERB_PAUSE,    &VERB_RESUME,   &VERB_RESET, &VERB_EXEC,     &VERB_SHELL,
    &VERB_ATTACH,  &VERB_KILL,     &VERB_SESSION,  &VERB_LOGS,  &VERB_EVENTS,   &VERB_CP,
    &VERB_FORWARD, &VERB_IMAGE,    &VERB_SNAPSHOT, &VERB_FORK,  &VERB_TEMPLATE, &VERB_LOGIN,
    &VERB_LOGOUT,  &VERB_REGISTRY, &VERB_KEY,      &VERB_POOL,  &VERB_CODE_RUN, &VERB_E2B_ENV,
    &VERB_MCP,     &VERB_BACKUP,   &VERB_DOCTOR,   &VERB_INFO,  &VERB_VERSION,  &VERB_HELP,
    NULL,
};
