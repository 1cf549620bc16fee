/* What the tests of the exec layer share: a scratch spool, a hub, waiting for ends, reading
 * streams.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/exec.h"

#include "../unit.h"

#define SANDBOX "testaaaaaaaaaaaaaaaa"

typedef struct world {
    char dir[64];
    int dirfd, spool;
    exec_options options;
    exec_hub *hub;
    exec_table *table;
    backend *backend;
    box *box;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool created, gone;
    err *failure;
} world;

static char world_left[64]; /* the directory of the running test */

static inline void world_remove(void)
{
    int parent = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (world_left[0])
        err_free(fs_remove(parent, world_left + 5));
    world_left[0] = 0;
    close(parent);
}

/* Teardown: also after a failure. A node whose directory is gone ends and kills what it ran. */
static inline int world_sweep(void **state)
{
    (void)state;
    world_remove();
    return 0;
}
#define WORLD_TEST(f) cmocka_unit_test_teardown(f, world_sweep)

static inline void world_init(world *w)
{
    *w = (world){.dir = "/tmp/bothy-exec.XXXXXX"};
    assert_non_null(mkdtemp(w->dir));
    memcpy(world_left, w->dir, sizeof world_left);
    w->dirfd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(fs_dir(w->dirfd, "spool", 0700, &w->spool));
    w->options = (exec_options){.spool_dir = w->spool,
                                .stream_max = 64 << 20,
                                .sandbox_max = 1 << 30,
                                .live_max = 256,
                                .stdin_max = 1 << 20};
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->cond);
}

static inline void world_wait(world *w, const bool *flag)
{
    uint64_t end = now_mono_ns() + 20 * NS_PER_S;

    LOCK_SCOPE(&w->lock);
    while (!*flag)
        if (!cond_wait_until(&w->cond, &w->lock, end) && now_mono_ns() >= end)
            fail_msg("nothing happened for 20 s");
}

static inline void world_on_gone(void *arg, const char *why)
{
    world *w = arg;

    (void)why;
    LOCK_SCOPE(&w->lock);
    w->gone = true;
    pthread_cond_broadcast(&w->cond);
}

/* Forgets everything in memory, as a kill would; what runs goes on. */
static inline void world_stop(world *w)
{
    w->backend->ops->free(w->backend);
    exec_table_unref(w->table);
    exec_hub_free(w->hub);
    if (w->box)
        w->backend = NULL;
    w->box = NULL;
    w->table = NULL;
    w->hub = NULL;
}

static inline void world_done(world *w)
{
    world_remove();
    close(w->spool);
    close(w->dirfd);
}

static inline exec_spec spec_sh(char *command)
{
    static char *argv[8][4];
    static unsigned next;
    char **v = argv[next++ % 8];

    v[0] = "/bin/sh";
    v[1] = "-c";
    v[2] = command;
    v[3] = NULL;
    return (exec_spec){.argv = v, .exec_fd = -1, .rows = 24, .cols = 80};
}

static inline exec *start(world *w, const exec_spec *spec)
{
    exec *x = NULL;
    bool replay = true;

    assert_ok(exec_start(w->table, spec, NULL, &x, &replay));
    assert_false(replay);
    return x;
}

/* ---- waiting ---- */

typedef struct waiter {
    exec_watch watch;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool kicked;
} waiter;

static inline void waiter_notify(void *arg)
{
    waiter *n = arg;

    LOCK_SCOPE(&n->lock);
    n->kicked = true;
    pthread_cond_signal(&n->cond);
}

/* Waits until the state satisfies the test, at most `seconds`; false when it never did. */
static inline bool wait_for(exec *x, bool (*test)(const exec_state *, uint64_t), uint64_t arg,
                            unsigned seconds, exec_state *ret)
{
    waiter n = {.watch = {.notify = waiter_notify}};
    uint64_t end = now_mono_ns() + seconds * NS_PER_S;
    bool ok;

    n.watch.arg = &n;
    pthread_mutex_init(&n.lock, NULL);
    cond_init(&n.cond);
    exec_watch_add(x, &n.watch);
    for (;;) {
        exec_get(x, ret);
        ok = test(ret, arg);
        if (ok || now_mono_ns() >= end)
            break;
        LOCK_SCOPE(&n.lock);
        if (!n.kicked)
            cond_wait_until(&n.cond, &n.lock, end);
        n.kicked = false;
    }
    exec_unwatch(x, &n.watch);
    pthread_mutex_destroy(&n.lock);
    return ok;
}

static inline bool is_ended(const exec_state *s, uint64_t arg)
{
    (void)arg;
    return s->end.how != EXEC_RUNNING;
}

static inline bool is_over(const exec_state *s, uint64_t arg)
{
    (void)arg;
    return s->end.how != EXEC_RUNNING && !s->lingering;
}

static inline bool has_out(const exec_state *s, uint64_t n)
{
    return s->length[0] >= n;
}

static inline exec_state wait_end(exec *x)
{
    exec_state s;

    if (!wait_for(x, is_ended, 0, 30, &s))
        fail_msg("exec %lu (%s) did not end", s.id, s.command);
    return s;
}

static inline void read_stream(exec *x, int stream, buf *ret)
{
    char chunk[65536];
    uint64_t gap = 0;
    size_t n;

    buf_clear(ret);
    do {
        assert_ok(exec_read(x, stream, ret->len, chunk, sizeof chunk, &n, &gap));
        assert_int_equal(gap, 0);
        buf_append(ret, chunk, n);
    } while (n);
}

static inline void assert_stream(exec *x, int stream, const char *want)
{
    buf b = {0};

    read_stream(x, stream, &b);
    assert_string_equal(buf_cstr(&b), want);
    buf_done(&b);
}

static inline void put_seq(buf *b, unsigned from, unsigned to, const char *nl)
{
    for (unsigned i = from; i <= to; i++)
        buf_printf(b, "%u%s", i, nl);
}

static inline void assert_bytes(exec *x, int stream, const buf *want)
{
    buf b = {0};

    read_stream(x, stream, &b);
    assert_int_equal(b.len, want->len);
    assert_memory_equal(b.p, want->p, b.len);
    buf_done(&b);
}
