/* bothyd: wiring. Parts are opened in the order of the layers; see README.md. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <locale.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#include "backend/backend.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/home.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/str.h"
#include "base/sysctl.h"
#include "core/sysctl.h"
#include "daemon/boot.h"
#include "daemon/config.h"
#include "daemon/confine.h"
#include "daemon/count.h"
#include "daemon/inherit.h"
#include "daemon/kit.h"
#include "daemon/provide.h"
#include "daemon/restore.h"
#include "daemon/user.h"
#include "door/e2b/e2b.h"
#include "door/mcp/mcp.h"
#include "door/rest/rest.h"
#include "door/shared/code.h"
#include "door/swerex/swerex.h"
#include "engine/engine.h"
#include "net/server.h"

#ifndef BOTHY_VERSION
#    define BOTHY_VERSION "0"
#endif
#define FAILURE_FILE "bothyd.failure"     /* cli/doctor_checks.c reads it */
#define DISK_MIN     (UINT64_C(64) << 20) /* /readyz reports disk_full below this */

/* Everything the daemon owns, in the order of opening. Nothing is closed: main() ends with _exit().
 */
typedef struct node {
    config cfg;
    bool user; /* for one user: no node, no warden */
    int state, lock, spool, staging, registries, kit;
    store *store;
    backend *backend;
    image_store *images;
    exec_hub *execs;
    engine *engine;
    rest *rest;
    e2b *e2b;       /* NULL: disabled */
    swerex *swerex; /* likewise */
    mcp *mcp;       /* likewise */
    const char **operations;
    server *server;
    inherited given; /* inherited listeners */
} node;

/* ---- what we must not have ---- */

static bool has_capabilities(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {0};

    if (syscall(SYS_capget, &h, d))
        return true;
    return d[0].effective || d[1].effective || d[0].permitted || d[1].permitted;
}

static err *check_privileges(const node *n)
{
    if (n->user && (geteuid() == 0 || has_capabilities()))
        return err_remedy(err_new(ERR_UNSUPPORTED, "bothyd --user must not run with privileges"),
                          "Run it, or 'bothy', as an ordinary user who may use Docker (group "
                          "docker) or has Podman. For root there is the node: docs/guide.");
    if (geteuid() == 0 || has_capabilities())
        return err_remedy(err_new(ERR_INTERNAL, "bothyd must not run with privileges"),
                          "Start it as user bothy without capabilities: setpriv --reuid bothy "
                          "--regid bothy --init-groups --bounding-set=-all --inh-caps=-all "
                          "--no-new-privs bothyd");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return err_sys(ERR_INTERNAL, errno, "cannot give up gaining privileges");
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* secrets pass through our memory */
    return NULL;
}

static void raise_descriptors(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r))
        return;
    r.rlim_cur = r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r))
        log_warn("start", "cannot raise the number of descriptors");
}

/* ---- opening ---- */

