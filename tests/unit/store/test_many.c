/* A store with the records of a day: none that has ended makes a start or a list slower. */
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/internal.h"

#include "scratch.h"

#define ROWS      100000
#define LIVE_NAME "b1000000000000000001"

static void execute(const scratch *d, const char *sql)
{
    CLEANUP(freep) char *path = str_printf("%s/store.db", d->path);
    sqlite3 *db = NULL;
    char *why = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why))
        print_error("%s\n", why);
    assert_null(why);
    sqlite3_close(db);
}

/* The records of sandboxes that have ended, half of them alice's, without their events. */
static void add_ended(const scratch *d)
{
    CLEANUP(freep)
    char *sql = str_printf(
        "PRAGMA synchronous = OFF; DROP TRIGGER sandbox_made; "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
        "INSERT INTO sandboxes (id, owner, state, cause, image, digest, spec, created, ttl, ended) "
        "SELECT printf('b000%%016d', i), iif(i & 1, 'alice', 'bob'), 'gone', '{}', 'busybox', "
        "zeroblob(32), '{\"limits\":{\"memory\":1073741824}}', i, 0, i FROM n",
        ROWS);

    execute(d, sql);
}

static store *open_of(const scratch *d)
{
    store *s = NULL;

    assert_ok(store_open(d->fd, "store.db", "normal", &s));
    return s;
}

/* Returns the shortest of five times. */
static uint64_t time_of_list(store *s, const sandbox_page *page, size_t wanted)
{
    uint64_t best = UINT64_MAX;

    for (int i = 0; i < 5; i++) {
        sandbox_row *rows = NULL;
        size_t n = 0;
        uint64_t begun = now_mono_ns();
        assert_ok(store_sandbox_list(s, page, &rows, &n));
        uint64_t took = now_mono_ns() - begun;
        best = took < best ? took : best;
        assert_int_equal(n, wanted);
        for (size_t k = 0; k < n; k++)
            sandbox_row_done(&rows[k]);
        free(rows);
    }
    return best;
}

/* Returns the shortest of three times that it takes to read every row. */
static uint64_t time_of_scan(const scratch *d)
{
    uint64_t best = UINT64_MAX;

    for (int i = 0; i < 3; i++) {
        uint64_t begun = now_mono_ns();
        execute(d, "SELECT count(*) FROM sandboxes WHERE state <> image");
        uint64_t took = now_mono_ns() - begun;
        best = took < best ? took : best;
    }
    return best;
}

static void lists_of_live_ones_do_not_read_ended_ones(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = open_of(&d);

    (void)state;
    store_close(s);
    add_ended(&d);
    s = open_of(&d);
    for (int i = 1; i <= 3; i++) {
        char id[32];
        snprintf(id, sizeof id, "b1000000000000000%03d", i);
        sandbox_row r = row_of(id, i < 3 ? "carol" : "alice", NULL);
        assert_ok(store_sandbox_insert(s, &r));
    }
    const sandbox_page all = {.after = "", .max = 256, .without_gone = true};
    const sandbox_page hers = {.after = "", .max = 256, .owner = "alice", .without_gone = true};
    const sandbox_page few = {.after = "", .max = 256, .owner = "carol"};
    const sandbox_page rest = {.after = LIVE_NAME, .max = 256, .without_gone = true};
    uint64_t most = time_of_scan(&d) / 5;
    assert_true(time_of_list(s, &all, 3) < most);
    assert_true(time_of_list(s, &hers, 1) < most);
    assert_true(time_of_list(s, &few, 2) < most);
    assert_true(time_of_list(s, &rest, 2) < most);
}

static uint64_t time_of_open(const scratch *d)
{
    uint64_t begun = now_mono_ns();
    CLEANUP(store_closep_) store *s = open_of(d);

    return now_mono_ns() - begun;
}

static void touch_store(const scratch *d)
{
    assert_int_equal(utimensat(d->fd, "store.db", NULL, 0), 0);
}

