/* usage: counters of this container's own cgroup (v2 or v1, where it is mounted) and network. A
 * missing counter is sent as 0. */
#include "kit/kit.h"

static const char *root; /* "" except in tests */
static char *membership; /* content of /proc/self/cgroup */
static char at[KIT_PATH_MAX + 1];

/* Joins root and the parts to a path in `at`; NULL if it is too long. */
static const char *path_of(const char *a, const char *b, size_t bn, const char *c)
{
    const char *part[] = {root, a, b, c};
    size_t n = 0;

    for (int i = 0; i < 4; i++) {
        size_t more = i == 2 ? bn : text_len(part[i]);
        if (n + more > KIT_PATH_MAX)
            return NULL;
        memcpy(at + n, part[i], more);
        n += more;
    }
    at[n] = 0;
    return at;
}

static char *file_of(const char *a, const char *b, size_t bn, const char *c)
{
    const char *path = path_of(a, b, bn, c);

    return path ? text_file(path) : NULL;
}

/* ---- text ---- */

static const char *skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

static const char *next_line(const char *p)
{
    while (*p && *p != '\n')
        p++;
    return *p ? p + 1 : p;
}

static const char *word_end(const char *p)
{
    while (*p && *p != ' ' && *p != '\t' && *p != '\n')
        p++;
    return p;
}

/* Returns the number at the start of text. "max" and anything that is no number is 0, and so is a
 * value larger than possible: that is v1's form of no limit. */
static u64 usage_number(const char *p)
{
    u64 v = 0;

    if (!p || !text_number(p, word_end(p), &v) || v > KIT_USAGE_MAX)
        return 0;
    return v;
}

static bool begins_with(const char *p, const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != word[i])
            return false;
    return true;
}

/* Returns the number of the line "key number". */
static u64 usage_value(const char *text, const char *key)
{
    size_t n = text_len(key);

    for (const char *p = text ? text : ""; *p; p = next_line(p))
        if (begins_with(p, key, n) && p[n] == ' ')
            return usage_number(p + n + 1);
    return 0;
}

static u64 usage_sum(u64 a, u64 b)
{
    return a > KIT_USAGE_MAX - b ? KIT_USAGE_MAX : a + b;
}

/* Adds the numbers behind every `key` in all lines: "rbytes=", "Read ". */
static u64 usage_total(const char *text, const char *key)
{
    size_t n = text_len(key);
    u64 all = 0;

    for (const char *p = text ? text : ""; *p; p++)
        if ((p == text || p[-1] == ' ') && begins_with(p, key, n))
            all = usage_sum(all, usage_number(p + n));
    return all;
}

/* ---- where ---- */

static bool usage_lists(const char *p, const char *end, const char *controller)
{
    size_t n = text_len(controller);

    while (p < end) {
        const char *stop = p;
        while (stop < end && *stop != ',')
            stop++;
        if ((size_t)(stop - p) == n && begins_with(p, controller, n))
            return true;
        p = stop + 1;
    }
    return false;
}

/* Returns our own group for a controller ("": the v2 hierarchy), as a path without its newline;
 * empty if it is the mount's root. */
static const char *group_of(const char *controller, size_t *ret_n)
{
    *ret_n = 0;
    for (const char *p = membership ? membership : ""; *p; p = next_line(p)) {
        const char *names = p, *end;
        while (*names && *names != ':' && *names != '\n')
            names++;
        if (*names != ':')
            continue;
        for (end = ++names; *end && *end != ':' && *end != '\n';)
            end++;
        if (*end != ':' || (*controller ? !usage_lists(names, end, controller) : end != names))
            continue;
        const char *path = end + 1;
        const char *stop = path;
        while (*stop && *stop != '\n')
            stop++;
        *ret_n = stop - path > 1 ? (size_t)(stop - path) : 0;
        return path;
    }
    return "";
}

/* Reads a file of our group. If the container sees the host's group names, its mount begins at our
 * own group, and the file lies at the mount's root. */
static char *group_file(const char *mount, const char *controller, const char *name)
{
    size_t n;
    const char *group = group_of(controller, &n);
    char *text = n ? file_of(mount, group, n, name) : NULL;

    return text ? text : file_of(mount, "", 0, name);
}

static char *kit_usage_v2(const char *name)
{
    return group_file("/sys/fs/cgroup", "", name);
}