static err *open_state_dir(node *n)
{
    n->state = open(n->cfg.state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (n->state < 0)
        return err_remedy(
            err_sys(ERR_INTERNAL, errno, "cannot open the state directory %s", n->cfg.state_dir),
            "Make it, owned by bothyd's user, mode 0700.");
    return NULL;
}

static err *open_state(node *n)
{
    TRY(err_wrap(fs_lock_patient(n->state, "lock", &n->lock), "%s", n->cfg.state_dir));
    TRY(fs_dir(n->state, "spool", 0700, &n->spool));
    TRY(fs_dir(n->state, "registries", 0700, &n->registries));
    return fs_dir(n->state, "staging", 0700, &n->staging);
}

static err *open_images(node *n)
{
    CLEANUP(freep) char *path = str_printf("%s/staging", n->cfg.state_dir);
    CLEANUP(freep) char *conf = str_printf("%s/registries", n->cfg.state_dir);

    return image_store_new(&(image_options){.staging_dir = n->staging,
                                            .staging_path = path,
                                            .skopeo = n->cfg.images_skopeo,
                                            .conf_dir = n->registries,
                                            .conf_path = conf,
                                            .registries = &n->cfg.registries,
                                            .listed_only = str_eq(n->cfg.images_from, "listed"),
                                            .backend = n->backend,
                                            .store = n->store,
                                            .start = confine_start,
                                            .pull_timeout_ms = n->cfg.images_pull_timeout},
                           &n->images);
}

/* Returns the most a sandbox may have. On Kubernetes this machine's size does not count. */
static limits limits_most(const config *c)
{
    struct sysinfo si;
    bool here = !str_eq(c->backend_name, "kubernetes") && !sysinfo(&si);

    return config_limits_most(c, here ? (uint64_t)si.totalram * si.mem_unit : 0,
                              here ? (uint32_t)get_nprocs() : 0);
}

static err *open_engine(node *n)
{
    const config *c = &n->cfg;
    engine_options o = {.backend = n->backend,
                        .state_dir = n->state,
                        .store = n->store,
                        .images = n->images,
                        .execs = n->execs,
                        .kit_fd = n->kit,
                        .prefer_kit = c->backend_prefer_kit,
                        .clock = &CLOCK_SYSTEM,
                        .defaults = config_limits(c),
                        .most = limits_most(c),
                        .ttl_ms = c->limits_ttl,
                        .queue_ms = c->limits_queue_wait,
                        .keep_record_ms = c->retention_record,
                        .keep_spool_ms = c->retention_spool,
                        .network_for_users = str_eq(c->network_allow, "users"),
                        .keep_paused_ms = c->retention_paused,
                        .quota = {.sandboxes = (uint32_t)c->quota_max_sandboxes,
                                  .creates_milli = (uint32_t)c->quota_creates_per_second,
                                  .creating = (uint32_t)c->quota_max_concurrent,
                                  .ttl_ms = c->quota_max_ttl,
                                  .memory = c->quota_max_memory,
                                  .cpu_milli = (uint32_t)c->quota_max_cpu,
                                  .snapshot_bytes = c->quota_max_snapshot_bytes}};

    memcpy(o.cell, c->node_cell, sizeof o.cell);
    o.rebooted = boot_is_new(n->state);
    o.same_boot = boot_is_same(n->state);
    TRY(engine_new(&o, &n->engine));
    TRY(engine_reconcile(n->engine));
    boot_remember(n->state);
    return provide_operator(c, n->state, n->engine, n->backend);
}

static err *open_parts(node *n)
{
    const config *c = &n->cfg;

    TRY(open_state(n));
    TRY(store_open(n->state, "store.db", c->store_sync, &n->store));
    TRY(provide_backend(c, n->state, n->kit, &n->backend));
    TRY(open_images(n));
    TRY(exec_hub_new(&(exec_options){.spool_dir = n->spool,
                                     .stream_max = c->exec_stream_max,
                                     .hold_ns = c->exec_hold * NS_PER_MS,
                                     .sandbox_max = c->exec_sandbox_max,
                                     .owner_max = c->exec_owner_max,
                                     .live_max = (uint32_t)c->exec_live_max,
                                     .stdin_max = c->exec_stdin_max},
                     &n->execs));
    return open_engine(n);
}

/* ---- listening ---- */

static err *listen_unix(node *n, gid_t group)
{
    CLEANUP(closep) int fd = -1;
    const char *path = n->cfg.listen_socket;

    TRY(sock_bind_path(path, SOCK_STREAM, 0660, &fd));
    if (group != (gid_t)-1 && chown(path, (uid_t)-1, group))
        log_warn("listen", "cannot give %s to the group %s: members cannot connect", path,
                 n->cfg.listen_group);
    if (listen(fd, 1024))
        return err_sys(ERR_INTERNAL, errno, "cannot listen on %s", path);
    server_listen(n->server, TAKE_FD(fd), true);
    return NULL;
}

static err *tcp_socket(const struct addrinfo *a, int *ret_fd)
{
    CLEANUP(closep) int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 1024))
        return err_sys(ERR_INTERNAL, errno, "cannot listen on TCP");
    *ret_fd = TAKE_FD(fd);
    return NULL;
}

