/* The root file system of a container that crun or runc runs: an overlay of the image's layers, as
 * the warden unpacked them, their ids mapped into the container's user namespace. What can be made
 * once is made once and not timed; the overlay itself is part of each sample. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "bench.h"

#define RANGE 65536

static void write_map(pid_t pid, const char *file, uint32_t base)
{
    char path[64], text[64];

    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int n = snprintf(text, sizeof text, "0 %u %u", base, RANGE);
    CLEANUP(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, (size_t)n) != n)
        die(path);
}

/* A user namespace lives as long as the descriptor: the child that made it may go. */
static int userns_of(uint32_t base)
{
    int ready[2];
    char path[64], one;

    if (pipe2(ready, O_CLOEXEC))
        die("pipe");
    pid_t pid = fork();
    if (!pid) {
        bool ok = !unshare(CLONE_NEWUSER) && write(ready[1], "", 1) == 1;
        while (ok)
            pause();
        _exit(1);
    }
    close(ready[1]);
    if (pid < 0 || read(ready[0], &one, 1) != 1)
        die("unshare");
    close(ready[0]);
    write_map(pid, "uid_map", base);
    write_map(pid, "gid_map", base);
    snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die(path);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return fd;
}

static void attach_mapped(const char *layer, const char *point, int userns)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
    CLEANUP(closep)
    int c = open_tree(AT_FDCWD, layer, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (c < 0 || mount_setattr(c, "", AT_EMPTY_PATH, &attr, sizeof attr) || mkdir(point, 0755) ||
        move_mount(c, "", AT_FDCWD, point, MOVE_MOUNT_F_EMPTY_PATH))
        die(layer);
}

void root_map_layers(root_plan *p)
{
    CLEANUP(closep) int userns = userns_of(p->uid_base);
    CLEANUP(freep) char *all = xstrdup(p->lower);
    char *state = NULL, *mapped = xstrdup("");
    unsigned n = 0;

    for (char *layer = strtok_r(all, ":", &state); layer; layer = strtok_r(NULL, ":", &state)) {
        CLEANUP(freep) char *point = str_printf("%s/l%u", p->scratch, n++);
        attach_mapped(layer, point, userns);
        CLEANUP(freep) char *before = mapped;
        mapped = str_printf("%s%s%s", before, *before ? ":" : "", point);
    }
    p->lower = mapped;
}

void root_make_upper(const root_plan *p, const char *name)
{
    static const char *const PARTS[] = {"", "/u", "/w"};

    for (size_t i = 0; i < ARRAY_LEN(PARTS); i++) {
        CLEANUP(freep) char *path = str_printf("%s/%s%s", p->scratch, name, PARTS[i]);
        if (mkdir(path, 0755) || chown(path, p->uid_base, p->uid_base))
            die(path);
    }
}

void root_mount(const root_plan *p, const char *name)
{
    CLEANUP(freep)
    char *options = str_printf("lowerdir=%s,upperdir=%s/%s/u,workdir=%s/%s/w,volatile", p->lower,
                               p->scratch, name, p->scratch, name);

    if (mount("overlay", p->merged, "overlay", MS_NODEV | MS_NOSUID, options))
        die("overlay");
}

void root_umount(const root_plan *p)
{
    if (umount2(p->merged, MNT_DETACH))
        die(p->merged);
}

/* bench-client root MERGED SCRATCH LOWER UID COMMAND...: runs COMMAND with a root mounted. A
 * detached container keeps it when our mount namespace is gone. */
int bench_root(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    root_plan p = {.merged = argv[1], .scratch = argv[2], .lower = argv[3]};
    p.uid_base = number(argv[4]);
    root_map_layers(&p);
    root_make_upper(&p, "upper");
    root_mount(&p, "upper");
    execvp(argv[5], argv + 5);
    die(argv[5]);
}
