/* A SWE-ReX client's auth_token: its key, and the sandbox it means. Pure.
 *
 *     <key>.<sandbox id or name>
 *     <key>.new.<base64url of {"image":…,"ttl":seconds,"n":…}>    made at the first POST
 *
 * `n` is any value: it tells two deployments with the same image apart. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define REX_TOKEN_MAX 8192u
#define REX_KEY_MAX   256u

#define REX_TTL_MAX_S 86400u /* the engine keeps the key of a create that long */
typedef struct rex_token {   /* rex_token_done() frees it */
    char *key;
    char *sandbox;   /* id or name; NULL: */
    char *image;     /* image of the sandbox to make */
    uint64_t ttl_ms; /* 0: the node's default, a day at most */
} rex_token;
/* ERR_UNAUTHENTICATED: it is not a token. ERR_INVALID_REQUEST: its description of the sandbox to
 * make is wrong. */
err *rex_token_parse(const char *text, rex_token *ret_token) ERR_MUST;
void rex_token_done(rex_token *t);

/* A request's path: "/verb" for the sandbox of the token, "/rex/<sandbox>/verb" with a plain
 * key. */
typedef struct rex_path {
    const char *verb; /* points into the path: "is_alive", …; "": the root */
    char sandbox[65]; /* "": the token names the sandbox */
} rex_path;
/* Returns false if the path is not this door's. */
bool rex_path_parse(const char *path, rex_path *ret_path);
