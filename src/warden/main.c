/* bothy-warden: parses options, starts up in order, and ends. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/release.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/bundle.h"
#include "warden/claim.h"
#include "warden/conn.h"
#include "warden/counters.h"
#include "warden/destroy.h"
#include "warden/filter_head.h"
#include "warden/host.h"
#include "warden/nethelper.h"
#include "warden/network.h"
#include "warden/ops.h"
#include "warden/place.h"
#include "warden/privs.h"
#include "warden/probe.h"
#include "warden/quota.h"
#include "warden/refill.h"
#include "warden/view.h"
#include "warden/warden.h"

#define SECCOMP_MAX    (1 << 20)
#define DESTROY_ALL_MS 30000
#define UNPACK_MEMORY  (UINT64_C(2) << 30) /* of all unpackers together, with what they cache */
#define UNPACK_PIDS    64
#define NESTED_MAX     4096
#define RATE_MIN       (UINT64_C(64) << 10) /* with less a sandbox does not even start */
#define RATE_MAX       (UINT64_C(1) << 40)

static const char USAGE[] =
    "usage: bothy-warden --state DIR --socket PATH --init PROGRAM --unpack PROGRAM --seccomp FILE\n"
    "                    [--user NAME | --uid N --gid N] [--cgroup /PATH] [--crun PROGRAM]\n"
    "                    [--pool LOW:HIGH] [--max N] [--overcommit N] [--memory-reserve PERCENT]\n"
    "                    [--nested N] [--keep-sysctls] [--log-level debug|info|warn|error]\n"
    "                    [--disk-rate BYTES[:OPERATIONS]]\n"
    "                    [--network ADDRESS/18 [--resolver ADDRESS]…]\n"
    "       bothy-warden --destroy-all --state DIR [--cgroup /PATH]\n"
    "       bothy-warden --version\n"
    "SIGTERM ends it; sandboxes live on.\n";

enum {
    OPT_STATE = 256,
    OPT_SOCKET,
    OPT_USER,
    OPT_UID,
    OPT_GID,
    OPT_CGROUP,
    OPT_INIT,
    OPT_UNPACK,
    OPT_CRUN,
    OPT_SECCOMP,
    OPT_POOL,
    OPT_MAX,
    OPT_OVERCOMMIT,
    OPT_RESERVE,
    OPT_NESTED,
    OPT_DISK_RATE,
    OPT_NETWORK,
    OPT_RESOLVER,
    OPT_KEEP_SYSCTLS,
    OPT_LOG_LEVEL,
    OPT_DESTROY_ALL,
    OPT_PROBE_USERNS,
    OPT_HELP
};

static const struct option OPTIONS[] = {
    {"state", required_argument, NULL, OPT_STATE},
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"user", required_argument, NULL, OPT_USER},
    {"uid", required_argument, NULL, OPT_UID},
    {"gid", required_argument, NULL, OPT_GID},
    {"cgroup", required_argument, NULL, OPT_CGROUP},
    {"init", required_argument, NULL, OPT_INIT},
    {"unpack", required_argument, NULL, OPT_UNPACK},
    {"crun", required_argument, NULL, OPT_CRUN},
    {"seccomp", required_argument, NULL, OPT_SECCOMP},
    {"pool", required_argument, NULL, OPT_POOL},
    {"max", required_argument, NULL, OPT_MAX},
    {"overcommit", required_argument, NULL, OPT_OVERCOMMIT},
    {"memory-reserve", required_argument, NULL, OPT_RESERVE},
    {"nested", required_argument, NULL, OPT_NESTED},
    {"disk-rate", required_argument, NULL, OPT_DISK_RATE},
    {"network", required_argument, NULL, OPT_NETWORK},
    {"resolver", required_argument, NULL, OPT_RESOLVER},
    {"keep-sysctls", no_argument, NULL, OPT_KEEP_SYSCTLS},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"destroy-all", no_argument, NULL, OPT_DESTROY_ALL},
    {"probe-userns", no_argument, NULL, OPT_PROBE_USERNS}, /* helper of the probe */
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

typedef struct arguments {
    warden_options o;
    enum log_level level;
    bool destroy_all;
} arguments;

/* ---- options ---- */

