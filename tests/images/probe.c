/* /probe of the test image "static": a program where there is no shell. Static, no library.
 *
 *   probe                 prints argv, one "arg=..." a line, env as "env=...", ids, cwd
 *   probe exit N          exits with N
 *   probe signal N        ends by signal N
 *   probe out N           writes N bytes 'o' to stdout
 *   probe err N           writes N bytes 'e' to stderr
 *   probe cat             copies stdin to stdout
 *   probe sleep MS        sleeps
 *   probe write PATH TEXT writes a file */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int show(int argc, char **argv)
{
    char cwd[4096];
    gid_t groups[64];
    int n = getgroups(64, groups);

    for (int i = 0; i < argc; i++)
        printf("arg=%s\n", argv[i]);
    for (char **e = environ; *e; e++)
        printf("env=%s\n", *e);
    printf("uid=%d\neuid=%d\ngid=%d\negid=%d\ngroups=", getuid(), geteuid(), getgid(), getegid());
    for (int i = 0; i < n; i++)
        printf("%s%d", i ? "," : "", groups[i]);
    printf("\npid=%d\ncwd=%s\n", getpid(), getcwd(cwd, sizeof cwd) ? cwd : "?");
    return 0;
}

static int fill(int fd, char c, long n)
{
    char block[4096];

    memset(block, c, sizeof block);
    while (n > 0) {
        ssize_t k = write(fd, block, n < (long)sizeof block ? (size_t)n : sizeof block);
        if (k <= 0)
            return 1;
        n -= k;
    }
    return 0;
}

static int copy(void)
{
    char block[4096];
    ssize_t n;

    while ((n = read(0, block, sizeof block)) > 0)
        if (write(1, block, (size_t)n) != n)
            return 1;
    return n < 0;
}

static int store(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        perror(path);
        return 1;
    }
    return close(fd);
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    long n = argc > 2 ? strtol(argv[2], NULL, 10) : 0;

    if (!strcmp(verb, "exit"))
        return (int)n;
    if (!strcmp(verb, "signal"))
        return raise((int)n);
    if (!strcmp(verb, "out") || !strcmp(verb, "err"))
        return fill(verb[0] == 'o' ? 1 : 2, verb[0], n);
    if (!strcmp(verb, "cat"))
        return copy();
    if (!strcmp(verb, "sleep"))
        return nanosleep(&(struct timespec){n / 1000, n % 1000 * 1000000}, NULL);
    if (!strcmp(verb, "write") && argc > 3)
        return store(argv[2], argv[3]);
    return show(argc, argv);
}
