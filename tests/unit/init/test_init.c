/* Init as pid 1, over its real socket. argv[1] is the program under test. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"

#include "../unit.h"
#include "client.h"

static const char *program;
static guest vm;
static client cl;

static int setup(void **state)
{
    (void)state;
    memset(&cl, 0, sizeof cl);
    guest_start(&vm, program);
    client_open(&cl, &vm);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    client_close(&cl);
    guest_stop(&vm);
    return 0;
}

static void need_root(void)
{
    if (geteuid()) {
        print_message("skipped: other users need root\n");
        skip();
    }
}

static void claim(const char *user, const char *cwd, uint32_t grants, char **env)
{
    assert_int_equal(
        client_claim(
            &cl,
            &(spine_claim){.user = user, .cwd = cwd, .env = env, .umask = 022, .grants = grants}),
        0);
}

static proc start_sh(const char *script, uint32_t flags)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    proc p = client_spawn(
        &cl,
        &(spine_spawn){
            .flags = flags, .umask = SP_UMASK_CLAIM, .rows = 33, .cols = 99, .argv = argv},
        NULL, 0);
    assert_int_equal(p.st.h.err, 0);
    return p;
}

static void finish(proc *p)
{
    client_tell(&cl, spine_ack(p->id, 15));
    proc_close(p);
}

static uint64_t boottime(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void reconnect(void)
{
    client_close(&cl);
    client_open(&cl, &vm);
}

/* ---- claim and surroundings ---- */

static void claim_is_taken_once(void **state)
{
    (void)state;
    char *env[] = {"SECRET=s3", NULL}, *other[] = {"SECRET=other", NULL};

    assert_int_equal(cl.hello.flags & SP_HELLO_CLAIMED, 0);
    assert_int_equal(cl.hello.nrec, 0);
    claim("", "", 0, env);
    assert_int_equal(client_claim(&cl, &(spine_claim){.env = other}), EALREADY);
    reconnect();
    assert_int_equal(cl.hello.flags & SP_HELLO_CLAIMED, SP_HELLO_CLAIMED);
    assert_string_equal(client_sh(&cl, NULL, 0, "echo $SECRET")->out, "s3\n");
}

static void streams_and_status(void **state)
{
    (void)state;
    const result *r = client_sh(&cl, NULL, 0, "echo out; echo err >&2; exit 3");
    assert_string_equal(r->out, "out\n");
    assert_string_equal(r->err, "err\n");
    assert_int_equal(r->rec.state, SP_EXITED);
    assert_int_equal(WEXITSTATUS(r->rec.status), 3);
    assert_int_equal(r->rec.uid, 0);
    assert_true(r->rec.end_mono >= r->rec.start_mono && r->rec.maxrss_kb > 0);
    r = client_sh(&cl, NULL, SP_F_MERGE, "echo out; echo err >&2; kill -9 $$");
    assert_string_equal(r->out, "out\nerr\n");
    assert_int_equal(r->rec.status, SIGKILL);
}

static void stdin_is_a_pipe_or_null(void **state)
{
    (void)state;
    proc p = start_sh("cat; echo end", 0);
    assert_int_equal(write(p.fd[SP_FD_IN], "typed\n", 6), 6);
    client_tell(&cl, spine_close(p.id, 1));
    close(p.fd[SP_FD_IN]);
    p.fd[SP_FD_IN] = -1;
    wait_for(p.fd[SP_FD_OUT], "typed\nend\n");
    client_exit(&cl, p.id);
    finish(&p);
    assert_string_equal(client_sh(&cl, NULL, 0, "cat; echo end")->out, "end\n");
}

