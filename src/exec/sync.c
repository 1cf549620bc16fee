/* Journals on the disk. A command waits for no disk; what was appended is written within about a
 * second, so that a power loss takes the records of the last one and no older ones. One thread of
 * its own: a slow disk holds nobody else up. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/internal.h"

/* References to all tables whose journals have something new. */
static exec_table **unsynced(exec_hub *h, size_t *ret_n)
{
    map_iter it = {0};
    size_t n = 0;

    LOCK_SCOPE(&h->lock);
    exec_table **found = xcalloc(h->tables.count + 1, sizeof(exec_table *));
    while (map_next(&h->tables, &it)) {
        exec_table *t = it.entry->value;
        if (atomic_load(&t->journal.unsynced))
            found[n++] = exec_table_ref(t);
    }
    *ret_n = n;
    return found;
}

/* The mark goes first: what is appended meanwhile sets it again. A file system that keeps a log
 * writes the name of a new file with it. */
static void sync_one(exec_table *t)
{
    atomic_store(&t->journal.unsynced, false);
    if (fdatasync(t->journal.fd))
        log_error("journal", "that of %s cannot be written to the disk: %s", t->sandbox,
                  strerrordesc_np(errno));
}

void sync_leave(exec_hub *h, journal *j)
{
    if (!atomic_load(&j->unsynced))
        return;
    if (h->sync_stop)
        (void)fdatasync(j->fd); /* nobody waits for the lock any more */
    else if (h->nleft < SYNC_LEFT_MAX)
        h->left[h->nleft++] = TAKE_FD(j->fd);
    else
        log_warn("journal", "the disk is too slow: that of a sandbox that has ended is left to it");
}

static int take_left(exec_hub *h)
{
    LOCK_SCOPE(&h->lock);

    return h->nleft ? h->left[--h->nleft] : -1;
}

static void sync_left(exec_hub *h)
{
    for (int fd; (fd = take_left(h)) >= 0; close(fd))
        if (fdatasync(fd))
            log_error("journal",
                      "that of a sandbox that has ended cannot be written to the disk: %s",
                      strerrordesc_np(errno));
}

static void sync_all(exec_hub *h)
{
    size_t n;
    CLEANUP(freep) exec_table **dirty = unsynced(h, &n);

    for (size_t i = 0; i < n; i++) {
        sync_one(dirty[i]);
        exec_table_unref(dirty[i]);
    }
    sync_left(h);
}

static void *sync_run(void *arg)
{
    exec_hub *h = arg;
    bool stop;

    do {
        {
            LOCK_SCOPE(&h->lock);
            if (!h->sync_stop)
                cond_wait_until(&h->sync_wake, &h->lock, now_mono_ns() + NS_PER_S);
            stop = h->sync_stop;
        }
        sync_all(h);
    } while (!stop);
    return NULL;
}

void sync_start(exec_hub *h)
{
    cond_init(&h->sync_wake);
    h->sync_thread = thread_start("journals", sync_run, h);
}

void sync_stop(exec_hub *h)
{
    {
        LOCK_SCOPE(&h->lock);
        h->sync_stop = true;
        pthread_cond_signal(&h->sync_wake);
    }
    pthread_join(h->sync_thread, NULL);
    pthread_cond_destroy(&h->sync_wake);
}
