#include "warden/walls.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "warden/counters.h"
#include "warden/warden.h"

/* ---- errors that name a wall ---- */

static const char *when_text(enum walls_when when)
{
    return when == WALLS_AT_REFILL ? "at the refill" : "after the claim";
}

err *walls_blame(err *e, enum wall wall, enum walls_when when)
{
    if (!e || e->code != ERR_WALL_FAILED)
        return e;
    count_walls(1u << wall, when);
    return err_wrap(e, "the wall '%s' failed %s", wall_info(wall)->name, when_text(when));
}

err *walls_failed(uint32_t failed, enum walls_when when, const char *who)
{
    CLEANUP(buf_done) buf names = {0}, what = {0};

    failed &= WALLS_ALL;
    for (unsigned i = 0; i < WALL_COUNT; i++) {
        if (!(failed & 1u << i))
            continue;
        buf_printf(&names, "%s'%s'", names.len ? ", " : "", wall_info(i)->name);
        buf_printf(&what, "%s%s", what.len ? "; " : "", wall_info(i)->what);
    }
    count_walls(failed, when);
    return err_because(
        err_new(ERR_WALL_FAILED, "the wall %s failed %s", buf_cstr(&names), when_text(when)),
        "tried from %s, it does not hold that %s", who, buf_cstr(&what));
}

void walls_note(warden *w, const err *e)
{
    snprintf(w->refill_error, sizeof w->refill_error, "%s%s%s", e->message, e->cause ? ": " : "",
             str_or(e->cause, ""));
    w->refill_errnum = e->errnum;
}

/* ---- namespaces ---- */

static uint64_t namespace_of(int proc_fd, const char *who, const char *kind)
{
    struct stat st;
    char name[48];

    snprintf(name, sizeof name, "%s/ns/%s", who, kind);
    return fstatat(proc_fd, name, &st, 0) ? 0 : st.st_ino;
}

static uint32_t shared_namespaces(int proc_fd, int pid)
{
    static const struct {
        const char *kind;
        enum wall wall;
    } KINDS[] = {{"user", WALL_USERNS},    {"net", WALL_NETWORK}, {"pid", WALL_PIDNS},
                 {"mnt", WALL_MOUNTNS},    {"ipc", WALL_IPCNS},   {"uts", WALL_UTSNS},
                 {"cgroup", WALL_CGROUPNS}};
    uint32_t failed = 0;
    char who[16];

    snprintf(who, sizeof who, "%d", pid);
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++) {
        uint64_t its = namespace_of(proc_fd, who, KINDS[i].kind);
        if (!its || its == namespace_of(proc_fd, "self", KINDS[i].kind))
            failed |= 1u << KINDS[i].wall;
    }
    return failed;
}

static bool map_is_its_own(const warden *w, const slot *s, const char *kind)
{
    CLEANUP(buf_done) buf b = {0};
    char name[32];
    unsigned inside, outside, count;
    int end = 0;

    snprintf(name, sizeof name, "%d/%s", s->pid, kind);
    err *e = fs_read(w->proc_fd, name, 4096, &b);
    err_free(e);
    /* NOLINTNEXTLINE(cert-err34-c): the kernel's own numbers, compared with the warden's */
    return !e && sscanf(buf_cstr(&b), "%u %u %u %n", &inside, &outside, &count, &end) == 3 &&
           (size_t)end == b.len && !inside && outside == slot_uid_base(s->n) && count == UID_RANGE;
}

static dev_t device_of_proc(const warden *w, const slot *s)
{
    struct stat st;
    char name[32];

    snprintf(name, sizeof name, "%d/root/proc", s->pid);
    return fstatat(w->proc_fd, name, &st, 0) ? 0 : st.st_dev;
}

err *walls_at_refill(const warden *w, slot *s)
{
    uint32_t held = SP_HELD(s->hello.h.id);

    /* A wall that init did not try counts as failed. */
    if (WALLS_REFILL_INSIDE & ~held)
        return walls_failed(WALLS_REFILL_INSIDE & ~held, WALLS_AT_REFILL, "inside");
    s->proc = device_of_proc(w, s);
    uint32_t failed = shared_namespaces(w->proc_fd, s->pid);
    if (!map_is_its_own(w, s, "uid_map") || !map_is_its_own(w, s, "gid_map"))
        failed |= WALL_BIT(USERNS);
    if (!walls_in_cgroup(w, s))
        failed |= WALL_BIT(CGROUP);
    return failed ? walls_failed(failed, WALLS_AT_REFILL, "outside") : NULL;
}

err *walls_entered(dev_t proc)
{
    uint32_t failed = 0;
    struct utsname names;
    struct stat st;

    if (!proc || stat("/proc", &st) || st.st_dev != proc)
        failed |= WALL_BIT(MOUNTNS);
    if (uname(&names) || strcmp(names.nodename, WALL_HOSTNAME) != 0)
        failed |= WALL_BIT(UTSNS);
    return failed ? walls_failed(failed, WALLS_AT_CLAIM, "outside") : NULL;
}

/* ---- limits ---- */

bool walls_in_cgroup(const warden *w, const slot *s)
{
    return cgroup_holds(&w->cg, w->proc_fd, s->pid, s->n);
}

typedef struct limit_file {
    enum cgroup_controller in;
    const char *name;
    uint64_t want;
} limit_file;

static bool file_has(const warden *w, uint32_t n, const limit_file *f)
{
    char text[64], *end;

    if (!cgroup_read(&w->cg, f->in, n, f->name, text, sizeof text))
        return false;
    uint64_t have = strtoull(text, &end, 10); /* cpu.max: the quota is the first */
    return end != text && have == f->want;
}

static err *all_have(const warden *w, uint32_t n, const limit_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!file_has(w, n, &files[i]))
            return err_new(ERR_WALL_FAILED, "%s of slot %u is not %" PRIu64, files[i].name, n,
                           files[i].want);
    return NULL;
}

err *walls_limits(const warden *w, const slot *s, const struct wp_limits *before,
                  const struct wp_limits *want)
{
    bool v2 = w->cg.v2;
    uint64_t pages = want->memory & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
    limit_file files[4];
    size_t n = 0;

    if (want->memory && want->memory != before->memory) {
        files[n++] = (limit_file){CG_MEMORY, v2 ? "memory.max" : "memory.limit_in_bytes", pages};
        if (w->cg.swap)
            files[n++] = (limit_file){
                CG_MEMORY, v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes", v2 ? 0 : pages};
    }
    if (want->cpu_milli && want->cpu_milli != before->cpu_milli)
        files[n++] = (limit_file){CG_CPU, v2 ? "cpu.max" : "cpu.cfs_quota_us",
                                  cgroup_cpu_quota(want->cpu_milli)};
    if (want->pids && want->pids != before->pids)
        files[n++] = (limit_file){CG_PIDS, "pids.max", want->pids};
    return all_have(w, s->n, files, n);
}