static void exec_by_descriptor(void **state)
{
    (void)state;
    char *argv[] = {"any-name", "%s.", "one", "two", NULL};
    int fd = open("/usr/bin/printf", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    proc p = client_spawn(&cl, &(spine_spawn){.flags = SP_F_EXECFD | SP_F_NOSTDIN, .argv = argv},
                          &fd, 1);
    assert_int_equal(p.st.h.err, 0);
    assert_int_equal(client_exit(&cl, p.id).r.status, 0);
    wait_for(p.fd[SP_FD_OUT], "one.two.");
    finish(&p);
    close(fd);
}

static void failed_exec_has_errno_and_stage(void **state)
{
    (void)state;
    static const struct {
        char *name;
        int errnum;
    } cases[] = {{"/no/such", ENOENT},
                 {"no-such", ENOENT},
                 {"/etc/passwd", EACCES},
                 {"", ENOENT},
                 {"/tmp", EACCES}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *argv[] = {cases[i].name, NULL};
        const result *r = client_run(&cl, &(spine_spawn){.argv = argv});
        assert_int_equal(r->rec.state, SP_FAILED);
        assert_int_equal(r->rec.status, cases[i].errnum);
        assert_int_equal(r->rec.stage, SP_ST_EXEC);
    }
}

static void environment_later_wins(void **state)
{
    (void)state;
    char *claimed[] = {"A=claim", "B=claim", "HOME=/tmp", "A=later", NULL};
    char *mine[] = {"B=exec", "C=", NULL};
    char *argv[] = {"env", NULL};

    claim("", "", 0, claimed);
    const result *r = client_run(&cl, &(spine_spawn){.argv = argv, .env = mine});
    assert_non_null(strstr(r->out, "A=later\n"));
    assert_null(strstr(r->out, "A=claim"));
    assert_non_null(strstr(r->out, "B=exec\n"));
    assert_non_null(strstr(r->out, "C=\n"));
    assert_non_null(strstr(r->out, "HOME=/tmp\n"));
    assert_non_null(strstr(r->out, "USER=root\nLOGNAME=root\n"));
    assert_non_null(strstr(r->out, "SHELL=/bin/sh\n"));
    assert_non_null(strstr(r->out, "PATH=/usr/local/sbin:"));
    assert_non_null(strstr(r->out, "HOSTNAME="));
    assert_null(strstr(r->out, "TERM="));
}

static void users_by_name_and_number(void **state)
{
    (void)state;
    need_root();
    static const struct {
        const char *user, *ids;
    } cases[] = {
        {"app", "1000 1001 1001 10 50 /home/app app\n"},
        {"1000", "1000 1001 1001 10 50 /home/app app\n"},
        {"app:staff", "1000 50 50 /home/app app\n"},
        {"app:7", "1000 7 7 /home/app app\n"},
        {"4242", "4242 0 0 / -\n"},
        {"4242:4343", "4242 4343 4343 / -\n"},
        {"1234", "77 78 78 /tmp 1234\n"}, /* a name wins over a number */
        {"0", "0 0 0 /root root\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const result *r =
            client_sh(&cl, cases[i].user, 0, "echo $(id -u) $(id -g) $(id -G) $HOME ${USER:--}");
        assert_string_equal(r->out, cases[i].ids);
    }
    assert_int_equal(client_sh(&cl, "app", 0, "true")->rec.uid, 1000);
    assert_int_equal(client_sh(&cl, "app", 0, "true")->rec.gid, 1001);
}

static void unknown_users_fail_at_the_user_stage(void **state)
{
    (void)state;
    static const struct {
        const char *user;
        int errnum;
    } cases[] = {{"nobody-here", ENOENT},
                 {"root:nogroup-here", ENOENT},
                 {"broken", ENOENT},
                 {"4294967295", EINVAL},
                 {"99999999999999999999999", EINVAL},
                 {":", EINVAL},
                 {"root:", EINVAL},
                 {"-1", ENOENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const result *r = client_sh(&cl, cases[i].user, 0, "true");
        assert_int_equal(r->rec.state, SP_FAILED);
        assert_int_equal(r->rec.stage, SP_ST_USER);
        assert_int_equal(r->rec.status, cases[i].errnum);
    }
}

static void passwd_may_be_anything(void **state)
{
    (void)state;
    client_sh(&cl, NULL, 0, "rm /etc/passwd; mkfifo /etc/passwd");
    assert_int_equal(client_sh(&cl, "app", 0, "true")->rec.stage, SP_ST_USER);
    assert_string_equal(client_sh(&cl, "0", 0, "echo $USER")->out, "root\n");
    client_sh(&cl, NULL, 0, "rm /etc/passwd; yes x:x:5:5::/: | head -c 1048577 > /etc/passwd");
    assert_int_equal(client_sh(&cl, "x", 0, "true")->rec.status, ENOENT);
    client_sh(&cl, NULL, 0,
              "rm /etc/passwd; (echo z:x:0:0::/tmp:; yes \"#\" | head -c 1048000) > /etc/passwd");
    assert_string_equal(client_sh(&cl, "z", 0, "echo $HOME")->out, "/tmp\n");
    client_sh(&cl, NULL, 0, "rm /etc/passwd; ln -s /proc/self/mem /etc/passwd");
    assert_string_equal(client_sh(&cl, "0", 0, "echo alive")->out, "alive\n");
}

static void stdio_belongs_to_the_user(void **state)
{
    (void)state;
    need_root();
    const char *script = "echo a > /proc/self/fd/1; echo b > /proc/self/fd/2";
    const result *r = client_sh(&cl, "app", 0, script);
    assert_string_equal(r->out, "a\n");
    assert_string_equal(r->err, "b\n");
    r = client_sh(&cl, "app", SP_F_MERGE, script);
    assert_string_equal(r->out, "a\nb\n");
}

static void directory_rules(void **state)
{
    (void)state;
    char *argv[] = {"pwd", NULL};

    assert_string_equal(client_sh(&cl, NULL, 0, "pwd")->out, "/root\n"); /* HOME */
    claim("", "/work/deep/dir", 0, NULL);
    assert_string_equal(client_sh(&cl, NULL, 0, "pwd")->out, "/work/deep/dir\n");
    if (!geteuid()) {
        client_sh(&cl, NULL, 0, "cd /; rm -r /work");
        assert_string_equal(client_sh(&cl, "app", 0, "pwd; stat -c %U .")->out,
                            "/work/deep/dir\napp\n");
    }
    const result *r = client_run(&cl, &(spine_spawn){.argv = argv, .cwd = "/tmp"});
    assert_string_equal(r->out, "/tmp\n");
    r = client_run(&cl, &(spine_spawn){.argv = argv, .cwd = "/missing"});
    assert_int_equal(r->rec.stage, SP_ST_CWD);
    assert_int_equal(r->rec.status, ENOENT);
}

static void home_that_cannot_be_entered_is_slash(void **state)
{
    (void)state;
    client_sh(&cl, NULL, 0, "rmdir /root");
    assert_string_equal(client_sh(&cl, NULL, 0, "pwd")->out, "/\n");
}

static void umask_comes_from_request_or_claim(void **state)
{
    (void)state;
    char *argv[] = {"sh", "-c", "umask", NULL};

    assert_string_equal(client_sh(&cl, NULL, 0, "umask")->out, "0022\n");
    assert_int_equal(client_claim(&cl, &(spine_claim){.umask = 077}), 0);
    assert_string_equal(client_sh(&cl, NULL, 0, "umask")->out, "0077\n");
    assert_string_equal(client_run(&cl, &(spine_spawn){.argv = argv, .umask = 02})->out, "0002\n");
}

static void no_new_privileges_unless_granted(void **state)
{
    (void)state;
    const char *script = "grep NoNewPrivs /proc/self/status";

    assert_string_equal(client_sh(&cl, NULL, 0, script)->out, "NoNewPrivs:\t1\n");
    assert_int_equal(client_sh(&cl, NULL, SP_F_SETUID, script)->rec.status, -EPERM);
    claim("", "", SP_GRANT_SETUID, NULL);
    assert_string_equal(client_sh(&cl, NULL, SP_F_SETUID, script)->out, "NoNewPrivs:\t0\n");
    assert_string_equal(client_sh(&cl, NULL, 0, script)->out, "NoNewPrivs:\t1\n");
}

static void child_inherits_nothing(void **state)
{
    (void)state;
    /* Not through a shell where it matters: shells set their own mask. */
    char *status[] = {"grep", "-E", "^(SigBlk|SigIgn|Gid|Groups)", "/proc/self/status", NULL};

    assert_string_equal(client_sh(&cl, NULL, 0, "ls -x /proc/$$/fd")->out, "0  1  2\n");
    /* init's own limit is higher, see NOFILE_SPARE */
    assert_string_equal(client_sh(&cl, NULL, 0, "ulimit -n; ulimit -Hn")->out, "256\n15360\n");
    assert_string_equal(client_run(&cl, &(spine_spawn){.argv = status})->out,
                        "Gid:\t0\t0\t0\t0\nGroups:\t \n"
                        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

static void resource_limits_apply(void **state)
{
    (void)state;
    struct sp_rlimit l[] = {{100, 200, 7 /* NOFILE */, 0}}, bad[] = {{2, 1, 7, 0}};
    struct sp_rlimit more[] = {{100, 1 << 20, 7, 0}};
    char *argv[] = {"sh", "-c", "ulimit -n; ulimit -Hn", NULL};

    assert_string_equal(
        client_run(&cl, &(spine_spawn){.argv = argv, .rlimits = l, .nrlimits = 1})->out,
        "100\n200\n");
    /* More than the slot has becomes what it has. */
    assert_string_equal(
        client_run(&cl, &(spine_spawn){.argv = argv, .rlimits = more, .nrlimits = 1})->out,
        "100\n15360\n");
    const result *r = client_run(&cl, &(spine_spawn){.argv = argv, .rlimits = bad, .nrlimits = 1});
    assert_int_equal(r->rec.stage, SP_ST_RLIMIT);
}

/* Root without the capabilities that would let it in anyway (SYS_PTRACE; PERFMON may read). */
#define WEAK "setpriv --bounding-set=-all "
static void tenant_cannot_reach_pid_1(void **state)
{
    (void)state;
    need_root();
    static const char *const refused[] = {WEAK "cat /proc/1/environ",
                                          WEAK "cat /proc/1/maps",
                                          WEAK "ls /proc/1/root/",
                                          WEAK "readlink /proc/1/exe",
                                          WEAK "readlink /proc/1/fd/0",
                                          WEAK "prlimit --pid 1 --nofile=3",
                                          WEAK "sh -c 'echo x > /proc/1/mem'"};

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const result *r = client_sh(&cl, NULL, 0, refused[i]);
        assert_string_equal(r->out, "");
        assert_int_not_equal(r->rec.status, 0);
    }
    /* The way of asking works: of one's own child it is allowed. */
    assert_int_equal(
        client_sh(&cl, NULL, 0, WEAK "sh -c 'sleep 5 & readlink /proc/$!/exe'")->rec.status, 0);
    client_sh(&cl, NULL, 0, "kill -9 1; kill -TERM 1; kill -SEGV 1; kill -STOP 1");
    assert_string_equal(client_sh(&cl, NULL, 0, "echo alive")->out, "alive\n");
}

/* ---- terminal ---- */

static void pty_has_size_owner_and_relay(void **state)
{
    (void)state;
    proc p = start_sh(
        "stty size; echo $TERM; test -t 0 && test -t 2 && echo tty; read x; echo got:$x", SP_F_PTY);
    char b[256];
    struct pollfd pf = {p.fd[SP_FD_IN], POLLIN, 0};
    size_t at = 0;

    assert_int_equal(p.st.fds, 7);
    while (at < sizeof b - 1 && !memmem(b, at, "tty\r\n", 5)) {
        assert_int_equal(poll(&pf, 1, 10000), 1);
        ssize_t n = read(p.fd[SP_FD_IN], b + at, sizeof b - 1 - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
    b[at] = 0;
    assert_string_equal(b, "33 99\r\nxterm\r\ntty\r\n");
    assert_int_equal(write(p.fd[SP_FD_IN], "abc\n", 4), 4);
    client_exit(&cl, p.id);
    drain(p.fd[SP_FD_IN], b, sizeof b);
    assert_non_null(strstr(b, "got:abc"));
    /* the relay is a pipe that init holds: what is in it survives us */
    assert_int_equal(write(p.fd[SP_FD_ERR], "kept", 4), 4);
    proc_close(&p);
    reconnect();
    p = client_fetch(&cl, p.id);
    drain(p.fd[SP_FD_OUT], b, sizeof b);
    assert_string_equal(b, "kept");
    finish(&p);
}

static void pty_belongs_to_the_user(void **state)
{
    (void)state;
    need_root();
    char *argv[] = {"sh", "-c", "echo reopened > $(tty)", NULL};
    proc p =
        client_spawn(&cl, &(spine_spawn){.flags = SP_F_PTY, .user = "app", .argv = argv}, NULL, 0);
    wait_for(p.fd[SP_FD_IN], "reopened");
    assert_int_equal(client_exit(&cl, p.id).r.status, 0);
    finish(&p);
}

/* ---- signals ---- */

static void signal_process_and_group(void **state)
{
    (void)state;
    proc p = start_sh("trap 'echo usr1' USR1; echo up; while :; do sleep 0.05; done", SP_F_NOSTDIN);
    wait_for(p.fd[SP_FD_OUT], "up");
    assert_int_equal(client_signal(&cl, p.id, SIGUSR1, SP_TO_PROC, 0, 0), 0);
    wait_for(p.fd[SP_FD_OUT], "usr1");
    assert_int_equal(client_signal(&cl, p.id, SIGKILL, SP_TO_GROUP, 0, 0), 0);
    assert_int_equal(client_exit(&cl, p.id).r.status, SIGKILL);
    assert_int_equal(client_signal(&cl, p.id, SIGKILL, SP_TO_PROC, 0, 0), ESRCH);
    assert_int_equal(client_signal(&cl, 999, SIGKILL, SP_TO_PROC, 0, 0), ESRCH);
    assert_int_equal(client_signal(&cl, p.id, 65, SP_TO_PROC, 0, 0), EINVAL);
    assert_int_equal(client_signal(&cl, p.id, 9, SP_SCOPES, 0, 0), EINVAL);
    finish(&p);
}

static int count_sleeps(const char *seconds)
{
    char script[128];
    snprintf(script, sizeof script, "pgrep -f '^sleep %s$' | wc -l", seconds);
    return atoi(client_sh(&cl, NULL, 0, script)->out); // NOLINT(cert-err34-c)
}

/* A shell's background job, and a death by SIGKILL, take a moment. */
static void await_sleeps(const char *seconds, int n)
{
    for (int i = 0; i < 500 && count_sleeps(seconds) != n; i++)
        usleep(10000);
    assert_int_equal(count_sleeps(seconds), n);
}

static void signal_session_spares_other_sessions(void **state)
{
    (void)state;
    proc p = start_sh("sleep 1001 & setsid sleep 1002 & sleep 0.1; echo up; wait", SP_F_NOSTDIN);
    wait_for(p.fd[SP_FD_OUT], "up");
    await_sleeps("100[12]", 2);
    assert_int_equal(client_signal(&cl, p.id, SIGKILL, SP_TO_SESSION, 0, 0), 0);
    client_exit(&cl, p.id);
    await_sleeps("1001", 0);
    assert_int_equal(count_sleeps("1002"), 1);
    finish(&p);
}

static void signal_tree_finds_all_descendants(void **state)
{
    (void)state;
    proc other = start_sh("exec sleep 1009", SP_F_NOSTDIN);
    proc p = start_sh("sleep 1001 & setsid sh -c 'sleep 1002 & setsid sleep 1003 & wait' & "
                      "sleep 0.2; echo up; wait",
                      SP_F_NOSTDIN);
    wait_for(p.fd[SP_FD_OUT], "up");
    await_sleeps("100[1239]", 4);
    assert_int_equal(client_signal(&cl, p.id, SIGKILL, SP_TO_TREE, 0, 0), 0);
    assert_int_equal(client_exit(&cl, p.id).r.status, SIGKILL);
    await_sleeps("100[123]", 0);
    assert_int_equal(count_sleeps("1009"), 1);
    assert_int_equal(client_signal(&cl, p.id, SIGKILL, SP_TO_TREE, 0, 0), ESRCH);
    assert_int_equal(client_signal(&cl, other.id, SIGTERM, SP_TO_TREE, 0, 0), 0);
    assert_int_equal(client_exit(&cl, other.id).r.status, SIGTERM);
    finish(&p);
    finish(&other);
}

static void signal_tree_beats_a_forking_one(void **state)
{
    (void)state;
    proc p =
        start_sh("f() { while :; do (sleep 0.01; f) & sleep 0.01; [ $(pgrep -c sh) -gt 40 ] && "
                 "wait; done; }; echo up; f",
                 SP_F_NOSTDIN);
    wait_for(p.fd[SP_FD_OUT], "up");
    usleep(300000);
    int r;
    do
        r = client_signal(&cl, p.id, SIGKILL, SP_TO_TREE, 0, 0);
    while (r == EAGAIN);
    assert_int_equal(r, 0);
    client_exit(&cl, p.id);
    /* One that got away would go on starting others; the one that is left is pgrep's own shell. */
    const char *left = "pgrep -c 'sh|sleep'";
    for (int i = 0; i < 500 && strcmp(client_sh(&cl, NULL, 0, left)->out, "1\n") != 0; i++)
        usleep(10000);
    assert_string_equal(client_sh(&cl, NULL, 0, left)->out, "1\n");
    finish(&p);
}

static void tree_of_an_ended_exec_is_its_session(void **state)
{
    (void)state;
    proc p = start_sh("sleep 1001 & exit 4", SP_F_NOSTDIN);
    assert_int_equal(WEXITSTATUS(client_exit(&cl, p.id).r.status), 4);
    await_sleeps("1001", 1);
    assert_int_equal(client_signal(&cl, p.id, SIGTERM, SP_TO_TREE, 0, 0), 0);
    await_sleeps("1001", 0);
    finish(&p);
}

static uint32_t pid_of_sleep(const char *seconds)
{
    char script[128];
    snprintf(script, sizeof script, "pgrep -f '^sleep %s$'", seconds);
    return (uint32_t)atoi(client_sh(&cl, NULL, 0, script)->out); // NOLINT(cert-err34-c)
}

static void signal_pid_only_inside_the_exec(void **state)
{
    (void)state;
    proc a = start_sh("sleep 1001 & sleep 1002 & sleep 0.1; echo up; wait", SP_F_NOSTDIN);
    proc b = start_sh("exec sleep 1003", SP_F_NOSTDIN);
    wait_for(a.fd[SP_FD_OUT], "up");
    await_sleeps("100[123]", 3);
    uint32_t inside = pid_of_sleep("1001"), outside = pid_of_sleep("1003");
    assert_true(inside > 1 && outside > 1);
    assert_int_equal(client_signal(&cl, a.id, SIGKILL, SP_TO_PID, outside, 0), ESRCH);
    assert_int_equal(client_signal(&cl, a.id, SIGKILL, SP_TO_PID, 1, 0), ESRCH);
    assert_int_equal(client_signal(&cl, a.id, SIGKILL, SP_TO_PID, 0, 0), ESRCH);
    assert_int_equal(client_signal(&cl, a.id, SIGKILL, SP_TO_PID, inside, 0), 0);
    await_sleeps("1001", 0);
    assert_int_equal(count_sleeps("100[23]"), 2);
    client_signal(&cl, 0, SIGKILL, SP_TO_ALL, 0, 0);
    client_exit(&cl, a.id);
    client_exit(&cl, b.id);
    finish(&a);
    finish(&b);
}

static void signal_below_spares_older_subtrees(void **state)
{
    (void)state;
    proc p = start_sh("sh -c 'sleep 1001; :' & sleep 0.2; echo old; read x;"
                      "sh -c 'sleep 1002; :' & sleep 1003 & sleep 0.2; echo new; wait",
                      0);
    wait_for(p.fd[SP_FD_OUT], "old");
    await_sleeps("1001", 1);
    usleep(30000);
    uint64_t since = boottime();
    usleep(30000);
    assert_int_equal(write(p.fd[SP_FD_IN], "\n", 1), 1);
    wait_for(p.fd[SP_FD_OUT], "new");
    await_sleeps("100[123]", 3);
    assert_int_equal(client_signal(&cl, p.id, SIGKILL, SP_TO_BELOW, p.st.pid, since), 0);
    await_sleeps("100[23]", 0);
    assert_int_equal(count_sleeps("1001"), 1); /* older, and its child too */
    int again = 0;
    for (int i = 0; i < 500 && again != ESRCH; i++) { /* the dead take a moment to go */
        again = client_signal(&cl, p.id, SIGKILL, SP_TO_BELOW, p.st.pid, since);
        usleep(10000);
    }
    assert_int_equal(again, ESRCH);
    assert_int_equal(count_sleeps("1001"), 1);
    assert_int_equal(client_signal(&cl, p.id, SIGKILL, SP_TO_BELOW, 1, 0), ESRCH);
    assert_int_equal(client_signal(&cl, p.id, 0, SP_TO_PROC, 0, 0), 0); /* pid itself lives */
    client_signal(&cl, p.id, SIGKILL, SP_TO_TREE, 0, 0);
    client_exit(&cl, p.id);
    finish(&p);
}

static void signal_all_spares_only_init(void **state)
{
    (void)state;
    proc a = start_sh("setsid sleep 1001 & echo up; wait", SP_F_NOSTDIN);
    proc b = start_sh("exec sleep 1002", SP_F_NOSTDIN);
    wait_for(a.fd[SP_FD_OUT], "up");
    assert_int_equal(client_signal(&cl, 0, SIGKILL, SP_TO_ALL, 0, 0), 0);
    client_exit(&cl, a.id);
    client_exit(&cl, b.id);
    await_sleeps("100[12]", 0);
    finish(&a);
    finish(&b);
}

static void stopped_children_do_not_stop_init(void **state)
{
    (void)state;
    proc p = start_sh("echo up; while :; do kill -STOP -1; done", SP_F_NOSTDIN);
    wait_for(p.fd[SP_FD_OUT], "up");
    for (int i = 0; i < 20; i++) {
        proc q = start_sh("true", SP_F_NOSTDIN);
        proc_close(&q);
    }
    assert_int_equal(client_signal(&cl, 0, SIGKILL, SP_TO_ALL, 0, 0), 0);
    client_exit(&cl, p.id);
    finish(&p);
}

/* ---- records ---- */

static void records_stay_until_acknowledged(void **state)
{
    (void)state;
    proc p = start_sh("echo kept; exit 5", SP_F_NOSTDIN), again;
    uint32_t pid = p.st.pid;
    client_exit(&cl, p.id);
    proc_close(&p);
    for (int i = 0; i < 2; i++) {
        reconnect();
        assert_int_equal(cl.hello.nrec, 1);
        assert_int_equal(cl.recs[0].id, p.id);
        assert_int_equal(cl.recs[0].state, SP_EXITED);
        assert_int_equal(WEXITSTATUS(cl.recs[0].status), 5);
        assert_int_equal(cl.recs[0].open, 6);
    }
    again = client_fetch(&cl, p.id);
    assert_int_equal(again.st.pid, pid);
    wait_for(again.fd[SP_FD_OUT], "kept");
    finish(&again);
    assert_int_equal(client_fetch(&cl, p.id).st.h.err, ESRCH);
    reconnect();
    assert_int_equal(cl.hello.nrec, 0);
    assert_int_equal(cl.hello.high, p.id);
}

static void exit_that_happens_unconnected_is_in_hello(void **state)
{
    (void)state;
    proc p = start_sh("sleep 0.2; echo late; exit 6", SP_F_NOSTDIN);
    proc_close(&p);
    for (int i = 0; i < 20 && (!i || cl.recs[0].state == SP_LIVE); i++) { /* until it has ended */
        client_close(&cl);
        usleep(500000);
        client_open(&cl, &vm);
        assert_int_equal(cl.hello.nrec, 1);
    }
    assert_int_equal(WEXITSTATUS(cl.recs[0].status), 6);
    p = client_fetch(&cl, p.id);
    wait_for(p.fd[SP_FD_OUT], "late");
    finish(&p);
}

static void live_exec_is_fetched_after_reconnect(void **state)
{
    (void)state;
    int keep = open("/etc/hostname", O_RDONLY | O_CLOEXEC);
    char *argv[] = {"sh", "-c", "read x; echo got:$x", NULL};
    proc p = client_spawn(&cl, &(spine_spawn){.flags = SP_F_KEEP, .argv = argv}, &keep, 1);
    assert_int_equal(p.st.fds, 15);
    proc_close(&p);
    reconnect();
    assert_int_equal(cl.recs[0].state, SP_LIVE);
    p = client_fetch(&cl, p.id);
    assert_int_equal(p.st.fds, 15);
    assert_true(p.fd[SP_FD_KEEP] >= 0);
    assert_int_equal(write(p.fd[SP_FD_IN], "later\n", 6), 6);
    wait_for(p.fd[SP_FD_OUT], "got:later");
    client_exit(&cl, p.id);
    finish(&p);
    close(keep);
}

static void spawn_sent_again_runs_once(void **state)
{
    (void)state;
    char *argv[] = {"sh", "-c", "echo x >> /tmp/ran; sleep 2", NULL};
    spine_spawn s = {.id = 41, .flags = SP_F_NOSTDIN, .argv = argv};
    cl.next_id = 50;
    proc a = client_spawn(&cl, &s, NULL, 0);
    reconnect();
    proc b = client_spawn(&cl, &s, NULL, 0);
    assert_int_equal(a.st.pid, b.st.pid);
    assert_int_equal(b.st.fds, 6);
    client_exit(&cl, 41);
    finish(&a);
    finish(&b);
    assert_int_equal(client_spawn(&cl, &s, NULL, 0).st.h.err, ESTALE);
    s.id = 40;
    assert_int_equal(client_spawn(&cl, &s, NULL, 0).st.h.err, ESTALE);
    assert_string_equal(client_sh(&cl, NULL, 0, "cat /tmp/ran")->out, "x\n");
}

static void lingering_output_is_kept(void **state)
{
    (void)state;
    proc p = start_sh("(sleep 0.3; echo late) & echo now", SP_F_NOSTDIN);
    struct sp_exit x = client_exit(&cl, p.id);
    assert_int_equal(x.r.status, 0);
    client_tell(&cl, spine_ack(p.id, 0));
    proc_close(&p);
    reconnect();
    assert_int_equal(cl.hello.nrec, 1);
    assert_true(cl.recs[0].flags & SP_F_ACKED);
    p = client_fetch(&cl, p.id);
    wait_for(p.fd[SP_FD_OUT], "late");
    client_tell(&cl, spine_close(p.id, 15));
    proc_close(&p);
    reconnect();
    assert_int_equal(cl.hello.nrec, 0);
}

static void ack_of_a_live_exec_is_ignored(void **state)
{
    (void)state;
    proc p = start_sh("read x; echo $x", 0);
    client_tell(&cl, spine_ack(p.id, 15));
    assert_int_equal(write(p.fd[SP_FD_IN], "on\n", 3), 3);
    wait_for(p.fd[SP_FD_OUT], "on");
    client_exit(&cl, p.id);
    finish(&p);
}

static void full_table_refuses(void **state)
{
    (void)state;
    char *argv[] = {"/no/such", NULL};
    spine_spawn s = {.flags = SP_F_NOSTDIN | SP_F_MERGE, .argv = argv};
    uint64_t first = cl.next_id;

    for (uint32_t i = 0; i < SP_MAX_EXEC; i++) {
        proc p = client_spawn(&cl, &s, NULL, 0);
        assert_int_equal(p.st.h.err, 0);
        proc_close(&p);
    }
    uint64_t refused = cl.next_id;
    assert_int_equal(client_spawn(&cl, &s, NULL, 0).st.h.err, ENOSPC);
    reconnect(); /* HELLO with every record fits */
    assert_int_equal(cl.hello.nrec, SP_MAX_EXEC);
    assert_int_equal(cl.hello.high, refused - 1);
    client_tell(&cl, spine_ack(first, 15));
    s.id = refused; /* the id was not used up */
    assert_int_equal(client_spawn(&cl, &s, NULL, 0).st.h.err, 0);
}

/* SP_UNANSWERED requests without reading an answer, then their acknowledgements one by one. */
static void many_requests_under_way(void **state)
{
    (void)state;
    char *argv[] = {"sh", "-c", "exit 7", NULL};
    uint64_t first = cl.next_id;

    for (uint32_t i = 0; i < SP_UNANSWERED; i++) {
        CLEANUP(spine_out_done) spine_out o = {0};
        assert_ok(spine_encode_spawn(
            &(spine_spawn){.id = cl.next_id++, .flags = SP_F_NOSTDIN, .argv = argv}, &o));
        client_send(&cl, &o, NULL, 0);
    }
    usleep(200000);
    for (uint32_t i = 0; i < SP_UNANSWERED; i++) {
        char b[256] __attribute__((aligned(8)));
        int fds[SP_FDS_MAX];
        size_t nfds;
        client_recv(&cl, b, sizeof b, fds, &nfds);
        assert_int_equal(((struct sp_hdr *)b)->id, first + i);
        for (size_t k = 0; k < nfds; k++)
            close(fds[k]);
    }
    for (uint32_t i = 0; i < SP_UNANSWERED; i++) {
        assert_int_equal(WEXITSTATUS(client_exit(&cl, first + i).r.status), 7);
        client_tell(&cl, spine_ack(first + i, 15));
    }
    assert_string_equal(client_sh(&cl, NULL, 0, "echo on")->out, "on\n");
}

static void what_a_dead_daemon_sent_is_done(void **state)
{
    (void)state;
    char *argv[] = {"sh", "-c", "echo ran > /tmp/orphan", NULL};
    CLEANUP(spine_out_done) spine_out o = {0};
    uint64_t id = cl.next_id++;

    assert_ok(
        spine_encode_spawn(&(spine_spawn){.id = id, .flags = SP_F_NOSTDIN, .argv = argv}, &o));
    client_send(&cl, &o, NULL, 0);
    client_close(&cl); /* at once */
    usleep(300000);
    client_open(&cl, &vm);
    assert_int_equal(cl.hello.nrec, 1);
    assert_int_equal(cl.recs[0].id, id);
    client_tell(&cl, spine_ack(id, 15));
    for (int i = 0; i < 500 && client_sh(&cl, NULL, 0, "test -s /tmp/orphan")->rec.status; i++)
        usleep(10000);
    assert_string_equal(client_sh(&cl, NULL, 0, "cat /tmp/orphan")->out, "ran\n");
}

/* ---- hostile and large ---- */

static int refused_by(const void *p, size_t n, const int *fds, size_t nfds, uint32_t want)
{
    char b[256] __attribute__((aligned(8)));
    int got[SP_FDS_MAX];
    size_t ngot;

    client_send_raw(&cl, p, n, fds, nfds);
    client_recv(&cl, b, sizeof b, got, &ngot);
    assert_int_equal(((struct sp_hdr *)b)->type, want);
    return ((struct sp_hdr *)b)->err;
}

static void malformed_records_are_refused(void **state)
{
    (void)state;
    static char big[SP_INLINE_MAX + 4096] __attribute__((aligned(8)));
    struct sp_hdr odd = {.type = 40, .id = 3};
    struct sp_op op = spine_fetch(1);
    CLEANUP(spine_out_done) spine_out o = {0};
    char *argv[] = {"true", NULL};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int five[] = {null, null, null, null, null};

    assert_int_equal(refused_by(&odd, sizeof odd, NULL, 0, SP_DONE), ENOSYS);
    assert_int_equal(refused_by(&odd, 7, NULL, 0, SP_DONE), ENOSYS);
    assert_int_equal(refused_by(&op, sizeof op - 1, NULL, 0, SP_FDS), EINVAL);
    assert_int_equal(refused_by(&op, sizeof op, &null, 1, SP_FDS), EINVAL);
    assert_int_equal(refused_by(&op, sizeof op, five, 5, SP_FDS), EMSGSIZE);
    assert_ok(spine_encode_spawn(&(spine_spawn){.id = 1, .argv = argv}, &o));
    memcpy(big, o.record.p, o.record.len);
    struct sp_spawn *q = (void *)big;
    size_t n = o.record.len;
    assert_int_equal(refused_by(big, sizeof big, NULL, 0, SP_STARTED), EMSGSIZE);
    assert_int_equal(refused_by(big, n - 1, NULL, 0, SP_STARTED), EINVAL);
    assert_int_equal(refused_by(big, 20, NULL, 0, SP_STARTED), EINVAL);
    assert_int_equal(refused_by(big, n, &null, 1, SP_STARTED), EINVAL);
#define REFUSED(change)                                                    \
    do {                                                                   \
        memcpy(big, o.record.p, n);                                        \
        change;                                                            \
        assert_int_equal(refused_by(big, n, NULL, 0, SP_STARTED), EINVAL); \
    } while (0)
    REFUSED(q->flags = 1u << 20);
    REFUSED(q->flags = SP_F_KEEP);
    REFUSED(q->h.id = 0);
    REFUSED(q->argc = 0);
    REFUSED(q->argc = 1u << 30);
    REFUSED(q->payload = UINT32_MAX);
    REFUSED(q->nrlimits = 17);
    REFUSED(q->umask = 01000);
    REFUSED(q->reserved[4] = 1);
#undef REFUSED
    /* Well-formed as far as pid 1 looks, wrong inside: the child says so. */
    memcpy(big, o.record.p, n);
    q->envc = 2;
    assert_int_equal(refused_by(big, n, NULL, 0, SP_STARTED), 0);
    assert_int_equal(client_exit(&cl, 1).r.stage, SP_ST_PARSE);
    assert_int_equal(client_op(&cl, spine_signal(1, 9, SP_TO_ALL, 0, 0)), ESRCH);
    close(null);
}

static void malformed_claims_leave_no_trace(void **state)
{
    (void)state;
    char *env[] = {"A=1", NULL};
    CLEANUP(spine_out_done) spine_out o = {0};
    char b[256] __attribute__((aligned(8)));
    struct sp_claim *q = (void *)b;

    assert_ok(spine_encode_claim(&(spine_claim){.env = env, .umask = 022}, &o));
#define REFUSED(change)                                                          \
    do {                                                                         \
        memcpy(b, o.record.p, o.record.len);                                     \
        change;                                                                  \
        assert_int_equal(refused_by(b, o.record.len, NULL, 0, SP_DONE), EINVAL); \
    } while (0)
    REFUSED(q->envc = 0);
    REFUSED(q->envc = 2);
    REFUSED(q->grants = 2);
    REFUSED(q->umask = SP_UMASK_CLAIM);
    REFUSED(q->h.id = 1);
    REFUSED(b[o.record.len - 1] = 'x');
#undef REFUSED
    reconnect();
    assert_int_equal(cl.hello.flags, 0);
    claim("", "", 0, env);
}

static void large_payloads_travel_in_a_memfd(void **state)
{
    (void)state;
    enum {
        N = 12,
        SIZE = 100000
    };
    static char text[N][SIZE + 16];
    char *env[N + 1] = {0}, *argv[] = {"sh", "-c", "echo ${#E0} ${#E11} ${#C3}", NULL};
    char *claimed[N + 1] = {0};

    for (int i = 0; i < N; i++) {
        int n = snprintf(text[i], sizeof text[i], "E%d=", i);
        memset(text[i] + n, 'v', SIZE);
        env[i] = text[i];
        claimed[i] = str_printf("C%d=%.50000s", i, text[i]);
    }
    claim("", "", 0, claimed);
    const result *r = client_run(&cl, &(spine_spawn){.argv = argv, .env = env});
    assert_int_equal(r->rec.state, SP_EXITED);
    assert_string_equal(r->out, "100000 100000 50000\n");
    /* Beyond what the kernel takes: an error of that exec. */
    static char huge[200000];
    memset(huge, 'h', sizeof huge - 1);
    char *too[] = {"echo", huge, NULL};
    r = client_run(&cl, &(spine_spawn){.argv = too});
    assert_int_equal(r->rec.state, SP_FAILED);
    assert_int_equal(r->rec.status, E2BIG);
    for (int i = 0; i < N; i++)
        free(claimed[i]);
}

static void short_memfd_is_an_error_of_the_exec(void **state)
{
    (void)state;
    struct sp_spawn q = {.h = {.type = SP_SPAWN, .id = cl.next_id++},
                         .flags = SP_F_MEMFD | SP_F_NOSTDIN,
                         .payload = 100000,
                         .argc = 1};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_int_equal(refused_by(&q, sizeof q, &null, 1, SP_STARTED), 0);
    struct sp_exit x = client_exit(&cl, q.h.id);
    assert_int_equal(x.r.state, SP_FAILED);
    assert_int_equal(x.r.stage, SP_ST_PARSE);
    close(null);
}

static void newest_connection_wins(void **state)
{
    (void)state;
    static client second;
    char b[16];

    client_open(&second, &vm);
    assert_int_equal(recv(cl.fd, b, sizeof b, 0), 0);
    assert_string_equal(client_sh(&second, NULL, 0, "echo second")->out, "second\n");
    client_close(&second);
}

static void dead_init_refuses_connections(void **state)
{
    (void)state;
    kill(vm.pid, SIGKILL);
    waitpid(vm.pid, NULL, 0);
    vm.pid = 0;
    assert_int_equal(guest_connect(&vm), -ECONNREFUSED);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        T(claim_is_taken_once),
        T(streams_and_status),
        T(stdin_is_a_pipe_or_null),
        T(exec_by_descriptor),
        T(failed_exec_has_errno_and_stage),
        T(environment_later_wins),
        T(users_by_name_and_number),
        T(unknown_users_fail_at_the_user_stage),
        T(passwd_may_be_anything),
        T(stdio_belongs_to_the_user),
        T(directory_rules),
        T(home_that_cannot_be_entered_is_slash),
        T(umask_comes_from_request_or_claim),
        T(no_new_privileges_unless_granted),
        T(child_inherits_nothing),
        T(resource_limits_apply),
        T(tenant_cannot_reach_pid_1),
        T(pty_has_size_owner_and_relay),
        T(pty_belongs_to_the_user),
        T(signal_process_and_group),
        T(signal_session_spares_other_sessions),
        T(signal_tree_finds_all_descendants),
        T(signal_tree_beats_a_forking_one),
        T(tree_of_an_ended_exec_is_its_session),
        T(signal_pid_only_inside_the_exec),
        T(signal_below_spares_older_subtrees),
        T(signal_all_spares_only_init),
        T(stopped_children_do_not_stop_init),
        T(records_stay_until_acknowledged),
        T(exit_that_happens_unconnected_is_in_hello),
        T(live_exec_is_fetched_after_reconnect),
        T(spawn_sent_again_runs_once),
        T(lingering_output_is_kept),
        T(ack_of_a_live_exec_is_ignored),
        T(full_table_refuses),
        T(many_requests_under_way),
        T(what_a_dead_daemon_sent_is_done),
        T(malformed_records_are_refused),
        T(malformed_claims_leave_no_trace),
        T(large_payloads_travel_in_a_memfd),
        T(short_memfd_is_an_error_of_the_exec),
        T(newest_connection_wins),
        T(dead_init_refuses_connections),
    };
    const char *why;

    if (argc < 2)
        return 2;
    program = argv[1];
    if (!guest_possible(&why)) {
        print_message("skipped: %s\n", why);
        return 77;
    }
    if (!guest_runs(program, &why)) {
        print_message("skipped: %s\n", why);
        return 77;
    }
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
