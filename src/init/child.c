/* The forked child, from fork to exec. Only the child reads the request's payload and the image's
 * files. It reports errors to pid 1 in shared memory (struct note); they do not affect pid 1. */
#include "init/init.h"

/* Default PATH of a child. The image's PATH is in the claim's environment and overrides it. */
static const char default_path[] =
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
#define DEFAULT_UMASK 022
#define IDS           65536u /* ids that a sandbox has */

struct request {
    const struct sp_rlimit *rlimits;
    const char *user, *cwd;
    char **argv;     /* NULL-terminated */
    const char *env; /* envc strings in a row */
};

static struct note *note; /* of this child */

__attribute__((noreturn)) static void fail(u32 stage, long r)
{
    note->stage = stage;
    note->err = r < 0 ? (int32_t)-r : EINVAL;
    for (;;)
        SYS(exit_group, 127);
}

static void child_check(u32 stage, long r)
{
    if (r < 0)
        fail(stage, r);
}

/* ---- the payload ---- */

static const char *map_payload(const struct job *j)
{
    if (j->extra)
        return j->extra;
    if (j->payload < 0)
        return (const char *)(j->q + 1);
    /* Reading past the end of a shorter file would raise SIGBUS instead of an error. */
    if (SYS(lseek, j->payload, 0, K_SEEK_END) < (long)j->q->payload)
        fail(SP_ST_PARSE, -EINVAL);
    long r = SYS(mmap, 0, j->q->payload, K_PROT_READ, K_MAP_PRIVATE, j->payload, 0);
    if (sys_failed(r))
        fail(SP_ST_PARSE, r);
    return (const char *)r;
}

static const char *next_string(const char *s, const char *end)
{
    while (s < end && *s)
        s++;
    if (s >= end)
        fail(SP_ST_PARSE, -EINVAL);
    return s + 1;
}

static void child_parse(const struct job *j, struct request *ret)
{
    const struct sp_spawn *q = j->q;
    const char *p = map_payload(j), *end = p + q->payload;

    ret->rlimits = (const struct sp_rlimit *)p;
    if (q->payload < q->nrlimits * sizeof *ret->rlimits)
        fail(SP_ST_PARSE, -EINVAL);
    p += q->nrlimits * sizeof *ret->rlimits;
    ret->user = p;
    ret->cwd = p = next_string(p, end);
    p = next_string(p, end);
    ret->argv = map_anon(((size_t)q->argc + 1) * sizeof *ret->argv);
    if (!ret->argv)
        fail(SP_ST_PARSE, -ENOMEM);
    for (u32 i = 0; i < q->argc; i++) {
        ret->argv[i] = (char *)p;
        p = next_string(p, end);
    }
    ret->env = p;
    for (u32 i = 0; i < q->envc; i++)
        p = next_string(p, end);
    if (p != end)
        fail(SP_ST_PARSE, -EINVAL);
}

/* ---- identity and surroundings ---- */

/* Called before any file of the image is opened: a link in the image to /proc/self/fd then leads to
 * no descriptor of pid 1. */
static void set_stdio(const struct job *j)
{
    for (int i = 0; i < 3; i++) /* io[0] may be pid 1's fd 1, all others are above 2 */
        child_check(SP_ST_TTY, SYS(dup3, j->io[i], i, 0));
    if (j->execfd < 0) {
        SYS(close_range, 3, ~0u, 0);
        return;
    }
    if (j->execfd > 3)
        SYS(close_range, 3, j->execfd - 1, 0);
    SYS(close_range, j->execfd + 1, ~0u, 0);
}

/* In container mode, reports an id that the kernel refuses (EPERM) as one that is not mapped
 * (EINVAL). */
static long not_mapped(long r)
{
    return r == -EPERM && g.stream ? -EINVAL : r;
}

/* Gives stdio to the user; otherwise only root could open /dev/stdout. One fchown covers both ends
 * of a pipe. */
static void own_stdio(const struct sp_spawn *q, const struct user *u)
{
    bool pty = q->flags & SP_F_PTY;
    u32 gid = pty ? NO_ID : u->gid; /* a terminal keeps its group */

    if (!u->uid && !u->gid)
        return;
    for (int i = pty || q->flags & SP_F_NOSTDIN; i < (pty ? 2 : 3); i++) {
        long r = not_mapped(SYS(fchown, i, u->uid, gid));
        child_check(r == -EINVAL ? SP_ST_USER : SP_ST_TTY, r);
    }
}

/* Returns true if the request sets RLIMIT_NOFILE. Pid 1 has raised its own limit, so a child needs
 * g.nofile unless the request names a limit of its own. */
static bool names_nofile(const struct sp_spawn *q, const struct request *rq)
{
    for (u32 i = 0; i < q->nrlimits; i++)
        if (rq->rlimits[i].resource == RLIMIT_NOFILE)
            return true;
    return false;
}

