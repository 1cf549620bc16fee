/* bothy-init in container mode as pid 1 of namespaces of its own, and bothyd's end of the link
 * through real `bothy-init attach` processes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"

#include "../unit.h"
#include "link_client.h"

static const char *init_program;
static const char *why_not;
static unsigned cuts_wanted = 200;
static char *image_env[] = {"ASAN_OPTIONS=detect_leaks=0", "FROM_IMAGE=yes", "BOTH=image",
                            "HOME=/nowhere", NULL};

typedef struct world {
    guest g;
    lclient c;
} world;

static int world_make_as(void **state, const guest_serve *as)
{
    world *w = xcalloc(1, sizeof *w);

    guest_start_serve(&w->g, init_program, as);
    lc_init(&w->c, &w->g, as);
    *state = w;
    return 0;
}

static int world_make(void **state)
{
    static guest_serve as = {.env = image_env};

    return why_not ? 0 : world_make_as(state, &as);
}

static int world_end(void **state)
{
    world *w = *state;

    if (!w)
        return 0;
    lc_free(&w->c);
    guest_stop(&w->g);
    free(w);
    return 0;
}

static world *here(void **state)
{
    if (why_not)
        skip();
    return *state;
}

/* Init listens some time after it was started. */
static void dial(lclient *c)
{
    uint64_t end = now_mono_ns() + 10 * NS_PER_S;

    while (!lc_dial(c) && !c->refused && now_mono_ns() < end)
        usleep(20000);
    assert_true(c->open);
}

static lclient *claimed(void **state)
{
    static char *env[] = {"FROM_CLAIM=1", "BOTH=claim", NULL};
    world *w = here(state);

    dial(&w->c);
    assert_int_equal(lc_claim(&w->c, &(spine_claim){.env = env, .umask = 022}), 0);
    return &w->c;
}

static const char *text(lproc *p, int stream)
{
    buf_append(&p->out[stream - 1], "", 1);
    p->out[stream - 1].len--;
    return p->out[stream - 1].p;
}

/* Takes what comes for a while. */
static void settle(lclient *c, unsigned ms)
{
    uint64_t end = now_mono_ns() + ms * NS_PER_MS;

    while (now_mono_ns() < end)
        lc_pump(c, 20);
}

/* What was said has arrived: a new connection ends this one with what is on its way in it. */
static void until_heard(lclient *c)
{
    struct sps_data ping = {{SPS_PING, 0, 5}, 0, 0, 6};

    c->pongs = 0;
    lc_send(c, &ping, sizeof ping, NULL, 0);
    while (!c->pongs)
        assert_true(lc_pump(c, 1000));
}

static void until_ended(lclient *c)
{
    uint64_t end = now_mono_ns() + 5 * NS_PER_S;

    while (lc_pump(c, 100) && now_mono_ns() < end)
        continue;
    assert_false(c->open);
}

static const char *run(lclient *c, const char *user, uint32_t flags, const char *script)
{
    lproc *p = lc_sh(c, user, flags | SP_F_NOSTDIN, script);

    lc_until_exit(c, p);
    assert_int_equal(p->st.h.err, 0);
    lc_ack(c, p, 15);
    return text(p, 1);
}

/* ---- the claim ---- */

static void claims_once(void **state)
{
    world *w = here(state);
    lclient *c = &w->c;

    dial(c);
    assert_int_equal(c->greeting.state, SPL_FRESH);
    assert_int_equal(c->greeting.instance, c->hello.instance);
    assert_int_equal(c->hello.flags, 0);
    assert_int_equal(c->hello.h.id, 0); /* no walls are tried */
    assert_int_equal(lc_claim(c, &(spine_claim){.umask = 022}), 0);
    assert_int_equal(lc_claim(c, &(spine_claim){.umask = 022}), EALREADY);
    uint64_t instance = c->hello.instance;
    assert_true(lc_dial(c));
    assert_int_equal(c->greeting.state, SPL_OWNED);
    assert_int_equal(c->hello.flags, SP_HELLO_CLAIMED);
    assert_int_equal(c->hello.instance, instance);
    assert_int_equal(lc_claim(c, &(spine_claim){.umask = 022}), EALREADY);
}

static void large_claims_and_commands_pass(void **state)
{
    world *w = here(state);
    size_t n = 100000;
    CLEANUP(freep) char *big = xmalloc(n + 1);
    memset(big, 'x', n);
    memcpy(big, "BIG=", 4);
    big[n] = 0;
    char *env[] = {big, NULL}, *more[] = {"MORE=", NULL};
    CLEANUP(freep) char *other = str_printf("OTHER%s", big + 3);
    more[0] = other;
    char *argv[] = {"sh", "-c", "echo ${#BIG} ${#OTHER}", NULL};

    dial(&w->c);
    assert_int_equal(lc_claim(&w->c, &(spine_claim){.env = env, .umask = 022}), 0);
    lproc *p = lc_spawn(
        &w->c,
        &(spine_spawn){.flags = SP_F_NOSTDIN, .umask = SP_UMASK_CLAIM, .argv = argv, .env = more});
    assert_true(p->spawn.payload.len > 0);
    lc_until_exit(&w->c, p);
    assert_string_equal(text(p, 1), "99996 99996\n");
}

