/* /plant of the test image "plant": leaves traces, and looks for those of others. Static.
 *
 *   plant trickle LINES MS   a line every MS: number (10 digits), CLOCK_BOOTTIME in ns (20 digits)
 *   plant flood LINES        the same as fast as it goes
 *   plant look TAG           who this sandbox is, and every trace found: a "key=value" a line
 *   plant traces TAG         leaves one of each kind; what lives on does so in a child
 *   plant keys TAG           looks for a key, leaves one, looks again: from outside, in the user
 *                            namespace of a sandbox, as seccomp refuses keys inside */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#    define SO_NETNS_COOKIE 71
#endif
#define IPC_KEY 0x626f7468
#define PORT    7171

static const char *const PLACES[] = {"/", "/tmp/", "/dev/", "/dev/shm/", "/etc/", "/var/tmp/"};
#define NPLACES (sizeof PLACES / sizeof *PLACES)

/* ---- streams ---- */

static unsigned long long boottime(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
}

static int trickle(long lines, long ms)
{
    char line[40];

    for (long i = 0; i < lines; i++) {
        int n = snprintf(line, sizeof line, "%010ld %020llu\n", i, boottime());
        if (write(1, line, (size_t)n) != n)
            return 1;
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
    }
    return 0;
}

static int flood(long lines)
{
    static char block[32 * 1024 + 8];

    for (long i = 0; i < lines;) {
        size_t used = 0;
        for (; i < lines && used < 32 * 1024; i++)
            used += (size_t)sprintf(block + used, "%010ld %020llu\n", i, boottime());
        for (size_t sent = 0; sent < used;) {
            ssize_t n = write(1, block + sent, used - sent);
            if (n <= 0)
                return 1;
            sent += (size_t)n;
        }
    }
    return 0;
}

/* ---- who this sandbox is ---- */

static void first_line(const char *key, const char *path)
{
    char line[512] = "?";
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);

    line[n > 0 ? n : 1] = 0;
    line[strcspn(line, "\n")] = 0;
    printf("%s=%s\n", key, line);
    if (fd >= 0)
        close(fd);
}

static void identity(void)
{
    static const char *const SPACES[] = {"net", "ipc", "pid", "mnt", "uts", "user", "cgroup"};
    unsigned long long cookie = 0;
    socklen_t len = sizeof cookie;
    struct stat st;
    char path[64];
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len))
        cookie = 0;
    close(fd);
    printf("cookie=%llu\n", cookie);
    for (size_t i = 0; i < sizeof SPACES / sizeof *SPACES; i++) {
        snprintf(path, sizeof path, "/proc/self/ns/%s", SPACES[i]);
        printf("%s=%lu\n", SPACES[i], stat(path, &st) ? 0 : (unsigned long)st.st_ino);
    }
    first_line("init", "/proc/1/stat");
}

/* ---- traces ---- */

static void found(const char *kind, const char *what)
{
    printf("found=%s %s\n", kind, what);
}

static void look_files(void)
{
    for (size_t i = 0; i < NPLACES; i++) {
        DIR *d = opendir(PLACES[i]);
        struct dirent *e;
        while (d && (e = readdir(d)))
            if (!strncmp(e->d_name, "planted", 7))
                found("file", e->d_name);
        if (d)
            closedir(d);
    }
}

static void look_processes(void)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    char name[16];

    snprintf(name, sizeof name, "%d", getpid());
    while (d && (e = readdir(d)))
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9' && strcmp(e->d_name, "1") != 0 &&
            strcmp(e->d_name, name) != 0)
            found("process", e->d_name);
    if (d)
        closedir(d);
}

/* Every line but the heading is an object. */
static void look_sysv(const char *path)
{
    FILE *f = fopen(path, "re");
    char line[512];

    for (int i = 0; f && fgets(line, sizeof line, f); i++)
        if (i)
            found("sysv", path);
    if (f)
        fclose(f);
}

static void look_keys(void)
{
    const int rings[] = {-1 /* thread */, -2 /* process */, -3 /* session */, -4 /* user */, -5};

    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++)
        if (syscall(SYS_keyctl, 10 /* SEARCH */, rings[i], "user", "planted", 0) > 0)
            found("key", "planted");
    if (syscall(SYS_request_key, "user", "planted", NULL, 0) > 0)
        found("key", "requested");
}