static bool main_number(const char *text, uint64_t max, uint32_t *ret)
{
    uint64_t v;

    if (!str_to_u64(text, max, &v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

static bool main_watermarks(const char *text, warden_options *o)
{
    CLEANUP(freep) char *low = xstrdup(text);
    char *colon = strchr(low, ':');

    if (colon)
        *colon = 0;
    return main_number(low, SLOTS_MAX, &o->low) &&
           main_number(colon ? colon + 1 : low, SLOTS_MAX, &o->high) && o->low <= o->high;
}

static bool main_level(const char *text, enum log_level *ret)
{
    static const char *const NAMES[] = {"debug", "info", "warn", "error"};

    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (!strcmp(text, NAMES[i])) {
            *ret = (enum log_level)i;
            return true;
        }
    return false;
}

/* Parses BYTES[:OPERATIONS], a second, in either direction. */
static bool main_rate(const char *text, cgroup_rate *ret)
{
    CLEANUP(freep) char *bytes = xstrdup(text);
    char *colon = strchr(bytes, ':');

    if (colon)
        *colon = 0;
    return str_to_u64(bytes, RATE_MAX, &ret->bytes) && ret->bytes >= RATE_MIN &&
           (!colon ||
            (main_number(colon + 1, UINT32_MAX - 1, &ret->operations) && ret->operations));
}

/* Accepts an absolute path of harmless characters: it is printed into the bundle. */
static bool cgroup_path(const char *text, const char **ret)
{
    static const char PLAIN[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    size_t len = strlen(text);

    *ret = text;
    return len > 1 && len < 128 && text[0] == '/' && text[len - 1] != '/' &&
           strspn(text, PLAIN) == len && !strstr(text, "..") && !strstr(text, "//");
}

/* Looks up by name the user that may connect, as a systemd unit gives it. */
static bool main_user(const char *name, warden_options *o)
{
    const struct passwd *p = getpwnam(name); /* NOLINT(concurrency-mt-unsafe): one thread yet */

    if (!p)
        return false;
    o->uid = p->pw_uid;
    o->gid = p->pw_gid;
    return true;
}

static bool take_option(int c, const char *v, arguments *a)
{
    warden_options *o = &a->o;

    switch (c) {
    case OPT_STATE:
        o->state = v;
        return true;
    case OPT_SOCKET:
        o->socket = v;
        return true;
    case OPT_USER:
        return main_user(v, o);
    case OPT_UID:
        return main_number(v, UINT32_MAX - 1, &o->uid);
    case OPT_GID:
        return main_number(v, UINT32_MAX - 1, &o->gid);
    case OPT_CGROUP:
        return cgroup_path(v, &o->cgroup);
    case OPT_INIT:
        o->init = v;
        return true;
    case OPT_UNPACK:
        o->unpack = v;
        return true;
    case OPT_CRUN:
        o->crun = v;
        return true;
    case OPT_SECCOMP:
        o->seccomp = v;
        return true;
    case OPT_POOL:
        return main_watermarks(v, o);
    case OPT_MAX:
        return main_number(v, SLOTS_MAX - NUMBERS_HEADROOM, &o->max);
    case OPT_OVERCOMMIT:
        return main_number(v, 1000000, &o->overcommit);
    case OPT_RESERVE:
        return main_number(v, 100, &o->reserve);
    case OPT_NESTED:
        return main_number(v, NESTED_MAX, &o->nested);
    case OPT_DISK_RATE:
        return main_rate(v, &o->rate);
    case OPT_NETWORK:
        return network_parse_subnet(v, &o->network);
    case OPT_RESOLVER:
        return network_parse_resolver(v, &o->network);
    case OPT_KEEP_SYSCTLS:
        o->keep_sysctls = true;
        return true;
    case OPT_LOG_LEVEL:
        return main_level(v, &a->level);
    case OPT_DESTROY_ALL:
        a->destroy_all = true;
        return true;
    default:
        return false;
    }
}

static bool main_parse(int argc, char **argv, arguments *ret)
{
    int c, at = 0;

    *ret = (arguments){.o = {.cgroup = "/bothy",
                             .crun = "crun",
                             .low = 2,
                             .high = 4,
                             .max = 1000,
                             .overcommit = 50,
                             .reserve = 10},
                       .level = LOG_INFO};
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet */
    while ((c = getopt_long(argc, argv, "", OPTIONS, &at)) != -1)
        if (!take_option(c, optarg, ret))
            return false;
    const warden_options *o = &ret->o;
    return optind == argc && o->state &&
           (ret->destroy_all || (o->socket && o->init && o->unpack && o->seccomp));
}

/* ---- start-up ---- */

static err *open_state(warden *w)
{
    TRY(fs_dir(w->state_fd, "slots", 0700, &w->slots_fd));
    TRY(fs_dir(w->state_fd, "trash", 0700, &w->trash_fd));
    TRY(fs_dir(w->state_fd, "view", 0755, &w->view_fd));
    return fs_dir(w->state_fd, "uppers", 0700, &w->uppers_fd);
}

/* Refuses a state directory that other users can enter. Layers and uppers hold set-uid files of
 * strangers, on the disk with the id 0: no other user of the host may come near them. */
static err *check_closed(int fd, const char *path)
{
    struct stat st;

    if (fstat(fd, &st))
        return err_sys(ERR_UNAVAILABLE, errno, "cannot look at %s", path);
    if (st.st_uid != geteuid() || st.st_mode & 077)
        return err_remedy(err_new(ERR_WALL_FAILED, "%s is open to other users", path),
                          "Make it root's own with mode 0700.");
    return NULL;
}

/* Locks a directory. On a disk that cannot be written this is possible only to end slots
 * (to_end). */
static err *lock_of(const warden *w, int dirfd, bool to_end, int *ret_fd)
{
    err *e = err_wrap(fs_lock_patient(dirfd, "lock", ret_fd), "%s", w->o.state);

    if (!e || e->errnum != EROFS || !to_end)
        return e;
    err_free(e);
    return err_wrap(fs_lock_there(dirfd, "lock", ret_fd), "%s", w->o.state);
}

/* Locks the state directory and resolves its path once: afterwards the path means the same in every
 * namespace of the warden. */
static err *lock_state(warden *w, bool to_end)
{
    CLEANUP(closep) int fd = -1;

    TRY(fs_mkdirs(w->o.state, 0700));
    char *resolved = realpath(w->o.state, NULL);
    if (!resolved)
        return err_sys(ERR_UNAVAILABLE, errno, "cannot find %s", w->o.state);
    w->o.state = resolved;
    fd = open(resolved, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(ERR_UNAVAILABLE, errno, "cannot open %s", resolved);
    return lock_of(w, fd, to_end, &w->lock_fd);
}

static void init_table(warden *w)
{
    struct sysinfo si;

    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->claims);
    cond_init(&w->refill);
    destroy_init(w);
    cond_init(&w->trash);
    w->nslots = w->o.max + NUMBERS_HEADROOM;
    if (w->nslots < SLOTS_MAX / 4)
        w->nslots = SLOTS_MAX / 4; /* room for slots of an earlier warden with a larger limit */
    w->slots = xcalloc(w->nslots, sizeof(slot *));
    w->free_numbers = xcalloc(w->nslots, sizeof *w->free_numbers);
    pool_init(&w->pool, w->o.low, w->o.high, w->o.max, now_mono_ns());
    w->memory_total = sysinfo(&si) ? 0 : (uint64_t)si.totalram * si.mem_unit;
}

/* Returns the path of seccomp.bpf beside seccomp.json. Without it slots have the same wall and take
 * longer to make. */
static char *filter_path(const char *profile)
{
    const char *slash = strrchr(profile, '/'), *dot = strrchr(slash ? slash : profile, '.');

    return str_printf("%.*s.bpf", dot ? (int)(dot - profile) : (int)strlen(profile), profile);
}

/* Reads the compiled filter, if it is this profile's. An edited profile is the wall that is wanted:
 * a program of another profile must not win over it. */
static err *read_filter(warden *w, size_t profile_len)
{
    CLEANUP(freep) char *path = filter_path(w->o.seccomp);
    CLEANUP(buf_done) buf b = {0};
    struct filter_head head = filter_head_of(w->seccomp, profile_len);

    if (access(path, F_OK)) {
        log_warn("start", "there is no %s: crun compiles the profile for every slot", path);
        return NULL;
    }
    TRY(fs_read(AT_FDCWD, path, SECCOMP_MAX, &b));
    if (b.len <= sizeof head || memcmp(b.p, &head, sizeof head) != 0) {
        log_warn("start", "%s was not compiled from %s: crun compiles the profile for every slot",
                 path, w->o.seccomp);
        return NULL;
    }
    w->filter = base64_encode(b.p + sizeof head, b.len - sizeof head);
    return NULL;
}

static err *read_profile(warden *w)
{
    CLEANUP(buf_done) buf b = {0};

    TRY(err_remedy(fs_read(AT_FDCWD, w->o.seccomp, SECCOMP_MAX, &b),
                   "Give --seccomp the profile that the build makes (seccomp.json)."));
    size_t n = b.len;
    w->seccomp = buf_take(&b);
    return read_filter(w, n);
}

static err *open_dirs(warden *w)
{
    w->state_fd = open(w->o.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    w->proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    w->meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (w->state_fd < 0 || w->proc_fd < 0 || w->meminfo_fd < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot open %s", w->o.state);
    return NULL;
}

/* Enters a mount namespace of the warden's own and opens the directories as they are seen in it. */
static err *move_in(warden *w)
{
    TRY(lock_state(w, false));
    TRY(cgroup_open(w->o.cgroup, &w->cg));
    TRY(cgroup_rate_open(&w->cg, w->o.state, &w->o.rate));
    TRY(read_profile(w));
    TRY(place_enter(w));
    /* Only now: a directory that was opened in another mount namespace cannot be cloned in this
     * one. */
    TRY(open_dirs(w));
    TRY(check_closed(w->state_fd, w->o.state));
    TRY(open_state(w));
    TRY(place_furnish(w));
    return view_open(w);
}

static err *main_start(warden *w)
{
    static int unpack_join[CG_HELPERS_JOIN]; /* open for life */

    TRY(privs_close_memory());
    TRY(host_raise_nofile(w->o.max, w->o.high)); /* before anything is touched */
    host_raise_shared();
    TRY(move_in(w));
    if (!w->o.keep_sysctls)
        host_raise_sysctls(w->o.max);
    w->threads = host_threads_max();
    bundle_look_at_host();
    TRY(network_start(w)); /* first: a child gets no more than its parent has */
    TRY(privs_drop_caps());
    TRY(privs_filter_all());
    TRY(cgroup_helpers(&w->cg, UNPACK_MEMORY, UNPACK_PIDS, unpack_join));
    TRY(layers_open(&(layers_options){.dirfd = w->state_fd,
                                      .unpack = w->o.unpack,
                                      .join = unpack_join,
                                      .njoin = ARRAY_LEN(unpack_join)},
                    &w->layers));
    TRY(probe_run(w));
    TRY(quota_probe(w));
    TRY(slot_recover(w));
    return network_recover(w);
}

static err *main_run(warden *w)
{
    sigset_t ends;

    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    thread_detach("cleaner", destroy_run, w);
    thread_detach("trash", destroy_trash_run, w);
    thread_detach("view", view_run, w);
    for (int i = 0; i < CLAIMERS; i++)
        thread_detach("claimer", claim_run, w);
    for (unsigned i = 0; i < POOL_WORKERS; i++)
        thread_detach("refill", refill_run, w);
    ops_start(w);
    return conn_serve(w);
}

/* Destroys everything that is or was a slot. Images stay. */
static err *destroy_all(warden *w)
{
    TRY(lock_state(w, true));
    TRY(cgroup_open(w->o.cgroup, &w->cg));
    TRY(open_dirs(w));
    TRY(open_state(w));
    TRY(slot_recover(w));
    pthread_mutex_lock(&w->lock);
    for (uint32_t n = 0; n < w->nslots; n++)
        if (w->slots[n])
            destroy_slot(w, w->slots[n]);
    pthread_mutex_unlock(&w->lock);
    TRY(destroy_wait(w, DESTROY_ALL_MS));
    TRY(fs_remove(w->uppers_fd, "probe"));
    TRY(fs_remove(w->uppers_fd, QUOTA_PROBE));
    cgroup_remove_parent(&w->cg);
    network_end(w);
    return NULL;
}

static int main_complain(err *e)
{
    fprintf(stderr, "bothy-warden: %s%s%s\n%s\n", e->message, e->cause ? ": " : "",
            str_or(e->cause, ""), err_remedy_of(e));
    err_free(e);
    return 1;
}

int main(int argc, char **argv)
{
    static warden w;
    arguments a;

    if (argc == 2 && !strcmp(argv[1], "--probe-userns"))
        return probe_userns();
    if (argc == 2 && !strcmp(argv[1], "--network-helper"))
        return net_helper_run();
    if (argc == 2 && !strcmp(argv[1], "--version"))
        return printf("bothy-warden %s\n", BOTHY_RELEASE) < 0;
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        fputs(USAGE, stdout);
        return 0;
    }
    if (!main_parse(argc, argv, &a)) {
        fputs(USAGE, stderr);
        return 2;
    }
    log_init("bothy-warden", a.level);
    umask(022);
    w.o = a.o;
    w.state_fd = w.slots_fd = w.uppers_fd = w.trash_fd = w.view_fd = w.lock_fd = w.proc_fd =
        w.meminfo_fd = -1;
    init_table(&w);
    count_init();
    if (a.destroy_all) {
        err *e = destroy_all(&w);
        return e ? main_complain(e) : 0;
    }
    err *e = main_start(&w);
    if (!e)
        e = main_run(&w);
    return e ? main_complain(e) : 0;
}
