/* bench-client tti SOCKET WARDEN IMAGE DIGEST N [-- NAME root MERGED SCRATCH LOWER UID COMMAND...]
 *                                               [-- NAME plain COMMAND...]
 *
 * Each round: bothy (a create and its first result over HTTP), unexpected (the same with nothing
 * done ahead), spine (the same by frames), then every NAME: COMMAND spawned and waited for, for
 * `root` with the overlay's mount before and its umount after it. Before each sample the pool is
 * full and the machine at rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"

#include "bench.h"

static char *TRUE_ARGV[] = {"true", NULL};

static const char *const PHASES[] = {"queue", "build", "swap", "claim", "commit"};

typedef struct life {
    uint64_t begun, made, ended, deleted;
    uint64_t phase[ARRAY_LEN(PHASES)];
} life;

static life live_once(conn *c, const char *spec)
{
    char text[64], path[128], id[64];
    life l = {.begun = now_mono_ns()};

    ask(c, "POST", "/v1/sandboxes", spec);
    l.made = now_mono_ns();
    member(c, "id", id, sizeof id);
    for (size_t i = 0; i < ARRAY_LEN(PHASES); i++) {
        snprintf(text, sizeof text, "%s_ms", PHASES[i]);
        l.phase[i] = (uint64_t)(member_number(c, text) * 1e6);
    }
    snprintf(path, sizeof path, "/v1/sandboxes/%s/exec", id);
    ask(c, "POST", path, "{\"argv\":[\"true\"]}");
    l.ended = now_mono_ns();
    check_exit(c);
    snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
    ask(c, "DELETE", path, "");
    l.deleted = now_mono_ns();
    return l;
}

static void sample_bothy(conn *c, const char *image)
{
    char spec[512];

    snprintf(spec, sizeof spec, "{\"image\":\"%s\"}", image);
    life l = live_once(c, spec);
    note("delete", l.deleted - l.ended);
    note("bothy", l.ended - l.begun);
    note("create", l.made - l.begun);
    note("first-exec", l.ended - l.made);
    for (size_t i = 0; i < ARRAY_LEN(PHASES); i++)
        note(PHASES[i], l.phase[i]);
}

/* A grant that no root made ahead has: the slot's is dropped and another built during the claim. */
static void sample_unexpected(conn *c, const char *image)
{
    char spec[512];

    snprintf(spec, sizeof spec, "{\"image\":\"%s\",\"grants\":[\"setuid\"]}", image);
    life l = live_once(c, spec);
    note("unexpected", l.ended - l.begun);
}

static void sample_spine(const uint8_t image[32])
{
    char id[SANDBOX_ID_LEN + 1];

    id_sandbox("spin", id);
    uint64_t begun = now_mono_ns();
    int fd = slot_claim(id, image);
    slot_run(fd, 1, TRUE_ARGV);
    note("spine", now_mono_ns() - begun);
    slot_destroy(id, fd);
}

int bench_tti(int argc, char **argv)
{
    static conn c;
    rival rivals[RIVALS_MAX];
    uint8_t digest[32];

    if (argc < 6)
        return 2;
    digest_read(argv[4], digest);
    unsigned rounds = number(argv[5]);
    size_t n = rivals_read(argv + 6, rivals);
    warden_open(argv[2]);
    conn_open(&c, argv[1]);
    for (unsigned i = 0; i < rounds; i++) {
        settle(true);
        sample_bothy(&c, argv[3]);
        settle(true);
        sample_unexpected(&c, argv[3]);
        settle(true);
        sample_spine(digest);
        for (size_t k = 0; k < n; k++) {
            settle(true);
            rival_sample(&rivals[k], i);
        }
    }
    settle_report();
    return 0;
}