/* Listens on "127.0.0.1:7070" or "[::1]:7070". Takes addresses only; names are not resolved. */
static err *listen_tcp(node *n)
{
    const char *text = n->cfg.listen_tcp, *colon = strrchr(text, ':');
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_STREAM},
                    *a = NULL;
    int fd = -1;

    if (!*text)
        return NULL;
    bool bracket = *text == '[' && colon && colon > text + 1 && colon[-1] == ']';
    if (!colon)
        return err_new(ERR_INVALID_REQUEST, "listen.tcp: '%s' is not address:port", text);
    CLEANUP(freep)
    char *host = bracket ? xstrndup(text + 1, (size_t)(colon - text) - 2)
                         : xstrndup(text, (size_t)(colon - text));
    if (getaddrinfo(host, colon + 1, &hints, &a))
        return err_new(ERR_INVALID_REQUEST, "listen.tcp: '%s' is not address:port", text);
    err *failure = tcp_socket(a, &fd);
    freeaddrinfo(a);
    TRY(err_wrap(failure, "%s", text));
    server_listen(n->server, fd, false);
    return NULL;
}

/* Listens. For each kind, inherited sockets replace those that the configuration names. */
static err *listen_all(node *n, gid_t group)
{
    bool given[2] = {0};

    for (unsigned i = 0; i < n->given.n; i++) {
        server_listen(n->server, n->given.fd[i], n->given.is_unix[i]);
        given[n->given.is_unix[i]] = true;
    }
    if (n->given.n)
        server_hand_down(n->server);
    if (!given[true])
        TRY(listen_unix(n, group));
    return given[false] ? NULL : listen_tcp(n);
}

static gid_t group_id(const char *name)
{
    struct group g, *found = NULL;
    char space[4096];

    if (!*name || getgrnam_r(name, &g, space, sizeof space, &found) || !found)
        return (gid_t)-1;
    return g.gr_gid;
}

/* ---- readiness ---- */

#define CHECKS_WITHOUT_POOL 2

static bool is_read_only(const node *n, const struct statvfs *v)
{
    /* A damaged file system does not always show it in its flags. */
    return v->f_flag & ST_RDONLY ||
           (utimensat(n->state, "lock", NULL, 0) && (errno == EROFS || errno == EIO));
}

static err *check_disk(const node *n, const pool_status *p)
{
    struct statvfs v;

    (void)p;
    if (fstatvfs(n->state, &v))
        return fs_error(errno, "cannot ask for free space");
    if (is_read_only(n, &v))
        return err_remedy(
            err_new(ERR_UNAVAILABLE, "the disk of spools and store is read-only: commands wait"),
            "Look for the reason in the kernel's log, mend the file system, mount it for writing "
            "and start bothyd again. Sandboxes live on.");
    if ((uint64_t)v.f_bavail * v.f_frsize < DISK_MIN)
        return err_new(ERR_DISK_FULL, "less than 64 MiB are free for spools and the store");
    return NULL;
}

static err *check_spools(const node *n, const pool_status *p)
{
    struct statvfs v;

    (void)p;
    if (!exec_hub_is_full(n->execs))
        return NULL;
    return fstatvfs(n->state, &v) || is_read_only(n, &v)
               ? err_remedy(err_new(ERR_UNAVAILABLE,
                                    "commands wait: the disk of the spools cannot be written"),
                            "The check 'disk' says why; with its remedy they go on.")
               : err_new(ERR_DISK_FULL, "commands wait: the disk of the spools is full");
}

static err *check_refill(const node *n, const pool_status *p)
{
    (void)n;
    if (!p->failures)
        return NULL;
    return err_remedy(err_new(ERR_INTERNAL, "the last %u refills of the pool failed: %s",
                              p->failures, p->last_error),
                      "Look into the warden's log; sandboxes that run are not concerned.");
}

/* Reports a full or read-only disk of the warden. Ready slots still become sandboxes, but these
 * cannot write either. */
