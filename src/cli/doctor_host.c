/* Checks of the machine that need no child process. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <mntent.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/home.h"
#include "base/str.h"
#include "cli/doctor.h"

static void doctor_host_missing(doctor *d, const doctor_check *k, const char *what)
{
    doctor_say(d, k->name, k->level, k->remedy, "%s (%s)", what, k->why);
}

/* ---- tools ---- */

static char *in_dir(const char *dir, size_t n, const char *tool)
{
    char *path = str_printf("%.*s/%s", (int)n, dir, tool);
    struct stat st;

    if (n && !access(path, X_OK) && !stat(path, &st) && S_ISREG(st.st_mode))
        return path;
    free(path);
    return NULL;
}

static char *on_path(const char *tool)
{
    const char *at = str_or(cli_env("PATH"), "");

    while (*at) {
        size_t n = strcspn(at, ":");
        char *path = in_dir(at, n, tool);
        if (path)
            return path;
        at += n + (at[n] == ':');
    }
    return NULL;
}

void doctor_try_tool(doctor *d, const doctor_check *k)
{
    bool pretends = doctor_pretends(k->name);
    CLEANUP(freep) char *path = pretends ? NULL : on_path(k->subject);

    if (!path && !pretends && str_starts(k->subject, "bothy"))
        path = home_program(k->subject);
    if (path)
        doctor_say(d, k->name, DOCTOR_OK, NULL, "%s", path);
    else
        doctor_host_missing(d, k, "not found");
}

/* ---- sysctls ---- */

static err *read_sysctl(const char *name, buf *ret_text)
{
    CLEANUP(freep)
    char *path = str_printf("%s/%s", str_or(cli_setting("BOTHY_DOCTOR_PROC"), "/proc/sys"), name);

    for (char *c = path + strlen(path) - strlen(name); *c; c++)
        *c = *c == '.' ? '/' : *c;
    return fs_read(AT_FDCWD, path, 4096, ret_text);
}

static uint64_t memory_total(void)
{
    struct sysinfo si;

    return sysinfo(&si) ? 0 : (uint64_t)si.totalram * si.mem_unit;
}

void doctor_try_sysctl(doctor *d, const doctor_check *k)
{
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(err_freep) err *e = read_sysctl(k->subject, &text);
    uint64_t value = 0, least = sysctl_need_for(k->need, SYSCTL_SANDBOXES, memory_total());

    if (e || doctor_pretends(k->name)) {
        doctor_say(d, k->name, k->level, "Use a kernel that has it, with /proc mounted.",
                   "%s is missing (%s)", k->subject, k->why);
        return;
    }
    CLEANUP(freep) char *number = xstrndup(buf_cstr(&text), strcspn(buf_cstr(&text), " \t\n"));
    if (str_to_u64(number, UINT64_MAX, &value) && value < least) {
        CLEANUP(freep)
        char *remedy = str_printf("sysctl -w %s=%llu (in /etc/sysctl.d to keep it)", k->subject,
                                  (unsigned long long)least);
        doctor_say(d, k->name, value ? DOCTOR_WARN : k->level, remedy,
                   "%llu is less than %llu, which the warden raises it to for %d sandboxes (%s)",
                   (unsigned long long)value, (unsigned long long)least, SYSCTL_SANDBOXES, k->why);
        return;
    }
    doctor_say(d, k->name, DOCTOR_OK, NULL, "%s", number);
}

/* ---- accounts, files ---- */

void doctor_try_user(doctor *d, const doctor_check *k)
{
    char text[16384];
    struct passwd pw, *found = NULL;

    if (!doctor_pretends(k->name))
        getpwnam_r(k->subject, &pw, text, sizeof text, &found);
    if (found)
        doctor_say(d, k->name, DOCTOR_OK, NULL, "user %s has uid %u", k->subject, pw.pw_uid);
    else
        doctor_host_missing(d, k, "there is no such user");
}

void doctor_try_group(doctor *d, const doctor_check *k)
{
    char text[16384];
    struct group gr, *found = NULL;

    if (!doctor_pretends(k->name))
        getgrnam_r(k->subject, &gr, text, sizeof text, &found);
    if (found)
        doctor_say(d, k->name, DOCTOR_OK, NULL, "group %s has gid %u", k->subject, gr.gr_gid);
    else
        doctor_host_missing(d, k, "there is no such group");
}

void doctor_try_file(doctor *d, const doctor_check *k)
{
    if (!doctor_pretends(k->name) && !access(k->subject, F_OK))
        doctor_say(d, k->name, DOCTOR_OK, NULL, "%s", k->subject);
    else
        doctor_host_missing(d, k, "not there");
}

