/* Whole requests, bodies included: what is understood must not depend on how the bytes are cut. The
 * first byte chooses the cuts. */
#include <stdint.h>
#include <stdlib.h>

#include "../unit/wire/http1_drive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const char *in = (const char *)data + 1;
    CLEANUP(freep) char *whole = drive_run(in, size - 1, size - 1, 0);
    CLEANUP(freep) char *pieces = drive_run(in, size - 1, data[0] ? 0 : 1, data[0]);
    /* A bad body may be noticed before or after some of its bytes were passed on. */
    if (!strstr(whole, "bad: ") && strcmp(whole, pieces))
        abort();
    if (!strstr(whole, "bad: ") != !strstr(pieces, "bad: "))
        abort();
    return 0;
}