static void environment_has_its_layers(void **state)
{
    lclient *c = claimed(state);

    assert_string_equal(run(c, NULL, 0, "echo $FROM_IMAGE $FROM_CLAIM $BOTH $HOME $USER"),
                        "yes 1 claim /root root\n");
    if (!geteuid()) /* else one id is all there is */
        assert_string_equal(run(c, "app", 0, "echo $HOME; id -u; id -G"),
                            "/home/app\n1000\n1001 10 50\n");
    assert_string_equal(run(c, NULL, 0, "grep NoNewPrivs /proc/self/status"), "NoNewPrivs:\t1\n");
    assert_string_equal(run(c, NULL, 0, "ls /proc/self/fd | wc -l"), "4\n");
}

/* ---- commands ---- */

static void commands_end_as_they_do(void **state)
{
    lclient *c = claimed(state);
    char *none[] = {"/no/such", NULL};

    lproc *p = lc_sh(c, NULL, SP_F_NOSTDIN, "echo out; echo err >&2; exit 7");
    lc_until_exit(c, p);
    assert_int_equal(p->rec.state, SP_EXITED);
    assert_int_equal(WEXITSTATUS(p->rec.status), 7);
    assert_string_equal(text(p, 1), "out\n");
    assert_string_equal(text(p, 2), "err\n");
    lproc *q = lc_sh(c, NULL, SP_F_NOSTDIN | SP_F_MERGE, "echo out; echo err >&2");
    lc_until_exit(c, q);
    assert_string_equal(text(q, 1), "out\nerr\n");
    lproc *r = lc_spawn(c, &(spine_spawn){.flags = SP_F_NOSTDIN, .umask = 022, .argv = none});
    lc_until_exit(c, r);
    assert_int_equal(r->rec.state, SP_FAILED);
    assert_int_equal(r->rec.status, ENOENT);
    assert_int_equal(r->rec.stage, SP_ST_EXEC);
    for (size_t i = 0; i < 3; i++)
        lc_ack(c, &c->procs[i], 15);
    until_heard(c);
    assert_true(lc_dial(c));
    assert_int_equal(c->hello.nrec, 0);
}

static void descriptors_are_refused(void **state)
{
    lclient *c = claimed(state);
    static const uint32_t flags[] = {SP_F_KEEP, SP_F_EXECFD};

    for (size_t i = 0; i < 2; i++) {
        lproc *p = lc_sh(c, NULL, flags[i] | SP_F_NOSTDIN, "true");
        lc_until_started(c, p);
        assert_int_equal(p->st.h.err, EOPNOTSUPP);
    }
    assert_string_equal(run(c, NULL, 0, "echo lives"), "lives\n");
}

static void sixty_four_at_once(void **state)
{
    lclient *c = claimed(state);
    lproc *p[64];

    for (size_t i = 0; i < 64; i++)
        p[i] = lc_sh(c, NULL, SP_F_NOSTDIN, "seq 1 4000; sleep 0.2; echo end");
    for (size_t i = 0; i < 64; i++) {
        lc_until_exit(c, p[i]);
        assert_int_equal(p[i]->rec.status, 0);
        assert_int_equal(p[i]->out[0].len, 18893 + 4);
    }
}

#define SLOW 72 /* 256 KiB each is more than init keeps */
/* An exec whose output nobody takes does not stop the others, and waits itself. */
static void slow_readers_stop_only_themselves(void **state)
{
    lclient *c = claimed(state);
    lproc *slow[SLOW];

    for (size_t i = 0; i < SLOW; i++) {
        slow[i] = lc_sh(c, NULL, SP_F_NOSTDIN, "yes | head -c 3000000; echo end >&2");
        slow[i]->credit = 0;
    }
    for (size_t i = 0; i < SLOW; i++)
        lc_until_bytes(c, slow[i], 1, 4096); /* what is sure for each; together they want more */
    settle(c, 500);
    for (size_t i = 0; i < SLOW; i++) {
        assert_in_range(slow[i]->out[0].len, 4096, SPL_CREDIT);
        assert_false(slow[i]->exited);
    }
    lproc *quick = lc_sh(c, NULL, SP_F_NOSTDIN, "seq 1 100000");
    lc_until_exit(c, quick);
    assert_int_equal(quick->out[0].len, 588895);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/statm", (int)c->g->pid);
    FILE *f = fopen(path, "re");
    unsigned long size = 0, resident = 0;
    assert_non_null(f);
    char line[128] = {0};
    assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    size = strtoul(line, NULL, 10);
    resident = strtoul(strchr(line, ' '), NULL, 10);
    assert_true(size > 0);
    if (!strstr(init_program, "hosted"))
        assert_in_range(resident, 1, (20u << 20) / 4096);
    for (size_t i = 0; i < SLOW; i++) {
        struct sps_data d = {{SPS_RECEIVED, 0, slow[i]->id}, 1, 1u << 20, slow[i]->out[0].len};
        slow[i]->credit = 1u << 20;
        spl_window_grant(&slow[i]->win[0], d.offset, d.b);
        lc_send(c, &d, sizeof d, NULL, 0);
    }
    for (size_t i = 0; i < SLOW; i++) {
        lc_until_exit(c, slow[i]);
        assert_int_equal(slow[i]->out[0].len, 3000000);
        assert_string_equal(text(slow[i], 2), "end\n");
    }
}

