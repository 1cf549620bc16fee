/* Tries to hold the lock of its own output pipe: the kernel keeps a pipe locked for as long as a
 * splice or sendfile into it waits for its source, here a socket to which nobody writes. Whoever
 * else reads, asks or closes the pipe meanwhile sleeps without end.
 *
 *   clamp splice | sendfile     ends with the errno of the attempt
 *   clamp copy                  writes itself to stdout by sendfile with an offset */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

static int copy(void)
{
    int self = open("/clamp", O_RDONLY);
    off_t at = 0;

    while (sendfile(1, self, &at, 1 << 20) > 0)
        ;
    return at ? 0 : errno;
}

int main(int argc, char **argv)
{
    static char fill[1 << 20];
    int s[2];

    if (argc != 2 || socketpair(AF_UNIX, SOCK_STREAM, 0, s))
        return 1;
    if (!strcmp(argv[1], "copy"))
        return copy();
    pid_t child = fork(); /* so that there is something to read while it is locked */
    while (!child)
        (void)!write(1, fill, sizeof fill);
    long r = !strcmp(argv[1], "splice") ? splice(s[0], NULL, 1, NULL, 4096, 0)
                                        : sendfile(1, s[0], NULL, 4096);
    int errnum = r < 0 ? errno : 0;
    kill(child, SIGKILL);
    return errnum;
}
