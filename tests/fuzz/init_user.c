/* A user, as init's child finds it in the image's passwd and group, and the environment it makes.
 * Words end in NUL: the user asked for, passwd, group; the rest are NAME=value, later wins. */
#include "init_kernel.h"

/* A number needs no entry, and no entry gives another. */
static void check_user(const char *spec, const struct user *u)
{
    uint64_t number;
    size_t n = strcspn(spec, ":");
    char *who = xstrndup(spec, n);

    MUST(u->home && u->shell && *u->home && *u->shell);
    MUST(u->uid != NO_ID && u->gid != NO_ID && u->ngroups <= USER_GROUPS_MAX);
    for (uint32_t i = 0; i < u->ngroups; i++)
        MUST(u->groups[i] != NO_ID);
    MUST(!spec[n] || !u->ngroups); /* a group that was named is the only one */
    if (!kernel.passwd.n && str_to_u64(who, UINT32_MAX - 1, &number))
        MUST(u->uid == number);
    free(who);
}

/* The last of a name wins; what was never put is not there. */
static void environment(fuzz_in *in)
{
    struct env e = {0};
    char *word[64];
    uint32_t n = 0;

    if (env_init(&e, 48))
        return;
    while (in->n && n < 64)
        env_put(&e, word[n++] = fuzz_word(in, 0));
    for (uint32_t i = 0; i < n; i++) {
        size_t len = strcspn(word[i], "=");
        char *name = xstrndup(word[i], len);
        const char *value = env_get(&e, name), *want = NULL;
        for (uint32_t k = 0; k < n; k++)
            if (strcspn(word[k], "=") == len && !strncmp(word[k], name, len))
                want = word[k][len] ? word[k] + len + 1 : NULL;
        MUST(e.n == e.max || (!value && !want) || (value && want && !strcmp(value, want)));
        free(name);
    }
    MUST(e.n <= e.max && !e.v[e.n]);
    for (uint32_t i = 0; i < n; i++)
        free(word[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    struct user u;

    kernel_reset();
    char *spec = fuzz_word(&in, 0), *passwd = fuzz_word(&in, 0), *group = fuzz_word(&in, 0);
    kernel.passwd = (fuzz_in){(uint8_t *)passwd, strlen(passwd)};
    kernel.group = (fuzz_in){(uint8_t *)group, strlen(group)};
    if (!user_resolve(spec, &u))
        check_user(spec, &u);
    environment(&in);
    free(spec);
    free(passwd);
    free(group);
    kernel_reset();
    return 0;
}