/* Lowers a requested limit to the slot's own hard limit: no process inside may raise that limit,
 * and the host may have given the slot less than bothyd knows. */
static struct k_rlimit within_ours(const struct sp_rlimit *wanted)
{
    struct k_rlimit ours = g.nofile, l = {wanted->soft, wanted->hard};
    bool known =
        wanted->resource == RLIMIT_NOFILE || !SYS(prlimit64, 0, wanted->resource, 0, &ours);

    if (known && l.soft <= l.hard) {
        l.hard = l.hard < ours.hard ? l.hard : ours.hard;
        l.soft = l.soft < l.hard ? l.soft : l.hard;
    }
    return l;
}

static void set_rlimits(const struct sp_spawn *q, const struct request *rq)
{
    if (!names_nofile(q, rq))
        child_check(SP_ST_RLIMIT, SYS(prlimit64, 0, RLIMIT_NOFILE, &g.nofile, 0));
    for (u32 i = 0; i < q->nrlimits; i++) {
        struct k_rlimit l = within_ours(&rq->rlimits[i]);
        child_check(SP_ST_RLIMIT, SYS(prlimit64, 0, rq->rlimits[i].resource, &l, 0));
    }
}

static bool is_us(const struct user *u)
{
    return u->uid == (u32)SYS(geteuid) && u->gid == (u32)SYS(getegid);
}

/* Resolves the user of a command. In container mode init may run as any user, without the right to
 * become another. "" then means init's own uid and the gid the engine gave, whatever groups the
 * image's files list for that user. */
static long child_resolve(const char *spec, struct user *ret)
{
    char digits[24], *end = digits + sizeof digits - 1;
    u32 uid = (u32)SYS(geteuid);
    bool named_group = false;

    if (!g.stream || !uid)
        return user_resolve(spec, ret);
    *end = 0;
    for (const char *s = spec; *s; s++)
        named_group |= *s == ':';
    long r = user_resolve(*spec ? spec : text_from_number(end, uid), ret);
    if (!r && !named_group && ret->uid == uid)
        ret->gid = (u32)SYS(getegid);
    return r;
}

/* Returns true if no id has to be changed: init already is this user and keeps the engine's groups.
 */
static bool set_groups(const struct user *u)
{
    if (!u->ngroups && SYS(getgroups, 0, 0) <= 0) /* no groups to drop where setgroups is denied */
        return false;
    long r = SYS(setgroups, u->ngroups, u->groups);
    if (r == -EPERM && g.stream && is_us(u))
        return true;
    r = not_mapped(r);
    child_check(r == -EINVAL ? SP_ST_USER : SP_ST_GROUPS, r);
    return false;
}

/* Returns true if both ids are below IDS. An engine may map every id; the ids a sandbox has do not
 * depend on that. */
static bool is_mapped(const struct user *u)
{
    return u->uid < IDS && u->gid < IDS;
}

static void set_user(const struct user *u)
{
    long r;

    if (g.stream && !is_mapped(u) && !is_us(u))
        fail(SP_ST_USER, -EINVAL);
    if (set_groups(u))
        return;
    r = not_mapped(SYS(setresgid, u->gid, u->gid, u->gid));
    child_check(r == -EINVAL ? SP_ST_USER : SP_ST_GID, r);
    r = not_mapped(SYS(setresuid, u->uid, u->uid, u->uid));
    child_check(r == -EINVAL ? SP_ST_USER : SP_ST_UID, r);
}

/* Creates the claim's directory and its missing parents; gives the last one to the user. Errors are
 * reported later, when the directory is entered. */
static void make_cwd(const char *path, const struct user *u)
{
    char b[4096];
    size_t n = text_len(path);
    bool made = false;

    if (n >= sizeof b)
        return;
    memcpy(b, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (b[i] != '/' && b[i])
            continue;
        char c = b[i];
        b[i] = 0;
        made = SYS(mkdirat, K_AT_FDCWD, b, 0755) >= 0 || (c && !b[i + 1] && made);
        b[i] = c;
    }
    if (!made)
        return;
    long fd = SYS(openat, K_AT_FDCWD, b, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd >= 0) {
        SYS(fchown, fd, u->uid, u->gid);
        SYS(close, fd);
    }
}

/* Called as the user: root may be unable, or not allowed, to enter a directory that the user can.
 */
static void enter_cwd(const struct request *rq, const struct env *env)
{
    const char *home = env_get(env, "HOME");
    const char *claimed = g.claim.made && *g.claim.cwd ? g.claim.cwd : g.cwd;
    const char *cwd = *rq->cwd ? rq->cwd : claimed;

    if (cwd[0] == '~' && (!cwd[1] || cwd[1] == '/')) { /* home, or a path below it */
        child_check(SP_ST_CWD, SYS(chdir, home && *home ? home : "/"));
        cwd += cwd[1] ? 2 : 1;
        if (*cwd)
            child_check(SP_ST_CWD, SYS(chdir, cwd));
    } else if (*cwd)
        child_check(SP_ST_CWD, SYS(chdir, cwd));
    else if (!home || !*home || SYS(chdir, home) < 0)
        child_check(SP_ST_CWD, SYS(chdir, "/"));
}

