/* `bothy-init install DIR`: copies bothy-init and bothy-kit from the root of their image into DIR,
 * the volume from which a pod's container runs them. Used on clusters that cannot mount the image
 * itself. It may be repeated: each copy appears whole, by rename. */
#include "init/init.h"

#define PIECE     (64u * 1024)
#define MODE      0555 /* not writable for any user, so that the pod's user does not matter */
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

static char piece[PIECE];

static long install_check(long r)
{
    if (r < 0)
        fatal(1);
    return r;
}

static void write_all(int fd, const char *p, size_t n)
{
    while (n) {
        long sent = install_check(SYS(write, fd, p, n));
        p += sent;
        n -= (size_t)sent;
    }
}

static void copy_program(int root, int dir, const char *name, const char *temp)
{
    int from = (int)install_check(SYS(openat, root, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0));

    SYS(unlinkat, dir, temp, 0); /* left by an interrupted copy */
    int to =
        (int)install_check(SYS(openat, dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, MODE));
    for (long n; (n = install_check(SYS(read, from, piece, PIECE))) > 0;)
        write_all(to, piece, (size_t)n);
    install_check(SYS(fchmod, to, MODE));
    install_check(SYS(close, to));
    install_check(SYS(renameat2, dir, temp, dir, name, 0));
    SYS(close, from);
}

void install_main(const char *path)
{
    int root = (int)install_check(SYS(openat, K_AT_FDCWD, "/", DIR_FLAGS, 0));
    int dir = (int)install_check(SYS(openat, K_AT_FDCWD, path, DIR_FLAGS, 0));

    copy_program(root, dir, "bothy-init", ".bothy-init.new");
    copy_program(root, dir, "bothy-kit", ".bothy-kit.new");
    fatal(0);
}
