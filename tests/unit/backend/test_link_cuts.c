/* The link against a model of init, with the stream cut at every message in turn: nothing is lost,
 * repeated or done twice. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "wire/spine_codec.h"

#include "../unit.h"
#include "link_keeper.h"
#include "link_peer.h"

#define ID        "testaaaaaaaaaaaaaaaa"
#define EXECS     2
#define OUT_BYTES 300000u /* more than a stream's credit */
#define IN_BYTES  70000u  /* more than init keeps */
#define PIECE     40000u

static char pattern_at(uint64_t exec, uint64_t i)
{
    return (char)(i * 7 + i / 251 + exec);
}

/* ---- init ---- */

typedef struct model_exec {
    uint64_t id;
    unsigned forks; /* how often SPAWN did something */
    bool flowing, ended_sent, exit_sent, acked;
    uint64_t received, sent, limit; /* of its output */
    buf in;
    bool in_eof;
} model_exec;

typedef struct model {
    peer_wire *wire;
    peer_init init;
    model_exec x[EXECS + 1]; /* by id */
    unsigned cut_at;         /* the stream ends behind this message of all, 0: never */
    unsigned messages;
    unsigned cuts, wrong;
    atomic_bool stop;
} model;

/* True: cut here. */
static bool counted(model *m)
{
    return ++m->messages == m->cut_at;
}

static bool put(model *m, peer_conn *c, const void *record, size_t n, const void *extra, size_t k)
{
    peer_put(c, record, n, extra, k);
    return !counted(m);
}

static bool put_data(model *m, peer_conn *c, uint32_t type, const model_exec *x, uint32_t a,
                     uint32_t b, uint64_t offset, const void *extra, size_t n)
{
    struct sps_data d = {{type, 0, x->id}, a, b, offset};

    return put(m, c, &d, sizeof d, extra, n);
}

static bool put_taken(model *m, peer_conn *c, const model_exec *x)
{
    return put_data(m, c, SPS_TAKEN, x, 0, SPL_STDIN_KEPT, x->in.len, NULL, 0);
}

static bool is_over(const model_exec *x)
{
    return x->in_eof && x->in.len == IN_BYTES;
}

/* What may flow now. False: the stream was cut. */
static bool flow(model *m, peer_conn *c, model_exec *x)
{
    static char piece[PIECE];

    while (x->flowing && x->sent < OUT_BYTES && x->sent < x->limit) {
        size_t n = OUT_BYTES - x->sent < PIECE ? OUT_BYTES - x->sent : PIECE;
        n = x->limit - x->sent < n ? x->limit - x->sent : n;
        for (size_t i = 0; i < n; i++)
            piece[i] = pattern_at(x->id, x->sent + i);
        uint64_t at = x->sent;
        x->sent += n;
        if (!put_data(m, c, SPS_STDIO, x, 1, 0, at, piece, n))
            return false;
    }
    if (x->flowing && x->sent == OUT_BYTES && !x->ended_sent) {
        x->ended_sent = true;
        if (!put_data(m, c, SPS_STDIO, x, 1, 0, OUT_BYTES, NULL, 0))
            return false;
    }
    if (!x->flowing || !x->ended_sent || x->exit_sent || !is_over(x))
        return true;
    struct sp_exit e = {.h = {SP_EXIT, 0, x->id},
                        .r = {.id = x->id, .state = SP_EXITED, .pid = 7, .status = 3 << 8}};
    x->exit_sent = true;
    return put(m, c, &e, sizeof e, NULL, 0);
}

static void begin_flow(model_exec *x)
{
    x->flowing = true;
    x->ended_sent = x->exit_sent = false;
    x->sent = x->received;
    if (x->limit < x->received + SPL_CREDIT)
        x->limit = x->received + SPL_CREDIT;
}