/* Reads a v1 file. cpu and cpuacct share a mount on most systems. */
static char *kit_usage_v1(const char *controller, const char *name)
{
    static const char *const SHARED = "/sys/fs/cgroup/cpu,cpuacct";
    char mount[64] = "/sys/fs/cgroup/";
    size_t n = text_len(mount);

    memcpy(mount + n, controller, text_len(controller) + 1);
    char *text = group_file(mount, controller, name);
    return text || !begins_with(controller, "cpu", 3) ? text : group_file(SHARED, controller, name);
}

/* ---- what ---- */

static void read_v2(struct kit_usage *u)
{
    const char *cpu = kit_usage_v2("/cpu.stat"), *io = kit_usage_v2("/io.stat");

    u->flags = cpu ? KIT_USAGE_CPU : 0;
    u->cpu_us = usage_value(cpu, "usage_usec");
    u->cpu_throttled_us = usage_value(cpu, "throttled_usec");
    u->memory = usage_number(kit_usage_v2("/memory.current"));
    u->memory_peak = usage_number(kit_usage_v2("/memory.peak"));
    u->memory_limit = usage_number(kit_usage_v2("/memory.max"));
    u->oom_kills = usage_value(kit_usage_v2("/memory.events"), "oom_kill");
    u->io_read = usage_total(io, "rbytes=");
    u->io_written = usage_total(io, "wbytes=");
    u->pids = (u32)usage_number(kit_usage_v2("/pids.current"));
}

static void read_v1(struct kit_usage *u)
{
    const char *io = kit_usage_v1("blkio", "/blkio.throttle.io_service_bytes_recursive");
    const char *cpu = kit_usage_v1("cpuacct", "/cpuacct.usage");

    if (!io)
        io = kit_usage_v1("blkio", "/blkio.throttle.io_service_bytes");
    u->flags = cpu ? KIT_USAGE_CPU : 0;
    u->cpu_us = usage_number(cpu) / 1000;
    u->cpu_throttled_us = usage_value(kit_usage_v1("cpu", "/cpu.stat"), "throttled_time") / 1000;
    u->memory = usage_number(kit_usage_v1("memory", "/memory.usage_in_bytes"));
    u->memory_peak = usage_number(kit_usage_v1("memory", "/memory.max_usage_in_bytes"));
    u->memory_limit = usage_number(kit_usage_v1("memory", "/memory.limit_in_bytes"));
    u->oom_kills = usage_value(kit_usage_v1("memory", "/memory.oom_control"), "oom_kill");
    u->io_read = usage_total(io, "Read ");
    u->io_written = usage_total(io, "Write ");
    u->pids = (u32)usage_number(kit_usage_v1("pids", "/pids.current"));
}

/* Returns the n-th number of a line, from 1; blanks separate them. */
static u64 usage_column(const char *p, u32 n)
{
    for (p = skip_blanks(p); n > 1; n--)
        p = skip_blanks(word_end(p));
    return usage_number(p);
}

/* Adds all interfaces except the loopback. The two heading lines have no colon. */
static void read_network(struct kit_usage *u)
{
    const char *text = file_of("/proc/net/dev", "", 0, "");

    for (const char *p = text ? text : ""; *p; p = next_line(p)) {
        const char *name = skip_blanks(p), *end = name;
        while (*end && *end != ':' && *end != '\n')
            end++;
        if (*end != ':' || begins_with(name, "lo:", 3))
            continue;
        u->net_rx = usage_sum(u->net_rx, usage_column(end + 1, 1));
        u->net_dropped = usage_sum(u->net_dropped, usage_column(end + 1, 4));
        u->net_tx = usage_sum(u->net_tx, usage_column(end + 1, 9));
        u->net_dropped = usage_sum(u->net_dropped, usage_column(end + 1, 12));
    }
}

void verb_usage(const kit_request *rq)
{
    static struct kit_usage u = {.magic = KIT_USAGE_MAGIC};

    root = text_equal(rq->path, "/") ? "" : rq->path;
    membership = file_of("/proc/self/cgroup", "", 0, "");
    if (kit_usage_v2("/cgroup.controllers"))
        read_v2(&u);
    else
        read_v1(&u);
    read_network(&u);
    SYS(write, 1, &u, sizeof u);
    kit_exit(0);
}