static void ends_come_after_the_bytes_before_them(void **state)
{
    lclient *c = claimed(state);
    lproc *p = lc_sh(c, NULL, SP_F_NOSTDIN,
                     "yes | head -c 150000; "
                     "(until [ -e /tmp/go ]; do sleep 0.05; done; echo late) &");

    p->credit = 0;
    lc_until_bytes(c, p, 1, SPL_CREDIT);
    settle(c, 300);
    assert_false(p->exited); /* bytes of before its end are still inside */
    p->credit = 1u << 20;
    struct sps_data d = {{SPS_RECEIVED, 0, p->id}, 1, p->credit, p->out[0].len};
    spl_window_grant(&p->win[0], d.offset, d.b);
    lc_send(c, &d, sizeof d, NULL, 0);
    lc_until_exit(c, p);
    assert_int_equal(p->out[0].len, 150000);
    lc_ack(c, p, 1); /* lingers */
    run(c, NULL, 0, "touch /tmp/go");
    lc_until_bytes(c, p, 1, 150005);
    while (!p->eof[0] || !p->eof[1])
        assert_true(lc_pump(c, 1000));
    struct sps_data more = {{SPS_RECEIVED, 0, p->id}, 1, 0, p->out[0].len};
    lc_send(c, &more, sizeof more, NULL, 0);
    until_heard(c);
    assert_true(lc_dial(c));
    assert_int_equal(c->hello.nrec, 0);
}

/* What init could not read yet is read from its pipe by somebody inside. */
static void bytes_that_a_tenant_takes_back_keep_no_end(void **state)
{
    lclient *c = claimed(state);
    lproc *p = lc_sh(c, NULL, SP_F_NOSTDIN,
                     "exec 3</proc/self/fd/1; yes | head -c 270336;"
                     "(while kill -0 $$; do sleep 0.1; done 2>&-; head -c 8192 <&3; echo taken >&2)"
                     " >/dev/null &");

    p->credit = 0;
    lc_until_bytes(c, p, 2, 6);
    p->credit = 1u << 20;
    struct sps_data d = {{SPS_RECEIVED, 0, p->id}, 1, p->credit, p->out[0].len};
    spl_window_grant(&p->win[0], d.offset, d.b);
    lc_send(c, &d, sizeof d, NULL, 0);
    lc_until_exit(c, p);
    assert_string_equal(text(p, 2), "taken\n");
    assert_int_equal(p->out[0].len, SPL_KEPT);
}

/* ---- lost connections ---- */

static void check_seq(const lproc *p, int stream, unsigned to)
{
    const char *at = p->out[stream - 1].p, *end = at + p->out[stream - 1].len;
    char line[16];

    for (unsigned i = 1; i <= to; i++) {
        int n = snprintf(line, sizeof line, "%u\n", i);
        if (end - at < n || memcmp(at, line, (size_t)n) != 0)
            fail_msg("line %u of stream %d is wrong", i, stream);
        at += n;
    }
    assert_true(at == end);
}

static void cut_anywhere_loses_nothing(void **state)
{
    lclient *c = claimed(state);
    unsigned rounds = 0;

    srandom(4711);
    while (c->cuts < cuts_wanted) {
        lproc *p[3] = {
            lc_sh(c, NULL, SP_F_NOSTDIN, "seq 1 30000; seq 1 9000 >&2"),
            lc_sh(c, NULL, SP_F_NOSTDIN | SP_F_MERGE, "seq 1 1000; echo $$ >> /tmp/ran"),
            lc_sh(c, NULL, SP_F_NOSTDIN, "for i in 1 2 3 4 5; do echo $i; sleep 0.01; done")};
        while (!p[0]->exited || !p[1]->exited || !p[2]->exited) {
            if (c->cut_after < 0)
                c->cut_after = random() % (random() % 3 ? 3000 : 60000);
            if (!lc_pump(c, 1000))
                while (!lc_dial(c))
                    c->cut_after = random() % 60000;
        }
        check_seq(p[0], 1, 30000);
        check_seq(p[0], 2, 9000);
        check_seq(p[1], 1, 1000);
        check_seq(p[2], 1, 5);
        c->cut_after = -1;
        if (!c->open)
            assert_true(lc_dial(c));
        lc_forget_all(c);
        rounds++;
    }
    CLEANUP(freep) char *want = str_printf("%u\n", rounds);
    assert_string_equal(run(c, NULL, 0, "wc -l < /tmp/ran"), want);
    print_message("%u cuts in %u rounds\n", c->cuts, rounds);
}