static bool answer_start(model *m, peer_conn *c, model_exec *x, uint32_t type)
{
    struct sp_started st = {.h = {type, 0, x->id}, .pid = 7, .start_real = 1};

    begin_flow(x);
    return put(m, c, &st, sizeof st, NULL, 0) && put_taken(m, c, x);
}

static void on_stdin(model *m, model_exec *x, const sps_message *msg)
{
    const struct sps_data *d = msg->record;
    const char *bytes = msg->extra;

    if (d->offset > x->in.len || d->offset + msg->nextra > x->in.len + SPL_STDIN_KEPT)
        m->wrong++; /* a gap, or beyond the credit */
    else if (d->offset + msg->nextra > x->in.len)
        buf_append(&x->in, bytes + (x->in.len - d->offset), d->offset + msg->nextra - x->in.len);
    x->in_eof |= d->a & SPS_STDIN_EOF;
}

static bool on_received(model_exec *x, const struct sps_data *d)
{
    if (d->a != 1)
        return true;
    if (x->received < d->offset)
        x->received = d->offset;
    if (x->limit < d->offset + d->b)
        x->limit = d->offset + d->b;
    return d->offset <= OUT_BYTES;
}

/* False: cut. */
static bool serve_one(model *m, peer_conn *c, const sps_message *msg)
{
    const struct sp_hdr *h = msg->record;
    model_exec *x = h->id >= 1 && h->id <= EXECS ? &m->x[h->id] : NULL;

    if (counted(m))
        return false;
    switch (msg->type) {
    case SP_CLAIM:
        peer_take_claim(c, &m->init, msg);
        return !counted(m);
    case SP_SPAWN:
        x->id = h->id;
        if (h->id > m->init.high) {
            m->init.high = h->id;
            x->forks++;
        }
        return answer_start(m, c, x, SP_STARTED);
    case SP_FETCH:
        return answer_start(m, c, x, SP_FDS);
    case SP_ACK:
        x->acked = true;
        return true;
    case SPS_RECEIVED:
        m->wrong += !on_received(x, msg->record);
        return flow(m, c, x);
    case SPS_STDIN:
        on_stdin(m, x, msg);
        return put_taken(m, c, x) && flow(m, c, x);
    case SPS_PING: {
        struct sps_data d = *(const struct sps_data *)msg->record;
        d.h.type = SPS_PONG;
        return put(m, c, &d, sizeof d, NULL, 0);
    }
    default:
        m->wrong++;
        return false;
    }
}

static void list_execs(model *m)
{
    m->init.nrecs = 0;
    for (uint64_t id = 1; id <= m->init.high; id++)
        if (!m->x[id].acked) {
            bool over = is_over(&m->x[id]);
            m->init.recs[m->init.nrecs++] =
                (struct sp_rec){.id = id, .state = over ? SP_EXITED : SP_LIVE, .pid = 7};
        }
}

/* From GREETING to the end of one stream. */
static void serve_stream(model *m, peer_conn *c)
{
    sps_message msg;
    bool whole;

    for (int i = 1; i <= EXECS; i++) {
        m->x[i].flowing = false;
        m->x[i].limit = 0;
    }
    list_execs(m);
    peer_greet(c, &m->init);
    if (counted(m) || !peer_admit(c, &m->init) || counted(m))
        return;
    peer_hello(c, &m->init);
    whole = !counted(m);
    while (whole && !m->stop) {
        int type = peer_next(c, &msg, 5);
        if (type < 0)
            return;
        for (int i = 1; i <= EXECS && whole && !type; i++)
            whole = flow(m, c, &m->x[i]);
        if (type > 0)
            whole = serve_one(m, c, &msg);
    }
}

static void *model_run(void *arg)
{
    model *m = arg;

    while (!m->stop) {
        peer_conn c;
        if (!peer_open(m->wire, &c, 20))
            continue;
        serve_stream(m, &c);
        m->cuts += !m->stop;
        peer_close(&c);
    }
    return NULL;
}

