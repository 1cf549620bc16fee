#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/str.h"

#include "scratch.h"

#define ID_A "b000aaaaaaaaaaaaaaaa"
#define ID_B "b000bbbbbbbbbbbbbbbb"
#define ID_C "b000cccccccccccccccc"

static err *kind_is(err *e, const char *kind)
{
    if (e && !str_eq(e->kind, kind))
        print_error("kind is %s, not %s\n", str_or(e->kind, "none"), kind);
    if (e)
        assert_true(str_eq(e->kind, kind));
    return e;
}

#define OPEN_STORE                                   \
    CLEANUP(scratch_done) scratch d = scratch_new(); \
    CLEANUP(store_closep_) store *s = NULL;          \
    (void)state;                                     \
    assert_ok(store_open(d.fd, "store.db", "full", &s))

static void a_row_comes_back_whole(void **state)
{
    OPEN_STORE;
    CLEANUP(sandbox_row_done) sandbox_row got = {0};
    sandbox_row r = row_of(ID_A, "alice", "web");

    r.ttl_ns = 99;
    memset(r.digest, 0xab, sizeof r.digest);
    memset(r.key, 1, sizeof r.key);
    memset(r.body, 2, sizeof r.body);
    assert_ok(store_sandbox_insert(s, &r));
    assert_ok(store_sandbox_get(s, ID_A, &got));
    assert_string_equal(got.id, ID_A);
    assert_string_equal(got.owner, "alice");
    assert_string_equal(got.name, "web");
    assert_string_equal(got.state, "running");
    assert_null(got.cause);
    assert_string_equal(got.image, "busybox");
    assert_string_equal(got.spec, "{\"x\":1}");
    assert_memory_equal(got.digest, r.digest, sizeof r.digest);
    assert_memory_equal(got.key, r.key, sizeof r.key);
    assert_memory_equal(got.body, r.body, sizeof r.body);
    assert_int_equal(got.created_ns, 7);
    assert_int_equal(got.ttl_ns, 99);
    assert_int_equal(got.ended_ns, 0);
}

static void names_are_unique_among_an_owners_live_ones(void **state)
{
    OPEN_STORE;
    sandbox_row a = row_of(ID_A, "alice", "web"), b = row_of(ID_B, "alice", "web");
    sandbox_row c = row_of(ID_C, "bob", "web");

    assert_ok(store_sandbox_insert(s, &a));
    assert_err(kind_is(store_sandbox_insert(s, &b), "name"), ERR_CONFLICT);
    assert_ok(store_sandbox_insert(s, &c));
    assert_ok(store_sandbox_state(s, ID_A, "gone", "{\"kind\":\"ttl\"}", 50));
    assert_ok(store_sandbox_insert(s, &b));
}

static void nameless_ones_are_many(void **state)
{
    OPEN_STORE;
    sandbox_row a = row_of(ID_A, "alice", NULL), b = row_of(ID_B, "alice", NULL);

    assert_ok(store_sandbox_insert(s, &a));
    assert_ok(store_sandbox_insert(s, &b));
    assert_err(kind_is(store_sandbox_insert(s, &b), "id"), ERR_CONFLICT);
}

/* A create that is sent again breaks both rules; it must hear of the key. */
static void a_taken_key_is_told_before_a_taken_name(void **state)
{
    OPEN_STORE;
    CLEANUP(sandbox_row_done) sandbox_row got = {0};
    sandbox_row a = row_of(ID_A, "alice", "web"), b = row_of(ID_B, "alice", "web");

    memset(a.key, 5, sizeof a.key);
    memset(b.key, 5, sizeof b.key);
    assert_ok(store_sandbox_insert(s, &a));
    assert_err(kind_is(store_sandbox_insert(s, &b), "key"), ERR_CONFLICT);
    assert_ok(store_sandbox_by_key(s, a.key, &got));
    assert_string_equal(got.id, ID_A);
    store_sandbox_free_key_queued(s, ID_A);
    assert_ok(store_sandbox_state(s, ID_A, "gone", NULL, 1));
    assert_ok(store_sandbox_insert(s, &b));
}

