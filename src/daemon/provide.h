/* Makes the backend that the configuration names. */
#pragma once

#include "backend/backend.h"
#include "daemon/config.h"

/* kit: from kit_load(), -1 if there is none. */
err *provide_backend(const config *c, int state_dir, int kit, backend **ret_backend) ERR_MUST;

/* Starts the operator with the backend `kubernetes`; does nothing with others. It runs until the
 * process ends. */
typedef struct engine engine;
err *provide_operator(const config *c, int state_dir, engine *e, backend *b) ERR_MUST;
