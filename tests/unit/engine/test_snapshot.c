/* Snapshots over a real store and a backend that does what the test says: what is left of one that
 * fails, and what a restart finds. */
#include <string.h>
#include <sys/utsname.h>

#include "base/thread.h"
#include "engine/internal.h"

#include "node.h"

#define ID          "t000aaaaaaaaaaaaaaaa"
#define LAYERS      3
#define HOLD_MAX_MS 10000 /* who waits for one that does not end fails, and does not hang */

struct box {
    const box_events *ev;
    void *arg;
};

static struct {
    backend b;
    box box;
    _Atomic err_code no_snapshot; /* fails */
    _Atomic int snapshots, prunes;
    exec_table *table;       /* whose clock is looked at */
    _Atomic uint64_t ran_ns; /* by that clock, while one was taken */
    _Atomic bool hold;       /* one does not come back */
    bool another;            /* is recorded meanwhile */
    const char *listed;      /* the id of the one there is */
    size_t nlayers;          /* of the last image that was defined */
    uint8_t layer[32];       /* that was asked for last */
    uint8_t top_layer[32];   /* of the last image */
} hand;

static caller ann = {"ann", CALLER_USER}, ben = {"ben", CALLER_USER}, eve = {"eve", CALLER_READ},
              root = {"root", CALLER_ADMIN};
static const uint8_t BASE[32] = {7};

/* ---- the backend ---- */

static err *hand_attach(backend *b, const char *id, const box_events *ev, void *arg, box **ret_box)
{
    (void)b, (void)id;
    hand.box = (box){ev, arg};
    *ret_box = &hand.box;
    return NULL;
}

static void die(void)
{
    const box_events *ev = hand.box.ev;

    hand.box.ev = NULL;
    if (ev)
        ev->gone(hand.box.arg, "killed");
}

static err *hand_destroy(backend *b, const char *id)
{
    (void)b, (void)id;
    die();
    return NULL;
}

static err *hand_list(backend *b, box_status **ret_list, size_t *ret_n)
{
    (void)b;
    *ret_list = xcalloc(1, sizeof **ret_list);
    strcpy((*ret_list)->id, hand.listed);
    *ret_n = 1;
    return NULL;
}

static err *hand_image(backend *b, const uint8_t digest[32], const uint8_t (*diff_ids)[32],
                       size_t n)
{
    (void)b, (void)digest;
    hand.nlayers = n;
    memcpy(hand.top_layer, diff_ids[n - 1], 32);
    return NULL;
}

static err *hand_prune(backend *b, const uint8_t (*images)[32], size_t n, bool layers,
                       uint64_t *ret_bytes)
{
    (void)b, (void)images, (void)n, (void)layers;
    *ret_bytes = 0;
    hand.prunes++;
    return NULL;
}

static void insert_one(unsigned i)
{
    snapshot_row r = {.owner = "ann", .image = "any", .sandbox = ID};

    snprintf(r.id, sizeof r.id, "t000%016u", i);
    assert_ok(store_snapshot_insert(node.store, &r, SNAPSHOTS_MAX));
}

static err *hand_snapshot(backend *b, const char *id, const uint8_t layer[32],
                          box_snapshot *ret_what)
{
    (void)b;
    assert_string_equal(id, ID);
    memcpy(hand.layer, layer, 32);
    hand.snapshots++;
    assert_int_equal(node.engine->copies.places, SNAPSHOT_COPIES - 1); /* it has a turn */
    if (hand.another)
        insert_one(SNAPSHOTS_MAX);
    uint64_t before = hand.table ? exec_table_clock(hand.table) : 0;
    for (int i = 0; hand.hold && i < HOLD_MAX_MS; i++)
        usleep(1000);
    usleep(2000);
    hand.ran_ns = hand.table ? exec_table_clock(hand.table) - before : 0;
    if (hand.no_snapshot)
        return err_new(hand.no_snapshot, "it fails");
    *ret_what = (box_snapshot){.bytes = 1000, .entries = 10, .still_ns = 5};
    return NULL;
}

static err *hand_freeze(box *x)
{
    (void)x;
    return NULL;
}

static void hand_ref(box *x)
{
    (void)x;
}