static err *check_warden_disk(const node *n, const pool_status *p)
{
    (void)n;
    if (p->disk_full)
        return err_remedy(err_new(ERR_DISK_FULL, "no slot can be made, the warden's disk is full"),
                          "Remove sandboxes, 'bothy image prune', or give the warden's state a "
                          "larger disk; slots are made again by themselves.");
    if (p->read_only)
        return err_remedy(
            err_new(ERR_UNAVAILABLE, "no slot can be made, the warden's disk is read-only"),
            "Look for the reason in the kernel's log. Remove the sandboxes, stop the warden, "
            "'bothy-warden --destroy-all', mend the file system, mount it for writing and start "
            "the warden again.");
    return NULL;
}

/* Checks the sysctls. The warden raises them unless it was told not to, or /proc/sys is read-only.
 */
static err *check_sysctls(const node *n, const pool_status *p)
{
    CLEANUP(closep) int proc = open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(buf_done) buf low = {0}, remedy = {0};

    (void)n;
    for (size_t i = 0; i < SYSCTL_NEEDS_N; i++) {
        const sysctl_need *s = &SYSCTL_NEEDS[i];
        uint64_t value, least = sysctl_need_for(s, p->max, p->memory);
        if (sysctl_get(proc, s->name, &value) || value >= least)
            continue;
        buf_printf(&low, "%s%s is %" PRIu64 ", %" PRIu64 " are needed", low.len ? "; " : "",
                   s->name, value, least);
        buf_printf(&remedy, " %s=%" PRIu64, s->name, least);
    }
    if (!low.len)
        return NULL;
    return err_remedy(
        err_new(ERR_INTERNAL, "too small for %u sandboxes: %s", p->max, buf_cstr(&low)),
        "sysctl -w%s", buf_cstr(&remedy));
}

/* Checks the descriptor limit. Each sandbox has a connection to its init; each running command has
 * two or three pipes and a file. Assumes one such command in each, and a quarter of the accepted
 * connections. */
static err *check_descriptors(const node *n, const pool_status *p)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r))
        return NULL;
    uint64_t need = 512 + (uint64_t)p->max * 6 + n->cfg.http_connections / 4;
    if (r.rlim_cur >= need)
        return NULL;
    return err_remedy(err_new(ERR_INTERNAL,
                              "%u sandboxes and their callers need %" PRIu64
                              " open files, and bothyd may have %" PRIu64,
                              p->max, need, (uint64_t)r.rlim_cur),
                      "Start bothyd with a hard limit of open files of %" PRIu64
                      " (ulimit -Hn, LimitNOFILE=).",
                      need);
}

static err *main_ready(void *arg, size_t i, const pool_status *pool, const char **ret_name,
                       bool *ret_warns)
{
    static const struct {
        const char *name;
        err *(*check)(const node *n, const pool_status *p);
        bool warns; /* a warning that does not make bothyd unready */
    } CHECKS[] = {
        {"disk", check_disk, false},
        {"spools", check_spools, false},
        /* The rest is about the pool: skipped without one. */
        {"refill", check_refill, true},
        {"warden_disk", check_warden_disk, false},
        {"sysctls", check_sysctls, true},
        {"descriptors", check_descriptors, true},
    };

    if (i >= ARRAY_LEN(CHECKS) || (!pool && i >= CHECKS_WITHOUT_POOL))
        return NULL;
    *ret_name = CHECKS[i].name;
    *ret_warns = CHECKS[i].warns;
    return CHECKS[i].check(arg, pool);
}

/* ---- running ---- */

static void main_tell(const config *c, const err *e);
static server *running; /* for the signal handler */

static void on_signal(int signo)
{
    (void)signo;
    server_stop(running);
}

/* Chooses the door. E2B's headers and hosts go before native paths: they name a server inside a
 * sandbox, and all paths belong to it. */
