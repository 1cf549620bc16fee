/* bench-client session SOCKET N [NAME=PATH]... [-- NAME plain COMMAND...]...
 *
 * Each round one turn of every NAME in a container of its own, then TURNS turns of a command that
 * does nothing: in each session whose commands are at PATH, over HTTP; in a bare bash on a pipe
 * plus a GET of /healthz on the same connection (shell); and its two parts by themselves (pipe,
 * healthz). */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define TURNS        5
#define SESSIONS_MAX 8

typedef struct bare_shell {
    pid_t pid;
    int in, out;
} bare_shell;

static void shell_open(bare_shell *s)
{
    char *argv[] = {"bash", "--norc", "--noprofile", NULL};
    posix_spawn_file_actions_t fa;
    int in[2], out[2];

    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        die("pipe2");
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, in[0], 0);
    posix_spawn_file_actions_adddup2(&fa, out[1], 1);
    if (posix_spawnp(&s->pid, argv[0], &fa, NULL, argv, environ))
        die(argv[0]);
    posix_spawn_file_actions_destroy(&fa);
    close(in[0]);
    close(out[1]);
    s->in = in[1];
    s->out = out[0];
}

static void shell_close(bare_shell *s)
{
    close(s->in);
    close(s->out);
    waitpid(s->pid, NULL, 0);
}

static void shell_run(const bare_shell *s)
{
    static const char text[] = "true; echo $?\n";
    char answer[8];

    if (write(s->in, text, sizeof text - 1) != sizeof text - 1)
        die("write");
    if (read(s->out, answer, sizeof answer) != 2 || answer[0] != '0')
        fail("the shell did not answer 0");
}

static void sample_session(conn *c, const char *name, const char *path)
{
    uint64_t begun = now_mono_ns();
    ask(c, "POST", path, "{\"command\":\"true\"}");
    note(name, now_mono_ns() - begun);
    check_exit(c);
}

static void sample_shell(conn *c, const bare_shell *s)
{
    uint64_t begun = now_mono_ns();
    shell_run(s);
    uint64_t between = now_mono_ns();
    ask(c, "GET", "/healthz", "");
    uint64_t ended = now_mono_ns();
    note("shell", ended - begun);
    note("pipe", between - begun);
    note("healthz", ended - between);
}

/* Takes NAME=PATH apart; their number. */
static size_t read_sessions(char **word, char *names[], char *paths[])
{
    size_t n = 0;

    for (; word[n] && strcmp(word[n], "--") != 0; n++) {
        char *equals = strchr(word[n], '=');
        if (!equals || n == SESSIONS_MAX)
            fail("'%s' is no NAME=PATH", word[n]);
        *equals = 0;
        names[n] = word[n];
        paths[n] = equals + 1;
    }
    return n;
}

int bench_session(int argc, char **argv)
{
    static conn c;
    rival rivals[RIVALS_MAX];
    char *names[SESSIONS_MAX], *paths[SESSIONS_MAX];
    bare_shell shell;

    if (argc < 4)
        return 2;
    unsigned rounds = number(argv[2]);
    size_t sessions = read_sessions(argv + 3, names, paths);
    size_t n = rivals_read(argv + 3 + sessions, rivals);
    conn_open(&c, argv[1]);
    shell_open(&shell);
    for (unsigned i = 0; i < rounds; i++) {
        for (size_t k = 0; k < n; k++) {
            settle(false);
            rival_sample(&rivals[k], i);
        }
        settle(false);
        for (unsigned t = 0; t < TURNS; t++) {
            for (size_t k = 0; k < sessions; k++)
                sample_session(&c, names[k], paths[k]);
            sample_shell(&c, &shell);
        }
    }
    shell_close(&shell);
    settle_report();
    return 0;
}
