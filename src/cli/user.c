#include "cli/user.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/home.h"
#include "base/sock.h"
#include "base/spawn.h"
#include "base/str.h"

#define NODE_CONFIG "/etc/bothy/bothy.yaml"
#define LOG_FILE    "bothyd.log"
#define LOG_MAX     (4 << 20)
#define ROOM_LEAST  (1 << 20) /* bytes of disk space; with less a store cannot be made */
#define START_MS    30000
#define STEP_MS     20

/* ---- finding one ---- */

/* Returns 0 if a daemon answers, or an errno. A full queue counts as an answer. */
static int try_socket(const char *path)
{
    CLEANUP(closep) int fd = -1;
    CLEANUP(err_freep) err *e = sock_connect_path(path, SOCK_STREAM | SOCK_NONBLOCK, &fd);

    return !e || e->errnum == EAGAIN ? 0 : e->errnum ? e->errnum : EIO;
}

static char *own_socket(void)
{
    CLEANUP(freep) char *run = home_run();

    return str_printf("%s/" HOME_SOCKET, run);
}

/* Looks for the user's own daemon: in the usual place, and where one that was started with another
 * $XDG_RUNTIME_DIR is. */
static bool own_answers(char **ret_url)
{
    CLEANUP(freep) char *state = home_state();
    CLEANUP(freep) char *socket = own_socket();
    CLEANUP(freep) char *way = str_printf("%s/" HOME_SOCKET, state);
    const char *found = !try_socket(socket) ? socket : !try_socket(way) ? way : NULL;

    if (found)
        *ret_url = str_printf("unix:%s", found);
    return found;
}

bool user_machine_is_node(void)
{
    return !access(NODE_CONFIG, F_OK) || try_socket(CLI_SOCKET) != ENOENT;
}

bool user_has_no_node(void)
{
    return geteuid() != 0 && !user_machine_is_node();
}

char *user_address(void)
{
    char *own = NULL;

    if (!try_socket(CLI_SOCKET))
        return xstrdup("unix:" CLI_SOCKET);
    if (own_answers(&own))
        return own;
    if (!user_has_no_node())
        return xstrdup("unix:" CLI_SOCKET);
    CLEANUP(freep) char *socket = own_socket();
    return str_printf("unix:%s", socket);
}

/* ---- starting one ---- */

typedef struct starting {
    char *state, *program;
    int dir, lock, log;
    off_t log_size; /* before the daemon writes to it */
    pid_t pid;
} starting;

static void starting_done(starting *s)
{
    free(s->state);
    free(s->program);
    closep(&s->dir);
    closep(&s->lock);
    closep(&s->log);
}

static void pause_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
}

/* Takes the lock that callers hold while they start a daemon. If another caller's daemon answers
 * meanwhile, sets *ret_url. */
static err *take_turn(starting *s, char **ret_url)
{
    uint64_t until = now_mono_ns() + (uint64_t)START_MS * NS_PER_MS;

    for (;;) {
        err *e = fs_lock(s->dir, "start.lock", &s->lock);
        if (own_answers(ret_url)) {
            err_free(e);
            return NULL;
        }
        if (!e || e->code != ERR_CONFLICT || now_mono_ns() > until)
            return e;
        err_free(e);
        pause_a_little();
    }
}

