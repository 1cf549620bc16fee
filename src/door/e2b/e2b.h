/* The door for E2B's SDKs, on the same listeners as the native API.
 *
 * It has two planes: control (sandboxes, /sandboxes…) for callers with a key, and data (envd:
 * processes, files, ports) for callers with a sandbox's token. e2b_claims() says which requests
 * belong to this door; all others are the native API's (docs/decisions/0014-e2b.md has the
 * order). */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

#define E2B_SECRET_LEN 32

typedef struct e2b_options {
    engine *engine;
    const uint8_t *secret; /* E2B_SECRET_LEN bytes; copied */
    size_t door;           /* index of this door in the server's lists */
    size_t operation;      /* index of its first operation */
    const char *domain;    /* ports.domain; "" or NULL: none */
    const char *tcp;       /* listen.tcp; "" or NULL: none */
    uint64_t port_answer_ms, port_idle_ms;
    const char *base_image, *code_interpreter_image; /* images of these two templates */
    const char *code_interpreter_start; /* start command of the second, for sh; "" or NULL: none */
    uint64_t default_ttl_ms;
    bool internet_warns;      /* internet asked for but not to be had: create without it, and log */
    bool sudo;                /* sudo works in sandboxes of this door; otherwise it fails */
    bool public_ports;        /* <port>-<id>.<domain> needs no token */
    uint64_t watcher_idle_ms; /* a watcher not polled for so long is removed */
} e2b_options;

typedef struct e2b e2b;
/* The strings in the options must outlive the door. */
e2b *e2b_new(const e2b_options *o);
void e2b_free(e2b *d);
/* Loads the node's secret from the state directory, or makes it if there is none. The caller wipes
 * it. */
err *e2b_secret_load(int state_dir, uint8_t ret_secret[E2B_SECRET_LEN]) ERR_MUST;
/* Names of this door's operations, as metrics and logs show them. NULL-terminated. */
extern const char *const E2B_OPERATIONS[];

/* Returns true if the request belongs to this door. */
bool e2b_claims(e2b *d, request *rq);
void e2b_form(e2b *d, request *rq, response *rs); /* sets the form of its errors */
/* Serves the request. The caller renders a returned error in the form that was set on the
 * response. */
err *e2b_dispatch(e2b *d, request *rq, response *rs) ERR_MUST;
