/* A sandbox's journal after a crash, read by the next daemon: records in any order, each with its
 * sum. Every exec that began has one end when the sandbox has ended, and reading again finds the
 * same. The input is records: a byte each for exec, type and length, then the body. */
#include "exec_world.h"

#define RECORDS_MAX 64

static void write_journal(fuzz_in *in)
{
    CLEANUP(closep) int fd = world_journal();

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
    if (end) {
        exec_table_end(t);
        world_wait(no_exec_lives, t); /* the pump writes the ends */
    }
    for (size_t i = 0; i < t->npast; i++) {
        MUST(!i || t->past[i].id > t->past[i - 1].id);
        found.begun++;
        found.ended += t->past[i].end != 0;
    }
    exec_table_unref(t);
    world_wait(no_table_is_open, NULL);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};

    world_make();
    write_journal(&in);
    tally first = look(true);
    tally last = look(false); /* from the disk again */
    MUST(first.begun == last.begun && last.ended == last.begun);
    err_free(fs_remove(dir, BOX));
    return 0;
}
