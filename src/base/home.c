#include "base/home.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/sock.h"
#include "base/str.h"

static const char *home_setting(const char *name)
{
    const char *v = getenv(name); /* NOLINT(concurrency-mt-unsafe): the environment never changes */

    return v && *v ? v : NULL;
}

/* ---- directories ---- */

static char *user_home(void)
{
    struct passwd p, *found = NULL;
    char space[4096];

    if (home_setting("HOME"))
        return xstrdup(home_setting("HOME"));
    if (getpwuid_r(geteuid(), &p, space, sizeof space, &found) || !found)
        return xstrdup("/");
    return xstrdup(p.pw_dir);
}

/* Returns an XDG directory. A relative path in the environment is ignored, as XDG demands. */
static char *home_xdg(const char *name, const char *otherwise, const char *below)
{
    const char *dir = home_setting(name);
    CLEANUP(freep) char *home = user_home();

    return dir && *dir == '/' ? str_printf("%s/%s", dir, below)
                              : str_printf("%s/%s/%s", home, otherwise, below);
}

/* Returns the directory of the running program, or NULL. */
static char *own_directory(void)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    return slash ? xstrndup(self, (size_t)(slash - self)) : NULL;
}

char *home_program(const char *name)
{
    static const char *const WHERE[] = {".", "../sbin", "../libexec/bothy", "../share/bothy",
                                        "../../bin"};
    CLEANUP(freep) char *own = own_directory();
    struct stat st;

    for (size_t i = 0; own && i < ARRAY_LEN(WHERE); i++) {
        CLEANUP(freep) char *path = str_printf("%s/%s/%s", own, WHERE[i], name);
        if (access(path, R_OK) || stat(path, &st) || !S_ISREG(st.st_mode))
            continue;
        char *real = realpath(path, NULL);
        if (real)
            return real;
    }
    return NULL;
}

char *home_state(void)
{
    return home_xdg("XDG_STATE_HOME", ".local/state", "bothy");
}

char *home_config(void)
{
    return home_xdg("XDG_CONFIG_HOME", ".config", "bothy/bothy.yaml");
}

char *home_run(void)
{
    const char *dir = home_setting("XDG_RUNTIME_DIR");
    CLEANUP(freep) char *state = home_state();

    return dir && *dir == '/' ? str_printf("%s/bothy", dir) : str_printf("%s/run", state);
}

/* ---- engines ---- */

static err *home_refused(const char *path, int errnum)
{
    err *e =
        err_because(err_new(ERR_UNAVAILABLE, "the container engine at %s does not answer", path),
                    "%s", strerrordesc_np(errnum));

    return errnum == EACCES || errnum == EPERM
               ? err_remedy(e, "Let your user use it (usermod -aG docker USER, then log in again), "
                               "or use one of your own: systemctl --user start podman.socket")
               : err_remedy(e, "Start it: systemctl start docker, or for Podman "
                               "systemctl --user start podman.socket");
}

/* Returns 0 or why the engine does not answer. A full queue (EAGAIN) means a running, busy
 * engine. */
static int try_engine(const char *path)
{
    CLEANUP(closep) int fd = -1;
    CLEANUP(err_freep) err *e = sock_connect_path(path, SOCK_STREAM | SOCK_NONBLOCK, &fd);

    return !e || e->errnum == EAGAIN ? 0 : e->errnum ? e->errnum : EIO;
}

static err *only_engine(const char *path, char **ret_path)
{
    int errnum = try_engine(path);

    if (errnum)
        return home_refused(path, errnum);
    *ret_path = xstrdup(path);
    return NULL;
}

/* Returns the usual sockets of Docker, rootless Docker, Docker Desktop and Podman, of root and of
 * the user. */
static char **possible_engines(void)
{
    CLEANUP(freep) char *home = user_home();
    const char *run = home_setting("XDG_RUNTIME_DIR");
    unsigned uid = (unsigned)geteuid();
    char **list = NULL;

    strv_push(&list, xstrdup("/var/run/docker.sock"));
    if (run)
        strv_push(&list, str_printf("%s/docker.sock", run));
    strv_push(&list, str_printf("%s/.docker/run/docker.sock", home));
    strv_push(&list, str_printf("%s/.docker/desktop/docker.sock", home));
    if (run)
        strv_push(&list, str_printf("%s/podman/podman.sock", run));
    strv_push(&list, str_printf("/run/user/%u/podman/podman.sock", uid));
    strv_push(&list, xstrdup("/run/podman/podman.sock"));
    return list;
}

static err *any_engine(char **ret_path)
{
    CLEANUP(strv_freep) char **list = possible_engines();
    CLEANUP(buf_done) buf tried = {0};
    char *denied = NULL;

    for (char **p = list; *p; p++) {
        int errnum = try_engine(*p);
        if (!errnum) {
            *ret_path = xstrdup(*p);
            return NULL;
        }
        buf_printf(&tried, "%s%s: %s", tried.len ? "; " : "", *p, strerrordesc_np(errnum));
        denied = !denied && errnum == EACCES ? *p : denied;
    }
    if (denied)
        return home_refused(denied, EACCES);
    return err_remedy(err_because(err_new(ERR_UNAVAILABLE, "no container engine answers"), "%s",
                                  buf_cstr(&tried)),
                      "Install and start Docker or Podman (systemctl --user enable --now "
                      "podman.socket), or name its socket: backend.socket in bothy.yaml, "
                      "$DOCKER_HOST.");
}

err *home_engine(const char *named, char **ret_path)
{
    const char *host = home_setting("DOCKER_HOST");

    if (named && *named)
        return only_engine(str_starts(named, "unix://") ? named + strlen("unix://") : named,
                           ret_path);
    if (!host)
        return any_engine(ret_path);
    if (!str_starts(host, "unix://"))
        return err_remedy(
            err_new(ERR_UNSUPPORTED, "$DOCKER_HOST is '%.200s', not a unix socket", host),
            "bothy speaks to an engine of this machine: set backend.socket, or "
            "unset DOCKER_HOST.");
    return err_wrap(only_engine(host + strlen("unix://"), ret_path), "$DOCKER_HOST");
}
