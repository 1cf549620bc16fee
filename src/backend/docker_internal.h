/* Shared by docker_api.c and docker_exec.c. */
#pragma once

#include "backend/docker_api.h"
#include "net/client.h"

#define PULL_MS (30 * 60 * 1000)

struct docker_api {
    client *client;
    docker_engine engine;
    char prefix[16]; /* "/v1.41" */
};

/* Makes an error from the engine's answer: "the engine cannot <what>", its own words as cause. */
err *docker_error(const char *what, long status, const buf *body) ERR_MUST;
