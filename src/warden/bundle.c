#include "warden/bundle.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "warden/warden.h"
#include "wire/walls.h"

#define NOFILE_SOFT 1024u
#define NOFILE_HARD (65536u + 1024u) /* init keeps 1024 for itself: commands get 65536 */

/* Masked directories are binds of one empty directory: a tmpfs each, as the runtime would make,
 * costs a superblock a slot, and the memory of all slots grows with their number. */
#define PATH_ROW(path) path,
static const char *const MASKED_DIRS[] = {WALL_MASKED_DIRS(PATH_ROW)};
static const char *const MASKED_FILES[] = {WALL_MASKED_FILES(PATH_ROW)};
static const char *const READ_ONLY[] = {WALL_READ_ONLY(PATH_ROW)};
#undef PATH_ROW
static uint64_t nofile = NOFILE_HARD;

#define CAP_ROW(name, number) "CAP_" #name,
static const char *const CAPS[] = {WALL_CAPS(CAP_ROW)};
#undef CAP_ROW
/* More than a slot may have; the runtime would grant them all. */
static const char *const MORE_CAPS[] = {"CAP_NET_ADMIN", "CAP_SYS_ADMIN"};

static const char PROCESS[] =
    "\"process\":{\"terminal\":false,"
    "\"user\":{\"uid\":0,\"gid\":0},\"args\":[\"/init\"],\"env\":[],\"cwd\":\"/\","
    "\"oomScoreAdj\":200,";
static const char RLIMITS[] = "\"rlimits\":[{\"type\":\"RLIMIT_CORE\",\"soft\":0,\"hard\":0},";

static const char PROC[] = "\"mounts\":["
                           "{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\","
                           "\"options\":[\"nosuid\",\"noexec\",\"nodev\"]},";
static const char BOUND_PROC[] =
    "\"mounts\":["
    "{\"destination\":\"/proc\",\"type\":\"bind\",\"source\":\"/proc\","
    "\"options\":[\"rbind\",\"nosuid\",\"noexec\",\"nodev\"]},";
static const char SYS[] = "{\"destination\":\"/sys\",\"type\":\"sysfs\",\"source\":\"sysfs\","
                          "\"options\":[\"nosuid\",\"noexec\",\"nodev\",\"ro\"]},";
static const char BOUND_SYS[] = "{\"destination\":\"/sys\",\"type\":\"bind\",\"source\":\"/sys\","
                                "\"options\":[\"rbind\",\"nosuid\",\"noexec\",\"nodev\",\"ro\"]},";

static const char MOUNTS[] =
    "{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\","
    "\"options\":[\"nosuid\",\"noexec\",\"strictatime\",\"mode=755\",\"size=1024k\"]},"
    "{\"destination\":\"/dev/pts\",\"type\":\"devpts\",\"source\":\"devpts\",\"options\":"
    "[\"nosuid\",\"noexec\",\"newinstance\",\"ptmxmode=0666\",\"mode=0620\",\"gid=5\",\"max=64\"]},";

static const struct {
    int major, minor; /* minor -1: all */
} DEVICES[] = {
#define DEVICE_ROW(major, minor) {major, minor},
    WALL_DEVICES(DEVICE_ROW)
#undef DEVICE_ROW
};

/* Limits that the kernel would otherwise count for all slots together (host_raise_shared). */
static struct {
    const char *type;
    int resource;
    uint64_t most;
} LIMITS[] = {
    {"RLIMIT_MSGQUEUE", RLIMIT_MSGQUEUE, 819200},
    {"RLIMIT_SIGPENDING", RLIMIT_SIGPENDING, 16384},
    {"RLIMIT_MEMLOCK", RLIMIT_MEMLOCK, 8 << 20},
};

void bundle_look_at_host(void)
{
    struct rlimit r;

    for (size_t i = 0; i < ARRAY_LEN(LIMITS); i++)
        if (!getrlimit(LIMITS[i].resource, &r) && r.rlim_max < LIMITS[i].most)
            LIMITS[i].most = r.rlim_max;
    /* A warden that may not raise its own limit cannot give more than it has. */
    if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_max < NOFILE_HARD)
        nofile = r.rlim_max;
}

