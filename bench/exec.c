/* bench-client exec SOCKET SANDBOX WARDEN DIGEST N [-- NAME plain COMMAND...]...
 *
 * Each round one command that does nothing: in a live sandbox over HTTP (bothy), in a live slot by
 * records (spine), on the host (spawn), and by every NAME in a container of its own. */
#include <stdio.h>

#include "base/id.h"

#include "bench.h"

static char *TRUE_ARGV[] = {"true", NULL};
static char *HOST_ARGV[] = {"/bin/true", NULL};

static void sample_bothy(conn *c, const char *path)
{
    uint64_t begun = now_mono_ns();
    ask(c, "POST", path, "{\"argv\":[\"true\"]}");
    note("bothy", now_mono_ns() - begun);
    check_exit(c);
}

static void sample_spine(int slot, unsigned round)
{
    uint64_t begun = now_mono_ns();
    slot_run(slot, round + 1, TRUE_ARGV);
    note("spine", now_mono_ns() - begun);
}

int bench_exec(int argc, char **argv)
{
    static conn c;
    rival rivals[RIVALS_MAX];
    uint8_t digest[32];
    char path[128], id[SANDBOX_ID_LEN + 1];

    if (argc < 6)
        return 2;
    digest_read(argv[4], digest);
    unsigned rounds = number(argv[5]);
    size_t n = rivals_read(argv + 6, rivals);
    snprintf(path, sizeof path, "/v1/sandboxes/%s/exec", argv[2]);
    conn_open(&c, argv[1]);
    warden_open(argv[3]);
    id_sandbox("spin", id);
    int slot = slot_claim(id, digest);
    settle(true);
    for (unsigned i = 0; i < rounds; i++) {
        settle(false);
        sample_bothy(&c, path);
        settle(false);
        sample_spine(slot, i);
        settle(false);
        note("spawn", run_timed(HOST_ARGV, i, -1));
        for (size_t k = 0; k < n; k++) {
            settle(false);
            rival_sample(&rivals[k], i);
        }
    }
    slot_destroy(id, slot);
    settle_report();
    return 0;
}