static void states_and_specs_are_updated(void **state)
{
    OPEN_STORE;
    CLEANUP(sandbox_row_done) sandbox_row got = {0};
    sandbox_row a = row_of(ID_A, "alice", NULL);

    assert_ok(store_sandbox_insert(s, &a));
    assert_ok(store_sandbox_spec(s, ID_A, "{\"x\":2}", 123));
    store_sandbox_state_queued(s, ID_A, "paused", NULL, 0);
    assert_ok(
        store_sandbox_state(s, ID_A, "gone", "{\"kind\":\"oom\"}", 60)); /* after the queued */
    assert_ok(store_sandbox_get(s, ID_A, &got));
    assert_string_equal(got.state, "gone");
    assert_string_equal(got.cause, "{\"kind\":\"oom\"}");
    assert_string_equal(got.spec, "{\"x\":2}");
    assert_int_equal(got.ttl_ns, 123);
    assert_int_equal(got.ended_ns, 60);
    assert_err(kind_is(store_sandbox_state(s, ID_B, "gone", NULL, 1), "sandbox"), ERR_NOT_FOUND);
    assert_err(kind_is(store_sandbox_get(s, ID_B, &got), "sandbox"), ERR_NOT_FOUND);
}

static void a_pause_stops_the_time_and_never_wakes_the_dead(void **state)
{
    OPEN_STORE;
    CLEANUP(sandbox_row_done) sandbox_row paused = {0}, running = {0}, gone = {0};
    sandbox_row a = row_of(ID_A, "alice", NULL);

    assert_ok(store_sandbox_insert(s, &a));
    assert_ok(store_sandbox_pause(s, ID_A, "paused", 70, 123));
    assert_ok(store_sandbox_get(s, ID_A, &paused));
    assert_string_equal(paused.state, "paused");
    assert_int_equal(paused.paused_ns, 70);
    assert_int_equal(paused.ttl_ns, 123);
    assert_ok(store_sandbox_pause(s, ID_A, "running", 0, 150));
    assert_ok(store_sandbox_get(s, ID_A, &running));
    assert_string_equal(running.state, "running");
    assert_int_equal(running.ttl_ns, 150);
    assert_ok(store_sandbox_state(s, ID_A, "gone", NULL, 60));
    assert_err(kind_is(store_sandbox_pause(s, ID_A, "paused", 80, 1), "sandbox"), ERR_NOT_FOUND);
    assert_ok(store_sandbox_get(s, ID_A, &gone));
    assert_string_equal(gone.state, "gone");
}

static void walls_stay_when_the_state_changes(void **state)
{
    OPEN_STORE;
    CLEANUP(sandbox_row_done) sandbox_row before = {0};
    CLEANUP(sandbox_row_done) sandbox_row got = {0};
    sandbox_row a = row_of(ID_A, "alice", NULL);

    assert_ok(store_sandbox_insert(s, &a));
    assert_ok(store_sandbox_get(s, ID_A, &before));
    assert_null(before.walls);
    store_sandbox_running_queued(s, ID_A, "running", "{\"open\":1}");
    assert_ok(store_sandbox_state(s, ID_A, "gone", "{\"kind\":\"ttl\"}", 60));
    assert_ok(store_sandbox_get(s, ID_A, &got));
    assert_string_equal(got.state, "gone");
    assert_string_equal(got.walls, "{\"open\":1}");
}

static void free_all(sandbox_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sandbox_row_done(&rows[i]);
    free(rows);
}

static void pages_go_oldest_first_and_end(void **state)
{
    OPEN_STORE;
    char last[SANDBOX_ID_LEN + 1] = "";
    sandbox_row *rows;
    size_t n, seen = 0;

    for (int i = 9; i >= 0; i--) { /* ids fall while time rises */
        char id[32];
        snprintf(id, sizeof id, "b000aaaaaaaaaaaaaaa%d", i);
        sandbox_row r = row_of(id, "alice", NULL);
        assert_ok(store_sandbox_insert(s, &r));
    }
    do {
        assert_ok(store_sandbox_list(s, &(sandbox_page){last, 4}, &rows, &n));
        for (size_t i = 0; i < n; i++, seen++)
            assert_int_equal(rows[i].id[19], (int)('9' - seen));
        if (n)
            snprintf(last, sizeof last, "%s", rows[n - 1].id);
        free_all(rows, n);
    } while (n);
    assert_int_equal(seen, 10);
    assert_err(kind_is(store_sandbox_list(s, &(sandbox_page){ID_C, 4}, &rows, &n), "cursor"),
               ERR_NOT_FOUND);
}

