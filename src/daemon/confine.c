/* Builds the Landlock rules and filters, and runs the thread that starts skopeo. */
#include "daemon/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/cleanup.h"
#include "base/confine.h"
#include "base/landlock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "daemon/calls.h"

#define SKOPEO_FILES 256
#define SKOPEO_FSIZE (UINT64_C(64) << 20) /* for data from registries: layers go through pipes */

/* ---- rules that grow ---- */

typedef struct rules {
    landlock_rule *v; /* owns the paths */
    size_t n;
} rules;

static void rules_done(rules *r)
{
    for (size_t i = 0; i < r->n; i++)
        free((char *)r->v[i].path);
    free(r->v);
}

/* Adds a rule. Takes ownership of path; NULL adds nothing. */
static void confine_rule(rules *r, char *path, unsigned rights, bool optional)
{
    if (!path)
        return;
    r->v = xrealloc(r->v, (r->n + 1) * sizeof *r->v);
    r->v[r->n++] = (landlock_rule){.path = path, .rights = rights, .optional = optional};
}

static char *directory_of(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;

    return slash ? xstrndup(path, (size_t)(slash - path) + (slash == path)) : NULL;
}

/* Whole directories, because files in them are replaced while bothyd runs, and a rule holds for the
 * file that was there. Files there that others may not read stay protected by their mode. */
static const char *const READABLE[] = {
    "/etc", /* name service, certificates, users */
    "/usr",
    "/lib",
    "/lib64",                   /* libraries that are loaded late; certificates */
    "/var/lib/ca-certificates", /* in other distributions than Debian */
    "/var/lib/sss/mc",
    "/dev/urandom", /* sssd's name service; Go before it knew getrandom */
};
static const char *const LOADERS[] = {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1",
                                      "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1"};

static void add_common(rules *r)
{
    for (size_t i = 0; i < ARRAY_LEN(READABLE); i++)
        confine_rule(r, xstrdup(READABLE[i]), LANDLOCK_READ, true);
    confine_rule(r, xstrdup("/dev/null"), LANDLOCK_READ | LANDLOCK_WRITE, true);
    CLEANUP(freep) char *resolv = realpath("/etc/resolv.conf", NULL); /* often a link into /run */
    confine_rule(r, directory_of(resolv), LANDLOCK_READ, true);
}

/* Adds each directory of a list like "/srv:/images". */
static void add_local(rules *r, const char *list)
{
    for (const char *at = list; *at; at += strspn(at, ":")) {
        size_t n = strcspn(at, ":");
        if (n)
            confine_rule(r, xstrndup(at, n), LANDLOCK_READ, true);
        at += n;
    }
}

/* ---- bothyd ---- */

static const config *cfg; /* constant once there are threads */
static bool confined;

static char *find_program(const char *name)
{
    const char *path = getenv("PATH"); /* NOLINT(concurrency-mt-unsafe): never set here */

    if (strchr(name, '/'))
        return xstrdup(name);
    for (const char *at = path ? path : ""; *at; at += strspn(at, ":")) {
        size_t n = strcspn(at, ":");
        char *try = str_printf("%.*s/%s", (int)n, at, name);
        if (!access(try, X_OK))
            return try;
        free(try);
        at += n;
    }
    return NULL;
}

/* Adds skopeo and the loaders. For bothyd by directory, because an upgrade replaces the files. */
static void add_programs(rules *r, bool by_directory)
{
    CLEANUP(freep) char *skopeo = find_program(cfg->images_skopeo);
    char *real = skopeo ? realpath(skopeo, NULL) : NULL;

    confine_rule(r, by_directory ? directory_of(real) : xstrdup(str_or(real, "")),
                 LANDLOCK_READ | LANDLOCK_RUN, true);
    free(real);
    for (size_t i = 0; i < ARRAY_LEN(LOADERS); i++) {
        real = realpath(LOADERS[i], NULL);
        confine_rule(r, by_directory ? directory_of(real) : TAKE_PTR(real),
                     LANDLOCK_READ | LANDLOCK_RUN, true);
        free(real);
    }
}

/* Adds the directories of the programs for containers, or of a cluster's credentials; both are
 * replaced while bothyd runs. */
static void add_engine(rules *r)
{
    if (str_eq(cfg->backend_name, "docker")) {
        confine_rule(r, directory_of(cfg->backend_init), LANDLOCK_READ, true);
        confine_rule(r, directory_of(cfg->files_kit), LANDLOCK_READ, true);
    }
    if (!str_eq(cfg->backend_name, "kubernetes"))
        return;
    confine_rule(r, xstrdup("/var/run/secrets/kubernetes.io"), LANDLOCK_READ, true);
    confine_rule(r, directory_of(cfg->kubernetes_kubeconfig), LANDLOCK_READ, true);
}

static uint16_t tcp_port(const char *listen)
{
    const char *colon = strrchr(listen, ':');

    return colon ? (uint16_t)strtoul(colon + 1, NULL, 10) : 0;
}

