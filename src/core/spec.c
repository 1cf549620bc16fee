#include "core/spec.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

const limits LIMITS_DEFAULT = {
    .memory = GIB,
    .disk = 10 * GIB,
    .cpu_milli = 1000,
    .pids = 512,
    .nofile = 1024,
    .nofile_hard = SPEC_NOFILE_HARD,
    .shm_mib = 64,
    .execs = 256,
};

static const char *const NETWORKS[] = {[NETWORK_NONE] = "none", [NETWORK_OPEN] = "open"};

const char *network_grant_name(enum network_grant n)
{
    return NETWORKS[n];
}

enum network_grant network_grant_by_name(const char *name)
{
    return name && str_eq(name, NETWORKS[NETWORK_OPEN]) ? NETWORK_OPEN : NETWORK_NONE;
}

static void wipe_vector(char **v)
{
    for (size_t i = 0; v && v[i]; i++) {
        secret_wipe(v[i], strlen(v[i]));
        free(v[i]);
    }
    free(v);
}

void sandbox_spec_done(sandbox_spec *s)
{
    free(s->image);
    free(s->template);
    free(s->snapshot);
    free(s->name);
    wipe_vector(s->env);
    wipe_vector(s->secrets);
    free(s->user);
    free(s->cwd);
    strv_free(s->labels);
    free(s->door);
    free(s->heir_of);
    free(s->object);
    for (size_t i = 0; i < s->ntmpfs; i++)
        free(s->tmpfs[i].path);
    free(s->tmpfs);
    strv_free(s->start.argv);
    free(s->start.user);
    free(s->start.cwd);
    memset(s, 0, sizeof *s);
}

void exec_spec_done(exec_spec *s)
{
    strv_free(s->argv);
    wipe_vector(s->env);
    free(s->user);
    free(s->cwd);
    memset(s, 0, sizeof *s);
    s->exec_fd = -1;
}

/* ---- limits: one row each ---- */

typedef struct limit_row {
    const char *name;
    size_t at;
    bool wide; /* uint64_t; false: uint32_t */
    uint64_t min, max;
} limit_row;

#define LIMIT(field, wide, min, max)                        \
    {                                                       \
#        field, offsetof(limits, field), (wide), (min), max \
    }
static const limit_row LIMIT_ROWS[] = {
    LIMIT(memory, true, 8 * MIB, UINT64_C(1) << 46),
    LIMIT(disk, true, MIB, UINT64_C(1) << 46),
    LIMIT(cpu_milli, false, 10, 1024 * 1000),
    LIMIT(pids, false, 4, 1 << 22),
    LIMIT(nofile, false, 16, SPEC_NOFILE_HARD),
    LIMIT(nofile_hard, false, 16, SPEC_NOFILE_HARD),
    LIMIT(shm_mib, false, 1, 1 << 20),
    LIMIT(execs, false, 1, 4096),
};

static uint64_t limit_get(const limits *l, const limit_row *r)
{
    const char *at = (const char *)l + r->at;

    return r->wide ? *(const uint64_t *)at : *(const uint32_t *)at;
}

static void limit_set(limits *l, const limit_row *r, uint64_t v)
{
    char *at = (char *)l + r->at;

    if (r->wide)
        *(uint64_t *)at = v;
    else
        *(uint32_t *)at = (uint32_t)v;
}

/* Lowers the soft limit with the hard one if only the hard one is set, so that no process starts
 * above it. */
static void fill_nofile(limits *l, const limits *otherwise)
{
    if (!l->nofile && l->nofile_hard && l->nofile_hard < otherwise->nofile)
        l->nofile = l->nofile_hard;
}

void limits_fill(limits *l, const limits *otherwise)
{
    fill_nofile(l, otherwise);
    for (size_t i = 0; i < ARRAY_LEN(LIMIT_ROWS); i++) {
        const limit_row *r = &LIMIT_ROWS[i];
        if (r->at != offsetof(limits, disk) && !limit_get(l, r))
            limit_set(l, r, limit_get(otherwise, r));
    }
}

