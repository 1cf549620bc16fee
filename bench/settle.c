#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define POOL_S      120
#define QUIET_NS    NS_PER_S
#define LOOK_US     1000
#define QUIET_LOOKS 3

static unsigned settled, unsettled;

/* Between its watermarks a pool is left as it is: the low one is raised while it fills. */
static void fill_pool(void)
{
    uint64_t until = now_mono_ns() + POOL_S * NS_PER_S;
    pool_state p;

    warden_pool(&p);
    unsigned low = p.low;
    warden_watermarks(p.high, p.high);
    for (;;) {
        warden_pool(&p);
        if (p.ready >= p.high && !p.waiting && !p.dying) {
            warden_watermarks(low, p.high);
            return;
        }
        if (now_mono_ns() > until)
            fail("the pool is not full after %d s: %u of %u", POOL_S, p.ready, p.high);
        usleep(LOOK_US);
    }
}

/* Tasks that run or want to, but us. */
static unsigned others_running(void)
{
    char text[128];
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (n <= 0)
        die("/proc/loadavg");
    close(fd);
    text[n] = 0;
    const char *p = text;
    for (int i = 0; i < 3 && p; i++)
        p = strchr(p + 1, ' ');
    unsigned all = p ? (unsigned)strtoul(p, NULL, 10) : 0;
    return all ? all - 1 : 0;
}

void settle(bool pool)
{
    if (pool)
        fill_pool();
    uint64_t until = now_mono_ns() + QUIET_NS;
    for (int quiet = 0; quiet < QUIET_LOOKS;) {
        quiet = others_running() ? 0 : quiet + 1;
        if (now_mono_ns() > until) {
            unsettled++;
            return;
        }
        usleep(LOOK_US);
    }
    settled++;
}

void settle_report(void)
{
    fprintf(stderr, "samples that began on a quiet machine: %u of %u\n", settled,
            settled + unsettled);
}
