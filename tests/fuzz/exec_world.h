/* A hub over a directory in memory, for targets that read a sandbox's journal. One target includes
 * this. */
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "exec/exec.h"
#include "exec/internal.h"

#include "fuzz.h"

#define BOX "abcd0123456789abcdef"

static char scratch[] = "/dev/shm/bothy-fuzz.XXXXXX";
static int dir = -1;
static exec_hub *hub;

static void world_remove(void)
{
    exec_hub_free(hub);
    err_free(fs_remove(AT_FDCWD, scratch));
}

static void world_make(void)
{
    if (dir >= 0)
        return;
    if (!mkdtemp(scratch) || (dir = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        abort();
    atexit(world_remove);
    log_init("fuzz", LOG_ERROR + 1); /* torn records are told */
    MUST(!exec_hub_new(&(exec_options){.spool_dir = dir,
                                       .stream_max = 1 << 20,
                                       .sandbox_max = 4 << 20,
                                       .live_max = 256,
                                       .stdin_max = 1 << 20},
                       &hub));
}

/* An empty journal of the one sandbox. */
static int world_journal(void)
{
    CLEANUP(closep) int place = -1;

    err_free(fs_dir(dir, BOX, 0700, &place));
    return openat(place, "journal", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static bool no_exec_lives(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    return !t->live;
}

/* The pump holds the last reference: only behind it the journal is read from the disk again. */
static bool no_table_is_open(exec_table *t)
{
    (void)t;
    LOCK_SCOPE(&hub->lock);
    return !hub->tables.count;
}

static void world_wait(bool (*holds)(exec_table *t), exec_table *t)
{
    for (int i = 0; i < 5000 && !holds(t); i++)
        usleep(i < 200 ? 20 : 1000);
    MUST(holds(t));
}