static void build_env(const struct sp_spawn *q, const struct request *rq, const struct user *u,
                      struct env *ret)
{
    struct new_utsname names = {0};
    const char *p = g.claim.env;

    child_check(SP_ST_PARSE, env_init(ret, 8 + g.envc + g.claim.envc + q->envc));
    env_put(ret, default_path);
    for (u32 i = 0; i < g.envc; i++)
        if (!text_equal(g.env[i], "TERM=xterm")) /* set by Podman even without a terminal */
            env_put(ret, g.env[i]);
    env_put_pair(ret, "HOME", u->home);
    env_put_pair(ret, "SHELL", u->shell);
    if (u->name) {
        env_put_pair(ret, "USER", u->name);
        env_put_pair(ret, "LOGNAME", u->name);
    }
    if (SYS(uname, &names) >= 0)
        env_put_pair(ret, "HOSTNAME", names.nodename);
    for (u32 i = 0; i < g.claim.envc; i++, p += text_len(p) + 1)
        env_put(ret, p);
    if (q->flags & SP_F_PTY)
        env_put(ret, "TERM=xterm");
    p = rq->env;
    for (u32 i = 0; i < q->envc; i++, p += text_len(p) + 1)
        env_put(ret, p);
}

/* ---- exec ---- */

/* Writes dir/file into b; n is the length of dir. */
static long child_join(char *b, size_t max, const char *dir, size_t n, const char *file)
{
    size_t m = text_len(file);

    if (n == 0) {
        dir = ".";
        n = 1;
    }
    if (n + 1 + m + 1 > max)
        return -ENAMETOOLONG;
    memcpy(b, dir, n);
    b[n] = '/';
    memcpy(b + n + 1, file, m + 1);
    return 0;
}

static long exec_search(const char *file, char **argv, const struct env *env)
{
    const char *path = env_get(env, "PATH");
    long result = -ENOENT;

    while (path && *path) {
        char b[4096];
        size_t n = 0;
        while (path[n] && path[n] != ':')
            n++;
        long r = child_join(b, sizeof b, path, n, file);
        if (!r)
            r = SYS(execve, b, argv, env->v);
        if (r == -EACCES)
            result = r; /* like execvp(3): another directory may have it */
        else if (r != -ENOENT && r != -ENOTDIR && r != -ENAMETOOLONG)
            return r;
        path += n + (path[n] == ':');
    }
    return result;
}

static long exec_command(const struct job *j, char **argv, const struct env *env)
{
    if (j->execfd >= 0)
        return SYS(execveat, j->execfd, "", argv, env->v, K_AT_EMPTY_PATH);
    if (!*argv[0])
        return -ENOENT;
    for (const char *s = argv[0]; *s; s++)
        if (*s == '/')
            return SYS(execve, argv[0], argv, env->v);
    return exec_search(argv[0], argv, env);
}

long child_no_new_privs(void)
{
    return SYS(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

void child_run(const struct job *j)
{
    static struct user u; /* static because it is large */
    const struct sp_spawn *q = j->q;
    struct request rq;
    struct env env;
    u64 none = 0;

    note = j->note;
    SYS(setsid);
    if (q->flags & SP_F_PTY)
        child_check(SP_ST_TTY, SYS(ioctl, j->io[0], TIOCSCTTY, 0));
    child_parse(j, &rq);
    set_stdio(j);
    child_check(SP_ST_USER, child_resolve(*rq.user       ? rq.user
                                          : g.claim.made ? g.claim.user
                                                         : "",
                                          &u));
    note->uid = u.uid;
    note->gid = u.gid;
    own_stdio(q, &u);
    set_rlimits(q, &rq);
    build_env(q, &rq, &u, &env);
    SYS(umask, DEFAULT_UMASK);
    if (!*rq.cwd && g.claim.made && *g.claim.cwd)
        make_cwd(g.claim.cwd, &u);
    SYS(umask, q->umask != SP_UMASK_CLAIM ? q->umask
               : g.claim.made             ? g.claim.umask
                                          : DEFAULT_UMASK);
    set_user(&u);
    if (!(q->flags & SP_F_SETUID)) /* the grant was checked before fork */
        child_check(SP_ST_PRIVS, child_no_new_privs());
    enter_cwd(&rq, &env);
    SYS(rt_sigprocmask, K_SIG_SETMASK, &none, 0, K_SIGSET_SIZE);
    fail(SP_ST_EXEC, exec_command(j, rq.argv, &env));
}
