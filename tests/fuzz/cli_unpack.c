/* A tar from a sandbox into a directory of the user's: nothing beside it changes, nothing in it has
 * set-uid bits or is a device, and no temporary file is left. */
#include <fcntl.h>
#include <ftw.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "cli/unpack.h"

#include "fuzz.h"
#include "tar_mend.h"

static char scratch[] = "/dev/shm/bothy-fuzz.XXXXXX";

static fuzz_in input;

static void remove_scratch(void)
{
    err_free(fs_remove(AT_FDCWD, scratch));
}

static int look(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)type;
    if (!where->level)
        return 0;
    const char *name = path + strlen(scratch) + 1;
    MUST(str_starts(name, "root"));
    const char *base = path + where->base; /* an archive may name such a file itself */
    MUST(!str_starts(base, ".bothy-cp-") || memmem(input.p, input.n, base, strlen(base)));
    if (where->level > 1) {
        MUST(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode));
        MUST(S_ISLNK(st->st_mode) || !(st->st_mode & 07000));
    }
    return 0;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, max);
    if (size && seed % 8)
        tar_mend(data + 1, size - 1);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int dir = -1;
    fuzz_in in = {data, size};
    uint8_t how = fuzz_byte(&in);

    input = in;

    if (dir < 0) {
        setlocale(LC_CTYPE, "C.UTF-8");
        if (!mkdtemp(scratch))
            abort();
        atexit(remove_scratch);
        dir = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    MUST(!mkdirat(dir, "root", 0700));
    CLEANUP(closep) int root = openat(dir, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const unpack_options o = {
        .dir = root, .only = how & 1 ? "one" : NULL, .own_root = how & 2, .owners = how & 4};
    unpack *u = NULL;
    err_free(unpack_new(&o, &u));
    bool fed = unpack_feed(u, in.p, in.n);
    err_free(unpack_end(u, fed && !(how & 8)));
    unpack_free(u);
    nftw(scratch, look, 32, FTW_PHYS);
    err_free(fs_remove(dir, "root"));
    return 0;
}