void doctor_try_filesystem(doctor *d, const doctor_check *k)
{
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(err_freep) err *e = NULL;
    CLEANUP(freep) char *line = str_printf("\t%s\n", k->subject);

    e = fs_read(AT_FDCWD, "/proc/filesystems", 65536, &text);
    if (!e && !doctor_pretends(k->name) && strstr(buf_cstr(&text), line))
        doctor_say(d, k->name, DOCTOR_OK, NULL, "the kernel has %s", k->subject);
    else
        doctor_host_missing(d, k, "the kernel does not have it loaded");
}

/* ---- cgroups ---- */

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || strchr(" ,", at[-1])) && (!at[n] || strchr(" ,\n", at[n])))
            return true;
    return false;
}

static bool unified_has(const char *dir, const char *controller)
{
    CLEANUP(freep) char *path = str_printf("%s/cgroup.controllers", dir);
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(err_freep) err *e = fs_read(AT_FDCWD, path, 4096, &text);

    return !e && has_word(buf_cstr(&text), controller);
}

/* Returns where a controller's hierarchy is mounted: version 1 is found by its mount option,
 * version 2 by its list of controllers. */
static char *hierarchy_of(const char *controller, int *ret_version)
{
    FILE *f = setmntent("/proc/self/mounts", "re");
    char *found = NULL, text[4096];
    struct mntent m;

    while (f && !found && getmntent_r(f, &m, text, sizeof text)) {
        bool v1 = str_eq(m.mnt_type, "cgroup") && has_word(m.mnt_opts, controller);
        bool v2 = str_eq(m.mnt_type, "cgroup2") && unified_has(m.mnt_dir, controller);
        *ret_version = v1 ? 1 : 2;
        if (v1 || v2)
            found = xstrdup(m.mnt_dir);
    }
    if (f)
        endmntent(f);
    return found;
}

void doctor_try_controller(doctor *d, const doctor_check *k)
{
    int version = 0;
    CLEANUP(freep) char *dir = doctor_pretends(k->name) ? NULL : hierarchy_of(k->subject, &version);

    if (!dir) {
        doctor_host_missing(d, k, "the controller is not there");
        return;
    }
    CLEANUP(freep) char *probe = str_printf("%s/bothy-doctor-%d", dir, (int)getpid());
    if (!mkdir(probe, 0700)) {
        rmdir(probe);
        doctor_say(d, k->name, DOCTOR_OK, NULL, "version %d, writable at %s", version, dir);
    } else if (geteuid()) {
        doctor_say(d, k->name, DOCTOR_WARN, "Run 'bothy doctor' as root to try it.",
                   "version %d at %s; writing not tried", version, dir);
    } else {
        doctor_say(d, k->name, k->level, k->remedy, "%s is not writable: %s (%s)", dir,
                   strerrordesc_np(errno), k->why);
    }
}

/* ---- a running daemon ---- */

static void tell_ready(doctor *d, const json_t *ready)
{
    size_t i;
    json_t *check;

    json_array_foreach(json_object_get(ready, "checks"), i, check)
    {
        CLEANUP(freep)
        char *name = str_printf("ready.%s", str_or(json_str(check, "name"), "?"));
        bool ok = json_flag(check, "ok"), warns = str_eq(json_str(check, "level"), "warn");
        doctor_say(d, name,
                   warns ? DOCTOR_WARN
                   : ok  ? DOCTOR_OK
                         : DOCTOR_FAIL,
                   json_str(check, "remedy"), "%s",
                   str_or(json_str(check, "message"), ok ? "ok" : "not ready"));
    }
}

#define CONTROLLERS                                                                               \
    "Docker, Podman: give the engine's user the cgroup controllers (systemd: Delegate=memory "    \
    "cpu pids of user@.service). Kubernetes: pids of pods are the kubelet's podPidsLimit. Until " \
    "then a spec that names the limit is 'unsupported'."

/* Limits that a backend may lack: the effect, and how to get them. */
static const struct {
    const char *cap, *what, *remedy;
} LIMIT_CAPS[] = {
    {"disk_limit", "disk space of sandboxes is not limited",
     "A node: put the warden's state directory on XFS mounted with pquota, of a kernel with "
     "CONFIG_XFS_QUOTA. Containers of Docker or Podman have no such limit. Until then a spec that "
     "names one is 'unsupported'."},
    {"memory_limit", "memory of sandboxes is not limited", CONTROLLERS},
    {"cpu_limit", "processor time of sandboxes is not limited", CONTROLLERS},
    {"pids_limit", "processes of sandboxes are not limited", CONTROLLERS},
    {"swap_limit", "sandboxes may use swap beyond their memory limit",
     "Turn swap off, or boot with swapaccount=1."},
};