static const backend_ops HAND_OPS = {.attach = hand_attach,
                                     .destroy = hand_destroy,
                                     .list = hand_list,
                                     .image = hand_image,
                                     .prune = hand_prune,
                                     .snapshot = hand_snapshot,
                                     .freeze = hand_freeze,
                                     .thaw = hand_freeze,
                                     .box_ref = hand_ref,
                                     .box_unref = hand_ref};

/* ---- a node around it, with one sandbox that an earlier bothyd has left ---- */

static void put_image(const char *name, size_t layers)
{
    struct utsname u;
    CLEANUP(buf_done) buf config = {0};

    uname(&u);
    const char *arch = !strcmp(u.machine, "aarch64") ? "arm64" : "amd64";
    buf_printf(&config,
               "{\"os\":\"linux\",\"architecture\":\"%s\",\"config\":{\"Env\":[\"A=1\"],"
               "\"User\":\"nobody\",\"WorkingDir\":\"/srv\"},\"rootfs\":{\"type\":\"layers\","
               "\"diff_ids\":[",
               arch);
    for (size_t i = 0; i < layers; i++)
        buf_printf(&config, "%s\"sha256:%064zx\"", i ? "," : "", i + 1);
    buf_str(&config, "]}}");
    image_row r = {.name = (char *)name, .config = (char *)buf_cstr(&config), .created_ns = 1};
    memcpy(r.digest, BASE, sizeof r.digest);
    assert_ok(store_image_put(node.store, &r));
}

static void open_images(void)
{
    CLEANUP(freep) char *path = str_printf("%s/staging", node.dir);

    image_store_free(node.images);
    assert_ok(image_store_new(&(image_options){.staging_dir = node.staging,
                                               .staging_path = path,
                                               .skopeo = "/bin/false",
                                               .backend = node.backend,
                                               .store = node.store,
                                               .pull_timeout_ms = 1000},
                              &node.images));
}

static void open_node(size_t layers)
{
    memset(&hand, 0, sizeof hand);
    hand.b.ops = &HAND_OPS;
    hand.b.caps.name = "hand";
    hand.listed = ID;
    hand.b.caps.snapshot = hand.b.caps.images = CAP_NATIVE;
    node_open(&hand.b);
    put_image("any", layers);
    open_images();
    node_open_engine(0, 60000);
}

static int setup(void **state)
{
    (void)state;
    open_node(LAYERS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    die();
    node_close();
    return 0;
}

static sandbox *adopt(void)
{
    sandbox_row r = {.id = ID,
                     .owner = "ann",
                     .state = "running",
                     .image = "any",
                     .spec = "{}",
                     .created_ns = fake_now};
    sandbox *sb = NULL;

    memcpy(r.digest, BASE, sizeof r.digest);
    assert_ok(store_sandbox_insert(node.store, &r));
    assert_ok(engine_reconcile(node.engine));
    assert_ok(engine_find(node.engine, &ann, ID, &sb));
    return sb;
}

static void start_again(const char *listed)
{
    die();
    engine_free(node.engine);
    open_images();
    node_open_engine(0, 60000);
    hand.listed = listed;
}

static size_t derived(void)
{
    CLEANUP(strv_freep) char **ids = image_derived_ids(node.images);
    size_t n = 0;

    while (ids && ids[n])
        n++;
    return n;
}

static void prune(void)
{
    uint64_t bytes;

    assert_ok(engine_prune_images(node.engine, &root, false, &bytes));
}

static size_t recorded(const caller *c)
{
    snapshot_row *rows = NULL;
    size_t n = 0;

    assert_ok(engine_snapshot_list(node.engine, c, NULL, &rows, &n));
    for (size_t i = 0; i < n; i++)
        snapshot_row_done(&rows[i]);
    free(rows);
    return n;
}

/* Neither by its name nor by its digest, which views show: a snapshot has an owner. */
static void nobody_finds(const image *made, const char *id)
{
    char hex[65];
    hex_encode(made->digest, sizeof made->digest, hex);
    char *const ways[] = {str_printf(IMAGE_DERIVED "%s", id), str_printf("sha256:%s", hex),
                          str_printf("sha256:%.12s", hex), str_printf("%.12s", hex)};

    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        image *found = NULL;
        err *e = image_find(node.images, ways[i], &found);
        assert_null(found);
        assert_true(e && (e->code == ERR_NOT_FOUND || e->code == ERR_INVALID_REQUEST));
        err_free(e);
        e = image_remove(node.images, ways[i]);
        assert_non_null(e);
        err_free(e);
        free(ways[i]);
    }
    assert_int_equal(derived(), 1);
}