err *limits_check(const limits *l)
{
    for (size_t i = 0; i < ARRAY_LEN(LIMIT_ROWS); i++) {
        const limit_row *r = &LIMIT_ROWS[i];
        uint64_t v = limit_get(l, r);
        if (v && (v < r->min || v > r->max))
            return err_new(ERR_INVALID_REQUEST, "limits.%s must be from %llu to %llu, not %llu",
                           r->name, (unsigned long long)r->min, (unsigned long long)r->max,
                           (unsigned long long)v);
    }
    if (l->nofile && l->nofile_hard && l->nofile > l->nofile_hard)
        return err_new(ERR_INVALID_REQUEST, "limits.nofile must be at most limits.nofile_hard, %u",
                       l->nofile_hard);
    return NULL;
}

typedef struct ceiling_row {
    const char *name; /* of the member; the configuration key is max_ and this name */
    limit_row row;
    double unit; /* how many of the field's units are one of the member's */
} ceiling_row;

#define CEILING(name, field, wide, unit)                                      \
    {                                                                         \
#        name, {#        field, offsetof(limits, field), wide, 0, 0 }, (unit) \
    }
static const ceiling_row CEILINGS[] = {
    CEILING(memory, memory, true, 1),        CEILING(cpu, cpu_milli, false, 1000),
    CEILING(pids, pids, false, 1),           CEILING(disk, disk, true, 1),
    CEILING(shm, shm_mib, false, 1.0 / MIB),
};

err *limits_check_most(const limits *l, const limits *most)
{
    for (size_t i = 0; i < ARRAY_LEN(CEILINGS); i++) {
        const ceiling_row *c = &CEILINGS[i];
        uint64_t v = limit_get(l, &c->row), top = limit_get(most, &c->row);
        if (!top || v <= top)
            continue;
        CLEANUP(freep)
        char *remedy = str_printf("Ask for at most so much, or let an administrator of the node "
                                  "raise limits.max_%s in bothy.yaml.",
                                  c->name);
        return err_remedy(err_new(ERR_FORBIDDEN,
                                  "limits.%s: this node allows at most %.15g, not %.15g", c->name,
                                  (double)top / c->unit, (double)v / c->unit),
                          "%s", remedy);
    }
    return NULL;
}

void limits_lift(limits *most, const limits *l)
{
    for (size_t i = 0; i < ARRAY_LEN(CEILINGS); i++) {
        const limit_row *r = &CEILINGS[i].row;
        uint64_t top = limit_get(most, r), v = limit_get(l, r);
        if (top && v > top)
            limit_set(most, r, v);
    }
}

/* ---- texts ---- */