static struct sockaddr_un abstract_name(socklen_t *ret_len)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "\0bothy-planted"};

    *ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 14);
    return a;
}

static struct sockaddr_in tcp_name(void)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void look_listeners(void)
{
    socklen_t len;
    struct sockaddr_un un = abstract_name(&len);
    struct sockaddr_in in = tcp_name();
    int u = socket(AF_UNIX, SOCK_STREAM, 0), t = socket(AF_INET, SOCK_STREAM, 0);

    if (!connect(u, (void *)&un, len))
        found("listener", "abstract");
    if (!connect(t, (void *)&in, sizeof in))
        found("listener", "tcp");
    else if (errno != ECONNREFUSED)
        found("odd", strerror(errno));
    close(u);
    close(t);
}

static int look(const char *tag)
{
    mqd_t q = mq_open("/planted", O_RDONLY);

    printf("tag=%s\n", tag);
    identity();
    look_files();
    look_processes();
    look_sysv("/proc/sysvipc/shm");
    look_sysv("/proc/sysvipc/sem");
    look_sysv("/proc/sysvipc/msg");
    if (q != (mqd_t)-1)
        found("mqueue", "planted");
    look_keys();
    look_listeners();
    return 0;
}

static void left(const char *kind, long result)
{
    printf("left=%s %s\n", kind, result < 0 ? strerror(errno) : "ok");
}

static void plant_files(const char *tag)
{
    for (size_t i = 0; i < NPLACES; i++) {
        char path[128];
        snprintf(path, sizeof path, "%splanted-%s", PLACES[i], tag);
        mkdir(PLACES[i], 0755);
        int fd = open(path, O_WRONLY | O_CREAT, 0644);
        left("file", fd < 0 ? -1 : write(fd, tag, strlen(tag)));
        if (fd >= 0)
            close(fd);
    }
}

static void plant_ipc(const char *tag)
{
    int shm = shmget(IPC_KEY, 4096, IPC_CREAT | 0666);
    char *at = shm < 0 ? (char *)-1 : shmat(shm, NULL, 0);

    if (at != (char *)-1)
        snprintf(at, 64, "%s", tag);
    left("segment", shm);
    left("semaphore", semget(IPC_KEY, 1, IPC_CREAT | 0666));
    left("queue", msgget(IPC_KEY, IPC_CREAT | 0666));
    left("mqueue", mq_open("/planted", O_RDWR | O_CREAT, 0666, NULL));
}

static void plant_keys(const char *tag)
{
    left("key", syscall(SYS_add_key, "user", "planted", tag, strlen(tag), -4 /* user */));
    (void)syscall(SYS_add_key, "user", "planted", tag, strlen(tag), -5 /* user session */);
    (void)syscall(SYS_add_key, "user", "planted", tag, strlen(tag), -3 /* session */);
}

static int listening(int fd, void *name, socklen_t len)
{
    return bind(fd, name, len) ? -1 : listen(fd, 8);
}

static int traces(const char *tag)
{
    socklen_t len;
    struct sockaddr_un un = abstract_name(&len);
    struct sockaddr_in in = tcp_name();
    int u = socket(AF_UNIX, SOCK_STREAM, 0), t = socket(AF_INET, SOCK_STREAM, 0);

    plant_files(tag);
    plant_ipc(tag);
    plant_keys(tag);
    left("abstract", listening(u, &un, len));
    left("tcp", listening(t, &in, sizeof in));
    left("hostname", sethostname("planted", 7));
    fflush(stdout);
    pid_t child = fork();
    if (child)
        return child < 0;
    setsid(); /* keeps the listeners, and is the process */
    for (int i = 0; i < 3; i++)
        close(i);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "", *tag = argc > 2 ? argv[2] : "";

    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(verb, "trickle") && argc > 3)
        return trickle(strtol(argv[2], NULL, 10), strtol(argv[3], NULL, 10));
    if (!strcmp(verb, "flood"))
        return flood(strtol(tag, NULL, 10));
    if (!strcmp(verb, "look"))
        return look(tag);
    if (!strcmp(verb, "keys")) {
        look_keys();
        plant_keys(tag);
        puts("again=");
        look_keys();
        return 0;
    }
    if (!strcmp(verb, "traces"))
        return traces(tag);
    fputs("usage: see the head of plant.c\n", stderr);
    return 2;
}