static void kill_of_everybody_by_a_tenant_loses_nothing(void **state)
{
    lclient *c = claimed(state);
    lproc *victim = lc_sh(c, NULL, SP_F_NOSTDIN, "seq 1 20000; sleep 100");
    lc_until_bytes(c, victim, 1, 5000);
    lproc *p = lc_sh(c, NULL, SP_F_NOSTDIN, "echo before; kill -9 -1; sleep 10");

    lc_until_exit(c, p); /* through another attach process: this one died */
    assert_string_equal(text(p, 1), "before\n");
    lc_until_exit(c, victim);
    assert_true(WIFSIGNALED(victim->rec.status));
    assert_string_equal(run(c, NULL, 0, "echo lives"), "lives\n");
}

static void a_stopped_attach_process_is_left_behind(void **state)
{
    lclient *c = claimed(state);
    lproc *p = lc_sh(c, NULL, SP_F_NOSTDIN,
                     "seq 1 1000; sleep 0.3; kill -STOP -1; sleep 0.3; "
                     "pkill -STOP -f '^/init attach'; sleep 0.3; seq 1001 60000");

    lc_until_bytes(c, p, 1, 3893);
    struct sps_data ping = {{SPS_PING, 0, 5}, 0, 0, 6};
    for (int i = 0; i < 40; i++) { /* a busy machine stops it later */
        c->pongs = 0;
        lc_send(c, &ping, sizeof ping, NULL, 0);
        settle(c, 500);
        if (!c->pongs)
            break;
    }
    assert_int_equal(c->pongs, 0);
    assert_true(lc_dial(c));
    lc_until_exit(c, p);
    check_seq(p, 1, 60000);
    lc_send(c, &ping, sizeof ping, NULL, 0);
    while (!c->pongs)
        assert_true(lc_pump(c, 1000));
    assert_int_equal(c->last_pong.h.id, 5);
    assert_int_equal(c->last_pong.offset, 6);
}

static void the_newest_connection_is_the_one(void **state)
{
    world *w = here(state);
    lclient *old = claimed(state);
    lclient *c = xcalloc(1, sizeof *c);

    lc_init(c, &w->g, &w->c.as);
    memcpy(c->secret, old->secret, sizeof c->secret);
    assert_true(lc_dial(c));
    until_ended(old);
    assert_string_equal(run(c, NULL, 0, "echo new"), "new\n");
    lc_free(c);
    free(c);
}

/* ---- stdin ---- */

/* A new connection, up to its word about stdin; false if that was cut, too. */
static bool feed_begin(lclient *c, lproc *p)
{
    assert_true(lc_dial(c));
    p->taken = UINT64_MAX - 1; /* until it is told */
    while (p->taken == UINT64_MAX - 1 && lc_pump(c, 1000))
        continue;
    return c->open;
}

/* As bothyd does: within the credit, from what was taken after each cut. */
static void feed(lclient *c, lproc *p, const char *bytes, size_t n)
{
    uint64_t sent = p->taken, end = now_mono_ns() + 20 * NS_PER_S;
    bool eof = false;

    while (!p->exited) {
        assert_true(now_mono_ns() < end);
        if (!c->open) {
            if (!feed_begin(c, p))
                continue;
            sent = p->taken;
            eof = false;
        }
        uint64_t limit = p->in_limit < n ? p->in_limit : n;
        while (p->answered && sent < limit) {
            size_t k = limit - sent < 5000 ? (size_t)(limit - sent) : 5000;
            lc_stdin(c, p, sent, bytes + sent, k, false);
            sent += k;
        }
        if (p->answered && sent == n && !eof) {
            lc_stdin(c, p, n, NULL, 0, true);
            eof = true;
        }
        lc_pump(c, 100);
    }
}

static void fill(char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)('a' + i * 7 % 26);
}

static void stdin_arrives_whole(void **state)
{
    lclient *c = claimed(state);
    size_t n = 700000;
    CLEANUP(freep) char *bytes = xmalloc(n);

    fill(bytes, n);
    lproc *p = lc_sh(c, NULL, 0, "sleep 0.2; cat");
    feed(c, p, bytes, n);
    assert_int_equal(p->out[0].len, n);
    assert_memory_equal(p->out[0].p, bytes, n);
    assert_int_equal(p->taken, n);
}

static void stdin_survives_cuts(void **state)
{
    lclient *c = claimed(state);
    size_t n = 400000;
    CLEANUP(freep) char *bytes = xmalloc(n);

    fill(bytes, n);
    srandom(12);
    for (int i = 0; i < 5; i++) {
        lproc *p = lc_sh(c, NULL, 0, "cat");
        lc_until_started(c, p);
        c->cut_after = 20000;
        unsigned cuts = c->cuts;
        while (!p->exited && c->cuts < cuts + 8) {
            if (c->cut_after < 0)
                c->cut_after = random() % 90000;
            feed(c, p, bytes, n);
        }
        c->cut_after = -1;
        if (!p->exited)
            feed(c, p, bytes, n);
        assert_int_equal(p->out[0].len, n);
        assert_memory_equal(p->out[0].p, bytes, n);
    }
    assert_true(c->cuts >= 5);
}

