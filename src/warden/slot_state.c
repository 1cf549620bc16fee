/* Reads and writes slots/<n>/state: which process is the slot's pid 1, and which release made
 * it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/release.h"
#include "base/str.h"
#include "warden/warden.h"

#define BOOT_LEN     36
#define STATE_FORMAT 1
#define STATUS_MAX   8192

/* Reads which start of the machine this is; "-" if it does not say. */
static void read_boot(int proc_fd, char ret_boot[BOOT_LEN + 1])
{
    CLEANUP(buf_done) buf b = {0};
    err *e = fs_read(proc_fd, "sys/kernel/random/boot_id", 256, &b);

    snprintf(ret_boot, BOOT_LEN + 1, "%.*s", e ? 1 : (int)strcspn(b.p, "\n"), e ? "-" : b.p);
    err_free(e);
}

static err *write_state(int proc_fd, const slot *s, const char *release)
{
    char text[160], boot[BOOT_LEN + 1];

    read_boot(proc_fd, boot);
    int n = snprintf(text, sizeof text, "%d %d %" PRIu64 " %s %s\n", STATE_FORMAT, s->pid, s->start,
                     boot, release);
    return fs_write(s->dirfd, "state", text, (size_t)n, 0600, false);
}

err *slot_write_state(int proc_fd, const slot *s)
{
    TRY(fs_write(s->dirfd, "claim", "", 0, 0600, false));
    FAULT_KILL("refill.claim_file");
    TRY(write_state(proc_fd, s, BOTHY_RELEASE));
    FAULT_KILL("refill.state");
    return NULL;
}

enum slot_found slot_read_state(const warden *w, slot *s)
{
    CLEANUP(buf_done) buf b = {0};
    char boot[BOOT_LEN + 1], now[BOOT_LEN + 1], release[RELEASE_MAX] = "";
    int format, pid;
    CLEANUP(err_freep) err *e = fs_read(s->dirfd, "state", 256, &b);

    if (e && e->errnum == ENOENT)
        return SLOT_NEVER_READY;
    /* NOLINTNEXTLINE(cert-err34-c): the warden's own file; what does not parse is damage */
    if (e || sscanf(buf_cstr(&b), "%d %d %" SCNu64 " %36s %31s", &format, &pid, &s->start, boot,
                    release) < 4)
        return SLOT_DAMAGED;
    if (format != STATE_FORMAT || pid <= 1) /* kill(2) would read it as every process */
        return SLOT_DAMAGED;
    read_boot(w->proc_fd, now);
    if (strcmp(boot, now) != 0)
        return SLOT_OF_EARLIER_BOOT;
    s->pid = pid;
    s->foreign = strcmp(release, BOTHY_RELEASE) != 0;
    return SLOT_FOUND;
}

/* ---- a state file that cannot be read ---- */

/* Returns true if the process is in one pid namespace below the warden's, and is the first
 * there. */
static bool is_pid_1(int proc_fd, pid_t pid)
{
    CLEANUP(buf_done) buf b = {0};
    char name[32];
    int outer, inner;
    unsigned more;

    snprintf(name, sizeof name, "%d/status", pid);
    err *e = fs_read(proc_fd, name, STATUS_MAX, &b);
    const char *line = e ? NULL : strstr(buf_cstr(&b), "\nNSpid:");
    err_free(e);
    /* NOLINTNEXTLINE(cert-err34-c): the kernel's words */
    return line && sscanf(line, "\nNSpid: %d %d %u", &outer, &inner, &more) == 2 && inner == 1;
}

bool slot_rebuild_state(const warden *w, slot *s)
{
    CLEANUP(buf_done) buf b = {0};
    char *save = NULL;
    uint64_t pid;

    if (!cgroup_pids(&w->cg, s->n, &b))
        return false;
    s->pid = 0;
    for (char *line = strtok_r(b.p, "\n", &save); line && !s->pid;
         line = strtok_r(NULL, "\n", &save))
        if (str_to_u64(line, INT32_MAX, &pid) && pid > 1 && is_pid_1(w->proc_fd, (pid_t)pid))
            s->pid = (pid_t)pid;
    if (!s->pid)
        return false;
    s->start = slot_start_time(w->proc_fd, s->pid);
    s->foreign = true;
    log_warn("recover",
             "slots/%u/state was missing or damaged: pid 1 was found in its cgroup, the file is "
             "written again",
             s->n);
    err_drop(write_state(w->proc_fd, s, "-"), "recover"); /* retried at the next start */
    return true;
}

/* ---- a newer format ---- */

err *slot_state_known(int slots_fd, const char *name)
{
    CLEANUP(freep) char *path = str_printf("%s/state", name);
    CLEANUP(buf_done) buf b = {0};
    int format = 0;
    err *e = fs_read(slots_fd, path, 256, &b);

    /* NOLINTNEXTLINE(cert-err34-c): what is no number is damage, not a format */
    bool newer = !e && sscanf(buf_cstr(&b), "%d ", &format) == 1 && format > STATE_FORMAT;
    err_free(e);
    if (!newer)
        return NULL;
    return err_remedy(
        err_new(ERR_UNSUPPORTED, "slots/%s has format %d, this warden knows up to %d", path, format,
                STATE_FORMAT),
        "Run the bothy-warden that made it, or a newer one; or end every sandbox with "
        "bothy-warden --destroy-all of that release.");
}
