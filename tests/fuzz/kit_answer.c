/* What the kit says without records: how a connection went, and what a cgroup has counted. The kit
 * may be a tenant's: of any bytes either nothing is taken, or numbers within their bounds. */
#include "wire/kit.h"

#include "fuzz.h"

static void run_dialled(const void *p, size_t n)
{
    int errnum = -1;

    if (!kit_dialled_read(p, n, &errnum)) {
        MUST(errnum == -1);
        return;
    }
    MUST(n == sizeof(struct kit_dialled) && errnum >= 0 && errnum < 4096);
}

static void run_usage(const void *p, size_t n)
{
    struct kit_usage u = {0};

    if (!kit_usage_read(p, n, &u)) {
        MUST(!u.magic);
        return;
    }
    const uint64_t *v = &u.cpu_us;
    for (; v <= &u.net_dropped; v++)
        MUST(*v <= KIT_USAGE_MAX);
    MUST(n == sizeof u && !memcmp(&u, p, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    size_t n;
    char *p = fuzz_bytes(&in, size, &n);

    run_dialled(p, n);
    run_usage(p, n);
    free(p);
    return 0;
}