static err *main_dispatch(void *arg, request *rq, response *rs)
{
    node *n = arg;

    if (n->e2b && e2b_claims(n->e2b, rq))
        return e2b_dispatch(n->e2b, rq, rs);
    if (n->swerex && swerex_claims(n->swerex, rq))
        return swerex_dispatch(n->swerex, rq, rs);
    if (n->mcp && mcp_claims(rq))
        return mcp_dispatch(n->mcp, rq, rs);
    return rest_dispatch(n->rest, rq, rs);
}

static void main_form(void *arg, request *rq, response *rs)
{
    node *n = arg;

    if (n->e2b && e2b_claims(n->e2b, rq))
        e2b_form(n->e2b, rq, rs);
    else if (n->swerex && swerex_claims(n->swerex, rq))
        swerex_form(rs);
    else if (n->mcp && mcp_claims(rq))
        mcp_form(rs);
}

static void main_stopping(void *arg)
{
    engine_let_go(((node *)arg)->engine);
}

static const char *const DOORS[] = {"rest", "e2b", "swerex", "mcp", NULL};
#define DOOR_E2B    1
#define DOOR_SWEREX 2
#define DOOR_MCP    3

static err *open_e2b(node *n, size_t first_operation)
{
    const config *c = &n->cfg;
    uint8_t secret[E2B_SECRET_LEN];

    if (!c->e2b_enabled)
        return NULL;
    TRY(e2b_secret_load(n->state, secret));
    n->e2b = e2b_new(&(e2b_options){.engine = n->engine,
                                    .sudo = n->backend->caps.setuid != CAP_ABSENT,
                                    .secret = secret,
                                    .door = DOOR_E2B,
                                    .operation = first_operation,
                                    .domain = c->ports_domain,
                                    .tcp = c->listen_tcp,
                                    .port_answer_ms = c->ports_answer_wait,
                                    .port_idle_ms = c->ports_idle,
                                    .base_image = c->e2b_base_image,
                                    .code_interpreter_image = c->e2b_code_interpreter_image,
                                    .code_interpreter_start = c->e2b_code_interpreter_start,
                                    .default_ttl_ms = c->e2b_default_ttl,
                                    .internet_warns = str_eq(c->e2b_internet, "warn"),
                                    .public_ports = c->e2b_public_ports,
                                    .watcher_idle_ms = c->e2b_watcher_idle});
    secret_wipe(secret, sizeof secret);
    return NULL;
}

static void open_swerex(node *n, size_t first_operation)
{
    if (n->cfg.swerex_enabled)
        n->swerex = swerex_new(&(swerex_options){.engine = n->engine,
                                                 .staging = n->staging,
                                                 .door = DOOR_SWEREX,
                                                 .operation = first_operation});
}

static void open_mcp(node *n, gid_t group, size_t first_operation)
{
    const config *c = &n->cfg;

    if (!c->mcp_enabled)
        return;
    n->mcp = mcp_new(&(mcp_options){.engine = n->engine,
                                    .group = group,
                                    .door = DOOR_MCP,
                                    .operation = first_operation,
                                    .version = BOTHY_VERSION,
                                    .image = c->mcp_image,
                                    .code_image = c->code_image,
                                    .idle_ms = c->mcp_idle,
                                    .ttl_ms = c->mcp_ttl,
                                    .max_ttl_ms = c->quota_max_ttl});
}

static size_t list_len(const char *const *list)
{
    size_t n = 0;

    while (list[n])
        n++;
    return n;
}

/* Appends to the server's one list of operations. Returns the index of the first new one. */
static size_t add_operations(node *n, const char *const *more)
{
    size_t have = n->operations ? list_len((const char *const *)n->operations) : 0;
    size_t nmore = list_len(more);

    n->operations = xrealloc(n->operations, (have + nmore + 1) * sizeof *n->operations);
    memcpy(n->operations + have, more, nmore * sizeof *more);
    n->operations[have + nmore] = NULL;
    return have;
}

