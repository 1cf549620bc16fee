/* Runs a fuzz target over every file of its corpus directory. Fails when there is none: a target
 * without seeds has not been thought about. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    DIR *d = opendir(argv[1]);
    int n = 0;
    if (!d) {
        fprintf(stderr, "no corpus at %s\n", argv[1]);
        return 1;
    }
    struct dirent *e;
    while ((e = readdir(d))) {
        CLEANUP(buf_done) buf b = {0};
        if (e->d_name[0] == '.')
            continue;
        err *bad = fs_read(dirfd(d), e->d_name, 64 << 20, &b);
        if (bad) {
            fprintf(stderr, "%s: %s\n", e->d_name, bad->message);
            return 1;
        }
        LLVMFuzzerTestOneInput((const uint8_t *)b.p, b.len);
        n++;
    }
    closedir(d);
    printf("%d inputs replayed\n", n);
    return n ? 0 : 1;
}
