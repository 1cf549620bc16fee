/* A sandbox's journal after a crash, read by the next daemon: records in any order, each with its
 * sum. Every exec that began has one end when the sandbox has ended, and reading again finds the
 * same. The input is records without their head: 8 bytes of exec, one of type, then the body. */
#include <dirent.h>
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

#define RECORDS_MAX 64
#define BOX         "abcd0123456789abcdef"

static char scratch[] = "/dev/shm/bothy-fuzz.XXXXXX";
static int dir = -1;
static exec_hub *hub;

static void remove_scratch(void)
{
    exec_hub_free(hub);
    err_free(fs_remove(AT_FDCWD, scratch));
}

static void prepare(void)
{
    if (!mkdtemp(scratch) || (dir = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        abort();
    atexit(remove_scratch);
    log_init("fuzz", LOG_ERROR + 1); /* torn records are told */
    MUST(!exec_hub_new(&(exec_options){.spool_dir = dir,
                                       .stream_max = 1 << 20,
                                       .sandbox_max = 4 << 20,
                                       .live_max = 256,
                                       .stdin_max = 1 << 20},
                       &hub));
}

static void write_journal(fuzz_in *in)
{
    CLEANUP(closep) int place = -1;
    CLEANUP(closep) int fd = -1;

    err_free(fs_dir(dir, BOX, 0700, &place));
    fd = openat(place, "journal", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (int i = 0; i < RECORDS_MAX && in->n; i++) {
        journal_rec r = {0};
        size_t head = offsetof(journal_rec, begin), n = 0;
        uint64_t id = fuzz_byte(in);
        uint8_t type = fuzz_byte(in);
        void *body = fuzz_bytes(in, (size_t)fuzz_byte(in), &n);
        n = n < sizeof r - head ? n : sizeof r - head;
        memcpy((char *)&r + head, body, n);
        free(body);
        r.exec = id;
        r.type = type % JOURNAL_TYPES;
        journal_seal(&r);
        if (type & 0x80)
            r.checksum++; /* torn */
        MUST(!fs_write_all(fd, &r, type & 0x40 && !in->n ? sizeof r / 2 : sizeof r));
    }
}

/* The ends are written by the pump. */
static void end_all(exec_table *t)
{
    exec_table_end(t);
    for (int i = 0; i < 20000; i++) {
        {
            LOCK_SCOPE(&t->lock);
            if (!t->live)
                return;
        }
        usleep(i < 100 ? 20 : 1000);
    }
    MUST(!"every exec ends");
}

typedef struct tally {
    size_t begun, ended;
} tally;

static tally look(bool end)
{
    exec_table *t = NULL;
    tally found = {0};
    err *e = exec_table_open(hub, BOX, &t);

    if (e) {
        err_free(e);
        return found;
    }
    if (end)
        end_all(t);
    for (size_t i = 0; i < t->npast; i++) {
        MUST(!i || t->past[i].id > t->past[i - 1].id);
        found.begun++;
        found.ended += t->past[i].end != 0;
    }
    exec_table_unref(t);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};

    if (dir < 0)
        prepare();
    write_journal(&in);
    tally first = look(true);
    tally last = look(false); /* from the disk again */
    MUST(first.begun == last.begun && last.ended == last.begun);
    err_free(fs_remove(dir, BOX));
    return 0;
}