static bool has_control(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return true;
    return false;
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool spec_name_valid(const char *name)
{
    size_t n = strlen(name);

    if (n < 1 || n > 64 || !is_name_char(*name) || id_is_sandbox(name))
        return false;
    for (size_t i = 1; i < n; i++)
        if (!is_name_char(name[i]) && !strchr("_.-", name[i]))
            return false;
    return true;
}

/* Checks that each item is NAME=value with a name, and adds its bytes to *total. */
static err *check_pairs(char *const *v, const char *what, size_t *total)
{
    for (size_t i = 0; v && v[i]; i++) {
        const char *eq = strchr(v[i], '=');
        if (!eq || eq == v[i])
            return err_new(ERR_INVALID_REQUEST, "%s[%zu] has no name before '='", what, i);
        *total += strlen(v[i]) + 1;
    }
    return NULL;
}

static err *check_path(const char *path, size_t max, const char *what)
{
    size_t n = strlen(path);

    if (*path != '/')
        return err_new(ERR_INVALID_REQUEST, "%s must be an absolute path, not '%.64s'", what, path);
    if (n > max)
        return err_new(ERR_INVALID_REQUEST, "%s has %zu bytes, at most %zu are allowed", what, n,
                       max);
    return NULL;
}

static err *check_user(const char *user)
{
    if (user && (!*user || strlen(user) > 256 || has_control(user)))
        return err_new(ERR_INVALID_REQUEST,
                       "user must be a name of the image, or uid or uid:gid, in at most 256 bytes");
    return NULL;
}

static err *check_cwd(const char *cwd)
{
    return cwd ? check_path(cwd, 4095, "cwd") : NULL;
}

static err *check_exec_cwd(const exec_spec *s)
{
    if (s->cwd && s->cwd_home && s->cwd[0] == '~')
        return s->cwd[1] ? check_path(s->cwd + 1, 4095, "cwd") : NULL;
    return check_cwd(s->cwd);
}

static bool label_key_valid(const char *s, size_t n)
{
    if (n < 1 || n > 63 || !is_name_char(s[0]) || !is_name_char(s[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_name_char(s[i]) && !strchr("_./-", s[i]))
            return false;
    return true;
}

err *spec_labels_check(char *const *labels)
{
    for (size_t i = 0; labels && labels[i]; i++) {
        const char *eq = strchr(labels[i], '=');
        if (i >= 64)
            return err_new(ERR_INVALID_REQUEST, "labels: at most 64 are allowed");
        if (!eq || !label_key_valid(labels[i], (size_t)(eq - labels[i])))
            return err_new(ERR_INVALID_REQUEST,
                           "labels: a key is 1 to 63 letters, digits, _ . / - and begins and ends "
                           "with a letter or digit, '%.64s' is not",
                           labels[i]);
        if (strlen(eq + 1) > 256)
            return err_new(ERR_INVALID_REQUEST, "labels: the value of '%.*s' is over 256 bytes",
                           (int)(eq - labels[i]), labels[i]);
    }
    return NULL;
}

/* ---- tmpfs ---- */

/* Returns true for an absolute path without empty, "." and ".." parts and without a final slash, so
 * that equal paths are equal texts. */
static bool is_plain_path(const char *path)
{
    for (const char *p = path; *p;) {
        const char *part = p + 1;
        size_t n = strcspn(part, "/");
        if (*p != '/' || !n || (n == 1 && *part == '.') || (n == 2 && !memcmp(part, "..", 2)))
            return false;
        p = part + n;
    }
    return *path != 0;
}

/* Returns true for the kernel's own mounts: a tmpfs over them would undo isolation or break every
 * program. */
static bool is_reserved_path(const char *path)
{
    static const char *const RESERVED[] = {"/proc", "/sys", "/dev"};

    for (size_t i = 0; i < ARRAY_LEN(RESERVED); i++) {
        size_t n = strlen(RESERVED[i]);
        if (!strncmp(path, RESERVED[i], n) && (!path[n] || path[n] == '/'))
            return true;
    }
    return false;
}

static err *check_tmpfs(tmpfs_spec *t, size_t i)
{
    CLEANUP(freep) char *what = str_printf("tmpfs[%zu].path", i);

    if (!t->path)
        return err_new(ERR_INVALID_REQUEST, "%s is missing", what);
    TRY(check_path(t->path, SPEC_TMPFS_PATH_MAX, what));
    if (!is_plain_path(t->path) || has_control(t->path))
        return err_new(ERR_INVALID_REQUEST, "%s must be a plain path without '.', '..' and '//'",
                       what);
    if (is_reserved_path(t->path))
        return err_new(ERR_INVALID_REQUEST, "%s must not lie in /proc, /sys or /dev", what);
    if (t->size < 4096 || t->size > UINT64_C(1) << 40)
        return err_new(ERR_INVALID_REQUEST, "tmpfs[%zu].size must be from 4096 to %llu", i,
                       1ULL << 40);
    if (!t->mode)
        t->mode = 01777;
    if (t->mode > 01777)
        return err_new(ERR_INVALID_REQUEST, "tmpfs[%zu].mode must be at most 1777 (octal)", i);
    return NULL;
}

static err *check_mounts(sandbox_spec *s)
{
    if (s->ntmpfs > SPEC_TMPFS_MAX)
        return err_new(ERR_INVALID_REQUEST, "tmpfs has %zu items, at most %d are allowed",
                       s->ntmpfs, SPEC_TMPFS_MAX);
    for (size_t i = 0; i < s->ntmpfs; i++) {
        TRY(check_tmpfs(&s->tmpfs[i], i));
        for (size_t k = 0; k < i; k++)
            if (str_eq(s->tmpfs[i].path, s->tmpfs[k].path))
                return err_new(ERR_INVALID_REQUEST, "tmpfs: '%s' is there twice", s->tmpfs[i].path);
    }
    return NULL;
}

/* ---- the whole ---- */

static err *check_environment(const sandbox_spec *s)
{
    size_t total = 0;

    TRY(check_pairs(s->env, "env", &total));
    TRY(check_pairs(s->secrets, "secrets", &total));
    if (total > SPEC_ENV_MAX)
        return err_new(ERR_TOO_LARGE, "env and secrets have %zu bytes, at most %u are allowed",
                       total, SPEC_ENV_MAX);
    return NULL;
}

static err *check_times(sandbox_spec *s)
{
    if (!s->ttl_ms)
        s->ttl_ms = SPEC_TTL_DEFAULT_MS;
    if (!s->queue_ms)
        s->queue_ms = SPEC_QUEUE_DEFAULT_MS;
    if (s->ttl_ms > SPEC_TTL_MAX_MS)
        return err_new(ERR_INVALID_REQUEST, "ttl must be at most 30 days");
    if (s->idle_ms > SPEC_IDLE_MAX_MS)
        return err_new(ERR_INVALID_REQUEST, "idle must be at most 30 days");
    if (s->queue_ms > SPEC_QUEUE_MAX_MS)
        return err_new(ERR_INVALID_REQUEST, "queue_wait must be at most an hour");
    return NULL;
}

static err *check_start(const start_spec *s)
{
    size_t total = 0;

    if (!s->argv)
        return NULL;
    if (!s->argv[0] || !*s->argv[0])
        return err_new(ERR_INVALID_REQUEST, "start.argv must name a program");
    for (size_t i = 0; s->argv[i]; i++)
        total += strlen(s->argv[i]) + 1;
    if (total > SPEC_START_MAX)
        return err_new(ERR_TOO_LARGE, "start.argv has %zu bytes, at most %u are allowed", total,
                       SPEC_START_MAX);
    TRY(err_wrap(check_user(s->user), "start"));
    return err_wrap(check_cwd(s->cwd), "start");
}

static char *text_or(char *own, const char *otherwise)
{
    return own || !otherwise ? own : xstrdup(otherwise);
}

/* Adds the items of `otherwise` whose names `own` lacks; each is NAME=value. */
static void pairs_fill(char ***own, char *const *otherwise)
{
    CLEANUP(strv_freep) char **all = strv_copy(otherwise);

    for (size_t i = 0; *own && (*own)[i]; i++) {
        const char *eq = strchr((*own)[i], '=');
        if (!eq) { /* left for the later check to refuse */
            strv_push(&all, xstrdup((*own)[i]));
            continue;
        }
        CLEANUP(freep) char *name = xstrndup((*own)[i], (size_t)(eq - (*own)[i]));
        strv_env_set(&all, name, eq + 1);
    }
    wipe_vector(*own);
    *own = TAKE_PTR(all);
}

static void tmpfs_copy(sandbox_spec *s, const sandbox_spec *otherwise)
{
    s->tmpfs = xcalloc(otherwise->ntmpfs, sizeof *s->tmpfs);
    s->ntmpfs = otherwise->ntmpfs;
    for (size_t i = 0; i < s->ntmpfs; i++) {
        s->tmpfs[i] = otherwise->tmpfs[i];
        s->tmpfs[i].path = xstrdup(otherwise->tmpfs[i].path);
    }
}

void sandbox_spec_fill(sandbox_spec *s, const sandbox_spec *otherwise)
{
    s->image = text_or(s->image, otherwise->image);
    s->snapshot = text_or(s->snapshot, otherwise->snapshot);
    s->user = text_or(s->user, otherwise->user);
    s->cwd = text_or(s->cwd, otherwise->cwd);
    pairs_fill(&s->env, otherwise->env);
    pairs_fill(&s->labels, otherwise->labels);
    limits_fill(&s->limits, &otherwise->limits);
    s->limits.disk = s->limits.disk ? s->limits.disk : otherwise->limits.disk;
    if (!s->ntmpfs && otherwise->ntmpfs)
        tmpfs_copy(s, otherwise);
    s->ttl_ms = s->ttl_ms ? s->ttl_ms : otherwise->ttl_ms;
    s->idle_ms = s->idle_ms ? s->idle_ms : otherwise->idle_ms;
    s->read_only |= otherwise->read_only;
    s->setuid |= otherwise->setuid;
    if (!s->has_network && otherwise->has_network)
        s->network = otherwise->network;
    s->has_network |= otherwise->has_network;
    if (!s->has_umask && otherwise->has_umask)
        s->umask = otherwise->umask;
    s->has_umask |= otherwise->has_umask;
    if (s->no_start || s->start.argv || !otherwise->start.argv)
        return;
    s->start.argv = strv_copy(otherwise->start.argv);
    s->start.user = text_or(s->start.user, otherwise->start.user);
    s->start.cwd = text_or(s->start.cwd, otherwise->start.cwd);
}

err *sandbox_spec_check(sandbox_spec *s)
{
    if (!s->image || !*s->image || strlen(s->image) > 1024 || has_control(s->image))
        return err_new(ERR_INVALID_REQUEST, "image must be a name of 1 to 1024 bytes");
    if (s->name && !spec_name_valid(s->name))
        return err_new(ERR_INVALID_REQUEST,
                       "name must be 1 to 64 letters, digits, _ . - beginning with a letter or "
                       "digit, and not look like an id; '%.64s' is not",
                       s->name);
    TRY(check_environment(s));
    TRY(check_user(s->user));
    if (s->door && strlen(s->door) > SPEC_DOOR_MAX)
        return err_new(ERR_TOO_LARGE, "more than 64 KiB were to be kept with the sandbox");
    TRY(check_cwd(s->cwd));
    TRY(spec_labels_check(s->labels));
    TRY(check_mounts(s));
    TRY(check_start(&s->start));
    TRY(check_times(s));
    if (!s->has_umask)
        s->umask = SPEC_UMASK_DEFAULT;
    if (s->umask > 0777)
        return err_new(ERR_INVALID_REQUEST, "umask must be at most 777 (octal)");
    limits_fill(&s->limits, &LIMITS_DEFAULT);
    return limits_check(&s->limits);
}

err *exec_spec_check(const exec_spec *s)
{
    size_t total = 0;

    if (!s->argv || !s->argv[0] || !*s->argv[0])
        return err_new(ERR_INVALID_REQUEST, "argv must name a program");
    for (size_t i = 0; s->argv[i]; i++)
        total += strlen(s->argv[i]) + 1;
    TRY(check_pairs(s->env, "env", &total));
    if (total > SPEC_ARGS_MAX)
        return err_new(ERR_TOO_LARGE, "argv and env have %zu bytes, at most %u are allowed", total,
                       SPEC_ARGS_MAX);
    TRY(check_user(s->user));
    TRY(check_exec_cwd(s));
    if (s->stdio > STDIO_PTY)
        return err_new(ERR_INVALID_REQUEST, "stdio must be pipes, merged or pty");
    if (s->timeout_ms > SPEC_TIMEOUT_MAX_MS)
        return err_new(ERR_INVALID_REQUEST, "timeout_ms must be at most %llu",
                       (unsigned long long)SPEC_TIMEOUT_MAX_MS);
    return NULL;
}
