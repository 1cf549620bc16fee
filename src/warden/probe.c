#include "warden/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/spawn.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/stage.h"
#include "warden/warden.h"

#define PROBE_BASE slot_uid_base(SLOTS_MAX)

int probe_userns(void)
{
    char c = 0;

    if (unshare(CLONE_NEWUSER))
        return 2;
    if (write(1, "u", 1) != 1)
        return 3;
    while (read(0, &c, 1) > 0)
        ;
    return 0;
}

static err *write_map(const warden *w, pid_t pid, const char *which)
{
    char name[32], text[64];

    snprintf(name, sizeof name, "%d/%s", pid, which);
    int n = snprintf(text, sizeof text, "0 %u %u\n", PROBE_BASE, UID_RANGE);
    CLEANUP(closep) int fd = openat(w->proc_fd, name, O_WRONLY | O_CLOEXEC);
    int r = fd < 0 ? -errno : fs_write_all(fd, text, (size_t)n);
    return r ? err_sys(ERR_WALL_FAILED, -r, "mapping the ids of a user namespace") : NULL;
}

static err *open_userns(const warden *w, pid_t pid, int from_child, int *ret_userns)
{
    char c, name[32];

    if (read(from_child, &c, 1) != 1)
        return err_remedy(
            err_new(ERR_WALL_FAILED, "no user namespace can be made"),
            "Set the sysctl user.max_user_namespaces above 0, and allow user namespaces in the "
            "host's security module.");
    TRY(write_map(w, pid, "uid_map"));
    TRY(write_map(w, pid, "gid_map"));
    snprintf(name, sizeof name, "%d/ns/user", pid);
    int fd = openat(w->proc_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(ERR_WALL_FAILED, errno, "opening a user namespace");
    *ret_userns = fd;
    return NULL;
}

/* ---- in a thread of its own: it enters a staging namespace for good ---- */

typedef struct attempt {
    const warden *w;
    int userns;
    err *failure;
} attempt;

static err *write_inside(int mount)
{
    stage_act_as(PROBE_BASE);
    CLEANUP(closep)
    int fd = openat(mount, "written", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    int e = errno;
    stage_act_as(0);
    return fd < 0 ? err_sys(ERR_WALL_FAILED, e, "writing through an id-mapped overlay") : NULL;
}

static err *check_owner(const warden *w)
{
    struct stat st;

    if (fstatat(w->uppers_fd, "probe/u/written", &st, AT_SYMLINK_NOFOLLOW))
        return err_sys(ERR_WALL_FAILED, errno, "finding what was written");
    return st.st_uid ? err_new(ERR_WALL_FAILED, "what the slot's root wrote belongs to %u on disk",
                               st.st_uid)
                     : NULL;
}

static err *try_build(const attempt *a)
{
    CLEANUP(closep) int mount = -1;
    stage st;

    TRY(stage_enter(a->w->o.state, &st));
    err *e = stage_build(
        &st,
        &(stage_spec){
            .upper = "uppers/probe", .userns = a->userns, .uid_base = PROBE_BASE, .nosuid = true},
        &mount);
    if (!e)
        e = write_inside(mount);
    close(st.root);
    close(st.home_mnt);
    close(st.home_uts);
    return e ? e : check_owner(a->w);
}

static void *run_attempt(void *arg)
{
    attempt *a = arg;

    a->failure = try_build(a);
    return NULL;
}

static err *remedy_for(err *e)
{
    return err_remedy(e, "The state directory must be on ext4, XFS or btrfs of a kernel of at "
                         "least 6.1 with overlayfs; 'modprobe overlay' if it is a module.");
}

static err *build_once(warden *w, int userns)
{
    CLEANUP(closep) int dir = -1;
    attempt a = {.w = w, .userns = userns};

    TRY(fs_remove(w->uppers_fd, "probe"));
    TRY(fs_dir(w->uppers_fd, "probe", 0755, &dir));
    if (mkdirat(dir, "u", 0755) || mkdirat(dir, "w", 0700))
        return err_sys(ERR_INTERNAL, errno, "cannot make the probe's directories");
    pthread_join(thread_start("probe", run_attempt, &a), NULL);
    return a.failure ? remedy_for(a.failure) : fs_remove(w->uppers_fd, "probe");
}

err *probe_run(warden *w)
{
    char *argv[] = {"/proc/self/exe", "--probe-userns", NULL};
    int in[2], out[2], status;
    CLEANUP(closep) int userns = -1;
    pid_t pid;

    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        return err_sys(ERR_INTERNAL, errno, "cannot make a pipe");
    const int fds[] = {in[0], out[1], -1};
    err *e = spawn_start(&(spawn_spec){.argv = argv, .fds = fds, .nfds = 3}, &pid);
    close(in[0]);
    close(out[1]);
    bool started = !e;
    if (!e)
        e = open_userns(w, pid, out[0], &userns);
    if (!e)
        e = build_once(w, userns);
    close(in[1]); /* lets the child end */
    close(out[0]);
    if (started)
        err_drop(spawn_wait(pid, 5000, &status), "probe");
    return err_wrap(e, "start-up probe");
}
