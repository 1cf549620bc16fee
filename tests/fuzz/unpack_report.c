/* The unpacker's report, as the warden reads it: whatever it accepts are paths that stay inside. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "warden/meta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *path)
{
    if (*path == '/' || str_eq(path, "..") || str_starts(path, "../") || strstr(path, "/../") ||
        str_ends(path, "/.."))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(freep) char *text = xstrndup((const char *)data, size);
    CLEANUP(meta_done) meta m = {0};

    err_free(meta_parse(text, size, &m));
    for (char **p = m.implicit; p && *p; p++)
        check_path(*p);
    for (char **p = m.whiteout_dirs; p && *p; p++)
        check_path(*p);
    return 0;
}