static err *open_doors(node *n, gid_t group)
{
    n->rest = rest_new(&(rest_options){.engine = n->engine,
                                       .group = group,
                                       .version = BOTHY_VERSION,
                                       .ready = main_ready,
                                       .arg = n,
                                       .listen_tcp = *n->cfg.listen_tcp ? n->cfg.listen_tcp : NULL,
                                       .e2b = n->cfg.e2b_enabled,
                                       .code_image = n->cfg.code_image,
                                       .port_domain = n->cfg.ports_domain,
                                       .port_answer_ms = n->cfg.ports_answer_wait,
                                       .port_idle_ms = n->cfg.ports_idle});
    add_operations(n, rest_operations(n->rest));
    size_t of_e2b = add_operations(n, E2B_OPERATIONS);
    open_swerex(n, add_operations(n, SWEREX_OPERATIONS));
    open_mcp(n, group, add_operations(n, MCP_OPERATIONS));
    code_fetch_ahead(n->engine, n->cfg.code_image);
    return open_e2b(n, of_e2b);
}

static err *main_serve(node *n)
{
    gid_t group = group_id(n->cfg.listen_group);
    struct sigaction stop = {.sa_handler = on_signal};

    TRY(open_doors(n, group));
    TRY(server_new(&(server_options){.dispatch = main_dispatch,
                                     .form = main_form,
                                     .stopping = main_stopping,
                                     .arg = n,
                                     .doors = DOORS,
                                     .operations = n->operations,
                                     .access = str_eq(n->cfg.log_access, "all")    ? ACCESS_ALL
                                               : str_eq(n->cfg.log_access, "none") ? ACCESS_NONE
                                                                                   : ACCESS_ERRORS,
                                     .threads = (unsigned)n->cfg.http_threads,
                                     .relay_threads = (unsigned)n->cfg.http_relay_threads,
                                     .stall_ns = n->cfg.http_stall * NS_PER_MS,
                                     .party_bytes = n->cfg.http_owner_memory,
                                     .connections = (unsigned)n->cfg.http_connections},
                   &n->server));
    running = n->server;
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    TRY(listen_all(n, group));
    if (n->user)
        TRY(user_begin(&n->cfg, n->state, &(user_watch){n->engine, n->server}));
    main_tell(&n->cfg, NULL);
    log_info("start", "bothyd " BOTHY_VERSION " serves on %s", n->cfg.listen_socket);
    server_run(n->server);
    if (n->backend->ops->leave)
        n->backend->ops->leave(n->backend);
    err_drop(store_settle(n->store), "stop"); /* otherwise the next start checks its pages */
    log_info("stop", "sandboxes live on");
    return NULL;
}

static err *main_run(node *n)
{
    TRY(check_privileges(n));
    raise_descriptors();
    if (n->user)
        TRY(user_prepare(&n->cfg));
    TRY(open_state_dir(n));
    TRY(kit_load(n->cfg.files_kit, &n->kit));
    TRY(confine_daemon(&n->cfg));
    TRY(open_parts(n));
    daemon_metrics(n->state, BOTHY_VERSION);
    return main_serve(n);
}

static err *main_restore(node *n, const char *path)
{
    CLEANUP(closep) int from = -1;

    TRY(check_privileges(n));
    TRY(restore_open(path, &from));
    TRY(open_state_dir(n));
    TRY(confine_daemon(&n->cfg));
    TRY(open_state(n));
    return restore_store(n->state, n->spool, from);
}

/* ---- why it did not start ---- */

#define STATUS_HOPELESS 3 /* another start would fail too: units do not retry */

static bool is_hopeless(const err *e)
{
    return e->code == ERR_UNSUPPORTED || e->code == ERR_INVALID_REQUEST ||
           str_eq(e->kind, "damaged");
}

/* Writes the failure beside the socket, where 'bothy doctor' finds it if bothyd does not answer. e
 * NULL: started, removes the file. */
