/* exec-victim DIR FIRST LAST CUT CRASH: a daemon to be killed. It attaches to the box, asks for the
 * commands FIRST to LAST with their keys, at most VICTIM_LIVE at a time, feeds their stdin, and
 * ends with 0 when all have their end record. Whatever kills it, the next one asks for the same
 * again. */
#include "victim.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"

static exec_table *table;
static backend *provider;

static void die(err *e)
{
    if (!e)
        return;
    fprintf(stderr, "victim: %s (%s)\n", e->message, e->cause ? e->cause : "-");
    _exit(3);
}

static void on_gone(void *arg, const char *why)
{
    (void)arg;
    fprintf(stderr, "victim: the box is gone: %s\n", why);
    _exit(3);
}

/* ---- crash points ---- */

static const backend_ops *real;
static unsigned crash_every;
static _Atomic unsigned crash_seed;

static void crash_point(void)
{
    unsigned seed = atomic_fetch_add(&crash_seed, 0x9e3779b9u);

    if (crash_every && (unsigned)rand_r(&seed) % crash_every == 0)
        kill(getpid(), SIGKILL);
}

static err *crash_exec(box *x, uint64_t id, const exec_spec *s, int keep)
{
    crash_point();
    err *e = real->exec(x, id, s, keep);
    crash_point();
    return e;
}

static err *crash_fetch(box *x, uint64_t id)
{
    crash_point();
    return real->fetch(x, id);
}

static void crash_ack(box *x, uint64_t id, uint32_t mask)
{
    crash_point();
    real->ack(x, id, mask);
    crash_point();
}

static void crash_received(box *x, uint64_t id, int stream, uint64_t offset)
{
    crash_point();
    real->received(x, id, stream, offset);
}

static err *crash_stdin(box *x, uint64_t id, uint64_t offset, const void *p, size_t n, bool eof)
{
    crash_point();
    return real->stdin_write(x, id, offset, p, n, eof);
}

static void set_crash_points(backend *b, unsigned every)
{
    static backend_ops ops;

    crash_every = every;
    crash_seed = (unsigned)now_mono_ns();
    real = b->ops;
    ops = *b->ops;
    ops.exec = crash_exec;
    ops.fetch = crash_fetch;
    ops.ack = crash_ack;
    ops.received = crash_received;
    ops.stdin_write = crash_stdin;
    b->ops = &ops;
}

/* ---- its work ---- */

static exec *ask(unsigned n)
{
    victim_plan p = victim_plan_of(n);
    exec_key key = victim_key(n);
    CLEANUP(freep) char *command = victim_command(p);
    char *sh[] = {"/bin/sh", "-c", command, NULL}, *missing[] = {"/no/such/program", NULL};
    exec_spec s = {
        .argv = p.kind == V_MISSING ? missing : sh, .exec_fd = -1, .rows = 24, .cols = 80};
    exec *x = NULL;
    bool replay;

    s.stdio = p.kind == V_PTY ? STDIO_PTY : p.kind == V_MERGED ? STDIO_MERGED : STDIO_PIPES;
    s.stdin_open = p.kind == V_CAT;
    die(exec_start(table, &s, &key, &x, &replay));
    return x;
}

/* Goes on where the length says: what an earlier life appended is there. A refusal is looked at
 * again in the next round. */
static void feed(exec *x, victim_plan p)
{
    CLEANUP(buf_done) buf in = {0};
    exec_state s;

    exec_get(x, &s);
    if (p.kind != V_CAT || !s.stdin_open)
        return;
    victim_output(p, 1, &in);
    uint64_t at = exec_stdin_length(x);
    size_t n = in.len - at < 3000 ? in.len - at : 3000;
    err_free(exec_stdin(x, in.p + at, n, at, at + n == in.len));
}

/* True when it has ended. not_started is asked for again: its key is free. */
static bool serve(exec **x, unsigned n)
{
    exec_state s;

    feed(*x, victim_plan_of(n));
    exec_get(*x, &s);
    if (s.end.how == EXEC_NOT_STARTED && !s.end.stage) {
        exec_unref(*x);
        *x = ask(n);
        return false;
    }
    return s.end.how != EXEC_RUNNING && !s.lingering;
}

static void run(unsigned first, unsigned last)
{
    exec *x[VICTIM_LIVE] = {0};
    unsigned which[VICTIM_LIVE], next = first, done = 0;

    while (done < last - first + 1) {
        for (unsigned i = 0; i < VICTIM_LIVE; i++) {
            if (!x[i] && next <= last)
                x[i] = ask(which[i] = next++);
            if (x[i] && serve(&x[i], which[i])) {
                exec_unref(x[i]);
                x[i] = NULL;
                done++;
            }
        }
        usleep(500);
    }
}

int main(int argc, char **argv)
{
    exec_options o = {
        .stream_max = 64 << 20, .sandbox_max = 1 << 30, .live_max = 256, .stdin_max = 1 << 20};
    exec_hub *hub;
    box *b;
    int dir;

    if (argc != 6)
        return 2;
    log_init("victim", LOG_ERROR);
    signal(SIGPIPE, SIG_IGN);
    fake_options f = {
        .dir = argv[1], .node_program = FAKE_NODE, .cut_every = (unsigned)atoi(argv[4])};
    dir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* One daemon at a time: the last one's threads may still be inside the kernel. */
    int lock = -1;
    for (int i = 0; i < 1000 && lock < 0; i++) {
        err_free(fs_lock(dir, "daemon.lock", &lock));
        if (lock < 0)
            usleep(1000);
    }
    die(fs_dir(dir, "spool", 0700, &o.spool_dir));
    die(exec_hub_new(&o, &hub));
    die(backend_fake_new(&f, &provider));
    set_crash_points(provider, (unsigned)atoi(argv[5]));
    die(exec_table_open(hub, VICTIM_BOX, &table));
    die(provider->ops->attach(provider, VICTIM_BOX, &EXEC_BOX_EVENTS, table, &b));
    exec_table_bind(table, provider, b, on_gone, NULL);
    run((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    _exit(0); /* as a daemon ends: nothing is taken down */
}
