/* What a client of SWE-ReX has in its auth_token: who it is, and which sandbox it means. Pure.
 *
 *     <key>.<sandbox id or name>
 *     <key>.new.<base64url of {"image":…,"ttl":seconds,"n":…}>    made at the first POST
 *
 * `n` is anything: two deployments with the same image are told apart by it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define REX_TOKEN_MAX 8192u
#define REX_KEY_MAX   256u

#define REX_TTL_MAX_S 86400u /* as long as the engine keeps the key of a create */
typedef struct rex_token {   /* rex_token_done() frees */
    char *key;
    char *sandbox;   /* by id or name; NULL: */
    char *image;     /* of the one that is to be made */
    uint64_t ttl_ms; /* 0: the node's, a day at most */
} rex_token;
/* ERR_UNAUTHENTICATED: it is none at all. ERR_INVALID_REQUEST: what is to be made is not said
 * well. */
err *rex_token_parse(const char *text, rex_token *ret_token) ERR_MUST;
void rex_token_done(rex_token *t);

/* The path of a request: "/verb" for the sandbox of the token, "/rex/<sandbox>/verb" for a plain
 * key. */
typedef struct rex_path {
    const char *verb; /* "is_alive", …; "": the root. In the path */
    char sandbox[65]; /* "": the token names it */
} rex_path;
/* False: it is nothing of this door. */
bool rex_path_parse(const char *path, rex_path *ret_path);
