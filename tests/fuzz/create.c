/* The body of a create, to the spec that the engine takes: what is accepted lies within every
 * limit, and no number is cut on the way. */
#include "../../src/door/rest/sandboxes.c" /* the door's own step from body to spec */
#include "fuzz.h"

static void check_limits(const limits *l)
{
    MUST(l->memory >= 8 << 20 && l->memory <= UINT64_C(1) << 46);
    MUST(l->cpu_milli >= 10 && l->cpu_milli <= 1024 * 1000);
    MUST(l->pids >= 4 && l->pids <= 1 << 22);
    MUST(l->nofile >= 16 && l->nofile <= l->nofile_hard && l->nofile_hard <= SPEC_NOFILE_HARD);
    MUST(l->shm_mib >= 1 && l->execs >= 1 && l->execs <= 4096);
    MUST(!l->disk || l->disk >= 1 << 20);
}

static void check_paths(const sandbox_spec *s)
{
    MUST(s->ntmpfs <= SPEC_TMPFS_MAX);
    for (size_t i = 0; i < s->ntmpfs; i++) {
        const char *p = s->tmpfs[i].path;
        MUST(p[0] == '/' && p[1] && !strstr(p, "//") && !strstr(p, "/../") && !str_ends(p, "/.."));
        MUST(!str_starts(p, "/proc/") && strcmp(p, "/proc") && !str_starts(p, "/sys/"));
        MUST(s->tmpfs[i].mode && s->tmpfs[i].mode <= 01777);
    }
    MUST(!s->cwd || s->cwd[0] == '/');
}

static void check_spec(const sandbox_spec *s)
{
    check_limits(&s->limits);
    check_paths(s);
    MUST(s->image && *s->image && strlen(s->image) <= 1024);
    MUST(s->ttl_ms && s->ttl_ms <= SPEC_TTL_MAX_MS && s->queue_ms <= SPEC_QUEUE_MAX_MS);
    MUST(s->umask <= 0777 && (!s->name || spec_name_valid(s->name)));
    for (char **e = s->env; e && *e; e++)
        MUST(strchr(*e, '=') > *e);
}

/* Limits asked for are those that hold: nothing is cut on the way. */
static void check_taken(const sandbox_limits *in, const limits *out)
{
    MUST(!in->has_pids || out->pids == in->pids);
    MUST(!in->has_nofile || out->nofile == in->nofile);
    MUST(!in->has_execs || out->execs == in->execs);
    MUST(!in->has_memory || out->memory == in->memory);
    MUST(!in->has_shm || ((uint64_t)out->shm_mib << 20) - in->shm < 1 << 20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(create_sandbox_done) create_sandbox in = {0};
    CLEANUP(sandbox_spec_done) sandbox_spec spec = {0};
    err *e = create_sandbox_decode(data, size, &in);

    if (!e)
        e = take_create(&in, &spec);
    if (!e)
        e = sandbox_spec_check(&spec);
    if (!e) {
        check_spec(&spec);
        if (in.has_limits)
            check_taken(&in.limits, &spec.limits);
    }
    MUST(!e || e->message);
    err_free(e);
    return 0;
}
