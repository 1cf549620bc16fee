/* What E2B's clients say in heads: routes, ids, users, signatures. Native paths are never taken; an
 * id is one or none; a user's name is a text. */
#include "door/e2b/internal.h"

#include "fuzz.h"

static const char *word_or_null(fuzz_in *in, char **ret_word)
{
    *ret_word = fuzz_word(in, '\n');
    return **ret_word == '-' && !(*ret_word)[1] ? NULL : *ret_word;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    char *word[8];
    bool has_signature = fuzz_byte(&in) & 1;
    const char *path = word_or_null(&in, &word[0]);
    e2b_asked a = {.path = path ? path : "/", .has_signature = has_signature, .domain = "dom"};

    a.host = word_or_null(&in, &word[1]);
    a.api_key = word_or_null(&in, &word[2]);
    a.sandbox = word_or_null(&in, &word[3]);
    a.port = word_or_null(&in, &word[4]);
    a.token = word_or_null(&in, &word[5]);
    const char *basic = word_or_null(&in, &word[6]);
    const char *signature = word_or_null(&in, &word[7]);

    e2b_way w = e2b_route(&a);
    MUST(!w.id[0] || id_is_sandbox(w.id));
    MUST(w.plane != PLANE_CONTROL || e2b_is_control_path(a.path));
    MUST(!w.native || w.by_host);
    if (str_starts(a.path, "/v1/") && !a.sandbox && !w.by_host && !a.token)
        MUST(w.plane == PLANE_OTHER);

    char *user = NULL;
    if (basic) {
        CLEANUP(err_freep) err *failure = envd_basic_user(basic, &user);
        MUST(failure || !user || *user);
    }
    free(user);
    if (signature) {
        e2b_signed s = {.path = a.path,
                        .operation = "read",
                        .user = "",
                        .expiry = a.port,
                        .signature = signature};
        MUST(!e2b_signature_is(&s, "token") || strlen(signature) == 46);
        MUST(!e2b_signature_expired(&s, 0) || s.expiry);
    }
    for (size_t i = 0; i < 8; i++)
        free(word[i]);
    return 0;
}
