/* A command that misuses what we gave it: its stdio, its processes, its terminal. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "intruder.h"

#define LATE_MS       900
#define RESIST_SIZE   (2ul << 30)
#define POPULATE_READ 22 /* MADV_POPULATE_READ */

static void put(const char *text)
{
    if (write(1, text, strlen(text)) < 0)
        _exit(9);
}

static int kill_all(void)
{
    for (int i = 0; i < 200; i++)
        kill(-1, SIGKILL);
    put("alone\n");
    return 5;
}

/* Leaves a process behind that stops whoever it can see, again and again. */
static int stop_all(void)
{
    if (fork())
        return 0;
    for (int i = 0; i < 400; i++) {
        kill(-1, SIGSTOP);
        usleep(5000);
    }
    return 0;
}

static int close_all(void)
{
    put("before\n");
    for (int fd = 0; fd < 256; fd++)
        close(fd);
    usleep(LATE_MS * 1000);
    return 6;
}

/* Out of the session and of the tree, with our pipe kept open; says something late. */
static int daemonise(void)
{
    put("parent\n");
    if (fork())
        return 7;
    setsid();
    if (fork())
        return 0;
    usleep(LATE_MS * 1000);
    put("late\n");
    for (;;)
        pause();
}

/* Not blocking, of the smallest size, with a reader of our own at the same pipe. */
static int twist(void)
{
    char c[64];
    int thief = open("/proc/self/fd/1", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    fcntl(1, F_SETFL, O_NONBLOCK);
    fcntl(1, F_SETPIPE_SZ, 1);
    for (int i = 0; i < 2000; i++) {
        ssize_t n = write(1, "twisted\n", 8);
        if (n < 0 && errno != EAGAIN)
            return 9;
        n = thief < 0 ? 0 : read(thief, c, 8);
        (void)n;
    }
    fcntl(1, F_SETFL, 0);
    close(thief);
    put("end\n");
    return 8;
}

static int endless(void)
{
    static char block[65536];

    memset(block, 'x', sizeof block);
    for (;;)
        if (write(1, block, sizeof block) < 0 && errno != EAGAIN)
            return 0;
}

/* Deaf, mute, exclusive and locked. */
static int terminal(void)
{
    struct termios t;
    int lock = 1;
    struct winsize huge = {65535, 65535, 65535, 65535};

    tcgetattr(0, &t);
    cfmakeraw(&t);
    t.c_cflag &= ~(unsigned)CREAD;
    tcsetattr(0, TCSANOW, &t);
    ioctl(0, TIOCEXCL);
    ioctl(0, TIOCSWINSZ, &huge);
    ioctl(0, TIOCSPTLCK, &lock);
    ioctl(0, TIOCPKT, &lock);
    ioctl(0, FIONBIO, &lock);
    put("\033]0;owned\007\033[2J\033P+q\033\\\x9b\xff\x00end");
    return 4;
}

static int memory_bomb(void)
{
    for (;;) {
        char *p = mmap(NULL, 1 << 22, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return 3;
        memset(p, 1, 1 << 22);
    }
}

/* As many as it goes, each of which goes on as long as it lives. */
static int fork_bomb(void)
{
    signal(SIGTERM, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    for (;;)
        if (fork() < 0 && usleep(1000))
            return 3;
}

static int spin(void)
{
    volatile int on = 1;

    for (int i = 0; i < 7 && fork(); i++)
        ;
    while (on)
        ;
    return 0;
}

/* Files without a byte in them, each an inode; a directory for each 10,000. */
static int inode_flood(void)
{
    char path[64];

    for (unsigned i = 0;; i++) {
        if (i % 10000 == 0) {
            snprintf(path, sizeof path, "/tmp/flood-%d-%u", getpid(), i / 10000);
            if (mkdir(path, 0700) || chdir(path))
                break;
        }
        snprintf(path, sizeof path, "%u", i);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0)
            break;
        close(fd);
    }
    printf("%s\n", errno_name(errno));
    return 0;
}

static int file_flood(const char *path)
{
    static char block[1 << 20];
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    long written = 0;

    memset(block, 7, sizeof block);
    for (;;) {
        ssize_t n = write(fd, block, sizeof block);
        if (n < 0)
            break;
        written += n;
    }
    printf("%s %ld\n", errno_name(errno), written >> 20);
    unlink(path);
    return 0;
}

static int disk_flood(void)
{
    return file_flood("/tmp/flood");
}

static int shm_flood(void)
{
    return file_flood("/dev/shm/flood");
}

static int dev_flood(void)
{
    return file_flood("/dev/flood");
}

/* Makes calls that take long in the kernel and that only a kill ends, one after the other: with
 * little of a processor each lasts for seconds, in which the process does not freeze. */
static int resist(void)
{
    char *p =
        mmap(NULL, RESIST_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return 3;
    madvise(p, RESIST_SIZE, MADV_NOHUGEPAGE);
    while (!madvise(p, RESIST_SIZE, POPULATE_READ))
        madvise(p, RESIST_SIZE, MADV_DONTNEED);
    return 4;
}

/* A process that dumps core, if it may. */
static int crash(void)
{
    raise(SIGSEGV);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} WAYS[] = {
    {"kill-all", kill_all},
    {"stop-all", stop_all},
    {"close-all", close_all},
    {"daemonise", daemonise},
    {"twist", twist},
    {"endless", endless},
    {"terminal", terminal},
    {"memory-bomb", memory_bomb},
    {"fork-bomb", fork_bomb},
    {"spin", spin},
    {"inode-flood", inode_flood},
    {"disk-flood", disk_flood},
    {"shm-flood", shm_flood},
    {"dev-flood", dev_flood},
    {"resist", resist},
    {"crash", crash},
};

int misuse(const char *way)
{
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        if (!strcmp(WAYS[i].name, way))
            return WAYS[i].run();
    fprintf(stderr, "intruder: no way %s\n", way);
    return 2;
}
