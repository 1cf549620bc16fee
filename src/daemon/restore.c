/* Restores a backup of the store and reports it. */
#include "daemon/restore.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "store/store.h"

err *restore_open(const char *path, int *ret_fd)
{
    int fd = !strcmp(path, "-") ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                : open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_remedy(err_sys(ERR_INVALID_REQUEST, errno, "cannot open %s", path),
                          "bothyd's user must be able to read it; or give it as stdin: "
                          "bothyd --restore - < FILE");
    *ret_fd = fd;
    return NULL;
}

static uint64_t count_spools(int spool_fd)
{
    int fd = openat(spool_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    uint64_t n = 0;

    if (!d)
        return 0;
    while ((e = readdir(d))) /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        n += id_is_sandbox(e->d_name);
    closedir(d);
    return n;
}

err *restore_store(int state_fd, int spool_fd, int from_fd)
{
    store_restored r;

    TRY(store_restore(state_fd, from_fd, &r));
    printf("bothyd: restored a store of version %d: %" PRIu64 " sandboxes (%" PRIu64
           " had not ended), %" PRIu64 " keys, %" PRIu64 " images\n",
           r.version, r.sandboxes, r.live, r.keys, r.images);
    printf(
        "  the store before it is store.db.replaced in the state directory\n"
        "  when bothyd starts:\n"
        "    sandboxes that live and are NOT in this copy are DESTROYED, and their output is removed\n"
        "      (%" PRIu64 " sandboxes have output on this disk)\n"
        "    sandboxes of this copy that do not live any more read gone(node_lost)\n"
        "    keys that were removed since the copy was made are VALID AGAIN: look at 'bothy key ls'\n"
        "    images of which this node has no layers any more are to be pulled again\n",
        count_spools(spool_fd));
    return NULL;
}