static void main_tell(const config *c, const err *e)
{
    CLEANUP(freep) char *path = xstrdup(str_or(c->listen_socket, "")); /* "": no configuration */
    CLEANUP(buf_done) buf text = {0};
    char *slash = strrchr(path, '/');

    if (!slash)
        return;
    *slash = 0;
    CLEANUP(closep) int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return;
    if (!e) {
        unlinkat(dir, FAILURE_FILE, 0);
        return;
    }
    buf_printf(&text, "%s%s%s\n%s\n", e->message, e->cause ? ": " : "", str_or(e->cause, ""),
               err_remedy_of(e));
    err_drop(fs_write(dir, FAILURE_FILE, text.p, text.len, 0644, false), "start");
}

static void print_error(const err *e)
{
    fprintf(stderr, "bothyd: %s\n", e->message);
    if (e->cause)
        fprintf(stderr, "  cause:  %s\n", e->cause);
    fprintf(stderr, "  remedy: %s\n", err_remedy_of(e));
}

static int main_usage(FILE *out, int status)
{
    fputs("usage: bothyd [--user] [--config FILE] [--print-config] [--version]\n"
          "       bothyd [--config FILE] --restore FILE|-\n\n"
          "Serves sandboxes over HTTP on a unix socket and, if configured, TCP.\n"
          "Runs as user bothy, never as root. Configuration: /etc/bothy/bothy.yaml;\n"
          "BOTHY_<SECTION>_<KEY> in the environment overrides a key.\n"
          "--user: for one user, on Docker or Podman; state in $XDG_STATE_HOME/bothy, socket in\n"
          "$XDG_RUNTIME_DIR/bothy, configuration in $XDG_CONFIG_HOME/bothy/bothy.yaml.\n"
          "--restore puts back what 'bothy backup' wrote, while no bothyd runs, and ends.\n"
          "Status 3: another start would come to the same; the remedy says what to do first.\n",
          out);
    return status;
}

static int print_config(const config *c)
{
    CLEANUP(buf_done) buf text = {0};

    config_print(c, &text);
    fputs(buf_cstr(&text), stdout);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {{"config", required_argument, NULL, 'c'},
                                            {"print-config", no_argument, NULL, 'p'},
                                            {"restore", required_argument, NULL, 'r'},
                                            {"version", no_argument, NULL, 'v'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"user", no_argument, NULL, 'u'},
                                            {NULL, 0, NULL, 0}};
    node n = {.state = -1, .lock = -1, .spool = -1, .staging = -1, .registries = -1, .kit = -1};
    const char *path = NULL, *backup = NULL;
    bool print = false;
    int o;

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet */
    while ((o = getopt_long(argc, argv, "c:h", OPTIONS, NULL)) != -1) {
        if (o == 'c')
            path = optarg;
        else if (o == 'r')
            backup = optarg;
        else if (o == 'p')
            print = true;
        else if (o == 'u')
            n.user = true;
        else if (o == 'v')
            return puts("bothyd " BOTHY_VERSION), 0;
        else
            return main_usage(o == 'h' ? stdout : stderr, o == 'h' ? 0 : 2);
    }
    if (optind < argc)
        return main_usage(stderr, 2);
    signal(SIGPIPE, SIG_IGN);
    /* libarchive converts names by the locale: in this one bytes stay unchanged.
     * NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet */
    setlocale(LC_CTYPE, "C.UTF-8");
    CLEANUP(freep) char *own = n.user ? home_config() : xstrdup(CONFIG_PATH);
    err *failure = config_load_over(n.user ? user_preset : NULL, path ? path : own, path != NULL,
                                    environ, &n.cfg);
    if (!failure && print)
        return print_config(&n.cfg);
    if (!failure)
        failure = inherit_listeners(&n.given);
    if (!failure) {
        log_init("bothyd", config_log_level(&n.cfg));
        failure = backup ? main_restore(&n, backup) : main_run(&n);
    }
    if (failure) {
        print_error(failure);
        if (!backup)
            main_tell(&n.cfg, failure);
    }
    /* Exits without cleanup: threads may still be at work, and sandboxes do not depend on it. */
    fflush(NULL);
    _exit(!failure ? 0 : is_hopeless(failure) ? STATUS_HOPELESS : 1);
}