static void check_bytes(const buf *b, uint64_t seed, size_t n)
{
    assert_int_equal(b->len, n);
    for (size_t i = 0; i < n; i++)
        if (b->p[i] != pattern_at(seed, i))
            fail_msg("byte %zu is wrong", i);
}

static void check_exec(const model *m, const keeper *k, uint64_t id)
{
    assert_int_equal(m->x[id].forks, 1);
    assert_true(k->s.x[id].starts >= 1);
    check_bytes(&k->s.x[id].out[0], id, OUT_BYTES);
    assert_true(k->s.x[id].eof[0]);
    assert_int_equal(k->s.x[id].rec.status, 3 << 8);
    check_bytes(&m->x[id].in, id + 100, IN_BYTES);
}

static void live(keeper *k, link_host *host)
{
    static const link_warm_events none = {0};
    static sandbox_spec spec;
    static char *argv[] = {"/bin/model", NULL};
    link_container c = {.handle = "model", .nonce = {4}};
    exec_spec s = {.argv = argv, .exec_fd = -1, .stdin_open = true};
    box_spec b = {.spec = &spec};
    link_warm *w;

    strcpy(b.id, ID);
    assert_ok(link_warm_new(host, &c, &none, NULL, &w));
    assert_ok(link_claim(w, &b, 10000, &KEEPER_BOX, k, keeper_claimed, k));
    assert_true(SEEN_WAIT(&k->s, k->s.done == 1));
    assert_null(k->s.failure);
    for (uint64_t id = 1; id <= EXECS; id++)
        assert_ok(link_exec(k->b, id, &s, -1));
    for (uint64_t id = 1; id <= EXECS; id++) {
        assert_true(SEEN_WAIT(&k->s, k->s.x[id].exits >= 1));
        link_ack(k->b, id, 15);
    }
}

/* How many messages it took. */
static unsigned run_with_cut(unsigned cut_at)
{
    static const link_options base = {.name = "test",
                                      .dial = peer_dial,
                                      .condemned = peer_condemned,
                                      .key = {1},
                                      .ping_ms = 1000,
                                      .pong_ms = 2000};
    static char in[EXECS + 1][IN_BYTES];
    peer_wire wire;
    model m = {.wire = &wire, .cut_at = cut_at, .init.instance = 5};
    CLEANUP(freep) keeper *k = xcalloc(1, sizeof *k);
    link_options o = base;
    link_host *host;

    peer_wire_init(&wire);
    keeper_init(k);
    for (uint64_t id = 1; id <= EXECS; id++) {
        for (size_t i = 0; i < IN_BYTES; i++)
            in[id][i] = pattern_at(id + 100, i);
        k->in[id].bytes = in[id];
        k->in[id].n = IN_BYTES;
    }
    o.arg = &wire;
    assert_ok(link_host_new(&o, &host));
    pthread_t t = thread_start("model", model_run, &m);
    live(k, host);
    m.stop = true;
    pthread_join(t, NULL);
    assert_int_equal(m.init.claims, 1);
    assert_int_equal(m.wrong, 0);
    assert_true(m.cuts <= (cut_at != 0)); /* none but the one that was meant */
    for (uint64_t id = 1; id <= EXECS; id++)
        check_exec(&m, k, id);
    assert_int_equal(k->s.done, 1);
    assert_int_equal(k->s.gone, 0);
    assert_int_equal(wire.condemned, 0);
    link_box_unref(k->b);
    link_host_free(host);
    peer_wire_done(&wire);
    keeper_done(k);
    for (int i = 0; i <= EXECS; i++)
        buf_done(&m.x[i].in);
    return m.messages;
}

static void nothing_is_lost_wherever_it_is_cut(void **state)
{
    unsigned n = run_with_cut(0), runs = 0;

    (void)state;
    for (unsigned cut = 1; cut <= n; cut++, runs++)
        run_with_cut(cut);
    print_message("%u messages, cut at each: %u runs\n", n, runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost_wherever_it_is_cut)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
