/* Connects a request to a server inside a sandbox: net/gateway with a socket of the engine. */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

typedef struct port_way {
    uint16_t port;
    const char *prefix; /* path form; NULL: host form */
    bool tunnel;
    uint64_t answer_ms, idle_ms, patient_until; /* as in net/gateway.h */
} port_way;

/* Hands the connection to the relay, which keeps the sandbox from being idle meanwhile. Takes its
 * own reference. Errors as engine_port_check. */
err *port_start(request *rq, response *rs, engine *e, const caller *c, sandbox *sb,
                const port_way *w) ERR_MUST;
