#include "door/swerex/token.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "base/json.h"
#include "base/str.h"
#include "core/spec.h"

#define NEW "new."

void rex_token_done(rex_token *t)
{
    secret_freep(&t->key);
    free(t->sandbox);
    free(t->image);
    *t = (rex_token){0};
}

static err *no_token(void)
{
    return err_remedy(err_new(ERR_UNAUTHENTICATED, "Invalid API Key"),
                      "auth_token is <key>.<sandbox id>, or <key>.new.<base64url of "
                      "{\"image\", \"ttl\", \"n\"}>.");
}

static err *bad_new(const char *why)
{
    return err_remedy(err_new(ERR_INVALID_REQUEST, "auth_token: %s", why),
                      "Behind '<key>.new.' comes base64url of {\"image\": \"debian:12\", \"ttl\": "
                      "3600, \"n\": 1}.");
}

/* Decodes base64url, with or without padding. */
static bool decode_url(const char *text, void **ret_bytes, size_t *ret_n)
{
    size_t n = strlen(text);
    CLEANUP(freep) char *plain = xmalloc(n + 4);

    while (n && text[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++)
        plain[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
    if (strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") < n)
        return false;
    while (n % 4)
        plain[n++] = '=';
    return base64_decode(plain, n, ret_bytes, ret_n);
}

static err *take_ttl(const json_t *v, uint64_t *ret_ms)
{
    json_int_t s = json_integer_value(v);

    if (!v || json_is_null(v))
        return NULL;
    if (!json_is_integer(v) || s < 1 || (uint64_t)s > REX_TTL_MAX_S)
        return bad_new(
            "ttl must be seconds, at most 86400: a token is its sandbox's for a day. For "
            "more, create one and name it in the token");
    *ret_ms = (uint64_t)s * 1000;
    return NULL;
}

static err *take_new(const json_t *body, rex_token *t)
{
    static const char *const KNOWN[] = {"image", "ttl", "n"};
    const char *image = json_str(body, "image"), *name;
    json_t *value;

    json_object_foreach((json_t *)body, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(KNOWN); i++)
            known = known || str_eq(name, KNOWN[i]);
        if (!known)
            return bad_new("only image, ttl and n are known");
    }
    if (!image || !*image)
        return bad_new("image is missing");
    const json_t *n = json_object_get(body, "n");
    if (n && !json_is_integer(n) && !json_is_string(n) && !json_is_null(n))
        return bad_new("n must be a number or a text");
    TRY(take_ttl(json_object_get(body, "ttl"), &t->ttl_ms));
    t->image = xstrdup(image);
    return NULL;
}

static err *parse_new(const char *text, rex_token *t)
{
    CLEANUP(freep) void *bytes = NULL;
    CLEANUP(json_decrefp) json_t *body = NULL;
    size_t n = 0;

    if (!decode_url(text, &bytes, &n))
        return bad_new("not base64url");
    CLEANUP(err_freep) err *e = json_parse(bytes, n, &body);
    if (e || !json_is_object(body))
        return bad_new("not a JSON object");
    return take_new(body, t);
}

static bool is_key(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)p[i]) && p[i] != '_' && p[i] != '-')
            return false;
    return n > 0 && n <= REX_KEY_MAX;
}

err *rex_token_parse(const char *text, rex_token *ret_token)
{
    const char *dot = strchr(text, '.');
    CLEANUP(rex_token_done) rex_token t = {0};

    if (!dot || !dot[1] || strlen(text) > REX_TOKEN_MAX || !is_key(text, (size_t)(dot - text)))
        return no_token();
    t.key = xstrndup(text, (size_t)(dot - text));
    if (str_starts(dot + 1, NEW))
        TRY(parse_new(dot + 1 + strlen(NEW), &t));
    else if (id_is_sandbox(dot + 1) || spec_name_valid(dot + 1))
        t.sandbox = xstrdup(dot + 1);
    else
        return no_token();
    *ret_token = t;
    t = (rex_token){0};
    return NULL;
}

/* ---- paths ---- */

static const char *const VERBS[] = {"is_alive",      "create_session", "run_in_session",
                                    "close_session", "execute",        "read_file",
                                    "write_file",    "upload",         "close"};

static bool is_verb(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(VERBS); i++)
        if (str_eq(name, VERBS[i]))
            return true;
    return false;
}

static bool parse_prefixed(const char *rest, rex_path *ret)
{
    size_t n = strcspn(rest, "/");

    if (n == 0 || n >= sizeof ret->sandbox)
        return false;
    memcpy(ret->sandbox, rest, n);
    ret->sandbox[n] = 0;
    ret->verb = rest + n + (rest[n] == '/');
    return id_is_sandbox(ret->sandbox) || spec_name_valid(ret->sandbox);
}

bool rex_path_parse(const char *path, rex_path *ret_path)
{
    *ret_path = (rex_path){.verb = path + (*path == '/')};
    if (str_starts(path, "/rex/"))
        return parse_prefixed(path + strlen("/rex/"), ret_path);
    return *path == '/' && is_verb(path + 1);
}
