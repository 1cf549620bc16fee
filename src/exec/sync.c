/* Syncs journals, and the output that their ends count, to the disk. No command waits for that:
 * records are on the disk within about a second, so a power loss takes those of the last second and
 * no older ones. One thread of its own: a slow disk delays no other thread. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/internal.h"

#define SHARE (UINT64_C(16) << 20) /* bytes of one sandbox's output that a round syncs at most */

/* Returns references to all tables whose journals have unsynced records. */
static exec_table **sync_tables(exec_hub *h, size_t *ret_n)
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

/* ---- output ---- */

void sync_note(exec_table *t, uint64_t id)
{
    struct sync_due *d = &t->due;

    if (d->n && d->id[d->n - 1] == id) /* commands of one shell */
        return;
    if (d->n == d->cap) {
        d->cap = d->cap ? 2 * d->cap : 16;
        d->id = xrealloc(d->id, d->cap * sizeof *d->id);
    }
    d->id[d->n++] = id;
}

static struct sync_due sync_take_due(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    struct sync_due d = t->due;

    t->due = (struct sync_due){0};
    return d;
}

/* Returns the size of the file; 0 if there is none. */
static uint64_t sync_stream(exec_hub *h, const char *sandbox, uint64_t id, int stream,
                            unsigned flags)
{
    char path[SPOOL_PATH_MAX];
    struct stat st;

    spool_path(sandbox, id, stream, path);
    CLEANUP(closep) int fd = openat(h->o.spool_dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st))
        return 0; /* evicted, or it never had a byte */
    if (sync_file_range(fd, 0, 0, flags))
        log_error("spool", "%s cannot be written to the disk: %s", path, strerrordesc_np(errno));
    return (uint64_t)st.st_size;
}

/* Starts to write a sandbox's output to the disk; with `wait`, waits until it is written. Stops
 * after SHARE bytes, so that other sandboxes need not wait long. The output is durable once the
 * journal is synced, which flushes the disk's cache: ext4 and XFS then write the inodes of both in
 * one log. On other file systems, and beyond SHARE, a power loss may take output; the next load
 * finds what is missing. */
static void sync_streams(exec_hub *h, const char *sandbox, const struct sync_due *d, bool wait)
{
    unsigned flags = SYNC_FILE_RANGE_WRITE;
    uint64_t size = 0;

    if (wait)
        flags |= SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER;
    for (size_t i = 0; i < d->n && size < SHARE; i++)
        for (int stream = 1; stream <= 2; stream++)
            size += sync_stream(h, sandbox, d->id[i], stream, flags);
}

/* Starts all writes before it waits for the first. Leaves execs that end meanwhile to the next
 * round. */
static void sync_output(exec_hub *h, exec_table **tables, size_t n)
{
    CLEANUP(freep) struct sync_due *due = xcalloc(n + 1, sizeof *due);

    for (size_t i = 0; i < n; i++) {
        due[i] = sync_take_due(tables[i]);
        sync_streams(h, tables[i]->sandbox, &due[i], false);
    }
    for (size_t i = 0; i < n; i++) {
        sync_streams(h, tables[i]->sandbox, &due[i], true);
        free(due[i].id);
    }
}

/* ---- journals ---- */

/* Handles a failed sync. The kernel forgets pages that it could not write: records may be missing
 * after a power loss. The next round syncs later records. */
static void sync_failed(exec_table *t, int errnum)
{
    LOCK_SCOPE(&t->lock);

    if (!t->journal.damaged)
        log_error("journal", "that of %s cannot be written to the disk: %s", t->sandbox,
                  strerrordesc_np(errnum));
    t->journal.damaged = true;
    atomic_store(&t->journal.unsynced, true);
}

/* Syncs the journals. Clears `unsynced` first, so that a record appended meanwhile sets it again.
 * Starts all writes before it waits for the first, so that one commit of the file system's log
 * covers many journals. That commit also makes the name of a new file durable. */
static void sync_journals(exec_table **tables, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        atomic_store(&tables[i]->journal.unsynced, false);
        (void)sync_file_range(tables[i]->journal.fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    for (size_t i = 0; i < n; i++)
        if (fdatasync(tables[i]->journal.fd))
            sync_failed(tables[i], errno);
}

void sync_leave(exec_hub *h, exec_table *t)
{
    journal *j = &t->journal;

    if (!atomic_load(&j->unsynced))
        return;
    if (h->sync_stop) {
        sync_streams(h, t->sandbox, &t->due, true); /* the hub ends: no thread waits for the lock */
        (void)fdatasync(j->fd);
    } else if (h->nleft < SYNC_LEFT_MAX) {
        struct sync_left *l = &h->left[h->nleft++];
        *l = (struct sync_left){.fd = TAKE_FD(j->fd), .due = t->due};
        memcpy(l->sandbox, t->sandbox, sizeof l->sandbox);
        t->due = (struct sync_due){0};
    } else {
        log_warn("journal", "the disk is too slow: that of a sandbox that has ended is left to it");
    }
}

static bool sync_take_left(exec_hub *h, struct sync_left *ret_left)
{
    LOCK_SCOPE(&h->lock);

    if (!h->nleft)
        return false;
    *ret_left = h->left[--h->nleft];
    return true;
}

static void sync_left(exec_hub *h)
{
    for (struct sync_left l; sync_take_left(h, &l); close(l.fd)) {
        sync_streams(h, l.sandbox, &l.due, true);
        free(l.due.id);
        if (fdatasync(l.fd))
            log_error("journal", "that of %s, which has ended, cannot be written to the disk: %s",
                      l.sandbox, strerrordesc_np(errno));
    }
}

static void sync_all(exec_hub *h)
{
    size_t n;
    CLEANUP(freep) exec_table **dirty = sync_tables(h, &n);

    sync_output(h, dirty, n);
    sync_journals(dirty, n);
    for (size_t i = 0; i < n; i++)
        exec_table_unref(dirty[i]);
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
