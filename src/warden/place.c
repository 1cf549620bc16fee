#include "warden/place.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "warden/warden.h"

#define INIT_MAX (16 << 20)

static bool place_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return path && !strncmp(path, dir, len) && (path[len] == '/' || !path[len]);
}

/* Returns the first directory that hides no path of the warden, or NULL. */
static const char *place_choose(const warden *w)
{
    static const char *const CANDIDATES[] = {"/mnt", "/media", "/srv", "/opt", "/home"};
    const char *const ours[] = {w->o.state, w->o.init,    w->o.unpack,
                                w->o.crun,  w->o.seccomp, w->o.socket};

    for (size_t i = 0; i < ARRAY_LEN(CANDIDATES); i++) {
        bool usable = !access(CANDIDATES[i], F_OK);
        for (size_t k = 0; k < ARRAY_LEN(ours); k++)
            usable &= !place_below(ours[k], CANDIDATES[i]);
        if (usable)
            return CANDIDATES[i];
    }
    return NULL;
}

err *place_enter(warden *w)
{
    w->place = place_choose(w);
    if (!w->place)
        return err_remedy(err_new(ERR_UNAVAILABLE, "no directory for the private mounts"),
                          "Make an empty directory /mnt.");
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return err_sys(ERR_UNAVAILABLE, errno, "cannot make a mount namespace of our own");
    if (mount("bothy", w->place, "tmpfs", MS_NODEV | MS_NOSUID, "mode=755"))
        return err_sys(ERR_UNAVAILABLE, errno, "cannot mount a tmpfs at %s", w->place);
    w->covered = !w->cg.v2 && !access(PLACE_COVERED, F_OK);
    if (w->covered && mount("bothy", PLACE_COVERED, "tmpfs", MS_NODEV | MS_NOSUID, "mode=755"))
        return err_sys(ERR_UNAVAILABLE, errno, "cannot cover the v2 hierarchy");
    return NULL;
}

static err *make_dirs(int dirfd, const char *const *names)
{
    for (; *names; names++)
        if (mkdirat(dirfd, *names, 0755) && errno != EEXIST)
            return err_sys(ERR_INTERNAL, errno, "cannot make directory %s", *names);
    return NULL;
}

/* Copies init with mode 0111: executing a file that cannot be read ties pid 1's memory to the
 * warden's user namespace, so that no capability inside the slot reaches it. */
static err *copy_init(const warden *w, int place)
{
    CLEANUP(closep) int from = open(w->o.init, O_RDONLY | O_CLOEXEC);
    CLEANUP(closep) int to = openat(place, "idle/init", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    struct stat st;

    if (from < 0 || to < 0 || fstat(from, &st))
        return err_sys(ERR_UNAVAILABLE, errno, "cannot copy %s", w->o.init);
    if (st.st_size > INIT_MAX || sendfile(to, from, NULL, (size_t)st.st_size) != st.st_size)
        return err_sys(ERR_UNAVAILABLE, errno, "cannot copy %s", w->o.init);
    if (fchmod(to, 0111))
        return err_sys(ERR_INTERNAL, errno, "cannot set the mode of init");
    return NULL;
}

/* Finds the runtime as the shell would find it. */
static err *find_runtime(const char *name, char **ret_path)
{
    static const char *const DIRS[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                       "/usr/bin",        "/sbin",          "/bin"};

    if (strchr(name, '/')) {
        *ret_path = xstrdup(name);
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_LEN(DIRS); i++) {
        CLEANUP(freep) char *path = str_printf("%s/%s", DIRS[i], name);
        if (!access(path, X_OK)) {
            *ret_path = TAKE_PTR(path);
            return NULL;
        }
    }
    return err_remedy(err_new(ERR_UNAVAILABLE, "there is no %s", name),
                      "Install crun, or name a runtime with --crun.");
}

/* Binds the runtime on a mount that cannot be written. Otherwise crun first makes such a mount of
 * itself, so that no container can write to it through /proc, and executes itself again: for every
 * slot. */
static err *bind_runtime(warden *w, int place)
{
    CLEANUP(freep) char *from = NULL;
    CLEANUP(closep) int fd = openat(place, "runtime", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot make a file in %s", w->place);
    TRY(find_runtime(w->o.crun, &from));
    w->runtime = str_printf("%s/runtime", w->place);
    if (mount(from, w->runtime, NULL, MS_BIND, NULL) ||
        mount(NULL, w->runtime, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV,
              NULL))
        return err_sys(ERR_UNAVAILABLE, errno, "cannot bind %s", from);
    return NULL;
}

err *place_furnish(warden *w)
{
    static const char *const PLACE[] = {"idle",     "idle/proc", "idle/sys", "idle/dev",
                                        "idle/etc", "empty",     "crun",     NULL};
    static const char *const SKEL[] = {"skel", "skel/proc", "skel/sys", "skel/dev", NULL};
    CLEANUP(closep) int place = open(w->place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (place < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot open %s", w->place);
    TRY(make_dirs(place, PLACE));
    TRY(make_dirs(w->state_fd, SKEL));
    TRY(bind_runtime(w, place));
    return copy_init(w, place);
}
