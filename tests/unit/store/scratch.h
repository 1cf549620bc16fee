/* A directory for a store, removed at the end of the scope. */
#pragma once

#include <fcntl.h>
#include <stdlib.h>

#include "base/fs.h"
#include "base/str.h"
#include "store/store.h"

#include "../unit.h"

typedef struct scratch {
    char path[64];
    int fd;
} scratch;

static inline scratch scratch_new(void)
{
    scratch d = {.path = "/tmp/bothy-store-XXXXXX"};

    assert_non_null(mkdtemp(d.path));
    d.fd = open(d.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(d.fd >= 0);
    return d;
}

static inline void scratch_done(scratch *d)
{
    close(d->fd);
    err_drop(fs_remove(AT_FDCWD, d->path), "scratch");
}

static inline void store_closep_(store **s)
{
    store_close(*s);
}

/* A minimal row; its strings are literals: never sandbox_row_done() it. */
static inline sandbox_row row_of(const char *id, const char *owner, const char *name)
{
    sandbox_row r = {.owner = (char *)owner,
                     .name = (char *)name,
                     .state = (char *)"running",
                     .image = (char *)"busybox",
                     .spec = (char *)"{\"x\":1}",
                     .created_ns = 7};

    str_copy(r.id, sizeof r.id, id);
    return r;
}