static void tell_cap(doctor *d, const char *cap, const char *level)
{
    CLEANUP(freep) char *name = str_printf("caps.%s", cap);

    for (size_t i = 0; i < ARRAY_LEN(LIMIT_CAPS); i++)
        if (str_eq(cap, LIMIT_CAPS[i].cap) && (str_eq(level, "absent") || doctor_pretends(name))) {
            doctor_say(d, name, DOCTOR_WARN, LIMIT_CAPS[i].remedy, "absent: %s",
                       LIMIT_CAPS[i].what);
            return;
        }
    doctor_say(d, name, DOCTOR_OK, NULL, "%s",
               str_eq(level, "absent") ? "not offered by this backend" : level);
}

static void tell_caps(doctor *d)
{
    CLEANUP(json_decrefp) json_t *info = NULL;
    CLEANUP(err_freep) err *e = cli_call(d->c, "GET", NULL, &info, "/v1/info");
    const char *name;
    json_t *v;

    if (e) {
        doctor_say(d, "daemon.info", DOCTOR_WARN, err_remedy_of(e), "%s", e->message);
        return;
    }
    json_object_foreach(json_object_get(info, "caps"), name, v)
        tell_cap(d, name, str_or(json_string_value(v), "?"));
}

/* Checks for Docker or Podman. A node needs neither. */
void doctor_try_engine(doctor *d, const doctor_check *k)
{
    CLEANUP(freep) char *path = NULL;
    CLEANUP(err_freep)
    err *e = doctor_pretends(k->name) ? err_new(ERR_UNAVAILABLE, "no container engine answers")
                                      : home_engine(cli_setting("BOTHY_BACKEND_SOCKET"), &path);

    if (!e)
        doctor_say(d, k->name, DOCTOR_OK, NULL, "answers at %s", path);
    else if (d->user)
        doctor_say(d, k->name, k->level, err_remedy_of(e), "%s%s%s (%s)", e->message,
                   e->cause ? ": " : "", str_or(e->cause, ""), k->why);
    else if (doctor_pretends(k->name))
        doctor_say(d, k->name, DOCTOR_WARN, err_remedy_of(e), "%s (%s)", e->message, k->why);
}

/* Asks /readyz, which answers 503 with the same body if the daemon is not ready. */
static err *ask_ready(doctor *d, json_t **ret_ready)
{
    client_call call = {
        .method = "GET", .path = "/readyz", .timeout_ms = 10000, .any_status = true};

    TRY(cli_connect(d->c));
    return client_json(d->c->client, &call, ret_ready);
}

bool doctor_is_client(doctor *d)
{
    CLEANUP(json_decrefp) json_t *ready = NULL;
    CLEANUP(err_freep) err *e = NULL;

    if (!cli_names_daemon(&d->c->common))
        return false;
    e = ask_ready(d, &ready);
    return !e;
}

/* Reports why bothyd could not start. It leaves a file with reason and remedy beside its socket.
 * Returns false if there is none. */
static bool tell_failure(doctor *d, const doctor_check *k)
{
    const char *url = str_or(d->c->url, "");
    const char *path = !strncmp(url, "unix:", 5) ? url + 5 : "", *slash = strrchr(path, '/');
    CLEANUP(buf_done) buf text = {0};

    if (!slash)
        return false;
    CLEANUP(freep) char *name = str_printf("%.*s/bothyd.failure", (int)(slash - path), path);
    CLEANUP(err_freep) err *e = fs_read(AT_FDCWD, name, 1 << 16, &text);
    char *remedy = e ? NULL : strchr(buf_cstr(&text), '\n');
    if (!remedy)
        return false;
    *remedy++ = 0;
    remedy[strcspn(remedy, "\n")] = 0;
    doctor_say(d, k->name, DOCTOR_FAIL, remedy, "bothyd did not start: %s", text.p);
    return true;
}

void doctor_try_daemon(doctor *d, const doctor_check *k)
{
    CLEANUP(json_decrefp) json_t *ready = NULL;
    CLEANUP(err_freep)
    err *e =
        doctor_pretends(k->name) ? err_new(ERR_UNAVAILABLE, "no connection") : ask_ready(d, &ready);
    /* A daemon that was named is expected to run. */
    bool named = cli_names_daemon(&d->c->common);

    if (e && tell_failure(d, k))
        return;
    if (e && d->user && !named && !doctor_pretends(k->name)) {
        doctor_say(d, k->name, DOCTOR_OK, NULL, "none runs; the next 'bothy run' starts one");
        return;
    }
    if (e) {
        e = cli_explain(d->c, e);
        doctor_say(d, k->name, named ? DOCTOR_FAIL : k->level,
                   e->errnum == EACCES ? err_remedy_of(e) : k->remedy, "%s does not answer: %s%s%s",
                   str_or(d->c->url, "it"), e->message, e->cause ? ": " : "",
                   e->cause ? e->cause : "");
        return;
    }
    doctor_say(d, k->name, DOCTOR_OK, NULL, "answers at %s", d->c->url);
    tell_ready(d, ready);
    tell_caps(d);
}
