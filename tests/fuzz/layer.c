/* A layer, decompressed or not, onto a scratch directory: no crash, and nothing beside it changes.
 * The first byte chooses the format. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "unpack/stream.h"
#include "unpack/writer.h"

#include "tar_mend.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char scratch[] = "/dev/shm/bothy-fuzz.XXXXXX";

static void remove_scratch(void)
{
    err_free(fs_remove(AT_FDCWD, scratch));
}

static int memory_with(const void *p, size_t n)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    if (fd < 0 || fs_write_all(fd, p, n))
        abort();
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static void write_layer(int tar_fd, int root)
{
    unpack_limits lim = UNPACK_LIMITS_DEFAULT;
    struct archive *tar = NULL;
    stream s;
    writer w;

    lim.entries = 1000;
    lim.file = 16 << 20;
    lim.xattr = 1024;
    err_free(stream_init(&s, 64 << 20));
    s.fd = tar_fd;
    writer_init(&w, root, &lim);
    err *e = stream_open_tar(&s, &tar);
    if (!e)
        e = writer_run(&w, tar);
    if (!e)
        e = stream_drain(&s);
    err_free(e);
    if (tar)
        archive_read_free(tar);
    stream_done(&s);
    writer_done(&w);
}

/* Only "root" may be there. */
static void check_beside(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fdopendir(fd);
    struct dirent *e;

    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "root"))
            abort();
    closedir(d);
}

/* ---- mutation ---- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

/* Seven times in eight the sums are mended; a layer that is compressed is left to chance. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, max);
    if (!size || data[0] % 3 != FORMAT_PLAIN || seed % 8 == 0)
        return size;
    tar_mend(data + 1, size - 1);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int dir = -1;
    unpack_limits lim = UNPACK_LIMITS_DEFAULT;

    if (dir < 0) {
        if (!mkdtemp(scratch) || (dir = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            abort();
        atexit(remove_scratch);
    }
    if (!size)
        return 0;
    CLEANUP(closep) int blob = memory_with(data + 1, size - 1);
    CLEANUP(closep) int tar = memory_with("", 0);
    CLEANUP(closep) int root = -1;
    lim.bytes = 64 << 20;
    err_free(stream_decompress(blob, tar, (enum unpack_format)(data[0] % 3), &lim));
    lseek(tar, 0, SEEK_SET);
    err_free(fs_dir(dir, "root", 0700, &root));
    write_layer(tar, root);
    check_beside(dir);
    err_free(fs_remove(dir, "root"));
    return 0;
}