/* Sends to a command that reads nothing until no more than `left` bytes of credit are; what was
 * sent. */
static uint64_t fill_stdin(lclient *c, lproc *p, const char *bytes, uint64_t left)
{
    uint64_t sent = 0;

    for (int quiet = 0; quiet < 5;) {
        uint64_t before = sent, limit = p->in_limit - left;
        while (sent < limit) {
            size_t n = 4096 < limit - sent ? 4096 : (size_t)(limit - sent);
            lc_stdin(c, p, sent, bytes + sent, n, false);
            sent += n;
        }
        settle(c, 40);
        quiet = sent == before ? quiet + 1 : 0;
    }
    return sent;
}

static void stdin_beyond_the_credit_ends_the_connection(void **state)
{
    lclient *c = claimed(state);
    lproc *p = lc_sh(c, NULL, 0, "sleep 100");
    static char bytes[400000];

    lc_until_started(c, p);
    uint64_t sent = fill_stdin(c, p, bytes, 0);
    assert_true(c->open);
    assert_int_equal(sent, p->taken + SPL_STDIN_KEPT);
    lc_stdin(c, p, sent, bytes, 1, false); /* one too many */
    until_ended(c);
    assert_true(lc_dial(c));
    lc_stdin(c, p, sent + 1, bytes, 1, false); /* a gap */
    until_ended(c);
}

/* What init holds for a command that does not read is sent again after a cut, and dropped. */
static void stdin_that_waits_is_not_written_twice(void **state)
{
    lclient *c = claimed(state);
    size_t n = 300000;
    CLEANUP(freep) char *bytes = xmalloc(n);
    lproc *p = lc_sh(c, NULL, 0, "while [ ! -e /tmp/go ]; do sleep 0.05; done; cat");

    fill(bytes, n);
    lc_until_started(c, p);
    uint64_t sent = fill_stdin(c, p, bytes, 1000);
    assert_true(sent > p->taken && sent < n);
    lc_cut(c);
    feed_begin(c, p);
    run(c, NULL, 0, "touch /tmp/go");
    feed(c, p, bytes, n);
    assert_int_equal(p->out[0].len, n);
    assert_memory_equal(p->out[0].p, bytes, n);
}

/* 70 commands that read nothing: windows are promised only as far as there is memory. */
static void stdin_is_bounded_in_sum(void **state)
{
    lclient *c = claimed(state);
    static char bytes[SPL_STDIN_KEPT];
    uint64_t large = 0;

    for (size_t i = 0; i < 75; i++)
        lc_sh(c, NULL, 0, "head -c 10 >/dev/null; sleep 100");
    for (size_t i = 0; i < 75; i++) {
        lc_until_started(c, &c->procs[i]);
        lc_stdin(c, &c->procs[i], 0, bytes, 4000, false);
    }
    uint64_t end = now_mono_ns() + 20 * NS_PER_S;
    for (size_t i = 0; i < 75; i++)
        while (c->procs[i].taken != 4000 && now_mono_ns() < end)
            assert_true(lc_pump(c, 100));
    settle(c, 1000);
    for (size_t i = 0; i < 75; i++) {
        lproc *p = &c->procs[i];
        assert_int_equal(p->taken, 4000);
        assert_true(p->in_limit == 4000 + SPL_STDIN_KEPT || p->in_limit == 4000 + SPL_STDIN_CREDIT);
        large += p->in_limit == 4000 + SPL_STDIN_KEPT;
        for (uint64_t at = 4000; at < p->in_limit; at += 4096)
            lc_stdin(c, p, at, bytes, 4096 < p->in_limit - at ? 4096 : p->in_limit - at, false);
    }
    assert_in_range(large, 60, 70);
    assert_string_equal(run(c, NULL, 0, "echo lives"), "lives\n");
}

static void nobody_reads_stdin_any_more(void **state)
{
    lclient *c = claimed(state);
    lproc *p = lc_sh(c, NULL, 0, "exec <&-; sleep 0.1; echo closed; sleep 100");

    lc_until_text(c, p, "closed");
    lc_stdin(c, p, 0, "x", 1, false);
    while (p->taken != UINT64_MAX)
        assert_true(lc_pump(c, 1000));
}

/* ---- terminals ---- */

