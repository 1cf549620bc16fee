/* The backend that the configuration names. */
#pragma once

#include "backend/backend.h"
#include "daemon/config.h"

/* kit: kit_load()'s, -1 if there is none. */
err *provide_backend(const config *c, int state_dir, int kit, backend **ret_backend) ERR_MUST;

/* The operator beside the backend `kubernetes`; nothing with any other. It stays until the end. */
typedef struct engine engine;
err *provide_operator(const config *c, int state_dir, engine *e, backend *b) ERR_MUST;
