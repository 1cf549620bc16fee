/* Build tool: compiles the OCI linux.seccomp object of a slot (tools/gen-seccomp) to the program
 * the kernel loads, as crun would from the same object.
 *
 *   filter_compile seccomp.json > seccomp.bpf
 *
 * crun would do it for every slot, and it is two thirds of what a slot costs. A rule that this
 * program does not understand ends the build. Names of system calls that libseccomp does not know
 * are left out, as crun leaves them out: the default action, which must refuse, applies to them. */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "warden/filter_head.h"

#define ARGS_MAX    6
#define PROFILE_MAX (1 << 20)

static _Noreturn void filter_compile_die(const char *what, const char *which)
{
    fprintf(stderr, "filter_compile: %s: %s\n", what, which);
    exit(1); /* NOLINT(concurrency-mt-unsafe): there is one thread */
}

static uint32_t action_of(const char *name, json_t *errno_ret)
{
    if (!name)
        filter_compile_die("a rule has no", "action");
    if (!strcmp(name, "SCMP_ACT_ALLOW"))
        return SCMP_ACT_ALLOW;
    if (!strcmp(name, "SCMP_ACT_ERRNO"))
        return SCMP_ACT_ERRNO(errno_ret ? (uint16_t)json_integer_value(errno_ret) : 1);
    filter_compile_die("unknown action", name);
}

static enum scmp_compare compare_of(const char *name)
{
    static const struct {
        const char *name;
        enum scmp_compare op;
    } OPS[] = {
        {"SCMP_CMP_NE", SCMP_CMP_NE},
        {"SCMP_CMP_LT", SCMP_CMP_LT},
        {"SCMP_CMP_LE", SCMP_CMP_LE},
        {"SCMP_CMP_EQ", SCMP_CMP_EQ},
        {"SCMP_CMP_GE", SCMP_CMP_GE},
        {"SCMP_CMP_GT", SCMP_CMP_GT},
        {"SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ},
    };

    for (size_t i = 0; name && i < sizeof OPS / sizeof *OPS; i++)
        if (!strcmp(name, OPS[i].name))
            return OPS[i].op;
    filter_compile_die("unknown comparison", name ? name : "none");
}

static unsigned args_of(json_t *rule, struct scmp_arg_cmp args[ARGS_MAX])
{
    json_t *list = json_object_get(rule, "args"), *a;
    unsigned n = 0, seen = 0;
    size_t i;

    json_array_foreach(list, i, a)
    {
        unsigned index = (unsigned)json_integer_value(json_object_get(a, "index"));
        if (n == ARGS_MAX || index >= ARGS_MAX || seen & 1u << index)
            filter_compile_die("too many comparisons of",
                               "one argument"); /* crun makes rules of these: none has them */
        seen |= 1u << index;
        args[n++] =
            (struct scmp_arg_cmp){index, compare_of(json_string_value(json_object_get(a, "op"))),
                                  (scmp_datum_t)json_integer_value(json_object_get(a, "value")),
                                  (scmp_datum_t)json_integer_value(json_object_get(a, "valueTwo"))};
    }
    return n;
}

static void add_rule(scmp_filter_ctx ctx, uint32_t default_action, json_t *rule)
{
    uint32_t action = action_of(json_string_value(json_object_get(rule, "action")),
                                json_object_get(rule, "errnoRet"));
    struct scmp_arg_cmp args[ARGS_MAX];
    unsigned n = args_of(rule, args);
    json_t *name;
    size_t i;

    if (action == default_action)
        return;
    json_array_foreach(json_object_get(rule, "names"), i, name)
    {
        int call = seccomp_syscall_resolve_name(json_string_value(name));
        /* libseccomp does not know it yet: the default action refuses it. */
        if (call == __NR_SCMP_ERROR)
            continue;
        int r = seccomp_rule_add_array(ctx, action, call, n, args);
        if (r)
            filter_compile_die("cannot add a rule for", json_string_value(name));
    }
}

static void add_architectures(scmp_filter_ctx ctx, json_t *list)
{
    json_t *a;
    size_t i;

    json_array_foreach(list, i, a)
    {
        char name[32] = "";
        const char *text = json_string_value(a);
        if (!text || strncmp(text, "SCMP_ARCH_", 10) != 0)
            filter_compile_die("unknown architecture", text ? text : "none");
        for (size_t k = 10; text[k] && k < 10 + sizeof name - 1; k++)
            name[k - 10] = (char)tolower((unsigned char)text[k]);
        uint32_t token = seccomp_arch_resolve_name(name);
        int r = token ? seccomp_arch_add(ctx, token) : -1;
        if (r && r != -EEXIST)
            filter_compile_die("cannot add architecture", name);
    }
}

static size_t read_profile(const char *path, char *p)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(p, 1, PROFILE_MAX, f) : 0;

    if (!n || n == PROFILE_MAX || ferror(f))
        filter_compile_die("cannot read", path);
    fclose(f);
    return n;
}

int main(int argc, char **argv)
{
    static char profile[PROFILE_MAX];
    json_error_t why;
    json_t *rule;
    size_t i;

    if (argc != 2)
        filter_compile_die("usage", "filter_compile seccomp.json > seccomp.bpf");
    size_t n = read_profile(argv[1], profile);
    json_t *top = json_loadb(profile, n, 0, &why);
    if (!top)
        filter_compile_die("this is no JSON", argv[1]);
    uint32_t fallback = action_of(json_string_value(json_object_get(top, "defaultAction")),
                                  json_object_get(top, "defaultErrnoRet"));
    if (fallback == SCMP_ACT_ALLOW)
        filter_compile_die("what no rule names must be refused", "defaultAction");
    scmp_filter_ctx ctx = seccomp_init(fallback);
    if (!ctx)
        filter_compile_die("cannot begin with", "the default action");
    add_architectures(ctx, json_object_get(top, "architectures"));
    json_array_foreach(json_object_get(top, "syscalls"), i, rule) add_rule(ctx, fallback, rule);
    struct filter_head head = filter_head_of(profile, n);
    if (write(STDOUT_FILENO, &head, sizeof head) != sizeof head ||
        seccomp_export_bpf(ctx, STDOUT_FILENO))
        filter_compile_die("cannot write", "the program");
    seccomp_release(ctx);
    json_decref(top);
    return 0;
}