static void terminals_work(void **state)
{
    lclient *c = claimed(state);
    char *argv[] = {"sh", "-c", "stty size; read a; stty size; echo got $a $TERM; tty", NULL};
    lproc *p = lc_spawn(
        c, &(spine_spawn){
               .flags = SP_F_PTY, .umask = SP_UMASK_CLAIM, .rows = 24, .cols = 80, .argv = argv});

    lc_until_text(c, p, "24 80");
    struct sps_data size = {{SPS_RESIZE, 0, p->id}, 50, 132, 0};
    lc_send(c, &size, sizeof size, NULL, 0);
    lc_stdin(c, p, 0, "hello\n", 6, false);
    lc_until_exit(c, p);
    assert_non_null(strstr(text(p, 1), "50 132"));
    assert_non_null(strstr(text(p, 1), "got hello xterm"));
    assert_non_null(strstr(text(p, 1), "/dev/pts/"));
    lproc *q = lc_sh(c, geteuid() ? NULL : "app", SP_F_PTY, "cat; echo over; seq 1 20000");
    lc_stdin(c, q, 0, "line\n", 5, true);
    lc_until_exit(c, q);
    assert_int_equal(q->rec.status, 0);
    const char *over = strstr(text(q, 1), "over\r\n");
    assert_non_null(over);
    assert_int_equal(strlen(over), 6 + 108894 + 20000); /* every line has a CR more */
}

/* ---- signals ---- */

static void signals_reach_whom_they_should(void **state)
{
    lclient *c = claimed(state);
    lproc *p =
        lc_sh(c, NULL, SP_F_NOSTDIN, "trap 'echo caught; exit 3' TERM; echo up; sleep 100 & wait");
    lproc *q = lc_sh(c, NULL, SP_F_NOSTDIN, "echo up; setsid sleep 100 & sleep 100");

    lc_until_text(c, p, "up");
    lc_until_text(c, q, "up");
    assert_int_equal(lc_signal(c, p->id, SIGTERM, SP_TO_PROC), 0);
    lc_until_exit(c, p);
    assert_string_equal(text(p, 1), "up\ncaught\n");
    assert_int_equal(WEXITSTATUS(p->rec.status), 3);
    assert_int_equal(lc_signal(c, q->id, SIGKILL, SP_TO_TREE), 0);
    lc_until_exit(c, q);
    assert_int_equal(WTERMSIG(q->rec.status), SIGKILL);
    assert_int_equal(lc_signal(c, q->id, SIGKILL, SP_TO_PROC), ESRCH);
}

static void everybody_is_killed_but_who_carries_the_answer(void **state)
{
    lclient *c = claimed(state);
    lproc *p[10];

    for (size_t i = 0; i < 10; i++)
        p[i] = lc_sh(c, NULL, SP_F_NOSTDIN,
                     "echo up; while :; do setsid sh -c 'sleep 30' & sleep 0.01; done");
    for (size_t i = 0; i < 10; i++)
        lc_until_text(c, p[i], "up");
    int fd = c->fd;
    assert_int_equal(lc_signal(c, 0, SIGTERM, SP_TO_ALL), 0);
    int killed = lc_signal(c, 0, SIGKILL, SP_TO_ALL);
    assert_true(!killed || killed == ESRCH); /* the first one may have left nobody */
    for (size_t i = 0; i < 10; i++)
        lc_until_exit(c, p[i]);
    assert_int_equal(c->fd, fd); /* one connection all the time */
    /* What was killed takes a moment to be gone. */
    assert_string_equal(run(c, NULL, 0,
                            "i=0; while [ $i -lt 200 ] && pgrep -c sleep >/dev/null; do "
                            "i=$((i+1)); sleep 0.05; done; pgrep -c sleep"),
                        "0\n");
}

/* ---- who is not bothyd ---- */

/* Straight to a connection of the tenant's own, through its own attach process. */
static size_t speak(lproc *p, lclient *c, const void *bytes, size_t n)
{
    size_t before = p->out[0].len;

    lc_stdin(c, p, p->taken, bytes, n, false);
    uint64_t end = now_mono_ns() + 5 * NS_PER_S;
    while (p->out[0].len == before && !p->exited && now_mono_ns() < end)
        lc_pump(c, 100);
    return p->out[0].len - before;
}

