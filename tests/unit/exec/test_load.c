/* Journals that are read: a synthetic one is written record by record, no box is there. */
#include <sys/syscall.h>

#include "exec/internal.h"

#include "drive.h"

typedef struct script {
    world w;
    journal j;
} script;

static void ignore(void *arg, uint32_t index, const journal_rec *r)
{
    (void)arg, (void)index, (void)r;
}

static void script_begin(script *s)
{
    world_init(&s->w);
    assert_int_equal(mkdirat(s->w.spool, SANDBOX, 0700), 0);
    assert_ok(journal_open(s->w.spool, SANDBOX "/journal", &s->j, ignore, NULL));
}

static void put(script *s, journal_rec r)
{
    assert_ok(journal_append(&s->j, &r, NULL));
}

static void put_begin(script *s, uint64_t id)
{
    put(s, (journal_rec){.type = JOURNAL_BEGIN, .exec = id, .begin = {.real_ns = now_real_ns()}});
}

static void put_end(script *s, uint64_t id, uint64_t out)
{
    put(s,
        (journal_rec){
            .type = JOURNAL_END,
            .exec = id,
            .end = {.rec = {.id = id, .state = SP_EXITED}, .length = {out}, .how = EXEC_EXITED}});
}

static void put_file(script *s, uint64_t id, const char *bytes)
{
    char path[SPOOL_PATH_MAX];

    snprintf(path, sizeof path, SANDBOX "/%lu.out", id);
    int fd = openat(s->w.spool, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
    close(fd);
}

static void script_open(script *s)
{
    journal_close(&s->j);
    assert_ok(exec_hub_new(&s->w.options, &s->w.hub));
    assert_ok(exec_table_open(s->w.hub, SANDBOX, &s->w.table));
}

static void script_close(script *s)
{
    exec_table_unref(TAKE_PTR(s->w.table));
    exec_hub_free(TAKE_PTR(s->w.hub));
}

/* Its first bytes, then a gap up to `length`. */
static void assert_cut(script *s, uint64_t id, const char *kept, uint64_t length)
{
    CLEANUP(exec_unrefp) exec *x = NULL;
    exec_state st;
    char got[64];
    uint64_t gap = 0;
    size_t n = 0;

    assert_ok(exec_find(s->w.table, id, &x));
    exec_get(x, &st);
    assert_int_equal(st.length[0], length);
    assert_int_equal(st.end.out_dropped, length - strlen(kept));
    assert_ok(exec_read(x, 1, 0, got, sizeof got, &n, &gap));
    assert_int_equal(n, strlen(kept));
    assert_memory_equal(got, kept, n);
    assert_ok(exec_read(x, 1, n, got, sizeof got, &n, &gap));
    assert_int_equal(n, 0);
    assert_int_equal(gap, length);
}

static void bytes_that_went_with_the_power_are_told_as_dropped(void **state)
{
    script s;

    (void)state;
    script_begin(&s);
    put_begin(&s, 1);
    put_end(&s, 1, 100);
    put_file(&s, 1, "some");
    put_begin(&s, 2);
    put_end(&s, 2, 200);
    put_begin(&s, 3);
    put_end(&s, 3, 5);
    put_file(&s, 3, "whole");
    script_open(&s);
    assert_int_equal(atomic_load(&s.w.table->spool_bytes), 305);
    for (int i = 0; i < 2; i++) {
        assert_cut(&s, 1, "some", 100);
        assert_cut(&s, 2, "", 200);
        assert_int_equal(atomic_load(&s.w.table->spool_bytes), 9);
    }
    CLEANUP(exec_unrefp) exec *x = NULL;
    assert_ok(exec_find(s.w.table, 3, &x));
    assert_stream(x, 1, "whole");
    exec_unref(TAKE_PTR(x));
    script_close(&s);
    world_done(&s.w);
}

/* A shell has no END when the power goes, but its commands have. */
static void a_shell_that_the_power_ended_tells_what_its_commands_lost(void **state)
{
    script s;
    exec *x;

    (void)state;
    script_begin(&s);
    put(&s, (journal_rec){.type = JOURNAL_SESSION, .exec = 1, .session = {.shell = 1}});
    put_begin(&s, 1);
    put(&s, (journal_rec){.type = JOURNAL_COMMAND,
                          .exec = 1,
                          .command = {.seq = 1, .shell = 1, .start = {8}}});
    put(&s, (journal_rec){.type = JOURNAL_COMMAND_END,
                          .exec = 1,
                          .command_end = {.seq = 1, .stop = {60}, .tail = {30}}});
    put_file(&s, 1, "greeting");
    script_open(&s);
    assert_ok(exec_find(s.w.table, 1, &x));
    assert_int_equal(exec_length(x, 1), 90);
    exec_unref(x);
    assert_cut(&s, 1, "greeting", 90);
    assert_int_equal(atomic_load(&s.w.table->spool_bytes), 8);
    script_close(&s);
    world_done(&s.w);
}

/* ---- what was evicted ---- */

static void put_mark(script *s, uint64_t id, uint64_t to)
{
    put(s, (journal_rec){.type = JOURNAL_MARK, .exec = id, .mark = {.stream = 1, .to = to}});
}

/* The shortest time that the journal of so many evicted commands takes; others use the machine. */
static uint64_t load_ns(unsigned n)
{
    uint64_t best = UINT64_MAX;
    CLEANUP(exec_unrefp) exec *x = NULL;
    exec_state st;
    script s;

    script_begin(&s);
    for (unsigned i = 1; i <= n; i++) {
        put_begin(&s, i);
        put_end(&s, i, 2000);
        put_mark(&s, i, 2000);
    }
    journal_close(&s.j);
    for (int i = 0; i < 3; i++) {
        assert_ok(exec_hub_new(&s.w.options, &s.w.hub));
        uint64_t begun = now_mono_ns();
        assert_ok(exec_table_open(s.w.hub, SANDBOX, &s.w.table));
        uint64_t took = now_mono_ns() - begun;
        best = took < best ? took : best;
        assert_int_equal(atomic_load(&s.w.table->spool_bytes), 0);
        assert_ok(exec_find(s.w.table, n, &x));
        exec_get(x, &st);
        assert_int_equal(st.length[0], 2000);
        assert_int_equal(st.end.out_dropped, 2000);
        exec_unref(TAKE_PTR(x));
        script_close(&s);
    }
    world_done(&s.w);
    return best;
}

static void evicted_output_costs_a_start_no_more_than_it_is_long(void **state)
{
    (void)state;
    uint64_t few = load_ns(20000), many = load_ns(200000);
    print_message("20,000: %lu us, 200,000: %lu us\n", few / 1000, many / 1000);
    assert_true(many < 40 * few); /* ten times as long; a scan for each would take a hundred */
}

static uint64_t evict_ns(unsigned n)
{
    script s;

    script_begin(&s);
    put_begin(&s, 1); /* lives */
    for (unsigned i = 2; i <= n + 1; i++) {
        put_begin(&s, i);
        put_end(&s, i, 10);
    }
    script_open(&s);
    uint64_t begun = now_mono_ns(), evicted = 0;
    while (exec_hub_evict(s.w.hub))
        evicted++;
    uint64_t took = now_mono_ns() - begun;
    assert_int_equal(evicted, n);
    script_close(&s);
    world_done(&s.w);
    return took;
}

static void a_command_that_lives_makes_eviction_no_slower(void **state)
{
    (void)state;
    uint64_t few = evict_ns(3000), many = evict_ns(30000);
    print_message("3,000: %lu us, 30,000: %lu us\n", few / 1000, many / 1000);
    assert_true(many < 40 * few);
}

/* A live stream loses its middle several times, and then as a whole. */
static void marks_of_one_stream_are_counted_once(void **state)
{
    CLEANUP(exec_unrefp) exec *x = NULL;
    exec_state st;
    script s;

    (void)state;
    script_begin(&s);
    put_begin(&s, 1);
    put(&s, (journal_rec){.type = JOURNAL_MARK, .exec = 1, .mark = {1, 0, 100, 200}});
    put(&s, (journal_rec){.type = JOURNAL_MARK, .exec = 1, .mark = {1, 0, 150, 300}});
    put_end(&s, 1, 1000);
    put_begin(&s, 2);
    put_end(&s, 2, 1000);
    put_mark(&s, 2, 1000);
    put_mark(&s, 2, 1200); /* what lingered */
    script_open(&s);
    assert_int_equal(atomic_load(&s.w.table->spool_bytes), 800 - 200);
    assert_ok(exec_find(s.w.table, 2, &x));
    exec_get(x, &st);
    assert_int_equal(st.end.out_dropped, 1200);
    exec_unref(TAKE_PTR(x));
    script_close(&s);
    world_done(&s.w);
}

/* A full disk took the record of a shell and not its BEGIN. */
static void a_shell_that_never_began_keeps_its_id(void **state)
{
    script s;

    (void)state;
    script_begin(&s);
    put_begin(&s, 1);
    put(&s, (journal_rec){.type = JOURNAL_SESSION, .exec = 2, .session = {.shell = 2}});
    script_open(&s);
    assert_int_equal(s.w.table->next_id, 3);
    script_close(&s);
    world_done(&s.w);
}

/* ---- a disk that fails: these come before libc's ---- */

static bool tears, cannot_cut;

ssize_t write(int fd, const void *p, size_t n)
{
    return syscall(SYS_write, fd, p, tears && n == JOURNAL_REC ? n / 2 : n);
}

int ftruncate(int fd, off_t n)
{
    if (!cannot_cut)
        return (int)syscall(SYS_ftruncate, fd, n);
    errno = EIO;
    return -1;
}

static void count(void *arg, uint32_t index, const journal_rec *r)
{
    (void)index, (void)r;
    ++*(unsigned *)arg;
}

static void nothing_is_written_behind_half_a_record(void **state)
{
    journal_rec r = {.type = JOURNAL_BEGIN, .exec = 2};
    unsigned n = 0;
    script s;

    (void)state;
    script_begin(&s);
    put_begin(&s, 1);
    tears = cannot_cut = true;
    assert_err(journal_append(&s.j, &r, NULL), ERR_DISK_FULL);
    tears = false;
    err *e = journal_append(&s.j, &r, NULL);
    assert_non_null(e);
    err_free(e);
    cannot_cut = false;
    put_begin(&s, 2);
    journal_close(&s.j);
    assert_ok(journal_open(s.w.spool, SANDBOX "/journal", &s.j, count, &n));
    assert_int_equal(n, 2);
    assert_false(s.j.damaged);
    journal_close(&s.j);
    world_done(&s.w);
}

/* A full disk does not take the mark: the output still counts, and goes when there is room. */
static void output_that_could_not_be_marked_is_evicted_later(void **state)
{
    script s;

    (void)state;
    script_begin(&s);
    put_begin(&s, 1);
    put_end(&s, 1, 4);
    put_file(&s, 1, "some");
    put_begin(&s, 2);
    put_end(&s, 2, 5);
    put_file(&s, 2, "other");
    script_open(&s);
    tears = true;
    bool evicted = exec_hub_evict(s.w.hub);
    tears = false;
    assert_false(evicted);
    assert_int_equal(atomic_load(&s.w.table->spool_bytes), 9);
    assert_true(exec_hub_evict(s.w.hub));
    assert_true(exec_hub_evict(s.w.hub));
    assert_int_equal(atomic_load(&s.w.table->spool_bytes), 0);
    assert_false(exec_hub_evict(s.w.hub));
    script_close(&s);
    world_done(&s.w);
}

/* As it was when the first journals were written. */
static void the_checksum_is_crc_32(void **state)
{
    journal_rec r = {.type = JOURNAL_IDS, .exec = 1, .ids = {.until = 257}};
    const uint8_t *at = (const uint8_t *)&r;
    uint32_t crc = 0xffffffffu;

    (void)state;
    journal_seal(&r);
    uint32_t sum = r.checksum;
    r.checksum = 0;
    for (size_t i = 0; i < sizeof r; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    assert_int_equal(sum, ~crc);
}

int main(void)
{
    static const struct CMUnitTest TESTS[] = {
        WORLD_TEST(bytes_that_went_with_the_power_are_told_as_dropped),
        WORLD_TEST(a_shell_that_the_power_ended_tells_what_its_commands_lost),
        WORLD_TEST(evicted_output_costs_a_start_no_more_than_it_is_long),
        WORLD_TEST(a_command_that_lives_makes_eviction_no_slower),
        WORLD_TEST(a_shell_that_never_began_keeps_its_id),
        WORLD_TEST(nothing_is_written_behind_half_a_record),
        WORLD_TEST(output_that_could_not_be_marked_is_evicted_later),
        cmocka_unit_test(the_checksum_is_crc_32),
        WORLD_TEST(marks_of_one_stream_are_counted_once),
    };

    return cmocka_run_group_tests(TESTS, NULL, NULL);
}