/* Binds the files that show the sandbox's own memory and processors over the machine's (view.h). */
static void write_views(const warden *w, uint32_t n, buf *out)
{
    static const char *const VIEWS[][2] = {{"/proc/meminfo", "mem"},
                                           {"/sys/devices/system/cpu/online", "cpu"}};

    for (size_t i = 0; i < ARRAY_LEN(VIEWS); i++)
        if (!access(VIEWS[i][0], F_OK))
            buf_printf(out,
                       ",{\"destination\":\"%s\",\"type\":\"bind\",\"source\":\"%s/view/%u.%s\","
                       "\"options\":[\"bind\",\"ro\",\"nosuid\",\"nodev\",\"noexec\"]}",
                       VIEWS[i][0], w->place, n, VIEWS[i][1]);
}

static void write_mounts(const warden *w, uint32_t n, buf *out)
{
    /* /proc and /sys are bound where the slot shares the host's namespace: the kernel lets only the
     * owner of a namespace mount them for it. */
    buf_str(out, FAULT("wall.pidns") ? BOUND_PROC : PROC);
    buf_str(out, MOUNTS);
    buf_str(out, FAULT("wall.network") ? BOUND_SYS : SYS);
    buf_printf(out,
               "{\"destination\":\"/dev/shm\",\"type\":\"tmpfs\",\"source\":\"shm\","
               "\"options\":[\"nosuid\",\"noexec\",\"nodev\",\"mode=1777\",\"size=%um\"]}",
               BUNDLE_SHM_MIB);
    for (size_t i = 0; i < ARRAY_LEN(MASKED_DIRS); i++)
        if (!access(MASKED_DIRS[i], F_OK)) /* checked each time: a module may add one */
            buf_printf(out,
                       ",{\"destination\":\"%s\",\"type\":\"bind\",\"source\":\"%s/empty\","
                       "\"options\":[\"bind\",\"ro\",\"nosuid\",\"nodev\",\"noexec\"]}",
                       MASKED_DIRS[i], w->place);
    write_views(w, n, out);
    buf_str(out, "],");
}

/* "name":["...","..."], */
static void write_list(buf *out, const char *name, const char *prefix, const char *const *v,
                       size_t n)
{
    buf_printf(out, "\"%s\":[", name);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s\"%s%s\"", i ? "," : "", prefix, v[i]);
    buf_str(out, "],");
}

/* no-new-privileges is set by init's children unless the claim grants set-uid programs. */
static void write_capabilities(buf *out)
{
    static const char *const SETS[] = {"bounding", "effective", "permitted"};

    buf_str(out, "\"noNewPrivileges\":false,\"capabilities\":{");
    for (size_t i = 0; i < ARRAY_LEN(SETS); i++) {
        buf_printf(out, "%s\"%s\":[", i ? "," : "", SETS[i]);
        for (size_t k = 0; k < ARRAY_LEN(CAPS); k++)
            buf_printf(out, "%s\"%s\"", k ? "," : "", CAPS[k]);
        for (size_t k = 0; FAULT("wall.capabilities") && k < ARRAY_LEN(MORE_CAPS); k++)
            buf_printf(out, ",\"%s\"", MORE_CAPS[k]);
        buf_char(out, ']');
    }
    buf_str(out, "},");
}

static void write_devices(buf *out)
{
    buf_str(out, "\"devices\":[{\"allow\":false,\"access\":\"rwm\"}");
    for (size_t i = 0; i < ARRAY_LEN(DEVICES); i++) {
        buf_printf(out, ",{\"allow\":true,\"type\":\"c\",\"major\":%d,", DEVICES[i].major);
        if (DEVICES[i].minor >= 0)
            buf_printf(out, "\"minor\":%d,", DEVICES[i].minor);
        buf_str(out, "\"access\":\"rwm\"}");
    }
    buf_char(out, ']');
}

/* Writes the limits. That of processes is one that init can run into to test it; the refill writes
 * the real one. */