static void a_tenant_proves_nothing(void **state)
{
    lclient *c = claimed(state);
    char *argv[] = {"/init", "attach", NULL};
    spine_spawn s = {.umask = SP_UMASK_CLAIM, .argv = argv};
    union {
        struct spl_greeting g;
        uint8_t b[256];
    } in;

    for (int kind = 0; kind < 4; kind++) {
        lproc *p = lc_spawn(c, &s);
        lc_until_bytes(c, p, 1, 8 + sizeof(struct spl_greeting));
        memcpy(&in, p->out[0].p + 8, sizeof in.g);
        assert_int_equal(in.g.h.type, SPS_GREETING);
        assert_int_equal(in.g.state, SPL_OWNED);
        struct spl_attach a = {.h.type = SPS_ATTACH, .version = SPL_VERSION, .state = SPL_OWNED};
        uint32_t head[2] = {sizeof a, 0};
        if (kind == 1)
            a.state = SPL_FRESH;
        if (kind == 2)
            a.version = 9;
        if (kind == 3) {
            struct sp_op kill_all = spine_signal(0, SIGKILL, SP_TO_ALL, 0, 0);
            memcpy(&a, &kill_all, sizeof kill_all);
            head[0] = sizeof kill_all;
        }
        uint8_t out[sizeof head + sizeof a];
        memcpy(out, head, sizeof head);
        memcpy(out + sizeof head, &a, sizeof a);
        size_t n = speak(p, c, out, sizeof head + head[0]);
        if (kind < 3) {
            static const int errs[] = {EACCES, EALREADY, EPROTONOSUPPORT};
            struct sp_hdr h;
            assert_int_equal(n, 8 + sizeof h);
            memcpy(&h, p->out[0].p + p->out[0].len - sizeof h, sizeof h);
            assert_int_equal(h.type, SPS_REFUSED);
            assert_int_equal(h.err, errs[kind]);
        }
        lc_until_exit(c, p);
    }
    assert_string_equal(run(c, NULL, 0, "echo lives"), "lives\n");
}

static void a_flood_of_connections_keeps_nobody_out(void **state)
{
    lclient *c = claimed(state);
    lproc *p[24];
    char *argv[] = {"/init", "attach", NULL};

    for (size_t i = 0; i < 24; i++)
        p[i] = lc_spawn(c, &(spine_spawn){.umask = SP_UMASK_CLAIM, .argv = argv});
    size_t greeted = 0;
    for (size_t i = 0; i < 24; i++)
        lc_until_started(c, p[i]);
    for (int k = 0; k < 20 && greeted < SPL_UNPROVED_MAX; k++) { /* a busy machine connects later */
        settle(c, 1000);
        greeted = 0;
        for (size_t i = 0; i < 24; i++)
            greeted += p[i]->out[0].len > 0;
    }
    assert_int_equal(greeted, SPL_UNPROVED_MAX);
    for (int i = 0; i < 3; i++)
        assert_true(lc_dial(c)); /* at the first try */
    assert_string_equal(run(c, NULL, 0, "echo lives"), "lives\n");
}

static void a_wrong_secret_is_refused(void **state)
{
    world *w = here(state);
    lclient *c = claimed(state);
    lclient *other = xcalloc(1, sizeof *other);

    lc_init(other, &w->g, &w->c.as);
    assert_false(lc_dial(other));
    assert_int_equal(other->refused, EACCES);
    assert_string_equal(run(c, NULL, 0, "echo lives"), "lives\n");
    lc_free(other);
    free(other);
}

static void a_forged_message_ends_the_connection_and_does_nothing(void **state)
{
    lclient *c = claimed(state);
    struct sp_op kill_all = spine_signal(0, SIGKILL, SP_TO_ALL, 0, 0);
    lproc *p = lc_sh(c, NULL, SP_F_NOSTDIN, "echo up; sleep 1; echo survived");

    lc_until_text(c, p, "up");
    c->end.out.key[0] ^= 1;
    lc_send(c, &kill_all, sizeof kill_all, NULL, 0);
    until_ended(c);
    lc_until_exit(c, p);
    assert_string_equal(text(p, 1), "up\nsurvived\n");
}

static void what_is_inits_stays_inits(void **state)
{
    lclient *c = claimed(state);
    const char *script = "for f in mem environ maps; do head -c 1 /proc/$0/$f 2>/dev/null; done; "
                         "for f in /proc/$0/fd/*; do readlink $f; done; "
                         "readlink /proc/$0/exe /proc/$0/ns/pid; echo end";
    CLEANUP(freep)
    char *of_init = str_printf("set -- 1; sh -c '%s' 1; sh -c '%s' $(pgrep -f '^/init attach')",
                               script, script);

    if (geteuid())
        skip(); /* in a user namespace of ours the guest has more rights than Docker gives */
    assert_string_equal(run(c, NULL, 0, of_init), "end\nend\n");
}

/* ---- the engine's signals ---- */

static bool ends_within(guest *g, unsigned ms)
{
    for (unsigned i = 0; i < ms / 10; i++) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG); /* attach processes first */
        if (pid == g->pid) {
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM);
            g->pid = 0;
            return true;
        }
        usleep(10000);
    }
    return false;
}

static void term_ends_it_before_a_claim(void **state)
{
    world *w = here(state);

    dial(&w->c); /* it listens, so it is past the place where a signal is lost */
    kill(w->g.pid, SIGTERM);
    assert_true(ends_within(&w->g, 3000));
}

static void term_ends_it_and_all_after_a_claim(void **state)
{
    world *w = here(state);
    lclient *c = claimed(state);
    lproc *p = lc_sh(c, NULL, SP_F_NOSTDIN, "trap '' TERM; echo up; sleep 100");

    lc_until_text(c, p, "up");
    kill(w->g.pid, SIGTERM);
    assert_true(ends_within(&w->g, 3000));
    w->c.nprocs = 0;
}

