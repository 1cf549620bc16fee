/* A planted fault: it uses 2 MiB of stack, a quarter of what the first thread of a process has. The
 * test that replays it must fail. */
#include "fuzz.h"

#define DEEP 2048

__attribute__((noinline)) static unsigned deep_down(unsigned n)
{
    volatile char frame[1024];

    frame[n % sizeof frame] = (char)n;
    return n ? deep_down(n - 1) + (unsigned char)frame[n % sizeof frame] : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    MUST(deep_down(DEEP) != 1);
    return 0;
}
