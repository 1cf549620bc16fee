#include "warden/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/str.h"

#define CPU_PERIOD_US 100000u
#define KILL_AT_ONCE  64

static const char *const CONTROLLER_NAMES[CG_CONTROLLERS] = {"cpu", "cpuacct", "memory", "pids",
                                                             "freezer"};

/* Builds the name of a slot's file below a hierarchy's root. path has a leading slash. */
static void slot_name(const cgroups *cg, uint32_t n, const char *file, char ret[256])
{
    snprintf(ret, 256, "%s/%u%s%s", cg->path + 1, n, *file ? "/" : "", file);
}

static int write_at(int dirfd, const char *name, const char *text)
{
    CLEANUP(closep) int fd = openat(dirfd, name, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static int slot_write(const cgroups *cg, enum cgroup_controller c, uint32_t n, const char *file,
                      const char *text)
{
    char name[256];

    slot_name(cg, n, file, name);
    return write_at(cg->of[c], name, text);
}

/* Reads the whole of a small file, NUL-terminated. Returns false if it is missing. */
static bool read_at(int dirfd, const char *name, char *ret, size_t max)
{
    CLEANUP(closep) int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, max - 1);

    ret[n > 0 ? n : 0] = 0;
    return n >= 0;
}

static bool slot_read(const cgroups *cg, enum cgroup_controller c, uint32_t n, const char *file,
                      char *ret, size_t max)
{
    char name[256];

    slot_name(cg, n, file, name);
    return read_at(cg->of[c], name, ret, max);
}

bool cgroup_read(const cgroups *cg, enum cgroup_controller c, uint32_t n, const char *file,
                 char *ret, size_t max)
{
    return slot_read(cg, c, n, file, ret, max);
}

bool cgroup_read_io(const cgroups *cg, uint32_t n, const char *file, char *ret, size_t max)
{
    char name[256];

    slot_name(cg, n, file, name);
    return cg->io >= 0 && read_at(cg->io, name, ret, max);
}

uint64_t cgroup_keyed(const char *text, const char *key)
{
    size_t len = strlen(key);

    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (!strncmp(at, key, len) && at[len] == ' ')
            return strtoull(at + len + 1, NULL, 10);
        if (!*at)
            break;
    }
    return 0;
}

/* ---- finding the hierarchies ---- */

static bool has_option(const char *options, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = options; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, name, len) && (at[len] == ',' || !at[len]))
            return true;
    }
    return false;
}

