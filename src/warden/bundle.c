#include "warden/bundle.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "warden/warden.h"

#define NOFILE_SOFT 1024u
#define NOFILE_HARD (65536u + 1024u) /* init keeps 1024 for itself: commands get 65536 */

/* Docker's default set; meson.build gives the same list to tools/gen-seccomp. */
#define CAPS                                                                           \
    "[\"CAP_CHOWN\",\"CAP_DAC_OVERRIDE\",\"CAP_FSETID\",\"CAP_FOWNER\",\"CAP_MKNOD\"," \
    "\"CAP_NET_RAW\",\"CAP_SETGID\",\"CAP_SETUID\",\"CAP_SETFCAP\",\"CAP_SETPCAP\","   \
    "\"CAP_NET_BIND_SERVICE\",\"CAP_SYS_CHROOT\",\"CAP_KILL\",\"CAP_AUDIT_WRITE\"]"

/* Masked directories are binds of one empty directory: a tmpfs each, as the runtime would make,
 * costs a superblock a slot, and the memory of all slots grows with their number. */
static const char *const MASKED_DIRS[] = {"/proc/acpi", "/proc/asound", "/proc/scsi",
                                          "/sys/firmware"};
static bool have_dir[ARRAY_LEN(MASKED_DIRS)];
static uint64_t nofile = NOFILE_HARD;

/* no-new-privileges is set by init's children unless the claim grants set-uid programs. */
static const char PROCESS[] =
    "{\"ociVersion\":\"1.0.2\",\"hostname\":\"slot\",\"process\":{\"terminal\":false,"
    "\"user\":{\"uid\":0,\"gid\":0},\"args\":[\"/init\"],\"env\":[],\"cwd\":\"/\","
    "\"noNewPrivileges\":false,\"oomScoreAdj\":200,"
    "\"capabilities\":{\"bounding\":" CAPS ",\"effective\":" CAPS ",\"permitted\":" CAPS "},"
    "\"rlimits\":[{\"type\":\"RLIMIT_CORE\",\"soft\":0,\"hard\":0},";

static const char MOUNTS[] =
    "\"mounts\":["
    "{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\","
    "\"options\":[\"nosuid\",\"noexec\",\"nodev\"]},"
    "{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\","
    "\"options\":[\"nosuid\",\"noexec\",\"strictatime\",\"mode=755\",\"size=1024k\"]},"
    "{\"destination\":\"/dev/pts\",\"type\":\"devpts\",\"source\":\"devpts\",\"options\":"
    "[\"nosuid\",\"noexec\",\"newinstance\",\"ptmxmode=0666\",\"mode=0620\",\"gid=5\",\"max=64\"]},"
    "{\"destination\":\"/sys\",\"type\":\"sysfs\",\"source\":\"sysfs\","
    "\"options\":[\"nosuid\",\"noexec\",\"nodev\",\"ro\"]},";

static const char WALLS[] =
    "\"maskedPaths\":[\"/proc/kcore\",\"/proc/keys\",\"/proc/latency_stats\",\"/proc/timer_list\","
    "\"/proc/timer_stats\",\"/proc/sched_debug\"],"
    "\"readonlyPaths\":[\"/proc/bus\",\"/proc/fs\",\"/proc/irq\",\"/proc/sys\","
    "\"/proc/sysrq-trigger\"],"
    "\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"mount\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},"
    "{\"type\":\"network\"},{\"type\":\"cgroup\"},{\"type\":\"user\"}],";

static const char DEVICES[] =
    "\"devices\":[{\"allow\":false,\"access\":\"rwm\"},"
    "{\"allow\":true,\"type\":\"c\",\"major\":1,\"minor\":3,\"access\":\"rwm\"},"
    "{\"allow\":true,\"type\":\"c\",\"major\":1,\"minor\":5,\"access\":\"rwm\"},"
    "{\"allow\":true,\"type\":\"c\",\"major\":1,\"minor\":7,\"access\":\"rwm\"},"
    "{\"allow\":true,\"type\":\"c\",\"major\":1,\"minor\":8,\"access\":\"rwm\"},"
    "{\"allow\":true,\"type\":\"c\",\"major\":1,\"minor\":9,\"access\":\"rwm\"},"
    "{\"allow\":true,\"type\":\"c\",\"major\":5,\"minor\":0,\"access\":\"rwm\"},"
    "{\"allow\":true,\"type\":\"c\",\"major\":5,\"minor\":2,\"access\":\"rwm\"},"
    "{\"allow\":true,\"type\":\"c\",\"major\":136,\"access\":\"rwm\"}]";

