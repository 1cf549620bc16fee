/* Copies bothy-kit into a sealed memory file. */
#include "daemon/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"

#ifndef MFD_EXEC
#    define MFD_EXEC 0x0010u
#endif
#define KIT_MAX (16u << 20)
#define SEALS   (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)
/* Everyone may run it, but only bothyd may read it: the kernel then lets no process in a sandbox
 * trace or dump it, not even root there. */
#define KIT_MODE 0111

static int memory_file(void)
{
    int fd = memfd_create("bothy-kit", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);

    return fd < 0 && errno == EINVAL ? memfd_create("bothy-kit", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                                     : fd;
}

/* Seals the file and opens it again. The writer's descriptor could write until it is sealed;
 * sandboxes get a read-only one. */
static err *kit_seal(int fd, int *ret_fd)
{
    CLEANUP(freep) char *path = str_printf("/proc/self/fd/%d", fd);

    if (fchmod(fd, KIT_MODE | 0400) || fcntl(fd, F_ADD_SEALS, SEALS))
        return err_sys(ERR_INTERNAL, errno, "cannot seal the kit");
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*ret_fd < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot open the kit again");
    return fchmod(fd, KIT_MODE) ? err_sys(ERR_INTERNAL, errno, "cannot close the kit to readers")
                                : NULL;
}

err *kit_load(const char *path, int *ret_fd)
{
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(closep) int fd = -1;

    if (!*path)
        return NULL;
    if (access(path, R_OK) && errno == ENOENT) {
        log_warn("kit", "%s is missing: files are read and written by the images' own sh", path);
        return NULL;
    }
    TRY(fs_read(AT_FDCWD, path, KIT_MAX, &text));
    fd = memory_file();
    if (fd < 0 || fs_pwrite_all(fd, text.p, text.len, 0))
        return err_sys(ERR_INTERNAL, errno, "cannot keep the kit in memory");
    return err_wrap(kit_seal(fd, ret_fd), "%s", path);
}
