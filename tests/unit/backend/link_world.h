/* A host, a wire and an init that follows the test's script, message by message. */
#pragma once

#include "wire/spine_codec.h"

#include "../unit.h"
#include "link_peer.h"
#include "link_seen.h"

#define ID      "testaaaaaaaaaaaaaaaa"
#define OTHER   "testbbbbbbbbbbbbbbbb"
#define HANDLE  "container-1"
#define KIT     "/.bothy/bothy-kit"
#define PING_MS 500
#define PONG_MS 1000 /* a busy machine answers late, but not so late */

typedef struct world {
    peer_wire wire;
    peer_init init;
    peer_conn conn;
    seen s;
    link_host *host;
    link_warm *warm;
    box *box;
    sandbox_spec spec;
} world;

static const link_container CONTAINER = {.handle = HANDLE, .nonce = {1, 2, 3}};

static inline link_options options(world *w)
{
    return (link_options){.name = "test",
                          .dial = peer_dial,
                          .condemned = peer_condemned,
                          .arg = &w->wire,
                          .key = {9, 8, 7},
                          .kit = KIT,
                          .dialers = 2,
                          .ping_ms = 60000,
                          .pong_ms = 60000,
                          .away_ms = 300};
}

static inline int setup(void **state)
{
    world *w = xcalloc(1, sizeof *w);
    link_options o = options(w);

    peer_wire_init(&w->wire);
    seen_init(&w->s);
    w->init.instance = 77;
    w->conn.fd = -1;
    assert_ok(link_host_new(&o, &w->host));
    *state = w;
    return 0;
}

/* A host with another temper. */
static inline void with_beats(world *w)
{
    link_options o = options(w);

    o.ping_ms = PING_MS;
    o.pong_ms = PONG_MS;
    link_host_free(w->host);
    assert_ok(link_host_new(&o, &w->host));
}

static inline int teardown(void **state)
{
    world *w = *state;

    if (w->box)
        link_box_unref(w->box);
    link_warm_drop(w->warm);
    link_host_free(w->host);
    peer_close(&w->conn);
    peer_wire_done(&w->wire);
    seen_done(&w->s);
    free(w);
    return 0;
}

/* ---- steps ---- */

static inline void warm_up(world *w)
{
    assert_ok(link_warm_new(w->host, &CONTAINER, &SEEN_WARM, &w->s, &w->warm));
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
    assert_true(SEEN_WAIT(&w->s, w->s.ready == 1));
}

static inline void ask_claim(world *w, unsigned timeout_ms)
{
    static char *env[] = {"A=1", "SECRET=x", NULL};
    box_spec b = {.spec = &w->spec, .env = env, .user = "", .cwd = "/", .umask = 022};

    strcpy(b.id, ID);
    assert_ok(link_claim(TAKE_PTR(w->warm), &b, timeout_ms, &SEEN_BOX, &w->s, seen_claimed, &w->s));
}

static inline int next(world *w, sps_message *m)
{
    return peer_next(&w->conn, m, 5000);
}

static inline void expect(world *w, int type, sps_message *m)
{
    assert_int_equal(next(w, m), type);
}

static inline void take_made(world *w)
{
    assert_true(SEEN_WAIT(&w->s, w->s.done == 1));
    assert_null(w->s.failure);
    w->box = w->s.made;
    assert_true(SEEN_WAIT(&w->s, w->s.attached == 1));
}

static inline void claim(world *w)
{
    sps_message m;

    warm_up(w);
    ask_claim(w, 5000);
    expect(w, SP_CLAIM, &m);
    peer_take_claim(&w->conn, &w->init, &m);
    take_made(w);
}

static inline void reattach(world *w)
{
    peer_close(&w->conn);
    assert_true(peer_attach(&w->wire, &w->conn, &w->init));
}

static inline exec_spec command(char **argv)
{
    return (exec_spec){.argv = argv, .exec_fd = -1};
}

static inline void run(world *w, uint64_t id, bool stdin_open)
{
    static char *argv[] = {"/bin/true", NULL};
    exec_spec s = command(argv);

    s.stdin_open = stdin_open;
    assert_ok(link_exec(w->box, id, &s, -1));
}

static inline void put_data(world *w, uint32_t type, uint64_t id, uint32_t a, uint32_t b,
                            uint64_t offset, const char *bytes)
{
    struct sps_data d = {{type, 0, id}, a, b, offset};

    peer_put(&w->conn, &d, sizeof d, bytes, bytes ? strlen(bytes) : 0);
}

static inline uint64_t id_of(const sps_message *m)
{
    return ((const struct sp_hdr *)m->record)->id;
}

static inline void expect_silence(world *w)
{
    sps_message m;

    assert_int_equal(peer_next(&w->conn, &m, 100), 0);
}

#define LINK_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