/* A registry may be called as our own prefixes are. */
static void images_of_any_registry_are_no_snapshots(void **state)
{
    static const char *const NAMES[] = {"snapshot:5000/app:latest", "gone:5000/app:latest"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        put_image(NAMES[i], LAYERS);
    start_again(ID);
    assert_int_equal(derived(), 0);
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        CLEANUP(image_unrefp) image *found = NULL;
        assert_ok(image_find(node.images, NAMES[i], &found));
        assert_string_equal(found->name, NAMES[i]);
    }
}

/* ---- the cases ---- */

static void one_is_an_image_with_a_layer_more_and_a_record(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();
    CLEANUP(snapshot_row_done) snapshot_row row = {0}, other = {0};
    CLEANUP(image_unrefp) image *made = NULL;
    uint64_t still = 0;

    (void)state;
    assert_err(engine_snapshot(node.engine, &eve, sb, &row, &still), ERR_FORBIDDEN);
    assert_ok(engine_snapshot(node.engine, &ann, sb, &row, &still));
    assert_int_equal(still, 5);
    assert_int_equal(row.bytes, 1000);
    assert_string_equal(row.sandbox, ID);
    assert_string_equal(row.image, "any");
    assert_int_equal(hand.nlayers, LAYERS + 1);
    assert_memory_equal(hand.top_layer, hand.layer, 32);
    assert_ok(image_derived(node.images, row.id, &made));
    assert_string_equal(made->user, "nobody");
    assert_string_equal(made->env[0], "A=1");
    nobody_finds(made, row.id);
    assert_err(engine_snapshot_find(node.engine, &ben, row.id, &other), ERR_NOT_FOUND);
    assert_int_equal(recorded(&ben), 0);
    assert_int_equal(recorded(&root), 1);
    assert_err(engine_snapshot_remove(node.engine, &ben, row.id), ERR_NOT_FOUND);
    assert_ok(engine_snapshot_remove(node.engine, &ann, row.id));
    assert_int_equal(recorded(&root), 0);
    prune();
    assert_int_equal(derived(), 0);
}

static void one_that_fails_leaves_neither_an_image_nor_a_record(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();
    CLEANUP(snapshot_row_done) snapshot_row row = {0};
    uint64_t still;

    (void)state;
    hand.no_snapshot = ERR_DISK_FULL;
    assert_err(engine_snapshot(node.engine, &ann, sb, &row, &still), ERR_DISK_FULL);
    assert_int_equal(derived() + recorded(&root), 0);
    assert_int_equal(node.engine->copies.places, SNAPSHOT_COPIES);
    hand.no_snapshot = 0;
    for (unsigned i = 0; i < SNAPSHOTS_MAX - 1; i++)
        insert_one(i);
    hand.another = true;
    assert_err(engine_snapshot(node.engine, &ann, sb, &row, &still), ERR_QUOTA_EXCEEDED);
    assert_int_equal(derived(), 0);
    assert_int_equal(recorded(&root), SNAPSHOTS_MAX);
    hand.another = false;
    hand.snapshots = 0;
    assert_err(engine_snapshot(node.engine, &ann, sb, &row, &still), ERR_QUOTA_EXCEEDED);
    assert_int_equal(derived(), 0);
    assert_int_equal(recorded(&root), SNAPSHOTS_MAX);
    assert_int_equal(hand.snapshots, 0); /* nothing was copied in vain */
}

static void a_prune_takes_away_what_is_not_recorded(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();
    CLEANUP(snapshot_row_done) snapshot_row kept = {0}, lost = {0};
    uint64_t still;

    (void)state;
    assert_ok(engine_snapshot(node.engine, &ann, sb, &kept, &still));
    assert_ok(engine_snapshot(node.engine, &ann, sb, &lost, &still));
    assert_ok(store_snapshot_remove(node.store, lost.id));
    assert_int_equal(derived(), 2);
    prune();
    assert_int_equal(derived(), 1);
    CLEANUP(image_unrefp) image *made = NULL;
    assert_ok(image_derived(node.images, kept.id, &made));
}

