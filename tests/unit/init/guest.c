#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/sock.h"

#define PASSWD                                  \
    "root:x:0:0:root:/root:/bin/sh\n"           \
    "app:x:1000:1001:App:/home/app:/bin/dash\n" \
    "1234:x:77:78::/tmp:\n"                     \
    "broken:x:abc:1::/:\n"
#define GROUP          \
    "root:x:0:\n"      \
    "app:x:1001:\n"    \
    "staff:x:50:app\n" \
    "wheel:x:10:x,app,y\n"

static void die(const char *what)
{
    fprintf(stderr, "guest: %s: %s\n", what, strerrordesc_np(errno));
    _exit(99);
}

static void put(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        die(path);
    close(fd);
}

static void copy_program(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
    struct stat st;

    if (in < 0 || out < 0 || fstat(in, &st) ||
        syscall(SYS_copy_file_range, in, NULL, out, NULL, st.st_size, 0) < 0) {
        char b[65536];
        ssize_t n;
        while ((n = read(in, b, sizeof b)) > 0)
            if (write(out, b, (size_t)n) != n)
                die(to);
        if (n < 0)
            die(from);
    }
    close(in);
    close(out);
}

static void make_dir(const char *path, mode_t mode)
{
    if (mkdir(path, 0755) || chmod(path, mode))
        die(path);
}

/* Inside the new namespaces; the working directory is the root to be. */
static void build_root(const char *init_program)
{
    static const char *const links[][2] = {
        {"usr/bin", "bin"}, {"usr/sbin", "sbin"}, {"usr/lib", "lib"}, {"usr/lib64", "lib64"}};

    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        die("make mounts private");
    if (mount("guest", ".", "tmpfs", 0, "mode=755,size=64m"))
        die("tmpfs");
    /* the mount is found by path, the old working directory lies under it */
    char here[256];
    if (!getcwd(here, sizeof here) || chdir(here))
        die("chdir");
    make_dir("usr", 0755);
    if (mount("/usr", "usr", NULL, MS_BIND | MS_REC, NULL))
        die("bind /usr");
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (symlink(links[i][0], links[i][1]))
            die("symlink");
    make_dir("etc", 0755);
    make_dir("tmp", 01777);
    make_dir("root", 0700);
    make_dir("home", 0755);
    make_dir("home/app", 0755);
    make_dir("proc", 0555);
    make_dir("dev", 0755);
    make_dir("dev/pts", 0755);
    put("dev/null", "", 0666);
    if (mount("/dev/null", "dev/null", NULL, MS_BIND, NULL))
        die("bind /dev/null");
    put("etc/passwd", PASSWD, 0644);
    put("etc/group", GROUP, 0644);
    if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
        die("proc");
    if (mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=0620"))
        die("devpts");
    if (chown("home/app", 1000, 1001) && errno != EINVAL)
        die("chown");
    copy_program(init_program, "init");
}

/* What Docker leaves to a container's root. */
static const int docker_caps[] = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31};
#define CAPS_MAX 64

static bool docker_gives(int cap)
{
    for (size_t i = 0; i < sizeof docker_caps / sizeof *docker_caps; i++)
        if (docker_caps[i] == cap)
            return true;
    return false;
}

static void become_user(const guest_serve *o)
{
    for (int cap = 0; cap < CAPS_MAX; cap++)
        if (o->uid || !docker_gives(cap))
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    if (o->uid && (setgroups(0, NULL) || setresgid(o->gid, o->gid, o->gid) ||
                   setresuid(o->uid, o->uid, o->uid)))
        die("become user");
}

static void become_init(int listener, const char *init_program, const guest_serve *serve)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct rlimit nofile = {256, 16384};

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing is left when the test itself dies */
    if (null < 0)
        die("/dev/null");
    build_root(init_program);
    if (chroot(".") || chdir("/"))
        die("chroot");
    setrlimit(RLIMIT_NOFILE, &nofile);
    if (dup2(serve ? null : listener, 0) || dup2(null, 1) != 1)
        die("dup2");
    close_range(3, ~0u, 0); /* fd 2 stays: reports of the sanitizers */
    char *argv[] = {"/init", serve ? "serve" : NULL, NULL};
    char *envp[] = {"ASAN_OPTIONS=detect_leaks=0", NULL};
    if (serve) {
        become_user(serve);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of ids has taken it */
    }
    execve("/init", argv, serve && serve->env ? serve->env : envp);
    die("exec init");
}

static int clone_flags(void)
{
    return CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | (geteuid() ? CLONE_NEWUSER : 0);
}

static void map_self(uid_t uid, gid_t gid)
{
    char line[64];

    snprintf(line, sizeof line, "0 %u 1", uid);
    put("/proc/self/uid_map", line, 0644);
    put("/proc/self/setgroups", "deny", 0644);
    snprintf(line, sizeof line, "0 %u 1", gid);
    put("/proc/self/gid_map", line, 0644);
}

