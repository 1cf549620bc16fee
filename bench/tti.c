/* bench-client tti SOCKET WARDEN IMAGE DIGEST N [-- NAME root MERGED SCRATCH LOWER UID COMMAND...]
 *                                               [-- NAME plain COMMAND...]
 *
 * Each round: bothy (a create and its first result over HTTP), spine (the same by frames), then
 * every NAME: COMMAND spawned and waited for, for `root` with the overlay's mount before and its
 * umount after it. Before each sample the pool is full and the machine at rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"

#include "bench.h"

static char *TRUE_ARGV[] = {"true", NULL};

static void sample_bothy(conn *c, const char *image)
{
    static const char *const PHASES[] = {"queue", "build", "swap", "claim", "commit"};
    char text[512], path[128], id[64];
    uint64_t phase[ARRAY_LEN(PHASES)];

    snprintf(text, sizeof text, "{\"image\":\"%s\"}", image);
    uint64_t begun = now_mono_ns();
    ask(c, "POST", "/v1/sandboxes", text);
    uint64_t made = now_mono_ns();
    member(c, "id", id, sizeof id);
    for (size_t i = 0; i < ARRAY_LEN(PHASES); i++) {
        snprintf(text, sizeof text, "%s_ms", PHASES[i]);
        phase[i] = (uint64_t)(member_number(c, text) * 1e6);
    }
    snprintf(path, sizeof path, "/v1/sandboxes/%s/exec", id);
    ask(c, "POST", path, "{\"argv\":[\"true\"]}");
    uint64_t ended = now_mono_ns();
    check_exit(c);
    snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
    ask(c, "DELETE", path, "");
    note("delete", now_mono_ns() - ended);
    note("bothy", ended - begun);
    note("create", made - begun);
    note("first-exec", ended - made);
    for (size_t i = 0; i < ARRAY_LEN(PHASES); i++)
        note(PHASES[i], phase[i]);
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
        sample_spine(digest);
        for (size_t k = 0; k < n; k++) {
            settle(true);
            rival_sample(&rivals[k], i);
        }
    }
    settle_report();
    return 0;
}
