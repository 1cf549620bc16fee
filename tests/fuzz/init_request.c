/* Requests as pid 1 of a slot gets them, one after the other, and what its children make of them.
 * The first byte: which SPAWN is followed into its child (0: none). Then a word of /proc/PID/stat,
 * the listed pids, and records as init_kernel.h reads them. */
#include "init_kernel.h"

/* The table says the same thing in all its parts. */
static void check_table(void)
{
    uint32_t used = 0;

    MUST(g.top <= SP_MAX_EXEC && g.used <= g.top);
    for (uint32_t i = 0; i < SP_MAX_EXEC; i++) {
        const struct entry *e = &g.tab[i];
        used += e->used;
        MUST(!e->used || (i < g.top && e->r.id && e->r.id <= g.high));
        for (uint32_t k = 0; e->used && k < i; k++)
            MUST(!g.tab[k].used || g.tab[k].r.id != e->r.id);
        if (i > g.top)
            break;
    }
    MUST(used == g.used);
    if (g.claim.made)
        MUST(g.claim.user && g.claim.cwd && g.claim.end[-1] == 0 && g.claim.umask <= 0777);
}

static void serve(uint8_t follow)
{
    uint8_t spawns = 0;

    for (int i = 0; i < 64 && g.conn >= 0; i++) {
        uint64_t high = g.high;
        kernel.child = follow && spawns + 1 == follow;
        request_receive();
        spawns += g.high != high;
        MUST(g.high >= high); /* an id is never used twice */
        check_table();
    }
}

/* Until a child has ended; apart, because a jump keeps no variables of who calls setjmp. */
__attribute__((noinline)) static void run(uint8_t follow)
{
    if (!setjmp(kernel.over))
        serve(follow);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct note notes[SP_MAX_EXEC];
    static const char passwd[] = "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:\n";
    static const char group[] = "root:x:0:\nuser:x:1000:\nwheel:x:10:user\n";
    fuzz_in in = {data, size};
    size_t n = 0;

    kernel_reset();
    memset(&g, 0, sizeof g);
    g.notes = notes;
    g.conn = 3;
    g.procdir = 4;
    g.ptsdir = 5;
    uint8_t follow = fuzz_byte(&in);
    char *stat = fuzz_word(&in, 0);
    void *pids = fuzz_bytes(&in, 2 * (size_t)(fuzz_byte(&in) % 16), &n);
    kernel.stat = (fuzz_in){(uint8_t *)stat, strlen(stat)};
    kernel.pids = (fuzz_in){pids, n};
    kernel.passwd = (fuzz_in){(const uint8_t *)passwd, sizeof passwd - 1};
    kernel.group = (fuzz_in){(const uint8_t *)group, sizeof group - 1};
    kernel.records = in;
    /* A memfd's bytes are those behind the records' first 64. */
    kernel.payload = (const char *)in.p + (in.n > 64 ? 64 : in.n);
    kernel.npayload = in.n > 64 ? in.n - 64 : 0;
    run(follow);
    free(stat);
    free(pids);
    kernel_reset();
    return 0;
}
