/* What an engine stands on, in a directory of its own, with time held still; the backend is the
 * test's. */
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/str.h"
#include "engine/engine.h"

#include "../unit.h"

static struct {
    char dir[64];
    int fd, spool, staging;
    backend *backend;
    store *store;
    image_store *images;
    exec_hub *execs;
    engine *engine;
} node;

static _Atomic uint64_t fake_now;
static uint64_t fake_time(void *arg)
{
    (void)arg;
    return fake_now;
}
static const clock_source FAKE_CLOCK = {fake_time, fake_time, NULL};

/* All but the engine. */
static inline void node_open(backend *b)
{
    node.backend = b;
    fake_now = NS_PER_S * 1000000;
    snprintf(node.dir, sizeof node.dir, "/tmp/bothy-engine-XXXXXX");
    assert_non_null(mkdtemp(node.dir));
    node.fd = open(node.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(fs_dir(node.fd, "spool", 0700, &node.spool));
    assert_ok(fs_dir(node.fd, "staging", 0700, &node.staging));
    assert_ok(store_open(node.fd, "store.db", "normal", &node.store));
    CLEANUP(freep) char *path = str_printf("%s/staging", node.dir);
    assert_ok(image_store_new(&(image_options){.staging_dir = node.staging,
                                               .staging_path = path,
                                               .skopeo = "/bin/false",
                                               .backend = b,
                                               .store = node.store,
                                               .pull_timeout_ms = 1000},
                              &node.images));
    assert_ok(exec_hub_new(&(exec_options){.spool_dir = node.spool,
                                           .stream_max = 64 << 20,
                                           .sandbox_max = 1 << 30,
                                           .live_max = 16,
                                           .stdin_max = 1 << 20},
                           &node.execs));
}

/* ttl_ms 0: sandboxes have none of their own. */
static inline void node_open_engine(uint64_t ttl_ms, uint64_t keep_paused_ms)
{
    engine_options o = {.cell = "t000",
                        .backend = node.backend,
                        .store = node.store,
                        .images = node.images,
                        .execs = node.execs,
                        .state_dir = -1,
                        .clock = &FAKE_CLOCK,
                        .same_boot = true,
                        .defaults = LIMITS_DEFAULT,
                        .ttl_ms = ttl_ms,
                        .queue_ms = 1000,
                        .keep_record_ms = 86400000,
                        .keep_spool_ms = 3600000,
                        .keep_paused_ms = keep_paused_ms};

    assert_ok(engine_new(&o, &node.engine));
}

static inline void node_close(void)
{
    engine_free(node.engine);
    exec_hub_free(node.execs);
    image_store_free(node.images);
    store_close(node.store);
    close(node.fd);
    close(node.spool);
    close(node.staging);
    assert_ok(fs_remove(AT_FDCWD, node.dir));
}