static void begun_in_an_earlier_life(void)
{
    image_row r = {.name = "@making:"
                           "0900000000000000000000000000000000000000000000000000000000000000",
                   .config = "{}",
                   .created_ns = 1,
                   .digest = {9}};

    assert_ok(store_image_put(node.store, &r));
}

/* Nobody else would look: what it has left is no image, and has no record. */
static void a_start_prunes_what_a_kill_has_left_of_one(void **state)
{
    (void)state;
    start_again(ID);
    sandbox_unref(adopt());
    assert_false(image_derive_was_cut(node.images));
    hand.prunes = 0;
    begun_in_an_earlier_life();
    start_again(ID);
    assert_true(image_derive_was_cut(node.images));
    assert_ok(engine_reconcile(node.engine));
    for (int i = 0; i < 10000 && image_derive_was_cut(node.images); i++)
        usleep(1000);
    assert_false(image_derive_was_cut(node.images));
    assert_in_range(hand.prunes, 1, 2);
    start_again(ID);
    assert_false(image_derive_was_cut(node.images));
}

static void an_image_of_as_many_layers_as_there_may_be_is_read_again(void **state)
{
    CLEANUP(snapshot_row_done) snapshot_row row = {0};
    CLEANUP(image_unrefp) image *made = NULL;
    uint64_t still;

    (void)state;
    die();
    node_close();
    open_node(IMAGE_LAYERS_MAX - 1);
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();
    assert_ok(engine_snapshot(node.engine, &ann, sb, &row, &still));
    sandbox_unref(TAKE_PTR(sb));
    start_again(ID);
    assert_ok(image_derived(node.images, row.id, &made));
    assert_int_equal(made->nlayers, IMAGE_LAYERS_MAX);
}

#define CHILD "t000bbbbbbbbbbbbbbbb"

/* A sandbox made of the snapshot, beside which nothing lives any more. */
static sandbox *child_of(const snapshot_row *row, sandbox **parent)
{
    CLEANUP(image_unrefp) image *made = NULL;
    sandbox_row r = {.id = CHILD,
                     .owner = "ann",
                     .state = "running",
                     .image = "any",
                     .spec = "{\"snapshot\":\"x\"}"};
    sandbox *child = NULL;

    assert_ok(image_derived(node.images, row->id, &made));
    memcpy(r.digest, made->digest, sizeof r.digest);
    assert_ok(store_sandbox_insert(node.store, &r));
    sandbox_unref(TAKE_PTR(*parent));
    start_again(CHILD);
    assert_ok(engine_reconcile(node.engine));
    assert_ok(engine_find(node.engine, &ann, CHILD, &child));
    return child;
}

/* A snapshot of the child needs it, also after a restart. */
static void an_image_that_a_sandbox_is_made_of_keeps_its_name(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();
    CLEANUP(snapshot_row_done) snapshot_row row = {0};
    uint64_t still;

    (void)state;
    assert_ok(engine_snapshot(node.engine, &ann, sb, &row, &still));
    CLEANUP(sandbox_unrefp) sandbox *child = child_of(&row, &sb);
    assert_ok(engine_snapshot_remove(node.engine, &ann, row.id));
    prune();
    assert_int_equal(derived(), 1);
    assert_ok(engine_delete(node.engine, &ann, child, CAUSE_REQUESTED, NULL));
    prune();
    assert_int_equal(derived(), 0);
}

static void the_keeper_prunes_only_when_something_has_gone(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();
    CLEANUP(snapshot_row_done) snapshot_row row = {0};
    uint64_t still;

    (void)state;
    assert_ok(engine_snapshot(node.engine, &ann, sb, &row, &still));
    CLEANUP(sandbox_unrefp) sandbox *child = child_of(&row, &sb);
    assert_ok(engine_delete(node.engine, &ann, child, CAUSE_REQUESTED, NULL));
    usleep(2500000); /* the keeper has looked */
    assert_int_equal(hand.prunes, 0);
    assert_ok(engine_snapshot_remove(node.engine, &ann, row.id));
    for (int i = 0; i < 10000 && !hand.prunes; i++)
        usleep(1000);
    assert_int_not_equal(hand.prunes, 0);
    assert_int_equal(derived(), 0);
}