static err *open_log(starting *s)
{
    struct stat st;

    if (!fstatat(s->dir, LOG_FILE, &st, 0) && st.st_size > LOG_MAX)
        renameat(s->dir, LOG_FILE, s->dir, LOG_FILE ".1");
    s->log = openat(s->dir, LOG_FILE, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (s->log < 0 || fstat(s->log, &st))
        return err_sys(ERR_INTERNAL, errno, "cannot write %s/" LOG_FILE, s->state);
    s->log_size = st.st_size;
    return NULL;
}

/* Returns the environment without BOTHY_KEY: a key for another daemon must not reach this one. */
static char **daemon_env(void)
{
    char **env = NULL;

    for (char **e = environ; *e; e++)
        if (!str_starts(*e, "BOTHY_KEY="))
            strv_push(&env, xstrdup(*e));
    return env;
}

static err *spawn_daemon(starting *s)
{
    CLEANUP(strv_freep) char **env = daemon_env();
    char *argv[] = {s->program, "--user", NULL};
    const int fds[] = {-1, s->log, s->log};
    err *e = spawn_start(
        &(spawn_spec){.argv = argv, .envp = env, .fds = fds, .nfds = 3, .detached = true}, &s->pid);

    return e && e->errnum == ENOENT
               ? err_remedy(e,
                            "Put bothyd beside bothy, or on the PATH; or start a daemon yourself "
                            "and name its socket with --socket.")
               : e;
}

/* Adds a remedy for a failing state directory: read-only, full, or another user's. */
static err *of_state(const starting *s, err *e)
{
    if (!e || e->remedy)
        return e;
    return err_remedy(e,
                      "A daemon for you keeps its records in %s: make room there and let your "
                      "user write it, or name another place with $XDG_STATE_HOME.",
                      s->state);
}

/* Explains a failure without a message: on a full disk bothyd can write neither the file beside its
 * socket nor its log. */
static err *no_room(const starting *s, err *e)
{
    struct statvfs v;
    struct stat log;

    if (fstat(s->log, &log) || log.st_size != s->log_size || fstatvfs(s->dir, &v) ||
        (uint64_t)v.f_bavail * v.f_frsize >= ROOM_LEAST)
        return err_remedy(e, "%s/" LOG_FILE " says why.", s->state);
    return of_state(s, err_because(e, "the disk is full: %" PRIu64 " KiB are left in %s",
                                   (uint64_t)v.f_bavail * v.f_frsize / 1024, s->state));
}

/* Returns why bothyd did not start. It leaves a file beside its socket; errors before it knows that
 * place are in the log. */
static err *user_failed(const starting *s)
{
    CLEANUP(freep) char *run = home_run();
    CLEANUP(freep) char *word = str_printf("%s/bothyd.failure", run);
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(err_freep) err *none = fs_read(AT_FDCWD, word, 1 << 16, &text);
    err *e = err_new(ERR_UNAVAILABLE, "a daemon for you could not be started");

    if (none)
        return no_room(s, e);
    char *remedy = strchr(buf_cstr(&text), '\n');
    if (remedy)
        *remedy++ = 0;
    e = err_because(e, "%s", text.p);
    if (!remedy)
        return e;
    remedy[strcspn(remedy, "\n")] = 0;
    return err_remedy(e, "%s", remedy);
}

static err *wait_answer(const starting *s, char **ret_url)
{
    uint64_t until = now_mono_ns() + (uint64_t)START_MS * NS_PER_MS;
    int status;

    while (!own_answers(ret_url)) {
        if (waitpid(s->pid, &status, WNOHANG) == s->pid)
            return user_failed(s);
        if (now_mono_ns() > until)
            return err_remedy(
                err_new(ERR_TIMEOUT, "the daemon does not answer after %d s", START_MS / 1000),
                "%s/" LOG_FILE " says what it does.", s->state);
        pause_a_little();
    }
    return NULL;
}

static void forget_failure(void)
{
    CLEANUP(freep) char *run = home_run();
    CLEANUP(freep) char *word = str_printf("%s/bothyd.failure", run);

    unlink(word);
}

static err *open_state(starting *s)
{
    TRY(fs_mkdirs(s->state, 0700));
    s->dir = open(s->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->dir < 0 ? err_sys(ERR_INTERNAL, errno, "cannot open %s", s->state) : NULL;
}

err *user_start(bool tell, char **ret_url)
{
    CLEANUP(starting_done) starting s = {.state = home_state(), .dir = -1, .lock = -1, .log = -1};

    TRY(of_state(&s, open_state(&s)));
    TRY(of_state(&s, take_turn(&s, ret_url)));
    if (*ret_url)
        return NULL;
    s.program = home_program("bothyd");
    if (!s.program)
        s.program = xstrdup("bothyd"); /* search the PATH */
    TRY(of_state(&s, open_log(&s)));
    forget_failure();
    if (tell)
        fprintf(stderr, "bothy: starting a daemon for you; it ends when it has nothing to do\n");
    TRY(spawn_daemon(&s));
    return wait_answer(&s, ret_url);
}