bool guest_possible(const char **ret_why)
{
    int status;
    uid_t uid = geteuid();
    gid_t gid = getegid();
    pid_t pid = (pid_t)syscall(SYS_clone, clone_flags() | SIGCHLD, 0, 0, 0, 0);

    if (pid < 0) {
        *ret_why = "cannot make pid and mount namespaces (not root, and no user namespaces)";
        return false;
    }
    if (!pid) {
        if (uid)
            map_self(uid, gid);
        if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("proc", "/proc", "proc", 0, NULL))
            _exit(1);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status) {
        *ret_why = "cannot mount /proc in a new pid namespace";
        return false;
    }
    return true;
}

void guest_start(guest *g, const char *init_program)
{
    int listener;
    uid_t uid = geteuid();
    gid_t gid = getegid();
    char *program = realpath(init_program, NULL); /* the working directory changes */

    if (!program)
        die(init_program);
    snprintf(g->dir, sizeof g->dir, "/tmp/bothy-guest-XXXXXX");
    if (!mkdtemp(g->dir))
        die("mkdtemp");
    snprintf(g->socket, sizeof g->socket, "%s/s", g->dir);
    err *e = sock_bind_path(g->socket, SOCK_SEQPACKET, 0600, &listener);
    if (e || listen(listener, 8))
        die(e ? e->message : "listen");
    g->pid = (pid_t)syscall(SYS_clone, clone_flags() | SIGCHLD, 0, 0, 0, 0);
    if (g->pid < 0)
        die("clone");
    if (!g->pid) {
        if (uid)
            map_self(uid, gid);
        if (chdir(g->dir))
            die(g->dir);
        become_init(listener, program, NULL);
    }
    free(program);
    close(listener);
}

void guest_start_serve(guest *g, const char *init_program, const guest_serve *o)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    char *program = realpath(init_program, NULL);

    if (!program)
        die(init_program);
    g->socket[0] = 0;
    snprintf(g->dir, sizeof g->dir, "/tmp/bothy-guest-XXXXXX");
    if (!mkdtemp(g->dir))
        die("mkdtemp");
    g->pid = (pid_t)syscall(SYS_clone, clone_flags() | CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0);
    if (g->pid < 0)
        die("clone");
    if (!g->pid) {
        if (uid)
            map_self(uid, gid);
        if (chdir(g->dir))
            die(g->dir);
        become_init(-1, program, o);
    }
    free(program);
}

static int open_of(const guest *g, const char *what)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)g->pid, what);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* In a child of ours; its own child is the one inside. */
static void enter(const guest *g, const guest_serve *o, char *const *argv, int stdio)
{
    static const char *const names[] = {"ns/user", "ns/net", "ns/mnt", "ns/uts", "ns/pid"};
    char *envp[] = {"ASAN_OPTIONS=detect_leaks=0", NULL};
    int ns[5], root = open_of(g, "root");

    for (size_t i = 0; i < 5; i++)
        ns[i] = open_of(g, names[i]);
    for (size_t i = geteuid() ? 0 : 1; i < 5; i++)
        if (setns(ns[i], 0))
            die(names[i]);
    if (fchdir(root) || chroot("."))
        die("root");
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid)
        _exit(pid < 0);
    if (dup2(stdio, 0) || dup2(stdio, 1) != 1)
        die("dup2");
    close_range(3, ~0u, 0);
    become_user(o);
    execve(argv[0], argv, envp);
    _exit(99); /* the root is not there yet: the caller tries again */
}

int guest_exec(const guest *g, const guest_serve *o, char *const *argv, pid_t *ret_pid)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        die("socketpair");
    *ret_pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (*ret_pid < 0)
        die("clone");
    if (!*ret_pid)
        enter(g, o, argv, pair[1]);
    close(pair[1]);
    return pair[0];
}

bool guest_runs(const char *init_program, const char **ret_why)
{
    guest g;
    char b[256];
    int fd;

    guest_start(&g, init_program);
    fd = guest_connect(&g);
    bool greeted = fd >= 0 && recv(fd, b, sizeof b, 0) > 0;
    if (fd >= 0)
        close(fd);
    guest_stop(&g);
    *ret_why = "this init needs ids that are not mapped (not root)";
    return greeted || !geteuid(); /* as root a failure is a failure */
}

int guest_connect(const guest *g)
{
    int fd;
    err *e = sock_connect_path(g->socket, SOCK_SEQPACKET, &fd);

    if (e) {
        int errnum = e->errnum;
        err_free(e);
        return -errnum;
    }
    return fd;
}

/* A pid 1 is gone when all in its namespace are reaped, also those that came from outside and may
 * be ours. */
static void reap(const guest *g)
{
    pid_t pid;

    do
        pid = waitpid(g->socket[0] ? g->pid : -1, NULL, 0);
    while (pid > 0 && pid != g->pid);
}

void guest_stop(guest *g)
{
    if (g->pid > 0) {
        kill(g->pid, SIGKILL);
        reap(g);
    }
    if (g->socket[0])
        unlink(g->socket);
    rmdir(g->dir);
    g->pid = 0;
}