static struct {
    _Atomic int done;
    _Atomic int failed;
} told;

static void on_done(void *arg, err *failure, const snapshot_row *row, uint64_t still_ns)
{
    (void)arg, (void)still_ns;
    assert_true(!failure == !!row);
    told.failed += failure != NULL;
    err_free(failure);
    told.done++;
}

static err *take_one(const caller *c, sandbox *sb, snapshot_row *ret)
{
    uint64_t still = 0;

    snapshot_row_done(ret);
    *ret = (snapshot_row){0};
    return engine_snapshot(node.engine, c, sb, ret, &still);
}

/* Each has a thousand. */
static void an_owners_snapshots_have_so_many_bytes_together(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();
    CLEANUP(snapshot_row_done) snapshot_row row = {0};

    (void)state;
    node.engine->o.quota.snapshot_bytes = 2500;
    assert_ok(take_one(&ann, sb, &row));
    assert_ok(take_one(&ann, sb, &row));
    err *refused = take_one(&ann, sb, &row); /* it was copied, and is too large */
    assert_non_null(refused);
    assert_string_equal(refused->kind, "snapshot_bytes");
    assert_non_null(strstr(refused->message, "2000 bytes"));
    assert_err(refused, ERR_QUOTA_EXCEEDED);
    assert_int_equal(hand.snapshots, 3);
    assert_int_equal(recorded(&ann), 2);
    node.engine->o.quota.snapshot_bytes = 2000;
    assert_err(take_one(&ann, sb, &row), ERR_QUOTA_EXCEEDED);
    assert_int_equal(hand.snapshots, 3);  /* nothing was copied */
    assert_ok(take_one(&root, sb, &row)); /* not of administrators */
    assert_ok(engine_snapshot_remove(node.engine, &ann, row.id));
    node.engine->o.quota.snapshot_bytes = 3000;
    assert_ok(take_one(&ann, sb, &row));
    assert_int_equal(recorded(&ann), 3);
}

/* Also when they are taken at the same time. */
static void bytes_of_snapshots_under_way_count_once_each(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();

    (void)state;
    told.done = told.failed = 0;
    hand.hold = true;
    node.engine->o.quota.snapshot_bytes = 1500;
    for (int i = 0; i < 2; i++)
        assert_ok(engine_snapshot_start(node.engine, &ann, sb, on_done, NULL));
    hand.hold = false;
    for (int i = 0; i < 5000 && told.done < 2; i++)
        usleep(1000);
    assert_int_equal(told.done, 2);
    assert_int_equal(told.failed, 1);
    assert_int_equal(recorded(&ann), 1);
}

static void nobody_waits_and_there_are_only_so_many(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();
    unsigned begun = 0;
    err *refused = NULL;

    (void)state;
    told.done = told.failed = 0;
    hand.hold = true;
    while (!(refused = engine_snapshot_start(node.engine, &ann, sb, on_done, NULL)))
        begun++;
    assert_err(refused, ERR_UNAVAILABLE);
    assert_in_range(begun, 2, 64);
    assert_int_equal(told.done, 0);
    hand.hold = false;
    for (int i = 0; i < 5000 && (unsigned)told.done < begun; i++)
        usleep(1000);
    assert_int_equal(told.done, begun);
    assert_int_equal(told.failed, 0);
    assert_int_equal(recorded(&ann), begun);
}

static void begin_one(sandbox *sb)
{
    told.done = told.failed = 0;
    hand.snapshots = 0;
    hand.hold = true;
    assert_ok(engine_snapshot_start(node.engine, &ann, sb, on_done, NULL));
    for (int i = 0; i < 5000 && !hand.snapshots; i++)
        usleep(1000);
    assert_int_equal(hand.snapshots, 1);
}

static void let_it_end(void)
{
    hand.hold = false;
    for (int i = 0; i < 5000 && !told.done; i++)
        usleep(1000);
    assert_int_equal(told.done, 1);
}