/* Its pages are read only if it may have changed since. */
static void a_store_that_was_closed_in_order_opens_at_once(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    uint64_t checked = UINT64_MAX, opened = UINT64_MAX;

    (void)state;
    store_close(open_of(&d));
    add_ended(&d);
    for (int i = 0; i < 3; i++) {
        touch_store(&d);
        uint64_t t = time_of_open(&d);
        checked = t < checked ? t : checked;
        t = time_of_open(&d);
        opened = t < opened ? t : opened;
    }
    print_message("opened in %llu us, with a check in %llu us\n", (unsigned long long)opened / 1000,
                  (unsigned long long)checked / 1000);
    assert_true(opened < checked / 2);
}

/* Ends as bothyd does: the store is settled and not closed. Then it may write once more. */
static _Noreturn void settle_and_exit(const scratch *d, bool writes)
{
    sandbox_row one = row_of(LIVE_NAME, "carol", NULL);
    CLEANUP(freep) char *id = str_printf("b1%018d", (int)getpid()); /* new in each round */
    sandbox_row two = row_of(id, "carol", NULL);
    store *s = NULL;
    err *e = store_open(d->fd, "store.db", "normal", &s);

    if (!e)
        e = store_sandbox_insert(s, &one);
    if (e && e->code == ERR_CONFLICT) /* it is there from the last round */
        err_free(TAKE_PTR(e));
    if (!e)
        e = store_settle(s);
    if (!e && writes)
        e = store_sandbox_insert(s, &two);
    _exit(e != NULL);
}

/* Returns how long the next process takes to open it. */
static uint64_t time_of_open_after(const scratch *d, bool writes)
{
    pid_t pid = fork();
    int status;

    if (!pid)
        settle_and_exit(d, writes);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return time_of_open(d);
}

static void a_store_that_was_settled_opens_at_once(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    uint64_t checked = UINT64_MAX, opened = UINT64_MAX;

    (void)state;
    store_close(open_of(&d));
    add_ended(&d);
    for (int i = 0; i < 3; i++) {
        uint64_t t = time_of_open_after(&d, true);
        checked = t < checked ? t : checked;
        t = time_of_open_after(&d, false);
        opened = t < opened ? t : opened;
    }
    print_message("opened in %llu us, after one more write in %llu us\n",
                  (unsigned long long)opened / 1000, (unsigned long long)checked / 1000);
    assert_true(opened < checked / 2);
}

static void damage(const scratch *d, off_t at)
{
    CLEANUP(freep) char *path = str_printf("%s/store.db", d->path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    char junk[4096];

    memset(junk, 'x', sizeof junk);
    assert_int_equal(pwrite(fd, junk, sizeof junk, at), sizeof junk);
    close(fd);
}

static void a_store_that_changed_since_it_was_closed_is_checked(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    store *s = NULL;

    (void)state;
    store_close(open_of(&d));
    add_ended(&d);
    store_close(open_of(&d));
    damage(&d, 4096 * 50);
    for (int i = 0; i < 2; i++) { /* a start that failed changes nothing about that */
        CLEANUP(err_freep) err *e = store_open(d.fd, "store.db", "normal", &s);
        assert_non_null(e);
        assert_true(str_eq(e->kind, "damaged"));
    }
}

/* A backlog goes in pieces, between which others write. */
static void a_backlog_is_forgotten_in_pieces(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = open_of(&d);
    char(*ids)[SANDBOX_ID_LEN + 1] = NULL;
    size_t n = 1, total = 0, pieces = 0;

    (void)state;
    store_close(s);
    add_ended(&d);
    s = open_of(&d);
    while (n) {
        assert_ok(store_sandbox_forget(s, 10001, &ids, &n));
        assert_true(n <= 1000);
        free(ids);
        total += n;
        pieces++;
    }
    assert_int_equal(total, 10000);
    assert_int_equal(pieces, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_live_ones_do_not_read_ended_ones),
        cmocka_unit_test(a_store_that_was_closed_in_order_opens_at_once),
        cmocka_unit_test(a_store_that_was_settled_opens_at_once),
        cmocka_unit_test(a_store_that_changed_since_it_was_closed_is_checked),
        cmocka_unit_test(a_backlog_is_forgotten_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