/* Of what the kernel would otherwise count for all slots together (host_raise_shared). */
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

    for (size_t i = 0; i < ARRAY_LEN(MASKED_DIRS); i++)
        have_dir[i] = !access(MASKED_DIRS[i], F_OK);
    /* A warden that may not raise its own limit cannot give more than it has. */
    if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_max < NOFILE_HARD)
        nofile = r.rlim_max;
}

static void write_mounts(const warden *w, buf *out)
{
    buf_str(out, MOUNTS);
    buf_printf(out,
               "{\"destination\":\"/dev/shm\",\"type\":\"tmpfs\",\"source\":\"shm\","
               "\"options\":[\"nosuid\",\"noexec\",\"nodev\",\"mode=1777\",\"size=%um\"]}",
               BUNDLE_SHM_MIB);
    for (size_t i = 0; i < ARRAY_LEN(MASKED_DIRS); i++)
        if (have_dir[i])
            buf_printf(out,
                       ",{\"destination\":\"%s\",\"type\":\"bind\",\"source\":\"%s/empty\","
                       "\"options\":[\"bind\",\"ro\",\"nosuid\",\"nodev\",\"noexec\"]}",
                       MASKED_DIRS[i], w->place);
    buf_str(out, "],");
}

static void write_resources(const warden *w, buf *out)
{
    buf_printf(out, "\"resources\":{\"memory\":{\"limit\":%" PRIu64, BUNDLE_MEMORY);
    if (w->cg.swap)
        buf_printf(out, ",\"swap\":%" PRIu64, BUNDLE_MEMORY);
    buf_printf(out, "},\"pids\":{\"limit\":%u},\"cpu\":{\"quota\":%u,\"period\":100000},",
               BUNDLE_PIDS, BUNDLE_CPU_MILLI * 100);
    buf_str(out, DEVICES);
    buf_str(out, "},");
}

void bundle_write(const warden *w, uint32_t n, buf *out)
{
    uint32_t base = slot_uid_base(n);

    buf_str(out, PROCESS);
    for (size_t i = 0; i < ARRAY_LEN(LIMITS); i++)
        buf_printf(out, "{\"type\":\"%s\",\"soft\":%" PRIu64 ",\"hard\":%" PRIu64 "},",
                   LIMITS[i].type, LIMITS[i].most, LIMITS[i].most);
    buf_printf(out, "{\"type\":\"RLIMIT_NOFILE\",\"soft\":%u,\"hard\":%" PRIu64 "}]},", NOFILE_SOFT,
               nofile);
    buf_printf(out, "\"root\":{\"path\":\"%s/idle\",\"readonly\":true},", w->place);
    write_mounts(w, out);
    buf_printf(out, "\"linux\":{\"cgroupsPath\":\"%s/%u\",", w->o.cgroup, n);
    write_resources(w, out);
    buf_str(out, WALLS);
    buf_printf(out,
               "\"uidMappings\":[{\"containerID\":0,\"hostID\":%u,\"size\":%u}],"
               "\"gidMappings\":[{\"containerID\":0,\"hostID\":%u,\"size\":%u}],",
               base, UID_RANGE, base, UID_RANGE);
    buf_printf(out, "\"seccomp\":%s}", w->seccomp);
    /* crun takes this instead of the profile; a runtime that does not know it compiles that. */
    if (w->filter)
        buf_printf(out, ",\"annotations\":{\"run.oci.seccomp_bpf_data\":\"%s\"}", w->filter);
    buf_str(out, "}\n");
}