/* Their requests have threads that others need. */
static void nobody_waits_for_one_to_change_the_sandbox(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();
    CLEANUP(json_decrefp) json_t *labels = json_pack("{s:s}", "a", "b");
    resumed r;

    (void)state;
    begin_one(sb);
    assert_ok(engine_update(node.engine, &ann, sb,
                            &(sandbox_patch){.has_ttl = true, .ttl_ms = 5000, .labels = labels}));
    assert_ok(engine_resume(node.engine, &ann, sb, &r)); /* it runs */
    err *e = engine_pause(node.engine, &ann, sb);
    assert_non_null(e);
    assert_int_equal(e->code, ERR_UNAVAILABLE);
    assert_true(e->retry_after);
    err_free(e);
    assert_int_equal(told.done, 0);
    let_it_end();
    assert_int_equal(told.failed, 0);
    assert_ok(engine_pause(node.engine, &ann, sb));
    begin_one(sb);
    assert_ok(engine_pause(node.engine, &ann, sb)); /* it is */
    assert_err(engine_resume(node.engine, &ann, sb, &r), ERR_UNAVAILABLE);
    assert_int_equal(told.done, 0);
    let_it_end();
    assert_ok(engine_resume(node.engine, &ann, sb, &r));
}

static void time_limits_of_commands_stand_still_meanwhile(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt();
    CLEANUP(snapshot_row_done) snapshot_row row = {0};
    uint64_t still;

    (void)state;
    hand.ran_ns = 1;
    hand.table = sb->table;
    assert_ok(engine_snapshot(node.engine, &ann, sb, &row, &still));
    assert_int_equal(hand.ran_ns, 0);
    uint64_t before = exec_table_clock(sb->table);
    usleep(2000);
    assert_true(exec_table_clock(sb->table) > before);
}

static void on_created(void *arg, err *failure, sandbox *sb, bool replay)
{
    (void)replay;
    *(err_code *)arg = failure ? failure->code : ERR_INTERNAL;
    err_free(failure);
    sandbox_unref(sb);
}

/* Who has a snapshot names no path of the node, whatever its sandbox was made of. */
static void one_of_an_image_by_its_path_is_its_owners_to_use(void **state)
{
    snapshot_row r = {.owner = "ann", .image = "oci:/images/app:1", .sandbox = ID};
    CLEANUP(sandbox_spec_done) sandbox_spec by_path = {.image = xstrdup(r.image)};
    CLEANUP(sandbox_spec_done) sandbox_spec spec = {.snapshot = xstrdup("t0000000000000000001")};
    err_code code = ERR_INTERNAL;

    (void)state;
    strcpy(r.id, spec.snapshot);
    assert_ok(store_snapshot_insert(node.store, &r, SNAPSHOTS_MAX));
    sandbox_unref(engine_create(node.engine, &ann, &by_path, PULL_NEVER, &(idempotency){0},
                                on_created, &code));
    assert_int_equal(code, ERR_FORBIDDEN);
    sandbox_unref(
        engine_create(node.engine, &ann, &spec, PULL_NEVER, &(idempotency){0}, on_created, &code));
    assert_int_equal(code, ERR_NOT_FOUND); /* its files are not here */
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(one_is_an_image_with_a_layer_more_and_a_record),
        CASE(one_that_fails_leaves_neither_an_image_nor_a_record),
        CASE(a_prune_takes_away_what_is_not_recorded),
        CASE(an_image_that_a_sandbox_is_made_of_keeps_its_name),
        CASE(the_keeper_prunes_only_when_something_has_gone),
        CASE(an_image_of_as_many_layers_as_there_may_be_is_read_again),
        CASE(images_of_any_registry_are_no_snapshots),
        CASE(nobody_waits_for_one_to_change_the_sandbox),
        CASE(one_of_an_image_by_its_path_is_its_owners_to_use),
        CASE(a_start_prunes_what_a_kill_has_left_of_one),
        CASE(time_limits_of_commands_stand_still_meanwhile),
        CASE(an_owners_snapshots_have_so_many_bytes_together),
        CASE(bytes_of_snapshots_under_way_count_once_each),
        CASE(nobody_waits_and_there_are_only_so_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