static void write_resources(const warden *w, buf *out)
{
    buf_str(out, "\"resources\":{");
    if (!FAULT("wall.cgroup")) {
        buf_printf(out, "\"memory\":{\"limit\":%" PRIu64, BUNDLE_MEMORY);
        if (w->cg.swap)
            buf_printf(out, ",\"swap\":%" PRIu64, BUNDLE_MEMORY);
        buf_printf(out, "},\"pids\":{\"limit\":%u},\"cpu\":{\"quota\":%u,\"period\":100000},",
                   WALL_PIDS_TRIED, BUNDLE_CPU_MILLI * 100);
    }
    write_devices(out);
    buf_str(out, "},");
    if (FAULT("wall.devices")) /* the log of the host's kernel */
        buf_str(out, "\"devices\":[{\"path\":\"/dev/kmsg\",\"type\":\"c\",\"major\":1,\"minor\":11,"
                     "\"fileMode\":438,\"uid\":0,\"gid\":0}],");
}

static void write_paths(buf *out)
{
    if (!FAULT("wall.masked"))
        write_list(out, "maskedPaths", "/proc/", MASKED_FILES, ARRAY_LEN(MASKED_FILES));
    if (!FAULT("wall.procsys"))
        write_list(out, "readonlyPaths", "/proc/", READ_ONLY, ARRAY_LEN(READ_ONLY));
}

static void write_namespaces(uint32_t base, buf *out)
{
    buf_str(out, "\"namespaces\":[{\"type\":\"mount\"}");
    if (!FAULT("wall.pidns"))
        buf_str(out, ",{\"type\":\"pid\"}");
    if (!FAULT("wall.ipcns"))
        buf_str(out, ",{\"type\":\"ipc\"}");
    if (!FAULT("wall.utsns"))
        buf_str(out, ",{\"type\":\"uts\"}");
    if (!FAULT("wall.network"))
        buf_str(out, ",{\"type\":\"network\"}");
    if (!FAULT("wall.cgroupns"))
        buf_str(out, ",{\"type\":\"cgroup\"}");
    if (!FAULT("wall.userns"))
        buf_printf(out,
                   ",{\"type\":\"user\"}],"
                   "\"uidMappings\":[{\"containerID\":0,\"hostID\":%u,\"size\":%u}],"
                   "\"gidMappings\":[{\"containerID\":0,\"hostID\":%u,\"size\":%u}]",
                   base, UID_RANGE, base, UID_RANGE);
    else
        buf_char(out, ']');
}

static void write_process(buf *out)
{
    buf_str(out, "{\"ociVersion\":\"1.0.2\",");
    if (!FAULT("wall.utsns")) /* otherwise the host's own name would be changed */
        buf_str(out, "\"hostname\":\"" WALL_HOSTNAME "\",");
    buf_str(out, PROCESS);
    write_capabilities(out);
    buf_str(out, RLIMITS);
    for (size_t i = 0; i < ARRAY_LEN(LIMITS); i++)
        buf_printf(out, "{\"type\":\"%s\",\"soft\":%" PRIu64 ",\"hard\":%" PRIu64 "},",
                   LIMITS[i].type, LIMITS[i].most, LIMITS[i].most);
    buf_printf(out, "{\"type\":\"RLIMIT_NOFILE\",\"soft\":%u,\"hard\":%" PRIu64 "}]},", NOFILE_SOFT,
               nofile);
}

void bundle_write(const warden *w, uint32_t n, buf *out)
{
    bool filtered = !FAULT("wall.seccomp");

    write_process(out);
    buf_printf(out, "\"root\":{\"path\":\"%s/idle\",\"readonly\":true},", w->place);
    write_mounts(w, n, out);
    buf_printf(out, "\"linux\":{\"cgroupsPath\":\"%s/%u\",", w->o.cgroup, n);
    write_resources(w, out);
    write_paths(out);
    write_namespaces(slot_uid_base(n), out);
    if (filtered)
        buf_printf(out, ",\"seccomp\":%s", w->seccomp);
    buf_char(out, '}');
    /* crun takes this instead of the profile. A runtime that does not know the annotation compiles
     * the profile. */
    if (w->filter && filtered)
        buf_printf(out, ",\"annotations\":{\"run.oci.seccomp_bpf_data\":\"%s\"}", w->filter);
    buf_str(out, "}\n");
}