static err *enclose_daemon(void)
{
    CLEANUP(rules_done) rules r = {0};

    add_common(&r);
    add_programs(&r, true);
    add_local(&r, cfg->images_local);
    confine_rule(&r, xstrdup("/proc"), LANDLOCK_READ, true);
    add_engine(&r);
    confine_rule(&r, xstrdup(cfg->state_dir), LANDLOCK_READ | LANDLOCK_WRITE, false);
    confine_rule(&r, directory_of(cfg->listen_socket), LANDLOCK_READ | LANDLOCK_WRITE, true);
    for (size_t i = 0; i < cfg->registries.n; i++)
        if (cfg->registries.v[i].ca)
            confine_rule(&r, xstrdup(cfg->registries.v[i].ca), LANDLOCK_READ, true);
#ifdef BOTHY_FAULTS
    const char *faults = getenv("BOTHY_FAULTS"); /* NOLINT(concurrency-mt-unsafe): as above */
    if (faults)
        confine_rule(&r, xstrdup(faults), LANDLOCK_READ | LANDLOCK_WRITE, true);
#endif
    return landlock_restrict(
        &(landlock_domain){.rules = r.v,
                           .n = r.n,
                           .refused = LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_RUN,
                           .bind_port = tcp_port(cfg->listen_tcp),
                           .scoped = true});
}

/* ---- the starter ---- */

typedef struct order {
    const spawn_spec *spec;
    const char *scratch;
    bool local;
    pid_t *ret_pid;
    err *failure;
    bool done;
} order;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    order *waiting; /* one at a time; others wait until it is done */
} starter = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static err *enclose_skopeo(const order *o)
{
    CLEANUP(rules_done) rules r = {0};

    add_common(&r);
    add_programs(&r, false);
    if (o->local)
        add_local(&r, cfg->images_local);
    confine_rule(&r, str_printf("%s/registries/home", cfg->state_dir), LANDLOCK_READ, true);
    confine_rule(&r, str_printf("%s/registries/registries.conf", cfg->state_dir), LANDLOCK_READ,
                 true);
    confine_rule(&r, xstrdup(o->scratch), LANDLOCK_READ | LANDLOCK_WRITE, false);
    return landlock_restrict(
        &(landlock_domain){.rules = r.v,
                           .n = r.n,
                           .refused = LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_RUN,
                           .scoped = true});
}

/* Starts skopeo. Its limits are set after the start, because posix_spawn has none; it has contacted
 * no one yet. */
static err *launch_confined(const order *o)
{
    TRY(enclose_skopeo(o));
#if !CONFINE_SANITIZED
    TRY(calls_skopeo());
#endif
    TRY(spawn_start(o->spec, o->ret_pid));
    TRY(confine_limit(*o->ret_pid, RLIMIT_NOFILE, SKOPEO_FILES));
    return o->local ? NULL : confine_limit(*o->ret_pid, RLIMIT_FSIZE, SKOPEO_FSIZE);
}

static void *confine_launch(void *arg)
{
    order *o = arg;

    o->failure = launch_confined(o);
    return NULL;
}

/* Uses a thread for each program, because a thread cannot leave a Landlock domain. */
static void launch_apart(order *o)
{
    pthread_t thread;

    o->failure = thread_try_start("launch", confine_launch, o, &thread);
    if (!o->failure)
        pthread_join(thread, NULL);
}

static void *start_programs(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&starter.lock);
        while (!starter.waiting || starter.waiting->done)
            pthread_cond_wait(&starter.changed, &starter.lock);
        order *o = starter.waiting;
        pthread_mutex_unlock(&starter.lock);
        launch_apart(o);
        pthread_mutex_lock(&starter.lock);
        o->done = true;
        starter.waiting = NULL;
        pthread_cond_broadcast(&starter.changed);
        pthread_mutex_unlock(&starter.lock);
    }
    return NULL;
}

err *confine_start(const spawn_spec *spec, const char *scratch, bool local, pid_t *ret_pid)
{
    order o = {.spec = spec, .scratch = scratch, .local = local, .ret_pid = ret_pid};

    if (!confined)
        return spawn_start(spec, ret_pid);
    LOCK_SCOPE(&starter.lock);
    while (starter.waiting)
        pthread_cond_wait(&starter.changed, &starter.lock);
    starter.waiting = &o;
    pthread_cond_broadcast(&starter.changed);
    while (!o.done)
        pthread_cond_wait(&starter.changed, &starter.lock);
    return o.failure;
}

/* ---- all of it ---- */

/* Logs which features the kernel lacks. That is no reason not to serve; 'bothy doctor' reports it,
 * too. */
static void confine_tell(bool code)
{
    if (!landlock_abi())
        log_warn("confine", "this kernel has no Landlock: bothyd and skopeo reach every file that "
                            "their user may");
    if (!code && !CONFINE_SANITIZED)
        log_warn("confine", "this kernel cannot refuse new code in memory (PR_SET_MDWE)");
    if (CONFINE_SANITIZED)
        log_warn("confine", "built with a sanitizer: no system call filter");
}

static err *confine_enter(void)
{
    TRY(enclose_daemon());
#if !CONFINE_SANITIZED
    TRY(calls_all());
#endif
    thread_detach("starter", start_programs, NULL);
    TRY(landlock_restrict(&(landlock_domain){.refused = LANDLOCK_RUN, .bind = true}));
#if !CONFINE_SANITIZED
    TRY(calls_no_programs());
#endif
    return NULL;
}

err *confine_daemon(const config *c)
{
    cfg = c;
    TRY(confine_no_core());
    if (str_eq(c->backend_name, "fake")) {
        log_warn("confine", "backend fake: sandboxes are children of bothyd, nothing is confined");
        return NULL;
    }
    confined = true;
    confine_tell(confine_no_new_code(true));
    return confine_enter();
}