static void pages_of_an_owner_know_no_others(void **state)
{
    OPEN_STORE;
    sandbox_row *rows, a = row_of(ID_A, "alice", NULL), b = row_of(ID_B, "bob", NULL),
                       c = row_of(ID_C, "alice", NULL);
    size_t n;

    assert_ok(store_sandbox_insert(s, &a));
    assert_ok(store_sandbox_insert(s, &b));
    assert_ok(store_sandbox_insert(s, &c));
    assert_ok(store_sandbox_state(s, ID_A, "gone", "{}", 1));
    assert_ok(store_sandbox_list(s, &(sandbox_page){"", 9, "alice"}, &rows, &n));
    assert_int_equal(n, 2);
    assert_string_equal(rows[1].id, ID_C);
    free_all(rows, n);
    assert_ok(store_sandbox_list(s, &(sandbox_page){"", 9, "alice", true}, &rows, &n));
    assert_int_equal(n, 1);
    free_all(rows, n);
    /* Nor does a cursor tell whether there is such a sandbox. */
    assert_err(
        kind_is(store_sandbox_list(s, &(sandbox_page){ID_B, 9, "alice"}, &rows, &n), "cursor"),
        ERR_NOT_FOUND);
}

static void only_old_ended_ones_are_forgotten(void **state)
{
    OPEN_STORE;
    CLEANUP(sandbox_row_done) sandbox_row got = {0};
    sandbox_row a = row_of(ID_A, "a", NULL), b = row_of(ID_B, "a", NULL),
                c = row_of(ID_C, "a", NULL);
    char(*ids)[SANDBOX_ID_LEN + 1] = NULL;
    size_t n = 0;

    assert_ok(store_sandbox_insert(s, &a));
    assert_ok(store_sandbox_insert(s, &b));
    assert_ok(store_sandbox_insert(s, &c));
    assert_ok(store_sandbox_state(s, ID_A, "gone", NULL, 100));
    assert_ok(store_sandbox_state(s, ID_B, "gone", NULL, 200));
    assert_ok(store_sandbox_forget(s, 150, &ids, &n));
    assert_int_equal(n, 1);
    assert_string_equal(ids[0], ID_A);
    free(ids);
    assert_err(store_sandbox_get(s, ID_A, &got), ERR_NOT_FOUND);
    assert_ok(store_sandbox_get(s, ID_B, &got));
}

static void what_ended_in_a_span_is_found(void **state)
{
    OPEN_STORE;
    sandbox_row a = row_of(ID_A, "a", NULL), b = row_of(ID_B, "a", NULL),
                c = row_of(ID_C, "a", NULL);
    char(*ids)[SANDBOX_ID_LEN + 1] = NULL;
    size_t n = 0;

    assert_ok(store_sandbox_insert(s, &a));
    assert_ok(store_sandbox_insert(s, &b));
    assert_ok(store_sandbox_insert(s, &c));
    assert_ok(store_sandbox_state(s, ID_A, "gone", NULL, 100));
    assert_ok(store_sandbox_state(s, ID_B, "gone", NULL, 200));
    assert_ok(store_sandbox_ended(s, 100, 200, &ids, &n));
    assert_int_equal(n, 1); /* its end is outside, and what lives never ended */
    assert_string_equal(ids[0], ID_A);
    free(ids);
    assert_ok(store_sandbox_ended(s, 101, 201, &ids, &n));
    assert_int_equal(n, 1);
    assert_string_equal(ids[0], ID_B);
    free(ids);
    assert_ok(store_sandbox_ended(s, 201, UINT64_MAX, &ids, &n));
    assert_int_equal(n, 0);
    free(ids);
}

static void keys_are_found_by_hash(void **state)
{
    OPEN_STORE;
    CLEANUP(key_row_done) key_row got = {0};
    key_row k = {.id = "k1", .owner = (char *)"alice", .role = (char *)"user", .created_ns = 3};
    uint8_t other[32] = {9};
    key_row *rows;
    size_t n;

    memset(k.sha256, 7, sizeof k.sha256);
    assert_ok(store_key_insert(s, &k));
    assert_err(kind_is(store_key_insert(s, &k), "key"), ERR_CONFLICT);
    assert_ok(store_key_by_hash(s, k.sha256, &got));
    assert_string_equal(got.id, "k1");
    assert_string_equal(got.role, "user");
    assert_null(got.note);
    assert_err(store_key_by_hash(s, other, &got), ERR_NOT_FOUND);
    assert_ok(store_key_list(s, &rows, &n));
    assert_int_equal(n, 1);
    key_row_done(&rows[0]);
    free(rows);
    assert_ok(store_key_remove(s, "k1"));
    assert_err(store_key_remove(s, "k1"), ERR_NOT_FOUND);
    k.role = (char *)"king";
    assert_err(store_key_insert(s, &k), ERR_INVALID_REQUEST);
}

