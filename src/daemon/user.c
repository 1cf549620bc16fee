/* Defaults of a user's bothyd, and its exit when it is idle. */
#include "daemon/user.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/home.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

/* ---- places ---- */

/* Takes ownership of value. */
static void user_set(char **key, char *value)
{
    free(*key);
    *key = value;
}

void user_preset(config *c)
{
    CLEANUP(freep) char *run = home_run();
    char *init = home_program("bothy-init"), *kit = home_program("bothy-kit");

    user_set(&c->backend_name, xstrdup("docker"));
    user_set(&c->state_dir, home_state());
    user_set(&c->listen_socket, str_printf("%s/" HOME_SOCKET, run));
    user_set(&c->listen_group, xstrdup(""));
    if (init)
        user_set(&c->backend_init, init);
    if (kit)
        user_set(&c->files_kit, kit);
}

err *user_prepare(const config *c)
{
    CLEANUP(freep) char *dir = xstrdup(c->listen_socket);
    char *slash = strrchr(dir, '/');

    if (chdir("/"))
        return err_sys(ERR_INTERNAL, errno, "cannot leave the directory we were started in");
    TRY(fs_mkdirs(c->state_dir, 0700));
    if (!slash || slash == dir)
        return NULL;
    *slash = 0;
    return fs_mkdirs(dir, 0700);
}

static err *leave_way(const config *c, int state_dir)
{
    unlinkat(state_dir, HOME_SOCKET, 0);
    if (symlinkat(c->listen_socket, state_dir, HOME_SOCKET))
        return err_sys(ERR_INTERNAL, errno, "cannot leave the way to the socket in %s",
                       c->state_dir);
    return NULL;
}

/* ---- nothing to do ---- */

#define LEAVE_MS 50 /* time to accept clients that have already connected */

static struct {
    user_watch of;
    uint64_t idle_ms;
    char *socket;
    uint64_t accepted; /* connections at the last check */
} watched;

/* Returns true if bothyd is in use, or was since the last check: most requests are shorter than the
 * interval. */
static bool is_used(void)
{
    engine_counts n = engine_count(watched.of.engine);
    server_counts s = server_count(watched.of.server);
    bool came = s.accepted != watched.accepted;

    watched.accepted = s.accepted;
    return came || s.connections || n.running || n.paused || n.creating || s.relays;
}

static void user_nap(uint64_t ms)
{
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000},
        NULL);
}

/* Moves the socket aside first: a client that comes then starts another bothyd, which waits for our
 * lock. A client that connected before must get an answer. Returns false if there was one. */
static bool user_leave(void)
{
    CLEANUP(freep) char *aside = str_printf("%s.leaving", watched.socket);

    if (rename(watched.socket, aside))
        return true; /* already removed: clients cannot find us */
    user_nap(LEAVE_MS);
    if (is_used()) {
        if (!rename(aside, watched.socket))
            return false;
        log_warn("stop", "cannot come back to %s: %m", watched.socket);
    }
    unlink(aside);
    return true;
}

/* Removes the containers kept for the next create: without bothyd they are of no use. */
static void drop_warm(backend *b)
{
    pool_status status;

    if (b->ops->pool)
        err_drop(b->ops->pool(b, &(pool_marks){0}, &status), "stop");
}

static void *daemon_user_watch(void *arg)
{
    uint64_t since = now_mono_ns();

    (void)arg;
    for (;;) {
        user_nap(watched.idle_ms / 8 + 1);
        if (is_used())
            since = now_mono_ns();
        if (now_mono_ns() - since < watched.idle_ms * NS_PER_MS)
            continue;
        if (!user_leave()) {
            since = now_mono_ns();
            continue;
        }
        log_info("stop", "nothing to do: ending (user.idle_exit)");
        drop_warm(engine_backend(watched.of.engine));
        server_stop(watched.of.server);
        return NULL;
    }
}

err *user_begin(const config *c, int state_dir, const user_watch *w)
{
    watched.of = *w;
    watched.idle_ms = c->user_idle_exit;
    watched.socket = xstrdup(c->listen_socket);
    if (watched.idle_ms)
        thread_detach("idle", daemon_user_watch, NULL);
    return leave_way(c, state_dir);
}
