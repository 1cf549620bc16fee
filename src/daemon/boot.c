#include "daemon/boot.h"

#include <fcntl.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#define FILE_NAME "boot"

static bool read_id(int dirfd, const char *name, buf *out)
{
    err *e = fs_read(dirfd, name, 256, out);

    err_free(e);
    return !e && out->len;
}

static bool read_now(buf *out)
{
    return read_id(AT_FDCWD, "/proc/sys/kernel/random/boot_id", out);
}

bool boot_is_new(int state)
{
    CLEANUP(buf_done) buf now = {0}, then = {0};

    return read_now(&now) && read_id(state, FILE_NAME, &then) &&
           !str_eq(buf_cstr(&now), buf_cstr(&then));
}

void boot_remember(int state)
{
    CLEANUP(buf_done) buf now = {0};

    if (read_now(&now))
        err_drop(fs_write(state, FILE_NAME, now.p, now.len, 0600, true), "boot");
}
