/* Spools by themselves: what a reader may see. */
#include "exec/spool.h"

#include "drive.h"

static bool mark(void *arg, int stream, uint64_t from, uint64_t to)
{
    (void)arg;
    (void)stream;
    (void)from;
    (void)to;
    return true;
}

/* Between a splice and the count of it the file is longer than the stream is known to be. Who read
 * that far would ask next from beyond the length, and be refused. */
static void a_reader_stops_at_the_known_length(void **state)
{
    world w;
    spool_set set;
    spool s;
    char got[64];
    size_t n = 0;
    uint64_t gap = 0;

    (void)state;
    world_init(&w);
    assert_int_equal(mkdirat(w.spool, SANDBOX, 0700), 0);
    assert_ok(spool_set_init(&set, w.spool, 64 << 20));
    spool_init(&s, &set, SANDBOX, 1, 1, mark, NULL);
    assert_int_equal(spool_write(&s, 0, "known", 5, &n), SPOOL_EMPTY);
    int fd = openat(w.spool, s.path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "ahead", 5), 5);
    close(fd);
    assert_ok(spool_read(&s, 2, got, sizeof got, &n, &gap));
    assert_int_equal(n, 3);
    assert_memory_equal(got, "own", 3);
    assert_ok(spool_read(&s, 5, got, sizeof got, &n, &gap));
    assert_int_equal(n, 0);
    spool_done(&s);
    spool_set_done(&set);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(a_reader_stops_at_the_known_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