typedef struct epochs {
    unsigned alice, all, rows;
} epochs;

static void take_epoch(void *arg, const char *owner, uint64_t epoch)
{
    epochs *e = arg;

    e->rows++;
    *(*owner ? &e->alice : &e->all) = (unsigned)epoch;
}

/* Also over a restart; what was not removed counts nothing. */
static void removed_keys_are_counted_by_owner(void **state)
{
    OPEN_STORE;
    key_row k = {.owner = (char *)"alice", .role = (char *)"user", .created_ns = 3};
    epochs e = {0};

    for (int i = 0; i < 4; i++) {
        snprintf(k.id, sizeof k.id, "k%d", i);
        memset(k.sha256, i, sizeof k.sha256);
        k.role = (char *)(i == 3 ? "admin" : "user");
        assert_ok(store_key_insert(s, &k));
    }
    assert_ok(store_epoch_each(s, take_epoch, &e));
    assert_int_equal(e.rows, 0);
    assert_ok(store_key_remove(s, "k0"));
    assert_ok(store_key_remove(s, "k1"));
    assert_err(store_key_remove(s, "k1"), ERR_NOT_FOUND);
    assert_ok(store_key_remove(s, "k3"));
    store_close(TAKE_PTR(s));
    assert_ok(store_open(d.fd, "store.db", "full", &s));
    assert_ok(store_epoch_each(s, take_epoch, &e));
    assert_int_equal(e.rows, 2);
    assert_int_equal(e.alice, 2);
    assert_int_equal(e.all, 1);
}

static void an_image_is_replaced_by_name(void **state)
{
    OPEN_STORE;
    image_row i = {.name = (char *)"busybox", .config = (char *)"{}", .created_ns = 1}, *rows;
    size_t n;

    assert_ok(store_image_put(s, &i));
    i.config = (char *)"{\"v\":2}";
    i.digest[0] = 4;
    assert_ok(store_image_put(s, &i));
    assert_ok(store_image_list(s, &rows, &n));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].config, "{\"v\":2}");
    assert_int_equal(rows[0].digest[0], 4);
    image_row_done(&rows[0]);
    free(rows);
    assert_ok(store_image_remove(s, "busybox"));
    assert_err(kind_is(store_image_remove(s, "busybox"), "image"), ERR_NOT_FOUND);
}