static void a_tenant_cannot_end_it(void **state)
{
    world *w = here(state);
    lclient *c = claimed(state);

    assert_string_equal(
        run(c, NULL, 0,
            "for s in TERM INT QUIT HUP USR1 USR2 PWR WINCH SEGV KILL STOP; do kill -$s 1; done; "
            "sleep 0.2; echo lives"),
        "lives\n");
    assert_false(ends_within(&w->g, 100));
}

/* ---- not root ---- */

static void anybody_may_be_pid_1(void **state)
{
    static guest_serve as = {.uid = 4321, .gid = 4322, .env = image_env};
    (void)here(state);
    world *w = NULL;

    if (geteuid())
        skip(); /* needs more ids than one */
    world_make_as((void **)&w, &as);
    lclient *c = &w->c;
    dial(c);
    assert_int_equal(lc_claim(c, &(spine_claim){.umask = 022}), 0);
    assert_string_equal(run(c, NULL, 0,
                            "id -u; id -g; echo $FROM_IMAGE; grep CapEff "
                            "/proc/self/status"),
                        "4321\n4322\nyes\nCapEff:\t0000000000000000\n");
    assert_string_equal(run(c, "4321", 0, "id -u; id -g"), "4321\n4322\n");
    static const char *const others[] = {"0", "app", "1000", "4321:77"};
    for (size_t i = 0; i < 4; i++) {
        lproc *p = lc_sh(c, others[i], SP_F_NOSTDIN, "id");
        lc_until_exit(c, p);
        assert_int_equal(p->rec.state, SP_FAILED);
        assert_int_equal(p->rec.stage, SP_ST_USER);
        assert_int_equal(p->rec.status, EINVAL);
    }
    lproc *p = lc_sh(c, NULL, SP_F_PTY, "tty && echo yes");
    lc_until_exit(c, p);
    assert_non_null(strstr(text(p, 1), "yes"));
    assert_int_equal(lc_signal(c, 0, SIGKILL, SP_TO_ALL), ESRCH);
    assert_string_equal(run(c, NULL, 0,
                            "head -c 1 /proc/1/environ 2>/dev/null; cat /proc/1/maps "
                            "2>/dev/null | head -c 1; echo end"),
                        "end\n");
    assert_true(lc_dial(c));
    world_end((void **)&w);
}

int main(int argc, char **argv)
{
#define IN_WORLD(f) cmocka_unit_test_setup_teardown(f, world_make, world_end)
    const struct CMUnitTest tests[] = {
        IN_WORLD(claims_once),
        IN_WORLD(large_claims_and_commands_pass),
        IN_WORLD(environment_has_its_layers),
        IN_WORLD(commands_end_as_they_do),
        IN_WORLD(descriptors_are_refused),
        IN_WORLD(sixty_four_at_once),
        IN_WORLD(slow_readers_stop_only_themselves),
        IN_WORLD(ends_come_after_the_bytes_before_them),
        IN_WORLD(bytes_that_a_tenant_takes_back_keep_no_end),
        IN_WORLD(cut_anywhere_loses_nothing),
        IN_WORLD(kill_of_everybody_by_a_tenant_loses_nothing),
        IN_WORLD(a_stopped_attach_process_is_left_behind),
        IN_WORLD(the_newest_connection_is_the_one),
        IN_WORLD(stdin_arrives_whole),
        IN_WORLD(stdin_survives_cuts),
        IN_WORLD(stdin_beyond_the_credit_ends_the_connection),
        IN_WORLD(stdin_that_waits_is_not_written_twice),
        IN_WORLD(stdin_is_bounded_in_sum),
        IN_WORLD(nobody_reads_stdin_any_more),
        IN_WORLD(terminals_work),
        IN_WORLD(signals_reach_whom_they_should),
        IN_WORLD(everybody_is_killed_but_who_carries_the_answer),
        IN_WORLD(a_tenant_proves_nothing),
        IN_WORLD(a_flood_of_connections_keeps_nobody_out),
        IN_WORLD(a_wrong_secret_is_refused),
        IN_WORLD(a_forged_message_ends_the_connection_and_does_nothing),
        IN_WORLD(what_is_inits_stays_inits),
        IN_WORLD(term_ends_it_before_a_claim),
        IN_WORLD(term_ends_it_and_all_after_a_claim),
        IN_WORLD(a_tenant_cannot_end_it),
        IN_WORLD(anybody_may_be_pid_1),
    };

    if (argc < 2) {
        fprintf(stderr, "usage: %s bothy-init [TEST]\n", argv[0]);
        return 2;
    }
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    init_program = argv[1];
    prctl(PR_SET_CHILD_SUBREAPER, 1);        /* of attach processes, as an engine is */
    const char *cuts = getenv("BOTHY_CUTS"); /* NOLINT(concurrency-mt-unsafe): one thread */
    if (cuts)
        cuts_wanted = (unsigned)strtoul(cuts, NULL, 10);
    if (!guest_possible(&why_not))
        print_message("skipped: %s\n", why_not);
    else
        why_not = NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