/* Takes one line of mountinfo: "id parent dev root POINT opts... - TYPE source OPTIONS". */
static void take_mount(cgroups *cg, char *line, int *v2)
{
    char *dash = strstr(line, " - "), *save = NULL;
    char *point = line, type[32], options[512];

    if (!dash || sscanf(dash, " - %31s %*s %511s", type, options) != 2)
        return;
    for (int i = 0; i < 4 && point; i++)
        point = strchr(point + (i > 0), ' ');
    if (!point || !(point = strtok_r(point, " ", &save)))
        return;
    bool unified = !strcmp(type, "cgroup2");
    if ((!unified && strcmp(type, "cgroup") != 0) || cg->nhier == CG_HIERARCHIES_MAX)
        return;
    int fd = open(point, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (unified) {
        if (*v2 >= 0)
            close(*v2);
        *v2 = fd;
        return;
    }
    cg->hier[cg->nhier++] = fd;
    for (size_t c = 0; c < CG_CONTROLLERS; c++)
        if (has_option(options, CONTROLLER_NAMES[c]))
            cg->of[c] = fd;
    if (has_option(options, "blkio"))
        cg->io = fd;
    if (has_option(options, "cpuset"))
        cg->cpuset = fd;
}

static err *find_hierarchies(cgroups *cg)
{
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(closep) int v2 = -1;
    char *save = NULL;

    for (size_t c = 0; c < CG_CONTROLLERS; c++)
        cg->of[c] = -1;
    TRY(fs_read(AT_FDCWD, "/proc/self/mountinfo", 1 << 20, &b));
    for (char *line = strtok_r(b.p, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        take_mount(cg, line, &v2);
    if (cg->of[CG_MEMORY] < 0 && v2 >= 0) { /* the v1 hierarchies that exist bear no limits */
        for (size_t i = 0; i < cg->nhier; i++)
            close(cg->hier[i]);
        cg->v2 = true;
        cg->cpuset = -1; /* found by trying, once it is turned on */
        cg->nhier = 1;
        cg->hier[0] = v2;
        for (size_t c = 0; c < CG_CONTROLLERS; c++)
            cg->of[c] = v2;
        cg->io = v2;
        v2 = -1;
    }
    for (size_t c = 0; c < CG_CONTROLLERS; c++)
        if (cg->of[c] < 0)
            return err_remedy(
                err_new(ERR_UNAVAILABLE, "no cgroup hierarchy has the %s controller",
                        CONTROLLER_NAMES[c]),
                "Mount cgroup2 at /sys/fs/cgroup, or the v1 hierarchy of this controller.");
    return NULL;
}

/* ---- the warden's own place ---- */

/* Moves the warden out of the slots' parent. v2: no process may sit in a cgroup whose children have
 * controllers. */
static err *leave_parent(const cgroups *cg)
{
    CLEANUP(freep) char *mine = str_printf("0::%s\n", cg->path);
    CLEANUP(buf_done) buf b = {0};
    char name[256];

    TRY(fs_read(AT_FDCWD, "/proc/self/cgroup", 65536, &b));
    if (!strstr(buf_cstr(&b), mine))
        return NULL;
    snprintf(name, sizeof name, "%s/warden", cg->path + 1);
    if (mkdirat(cg->hier[0], name, 0755) && errno != EEXIST)
        return err_sys(ERR_INTERNAL, errno, "cannot make our own cgroup %s", name);
    snprintf(name, sizeof name, "%s/warden/cgroup.procs", cg->path + 1);
    int r = write_at(cg->hier[0], name, "0");
    return r ? err_sys(ERR_INTERNAL, -r, "cannot move into our own cgroup") : NULL;
}

/* Turns controllers on in one cgroup, named by the first len bytes of path. Returns the first
 * controller that is refused, or NULL. */
static const char *turn_on_in(const cgroups *cg, const char *path, size_t len, int *ret_errnum)
{
    static const char *const WANTED[] = {"+cpu", "+memory", "+pids"};
    char name[256];

    snprintf(name, sizeof name, "%.*s%scgroup.subtree_control", (int)len, path, len ? "/" : "");
    for (size_t i = 0; i < ARRAY_LEN(WANTED); i++) {
        int r = write_at(cg->hier[0], name, WANTED[i]);
        if (r) {
            *ret_errnum = -r;
            return WANTED[i] + 1;
        }
    }
    (void)write_at(cg->hier[0], name, "+io"); /* bears no limit, only counts */
    return NULL;
}

/* Turns cpuset on. A host may lack it: processors are not chosen then. */
static void turn_on_cpuset(cgroups *cg)
{
    const char *path = cg->path + 1;
    char name[256];

    (void)write_at(cg->hier[0], "cgroup.subtree_control", "+cpuset");
    for (size_t i = 1; path[i - 1]; i++)
        if (path[i] == '/' || !path[i]) {
            snprintf(name, sizeof name, "%.*s/cgroup.subtree_control", (int)i, path);
            if (!write_at(cg->hier[0], name, "+cpuset") && !path[i])
                cg->cpuset = cg->hier[0];
        }
}

/* Turns controllers on at each level, which has to pass them on to the next. If an upper level
 * refuses them, the last one may have them all the same (delegated to the warden). */
static err *turn_on_controllers(const cgroups *cg)
{
    const char *path = cg->path + 1, *refused = NULL;
    int errnum = 0;

    (void)turn_on_in(cg, path, 0, &errnum);
    for (size_t i = 1; path[i - 1]; i++)
        if (path[i] == '/' || !path[i])
            refused = turn_on_in(cg, path, i, &errnum);
    if (!refused)
        return NULL;
    return err_remedy(
        err_sys(ERR_UNAVAILABLE, errnum, "cannot turn on %s in cgroup %s", refused, cg->path),
        "Delegate cpu, memory and pids to the warden's cgroup, and keep every process out of it.");
}

static err *make_parent(const cgroups *cg)
{
    for (size_t i = 0; i < cg->nhier; i++) {
        CLEANUP(freep) char *path = xstrdup(cg->path + 1);
        for (char *slash = strchr(path, '/');; slash = strchr(slash + 1, '/')) {
            if (slash)
                *slash = 0;
            if (mkdirat(cg->hier[i], path, 0755) && errno != EEXIST)
                return err_sys(ERR_UNAVAILABLE, errno, "cannot make cgroup %s", cg->path);
            if (!slash)
                break;
            *slash = '/';
        }
    }
    return NULL;
}

/* Returns true if swap can be limited. v1 without use_hierarchy or swap accounting lacks memsw; v2
 * without swap lacks swap.max. */
static bool probe_swap(const cgroups *cg)
{
    char name[256];

    snprintf(name, sizeof name, "%s/%s", cg->path + 1,
             cg->v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes");
    return !faccessat(cg->of[CG_MEMORY], name, W_OK, 0);
}

err *cgroup_open(const char *path, cgroups *ret_cg)
{
    *ret_cg = (cgroups){.path = path, .cpuset = -1, .io = -1};
    TRY(find_hierarchies(ret_cg));
    TRY(make_parent(ret_cg));
    if (ret_cg->v2) {
        TRY(leave_parent(ret_cg));
        TRY(turn_on_controllers(ret_cg));
        turn_on_cpuset(ret_cg);
    }
    ret_cg->swap = probe_swap(ret_cg);
    return NULL;
}

/* ---- limits ---- */

/* Limits memory on v1, which keeps limit <= memsw at every moment: the order of the writes depends
 * on the direction. */
static int limit_memory_v1(const cgroups *cg, uint32_t n, const char *bytes)
{
    int r = slot_write(cg, CG_MEMORY, n, "memory.limit_in_bytes", bytes);

    if (!cg->swap)
        return r;
    int s = slot_write(cg, CG_MEMORY, n, "memory.memsw.limit_in_bytes", bytes);
    if (r && !s)
        r = slot_write(cg, CG_MEMORY, n, "memory.limit_in_bytes", bytes);
    return r ? r : s;
}

static int limit_memory(const cgroups *cg, uint32_t n, uint64_t bytes)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRIu64, bytes);
    if (!cg->v2)
        return limit_memory_v1(cg, n, text);
    int r = slot_write(cg, CG_MEMORY, n, "memory.max", text);
    return r || !cg->swap ? r : slot_write(cg, CG_MEMORY, n, "memory.swap.max", "0");
}

uint64_t cgroup_cpu_quota(uint32_t milli)
{
    uint64_t quota = (uint64_t)milli * CPU_PERIOD_US / 1000;

    return quota < 1000 ? 1000 : quota; /* the kernel's smallest */
}

static int limit_cpu(const cgroups *cg, uint32_t n, uint32_t milli)
{
    uint64_t quota = cgroup_cpu_quota(milli);
    char text[64];

    if (cg->v2) {
        snprintf(text, sizeof text, "%" PRIu64 " %u", quota, CPU_PERIOD_US);
        return slot_write(cg, CG_CPU, n, "cpu.max", text);
    }
    snprintf(text, sizeof text, "%u", CPU_PERIOD_US);
    int r = slot_write(cg, CG_CPU, n, "cpu.cfs_period_us", text);
    snprintf(text, sizeof text, "%" PRIu64, quota);
    return r ? r : slot_write(cg, CG_CPU, n, "cpu.cfs_quota_us", text);
}

err *cgroup_limit(const cgroups *cg, uint32_t n, const struct wp_limits *have,
                  const struct wp_limits *l)
{
    char text[32];
    int r = 0;

    if (l->memory && l->memory != have->memory && (r = limit_memory(cg, n, l->memory)))
        return err_sys(ERR_WALL_FAILED, -r, "cannot limit memory to %" PRIu64 " bytes", l->memory);
    if (l->cpu_milli && l->cpu_milli != have->cpu_milli && (r = limit_cpu(cg, n, l->cpu_milli)))
        return err_sys(ERR_WALL_FAILED, -r, "cannot limit cpu to %u/1000", l->cpu_milli);
    snprintf(text, sizeof text, "%u", l->pids);
    if (l->pids && l->pids != have->pids && (r = slot_write(cg, CG_PIDS, n, "pids.max", text)))
        return err_sys(ERR_WALL_FAILED, -r, "cannot limit pids to %u", l->pids);
    return NULL;
}

/* ---- processors ---- */

err *cgroup_set_cpus(const cgroups *cg, uint32_t n, const cpus_set *set)
{
    char name[256], text[CPUS_TEXT];

    if (cg->cpuset < 0)
        return NULL;
    slot_name(cg, n, "cpuset.cpus", name);
    cpus_text(set, text);
    int r = write_at(cg->cpuset, name, text);
    return r ? err_sys(ERR_INTERNAL, -r, "cannot give slot %u the processors %.64s", n, text)
             : NULL;
}

bool cgroup_get_cpus(const cgroups *cg, uint32_t n, cpus_set *ret_set)
{
    char name[256], text[CPUS_TEXT];

    slot_name(cg, n, "cpuset.cpus", name);
    return cg->cpuset >= 0 && read_at(cg->cpuset, name, text, sizeof text) &&
           cpus_parse(text, ret_set);
}

uint32_t cgroup_get_cpu(const cgroups *cg, uint32_t n)
{
    char text[64];

    if (!slot_read(cg, CG_CPU, n, cg->v2 ? "cpu.max" : "cpu.cfs_quota_us", text, sizeof text))
        return 0;
    uint64_t quota = strtoull(text, NULL, 10);
    return quota < UINT32_MAX ? (uint32_t)(quota * 1000 / CPU_PERIOD_US) : 0; /* -1: none */
}

err *cgroup_take_back(const cgroups *cg, uint32_t n)
{
    static const char *const GIVEN[] = {"",
                                        "cgroup.procs",
                                        "cgroup.threads",
                                        "cgroup.subtree_control",
                                        "memory.oom.group",
                                        "memory.reclaim"};
    char name[256];

    if (!cg->v2)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(GIVEN); i++) {
        slot_name(cg, n, GIVEN[i], name);
        if (fchownat(cg->hier[0], name, 0, 0, AT_SYMLINK_NOFOLLOW) && errno != ENOENT)
            return err_sys(ERR_WALL_FAILED, errno, "cannot take back %s", name);
    }
    int r = slot_write(cg, CG_PIDS, n, "cgroup.max.descendants", "0");
    return r ? err_sys(ERR_WALL_FAILED, -r, "cannot forbid children of cgroup %u", n) : NULL;
}

/* ---- freezing ---- */

bool cgroup_frozen(const cgroups *cg, uint32_t n)
{
    char text[256];

    if (cg->v2)
        return slot_read(cg, CG_FREEZER, n, "cgroup.events", text, sizeof text) &&
               cgroup_keyed(text, "frozen") == 1;
    return slot_read(cg, CG_FREEZER, n, "freezer.state", text, sizeof text) &&
           !strncmp(text, "FROZEN", 6);
}

bool cgroup_thawed(const cgroups *cg, uint32_t n)
{
    char text[256];

    if (cg->v2)
        return !slot_read(cg, CG_FREEZER, n, "cgroup.freeze", text, sizeof text) || *text == '0';
    return !slot_read(cg, CG_FREEZER, n, "freezer.state", text, sizeof text) ||
           !strncmp(text, "THAWED", 6);
}

static int set_frozen(const cgroups *cg, uint32_t n, bool freeze)
{
    return cg->v2 ? slot_write(cg, CG_FREEZER, n, "cgroup.freeze", freeze ? "1" : "0")
                  : slot_write(cg, CG_FREEZER, n, "freezer.state", freeze ? "FROZEN" : "THAWED");
}

err *cgroup_freeze_try(const cgroups *cg, uint32_t n, bool freeze, bool *ret_done)
{
    int r = set_frozen(cg, n, freeze);

    if (r)
        return err_sys(ERR_INTERNAL, -r, "cannot %s the cgroup", freeze ? "freeze" : "thaw");
    if (!freeze)
        FAULT_KILL("resume.thawed");
    else
        FAULT_KILL("pause.freezing");
    *ret_done = !freeze || cgroup_frozen(cg, n);
    return NULL;
}

err *cgroup_freeze_failed(const cgroups *cg, uint32_t n)
{
    (void)set_frozen(cg, n, false);
    return err_sys(ERR_TIMEOUT, ETIMEDOUT, "the sandbox did not freeze");
}

err *cgroup_freeze(const cgroups *cg, uint32_t n, bool freeze)
{
    uint64_t end = now_mono_ns() + CGROUP_FREEZE_NS;
    unsigned wait_us = 200;
    bool done = false;

    for (;;) {
        TRY(cgroup_freeze_try(cg, n, freeze, &done));
        if (done)
            return NULL;
        if (now_mono_ns() > end)
            return cgroup_freeze_failed(cg, n);
        usleep(wait_us);
        wait_us = wait_us < 10000 ? wait_us * 2 : wait_us;
    }
}

/* ---- the end ---- */

bool cgroup_pids(const cgroups *cg, uint32_t n, buf *ret_text)
{
    char name[256];

    slot_name(cg, n, "cgroup.procs", name);
    err *e = fs_read(cg->of[CG_PIDS], name, 1 << 20, ret_text);
    err_free(e);
    return !e;
}

/* A few of the listed processes, held by descriptors that never come to mean other processes. */
typedef struct victims {
    struct {
        pid_t pid;
        int fd;
    } of[KILL_AT_ONCE];
    size_t n;
} victims;

/* Kills the held processes that are still in the cgroup. If a process ended before it was held, its
 * number may by then belong to a process elsewhere. */
static void kill_held(const cgroups *cg, uint32_t n, victims *v)
{
    CLEANUP(buf_done) buf b = {0};
    char *save = NULL;

    if (v->n && cgroup_pids(cg, n, &b))
        for (char *line = strtok_r(b.p, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            uint64_t pid = 0;
            (void)str_to_u64(line, INT32_MAX, &pid);
            for (size_t i = 0; i < v->n; i++)
                if (v->of[i].pid == (pid_t)pid)
                    (void)pidfd_send_signal(v->of[i].fd, SIGKILL, NULL, 0);
        }
    while (v->n)
        close(v->of[--v->n].fd);
}

static void kill_listed(const cgroups *cg, uint32_t n)
{
    CLEANUP(buf_done) buf b = {0};
    victims v = {0};
    char *save = NULL;

    if (!cgroup_pids(cg, n, &b)) /* no such cgroup: nothing to kill */
        return;
    for (char *line = strtok_r(b.p, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        uint64_t pid;
        int fd = str_to_u64(line, INT32_MAX, &pid) && pid > 1 ? pidfd_open((pid_t)pid, 0) : -1;
        if (fd < 0) /* it has ended, or the next attempt kills it */
            continue;
        v.of[v.n].pid = (pid_t)pid;
        v.of[v.n++].fd = fd;
        if (v.n == KILL_AT_ONCE)
            kill_held(cg, n, &v);
    }
    kill_held(cg, n, &v);
}

void cgroup_kill(const cgroups *cg, uint32_t n)
{
    if (!cg->v2 || slot_write(cg, CG_PIDS, n, "cgroup.kill", "1"))
        kill_listed(cg, n);
    if (!cg->v2)
        (void)set_frozen(cg, n, false);
}

bool cgroup_remove(const cgroups *cg, uint32_t n)
{
    bool all = true;
    char name[256];

    slot_name(cg, n, "", name);
    for (size_t i = 0; i < cg->nhier; i++)
        if (unlinkat(cg->hier[i], name, AT_REMOVEDIR) && errno != ENOENT)
            all = false;
    return all;
}

void cgroup_remove_parent(const cgroups *cg)
{
    char own[256];

    snprintf(own, sizeof own, "%s/warden", cg->path + 1);
    unlinkat(cg->hier[0], own, AT_REMOVEDIR); /* fails if there is none, or a process in it */
    snprintf(own, sizeof own, "%s/" CG_HELPERS, cg->path + 1);
    for (size_t i = 0; i < cg->nhier; i++) {
        CLEANUP(freep) char *path = xstrdup(cg->path + 1);
        unlinkat(cg->hier[i], own, AT_REMOVEDIR);
        for (char *slash = path + strlen(path); slash; slash = strrchr(path, '/')) {
            *slash = 0;
            if (unlinkat(cg->hier[i], path, AT_REMOVEDIR))
                break; /* another cgroup or a process is in it */
        }
    }
}

size_t cgroup_list(const cgroups *cg, uint32_t *ret, size_t max)
{
    size_t n = 0;
    uint64_t number;

    for (size_t i = 0; i < cg->nhier; i++) {
        int fd = openat(cg->hier[i], cg->path + 1, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *e;
        while (d && (e = readdir(d))) /* NOLINT(concurrency-mt-unsafe): the stream is local */
            if (n < max && e->d_type == DT_DIR && str_to_u64(e->d_name, UINT32_MAX, &number))
                ret[n++] = (uint32_t)number;
        if (d)
            closedir(d);
    }
    return n;
}

/* Returns the controllers that one line of /proc/PID/cgroup, "id:controllers:path", has at that
 * path. */
static uint32_t controllers_at(const cgroups *cg, char *line, const char *path)
{
    char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;
    uint32_t mask = 0;

    if (!at || strcmp(at + 1, path) != 0)
        return 0;
    *at = 0;
    for (size_t c = 0; c < CG_CONTROLLERS; c++)
        if (cg->v2 ? !names[1] : has_option(names + 1, CONTROLLER_NAMES[c]))
            mask |= 1u << c;
    return mask;
}

/* Checks every hierarchy that bears a limit: a process may be in one and not in the next. */
bool cgroup_holds(const cgroups *cg, int proc_fd, int pid, uint32_t n)
{
    CLEANUP(buf_done) buf b = {0};
    char name[32], path[300], *save = NULL;
    uint32_t held = 0;

    snprintf(name, sizeof name, "%d/cgroup", pid);
    snprintf(path, sizeof path, "%s/%u", cg->path, n);
    err *e = fs_read(proc_fd, name, 65536, &b);
    if (e) {
        err_free(e);
        return false;
    }
    for (char *line = strtok_r(b.p, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        held |= controllers_at(cg, line, path);
    return held == (1u << CG_CONTROLLERS) - 1;
}