static int count(const scratch *d, const char *sql)
{
    char path[96];
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;

    snprintf(path, sizeof path, "%s/store.db", d->path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

static void execute(const scratch *d, const char *sql)
{
    char path[96];
    sqlite3 *db = NULL;

    snprintf(path, sizeof path, "%s/store.db", d->path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void closing_writes_what_is_queued(void **state)
{
    OPEN_STORE;
    sandbox_row a = row_of(ID_A, "alice", NULL);

    assert_ok(store_sandbox_insert(s, &a));
    for (int i = 0; i < 1000; i++)
        store_sandbox_state_queued(s, ID_A, i & 1 ? "running" : "paused", NULL, 0);
    store_close(TAKE_PTR(s));
    assert_int_equal(count(&d, "SELECT count(*) FROM events"), 1001); /* one each, and the first */
}

static template_row template_of(const char *id, const char *owner, const char *name, bool public)
{
    template_row r = {.owner = (char *)owner,
                      .name = (char *)name,
                      .spec = (char *)"{\"image\":\"busybox\"}",
                      .public = public,
                      .created_ns = 5,
                      .changed_ns = 5};

    str_copy(r.id, sizeof r.id, id);
    return r;
}

static void templates_are_found_by_their_owner_and_public_ones_by_all(void **state)
{
    OPEN_STORE;
    template_row a = template_of(ID_A, "alice", "web", false),
                 b = template_of(ID_B, "bob", "web", true);
    template_row c = template_of(ID_C, "bob", "db", false);
    template_row *rows = NULL;
    size_t n = 0;
    static const struct {
        const char *owner;
        bool everybody;
        const char *asked, *found;
    } LOOKS[] = {{"alice", false, "web", ID_A}, {"carol", false, "web", ID_B},
                 {"carol", false, ID_B, ID_B},  {"carol", false, ID_A, NULL},
                 {"carol", true, ID_A, ID_A},   {"carol", true, "db", NULL},
                 {"bob", false, "db", ID_C},    {"alice", false, "db", NULL}};

    assert_ok(store_template_insert(s, &a, 10));
    assert_ok(store_template_insert(s, &b, 10));
    assert_ok(store_template_insert(s, &c, 10));
    for (size_t i = 0; i < ARRAY_LEN(LOOKS); i++) {
        CLEANUP(template_row_done) template_row got = {0};
        CLEANUP(err_freep)
        err *e = kind_is(
            store_template_find(s, LOOKS[i].owner, LOOKS[i].everybody, LOOKS[i].asked, &got),
            "template");
        assert_true(!e == !!LOOKS[i].found);
        if (!e)
            assert_string_equal(got.id, LOOKS[i].found);
    }
    assert_ok(store_template_list(s, "alice", false, &rows, &n));
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++)
        template_row_done(&rows[i]);
    free(rows);
    assert_ok(store_template_remove(s, ID_A));
    CLEANUP(err_freep) err *gone = kind_is(store_template_remove(s, ID_A), "template");
    assert_int_equal(gone->code, ERR_NOT_FOUND);
}

static void templates_have_a_ceiling_and_names_of_their_own(void **state)
{
    OPEN_STORE;
    template_row a = template_of(ID_A, "alice", "web", true),
                 b = template_of(ID_B, "alice", "web", false);

    assert_ok(store_template_insert(s, &a, 1));
    CLEANUP(err_freep) err *full = store_template_insert(s, &b, 1);
    assert_int_equal(full->code, ERR_QUOTA_EXCEEDED);
    CLEANUP(err_freep) err *taken = kind_is(store_template_insert(s, &b, 9), "template");
    assert_int_equal(taken->code, ERR_CONFLICT);
    b.owner = (char *)"bob";
    b.public = true;
    CLEANUP(err_freep) err *public = kind_is(store_template_insert(s, &b, 9), "template");
    assert_int_equal(public->code, ERR_CONFLICT);
    b.public = false;
    assert_ok(store_template_insert(s, &b, 9));
}

static void a_template_is_changed_by_who_has_seen_its_last_change(void **state)
{
    OPEN_STORE;
    CLEANUP(template_row_done) template_row got = {0};
    template_row a = template_of(ID_A, "alice", "web", false);

    assert_ok(store_template_insert(s, &a, 10));
    a.name = (char *)"new";
    assert_ok(store_template_update(s, &a, 6));
    CLEANUP(err_freep) err *late = kind_is(store_template_update(s, &a, 7), "template");
    assert_int_equal(late->code, ERR_CONFLICT);
    assert_ok(store_template_find(s, "alice", false, "new", &got));
    assert_int_equal(got.changed_ns, 6);
    assert_int_equal(got.created_ns, 5);
}

static snapshot_row snapshot_of(const char *id, const char *owner, const char *sandbox)
{
    static uint64_t made;
    snapshot_row r = {.owner = (char *)owner,
                      .image = (char *)"busybox",
                      .bytes = UINT64_C(1) << 40,
                      .entries = 7,
                      .created_ns = ++made};

    str_copy(r.id, sizeof r.id, id);
    str_copy(r.sandbox, sizeof r.sandbox, sandbox);
    return r;
}

static void assert_snapshots(store *s, const char *owner, const char *sandbox, const char *first,
                             size_t n)
{
    snapshot_row *rows = NULL;
    size_t found = 0;

    assert_ok(store_snapshot_list(s, owner, sandbox, false, &rows, &found));
    assert_int_equal(found, n);
    if (n)
        assert_string_equal(rows[0].id, first);
    for (size_t i = 0; i < found; i++)
        snapshot_row_done(&rows[i]);
    free(rows);
}

static void snapshots_are_their_owners_and_listed_oldest_first(void **state)
{
    OPEN_STORE;
    snapshot_row a = snapshot_of(ID_C, "alice", ID_A), b = snapshot_of(ID_A, "alice", ID_B),
                 c = snapshot_of(ID_B, "bob", ID_A);
    CLEANUP(snapshot_row_done) snapshot_row got = {0};

    assert_ok(store_snapshot_insert(s, &a, 2));
    assert_ok(store_snapshot_insert(s, &b, 2));
    assert_ok(store_snapshot_insert(s, &c, 2));
    assert_snapshots(s, "alice", NULL, ID_C, 2);
    assert_snapshots(s, NULL, NULL, ID_C, 3);
    assert_snapshots(s, NULL, ID_A, ID_C, 2);
    assert_snapshots(s, "alice", ID_B, ID_A, 1);
    assert_snapshots(s, "carol", NULL, NULL, 0);
    assert_ok(store_snapshot_find(s, "alice", ID_C, false, &got));
    assert_string_equal(got.owner, "alice");
    assert_string_equal(got.sandbox, ID_A);
    assert_string_equal(got.image, "busybox");
    assert_int_equal(got.bytes, a.bytes);
    assert_int_equal(got.entries, 7);
    assert_int_equal(got.created_ns, a.created_ns);
    snapshot_row_done(&got);
    CLEANUP(err_freep)
    err *hers = kind_is(store_snapshot_find(s, "bob", ID_C, false, &got), "snapshot");
    assert_int_equal(hers->code, ERR_NOT_FOUND);
    assert_ok(store_snapshot_find(s, NULL, ID_C, false, &got)); /* anybody's */
    assert_ok(store_snapshot_remove(s, ID_C));
    CLEANUP(err_freep) err *gone = kind_is(store_snapshot_remove(s, ID_C), "snapshot");
    assert_int_equal(gone->code, ERR_NOT_FOUND);
}

static void snapshots_of_forks_are_nobodys(void **state)
{
    OPEN_STORE;
    snapshot_row kept = snapshot_of(ID_A, "alice", ID_B), fork = snapshot_of(ID_B, "alice", ID_B);
    CLEANUP(snapshot_row_done) snapshot_row got = {0};
    snapshot_row *rows = NULL;
    size_t n = 0;

    fork.fork = kept.secrets = true;
    assert_ok(store_snapshot_insert(s, &kept, 1));
    assert_ok(store_snapshot_insert(s, &fork, 1)); /* beyond the owner's */
    assert_ok(store_snapshot_room(s, "alice", 2));
    assert_snapshots(s, "alice", NULL, ID_A, 1);
    err_free(kind_is(store_snapshot_find(s, NULL, ID_B, false, &got), "snapshot"));
    assert_ok(store_snapshot_find(s, "alice", ID_B, true, &got));
    assert_true(got.fork && !got.secrets);
    assert_ok(store_snapshot_list(s, NULL, NULL, true, &rows, &n));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].id, ID_B);
    snapshot_row_done(&rows[0]);
    free(rows);
}

static void snapshots_of_an_owner_have_a_ceiling(void **state)
{
    OPEN_STORE;
    snapshot_row a = snapshot_of(ID_A, "alice", ID_A), b = snapshot_of(ID_B, "alice", ID_A),
                 c = snapshot_of(ID_C, "bob", ID_A);

    assert_ok(store_snapshot_insert(s, &a, 1));
    assert_err(store_snapshot_insert(s, &b, 1), ERR_QUOTA_EXCEEDED);
    assert_err(store_snapshot_room(s, "alice", 1), ERR_QUOTA_EXCEEDED);
    assert_ok(store_snapshot_room(s, "alice", 2));
    assert_ok(store_snapshot_room(s, "bob", 1));
    assert_ok(store_snapshot_insert(s, &c, 1));
    assert_ok(store_snapshot_remove(s, ID_A));
    assert_ok(store_snapshot_insert(s, &b, 1));
}

static void an_empty_file_is_migrated_and_private(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    struct stat st;

    (void)state;
    close(openat(d.fd, "store.db", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_ok(store_open(d.fd, "store.db", "normal", &s));
    assert_int_equal(count(&d, "PRAGMA user_version"), STORE_VERSION);
    assert_int_equal(fstatat(d.fd, "store.db", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    store_close(TAKE_PTR(s));
    assert_ok(store_open(d.fd, "store.db", "full", &s)); /* and a second time */
}

static build_row build_of(const char *id, const char *template, const char *owner, uint64_t at)
{
    build_row r = {.owner = (char *)owner,
                   .name = (char *)"name",
                   .tags = (char *)"[\"default\"]",
                   .state = (char *)"waiting",
                   .spec = (char *)"{}",
                   .created_ns = at,
                   .changed_ns = at};

    str_copy(r.id, sizeof r.id, id);
    str_copy(r.template, sizeof r.template, template);
    return r;
}

static size_t builds_of(store *s, const char *owner, const char *of)
{
    build_row *rows = NULL;
    size_t n = 0;

    assert_ok(store_build_list(s, owner, of, &rows, &n));
    build_rows_free(rows, n);
    return n;
}

static void builds_are_changed_together_and_forgotten_when_they_failed(void **state)
{
    OPEN_STORE;
    build_row rows[2] = {build_of("b1", ID_A, "alice", 10), build_of("b2", ID_A, "alice", 20)};
    build_row other = build_of("b3", ID_B, "bob", 30), *got = NULL;
    size_t n = 0;

    (void)state;
    assert_ok(store_build_insert(s, &rows[0], 2));
    assert_ok(store_build_insert(s, &rows[1], 2));
    assert_ok(store_build_insert(s, &other, 2));
    build_row third = build_of("b4", ID_A, "alice", 40);
    assert_err(store_build_insert(s, &third, 2), ERR_QUOTA_EXCEEDED);
    assert_int_equal(builds_of(s, "alice", ID_A), 2);
    assert_int_equal(builds_of(s, "alice", "b2"), 1);
    assert_int_equal(builds_of(s, "bob", ID_A), 0);
    assert_int_equal(builds_of(s, NULL, NULL), 3);
    rows[0].state = (char *)"ready";
    rows[0].snapshot = (char *)ID_C;
    rows[1].state = (char *)"error";
    rows[1].reason = (char *)"{}";
    assert_ok(store_build_update(s, rows, 2));
    assert_ok(store_build_list(s, "alice", NULL, &got, &n));
    assert_int_equal(n, 2);
    assert_string_equal(got[0].state, "ready");
    assert_string_equal(got[0].snapshot, ID_C);
    assert_null(got[0].reason);
    assert_string_equal(got[1].state, "error");
    build_rows_free(got, n);
    assert_ok(store_build_forget(s, 25)); /* the second; the first is ready, the third is younger */
    assert_int_equal(builds_of(s, "alice", NULL), 1);
    assert_int_equal(builds_of(s, "bob", NULL), 1);
    assert_err(store_build_update(s, &rows[1], 1), ERR_NOT_FOUND);
    assert_ok(store_build_remove(s, "b1"));
    assert_ok(store_build_remove(s, "b1"));
    assert_int_equal(builds_of(s, "alice", NULL), 0);
}

static void a_build_without_tags_and_files_makes_room(void **state)
{
    OPEN_STORE;
    build_row old = build_of("b1", ID_A, "alice", 10), second = build_of("b2", ID_A, "alice", 20);
    build_row third = build_of("b3", ID_A, "alice", 30);

    (void)state;
    assert_ok(store_build_insert(s, &old, 2));
    assert_ok(store_build_insert(s, &second, 2));
    old.state = (char *)"ready";
    old.tags = (char *)"[]";
    old.snapshot = (char *)ID_C;
    assert_ok(store_build_update(s, &old, 1));
    assert_ok(store_build_forget(s, 15)); /* its files are to go first */
    assert_err(store_build_insert(s, &third, 2), ERR_QUOTA_EXCEEDED);
    old.snapshot = NULL;
    assert_ok(store_build_update(s, &old, 1));
    assert_ok(store_build_insert(s, &third, 2));
    assert_int_equal(builds_of(s, "alice", "b1"), 0);
    assert_int_equal(builds_of(s, "alice", NULL), 2);
    second.state = (char *)"ready";
    second.tags = (char *)"[]";
    assert_ok(store_build_update(s, &second, 1));
    assert_ok(store_build_forget(s, 25));
    assert_int_equal(builds_of(s, "alice", NULL), 1);
}

/* As a store of the first version is: without the columns. */
static void a_store_without_walls_is_migrated(void **state)
{
    OPEN_STORE;
    CLEANUP(sandbox_row_done) sandbox_row got = {0};
    sandbox_row a = row_of(ID_A, "alice", NULL);

    assert_ok(store_sandbox_insert(s, &a));
    store_close(TAKE_PTR(s));
    execute(&d, "DROP TABLE epochs; DROP TRIGGER key_removed; "
                "DROP INDEX sandboxes_live; DROP INDEX sandboxes_owner; "
                "DROP TABLE builds; DROP TABLE snapshots; DROP TABLE templates; "
                "DROP TRIGGER sandbox_made; DROP TRIGGER sandbox_moved; "
                "DROP TRIGGER sandbox_changed; DROP INDEX events_owner; DROP INDEX events_sandbox; "
                "ALTER TABLE events DROP COLUMN owner; "
                "ALTER TABLE keys DROP COLUMN max_sandboxes; "
                "ALTER TABLE keys DROP COLUMN creates_milli; "
                "ALTER TABLE keys DROP COLUMN max_concurrent; "
                "ALTER TABLE keys DROP COLUMN max_ttl; "
                "ALTER TABLE sandboxes DROP COLUMN pending; "
                "ALTER TABLE sandboxes DROP COLUMN walls; "
                "ALTER TABLE sandboxes DROP COLUMN paused; PRAGMA user_version = 1");
    assert_ok(store_open(d.fd, "store.db", "full", &s));
    assert_ok(store_sandbox_get(s, ID_A, &got));
    assert_null(got.walls);
    assert_int_equal(got.paused_ns, 0);
    assert_int_equal(count(&d, "PRAGMA user_version"), STORE_VERSION);
}

static void a_newer_version_is_refused_with_a_remedy(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    store *s = NULL;

    (void)state;
    execute(&d, "PRAGMA user_version = 99");
    CLEANUP(err_freep) err *e = store_open(d.fd, "store.db", "full", &s);
    assert_non_null(e);
    assert_int_equal(e->code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e->message, "version 99"));
    assert_non_null(e->remedy);
    assert_null(s);
    assert_int_equal(count(&d, "PRAGMA user_version"), 99);
}

static void what_is_no_database_is_refused(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    char junk[4096];
    store *s = NULL;

    (void)state;
    memset(junk, 'x', sizeof junk);
    assert_ok(fs_write(d.fd, "store.db", junk, sizeof junk, 0600, false));
    CLEANUP(err_freep) err *e = store_open(d.fd, "store.db", "full", &s);
    assert_non_null(e);
    assert_non_null(strstr(e->message, "damaged"));
    assert_err(store_open(d.fd, "other.db", "sometimes", &s), ERR_INVALID_REQUEST);
}

/* bothyd may hold a directory whose path it cannot walk (a root-owned one of mode 0700). */
static void the_directorys_path_need_not_be_walkable(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    int status;

    (void)state;
    assert_int_equal(mkdirat(d.fd, "closed", 0700), 0);
    assert_int_equal(mkdirat(d.fd, "closed/inner", 0777), 0);
    assert_int_equal(fchmodat(d.fd, "closed/inner", 0777, 0), 0);
    int inner = openat(d.fd, "closed/inner", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(inner >= 0);
    assert_int_equal(fchmodat(d.fd, "closed", 0, 0), 0);
    pid_t pid = fork(); /* root walks everywhere: become somebody */
    if (!pid) {
        store *s = NULL;
        if (!geteuid() && setresuid(65534, 65534, 65534))
            _exit(2);
        _exit(store_open(inner, "store.db", "full", &s) ? 1 : (store_close(s), 0));
    }
    close(inner);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(fchmodat(d.fd, "closed", 0700, 0), 0);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: it forks, and must do so before there are threads */
        cmocka_unit_test(the_directorys_path_need_not_be_walkable),
        cmocka_unit_test(a_row_comes_back_whole),
        cmocka_unit_test(names_are_unique_among_an_owners_live_ones),
        cmocka_unit_test(nameless_ones_are_many),
        cmocka_unit_test(a_taken_key_is_told_before_a_taken_name),
        cmocka_unit_test(states_and_specs_are_updated),
        cmocka_unit_test(a_pause_stops_the_time_and_never_wakes_the_dead),
        cmocka_unit_test(walls_stay_when_the_state_changes),
        cmocka_unit_test(a_store_without_walls_is_migrated),
        cmocka_unit_test(pages_go_oldest_first_and_end),
        cmocka_unit_test(pages_of_an_owner_know_no_others),
        cmocka_unit_test(only_old_ended_ones_are_forgotten),
        cmocka_unit_test(what_ended_in_a_span_is_found),
        cmocka_unit_test(keys_are_found_by_hash),
        cmocka_unit_test(removed_keys_are_counted_by_owner),
        cmocka_unit_test(an_image_is_replaced_by_name),
        cmocka_unit_test(closing_writes_what_is_queued),
        cmocka_unit_test(templates_are_found_by_their_owner_and_public_ones_by_all),
        cmocka_unit_test(templates_have_a_ceiling_and_names_of_their_own),
        cmocka_unit_test(a_template_is_changed_by_who_has_seen_its_last_change),
        cmocka_unit_test(snapshots_are_their_owners_and_listed_oldest_first),
        cmocka_unit_test(snapshots_of_forks_are_nobodys),
        cmocka_unit_test(snapshots_of_an_owner_have_a_ceiling),
        cmocka_unit_test(builds_are_changed_together_and_forgotten_when_they_failed),
        cmocka_unit_test(a_build_without_tags_and_files_makes_room),
        cmocka_unit_test(an_empty_file_is_migrated_and_private),
        cmocka_unit_test(a_newer_version_is_refused_with_a_remedy),
        cmocka_unit_test(what_is_no_database_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
