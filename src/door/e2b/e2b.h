/* The door for E2B's SDKs, on the same listeners as the native API.
 *
 * Two planes: control (sandboxes, /sandboxes…) for who has a key, and data (envd: processes, files,
 * ports) for who has a sandbox's token. e2b_claims() says which requests are this door's; the rest
 * is the native API's (docs/decisions/0014-e2b.md has the order). */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

#define E2B_SECRET_LEN 32

typedef struct e2b_options {
    engine *engine;
    const uint8_t *secret; /* E2B_SECRET_LEN bytes; copied */
    size_t door;           /* of the server's lists: this door, */
    size_t operation;      /* and its first operation */
    const char *domain;    /* ports.domain; "" or NULL: none */
    const char *tcp;       /* listen.tcp; "" or NULL: none */
    uint64_t port_answer_ms, port_idle_ms;
    const char *base_image, *code_interpreter_image; /* what these templates are */
    const char *code_interpreter_start; /* its start command, for sh; "" or NULL: none */
    uint64_t default_ttl_ms;
    bool internet_warns; /* a sandbox without the internet that was asked for, instead of none */
    bool sudo;           /* a command may gain privileges here; else sudo just does not work */
    bool public_ports;   /* <port>-<id>.<domain> needs no token */
    uint64_t watcher_idle_ms; /* one that nobody has asked for so long goes */
} e2b_options;

typedef struct e2b e2b;
/* Texts of the options live longer than the door. */
e2b *e2b_new(const e2b_options *o);
void e2b_free(e2b *d);
/* The node's secret, from the state directory; made when there is none. Wipe it. */
err *e2b_secret_load(int state_dir, uint8_t ret_secret[E2B_SECRET_LEN]) ERR_MUST;
/* For the server's lists; NULL-terminated. */
extern const char *const E2B_OPERATIONS[];

/* Is the request for this door? */
bool e2b_claims(e2b *d, request *rq);
void e2b_form(e2b *d, request *rq, response *rs); /* of its errors */
/* Answers, errors too: what it returns is to be told in the form that it has set. */
err *e2b_dispatch(e2b *d, request *rq, response *rs) ERR_MUST;
