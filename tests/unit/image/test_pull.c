/* Pulls with the real skopeo from an OCI layout made here, a real store and a backend that only
 * takes notes. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "image/images.h"
#include "image/manifest.h"

#include "../unit.h"

/* ---- a machine without room for threads ---- */

static atomic_bool no_threads;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    return no_threads ? EAGAIN : __real_pthread_create(t, attr, run, arg);
}

/* ---- a backend that counts ---- */

typedef struct notes {
    backend base;
    atomic_int unpacked, defined, pruned;
    atomic_bool slow, refuse, hold;
    atomic_int held; /* layers of eve's */
    uint8_t last_diff_id[32];
} notes;

static err *note_unpack(backend *b, const uint8_t diff_id[32], int format, int blob_fd)
{
    notes *n = (notes *)b;
    char head[16] = {0};

    (void)format;
    assert_true(read(blob_fd, head, sizeof head) > 0);
    if (n->slow)
        usleep(200000);
    n->held += n->hold && memmem(head, sizeof head, "eve", 3);
    while (n->hold && memmem(head, sizeof head, "eve", 3))
        usleep(1000);
    if (n->refuse)
        return err_new(ERR_IMAGE_UNSUPPORTED, "a layer was refused");
    memcpy(n->last_diff_id, diff_id, 32);
    n->unpacked++;
    return NULL;
}

static err *note_image(backend *b, const uint8_t digest[32], const uint8_t (*ids)[32], size_t n)
{
    (void)digest, (void)ids;
    assert_int_equal(n, 2);
    ((notes *)b)->defined++;
    return NULL;
}

static err *note_prune(backend *b, const uint8_t (*images)[32], size_t n, bool unclaimed,
                       uint64_t *ret_bytes)
{
    (void)images, (void)unclaimed;
    ((notes *)b)->pruned += (int)n;
    *ret_bytes = 100 * n;
    return NULL;
}

static const backend_ops NOTE_OPS = {
    .unpack = note_unpack, .image = note_image, .prune = note_prune};

/* ---- a place with a layout ---- */

typedef struct place {
    char dir[64];
    int fd, staging;
    char *staging_path, *source;
    notes notes;
    store *store;
    image_store *images;
} place;

static void write_file(int dir, const char *name, const char *text)
{
    assert_ok(fs_write(dir, name, text, strlen(text), 0644, false));
}

/* A blob under its digest; returns its descriptor's inside. */
static char *blob(int oci, const char *text)
{
    unsigned char digest[32];
    char hex[65];

    sha256(text, strlen(text), digest);
    hex_encode(digest, 32, hex);
    CLEANUP(closep) int blobs = openat(oci, "blobs/sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    write_file(blobs, hex, text);
    return str_printf("\"digest\":\"sha256:%s\",\"size\":%zu", hex, strlen(text));
}

static void make_layout(int dir, const char *name, const char *arch, const char *user)
{
    CLEANUP(closep) int oci = -1;

    assert_ok(fs_dir(dir, name, 0755, &oci));
    assert_int_equal(mkdirat(oci, "blobs", 0755), 0);
    assert_int_equal(mkdirat(oci, "blobs/sha256", 0755), 0);
    CLEANUP(freep) char *first = str_printf("%s layer 1", user);
    CLEANUP(freep) char *second = str_printf("%s layer 2", user);
    CLEANUP(freep) char *one = blob(oci, first);
    CLEANUP(freep) char *two = blob(oci, second);
    CLEANUP(freep)
    char *text =
        str_printf("{\"os\":\"linux\",\"architecture\":\"%s\",\"config\":{\"Env\":[\"A=1\"],"
                   "\"User\":\"%s\",\"Cmd\":[\"sh\"]},\"rootfs\":{\"type\":\"layers\","
                   "\"diff_ids\":[\"%.71s\",\"%.71s\"]}}",
                   arch, user, one + 10, two + 10);
    CLEANUP(freep) char *config = blob(oci, text);
    CLEANUP(freep)
    char *listed = str_printf(
        "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\","
        "\"config\":{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",%s},\"layers\":["
        "{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar\",%s},"
        "{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar\",%s}]}",
        config, one, two);
    CLEANUP(freep) char *described = blob(oci, listed);
    CLEANUP(freep)
    char *index = str_printf("{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":"
                             "\"application/vnd.oci.image.manifest.v1+json\",%s,\"annotations\":"
                             "{\"org.opencontainers.image.ref.name\":\"latest\"}}]}",
                             described);
    write_file(oci, "index.json", index);
    write_file(oci, "oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
}

static void open_images(place *p)
{
    assert_ok(store_open(p->fd, "store.db", "normal", &p->store));
    assert_ok(image_store_new(&(image_options){.staging_dir = p->staging,
                                               .staging_path = p->staging_path,
                                               .skopeo = "skopeo",
                                               .backend = &p->notes.base,
                                               .store = p->store,
                                               .pull_timeout_ms = 60000},
                              &p->images));
}

static void close_images(place *p)
{
    image_store_free(p->images);
    store_close(p->store);
    p->images = NULL;
    p->store = NULL;
}

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);

    strcpy(p->dir, "/tmp/bothy-image.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(fs_dir(p->fd, "staging", 0700, &p->staging));
    p->staging_path = str_printf("%s/staging", p->dir);
    p->source = str_printf("oci:%s/layout:latest", p->dir);
    make_layout(p->fd, "layout", platform_here().architecture, "bob");
    p->notes.base = (backend){.ops = &NOTE_OPS, .caps = {.name = "notes", .images = CAP_NATIVE}};
    open_images(p);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;

    close_images(p);
    close(p->fd);
    close(p->staging);
    err_free(fs_remove(AT_FDCWD, p->dir));
    free(p->staging_path);
    free(p->source);
    free(p);
    return 0;
}

/* ---- waiting for callbacks ---- */

typedef struct answer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int done, progressed;
    char stage[16];
    err *failure;
    image *got;
} answer;

static void on_progress(void *arg, const pull_progress *p)
{
    answer *a = arg;

    LOCK_SCOPE(&a->lock);
    a->progressed++;
    snprintf(a->stage, sizeof a->stage, "%s", p->stage);
}

static void on_done(void *arg, err *failure, image *got)
{
    answer *a = arg;

    LOCK_SCOPE(&a->lock);
    a->done++;
    a->failure = failure;
    a->got = got;
    pthread_cond_broadcast(&a->changed);
}

static void ask_for(place *p, answer *a, const char *owner, const char *reference, const char *as,
                    enum pull_policy policy)
{
    *a = (answer){.done = 0};
    pthread_mutex_init(&a->lock, NULL);
    cond_init(&a->changed);
    image_ensure(
        p->images, reference, as, policy,
        &(pull_events){.owner = owner, .progress = on_progress, .done = on_done, .arg = a});
}

static void ask(place *p, answer *a, const char *reference, const char *as, enum pull_policy policy)
{
    ask_for(p, a, NULL, reference, as, policy);
}

static err *await(answer *a, image **ret_image)
{
    LOCK_SCOPE(&a->lock);
    while (!a->done)
        cond_wait_until(&a->changed, &a->lock, 0);
    *ret_image = a->got;
    return a->failure;
}

static err *pull(place *p, const char *reference, const char *as, enum pull_policy policy,
                 image **ret_image)
{
    answer a;

    ask(p, &a, reference, as, policy);
    return await(&a, ret_image);
}

static bool staging_is_empty(place *p)
{
    return unlinkat(p->fd, "staging", AT_REMOVEDIR) == 0 && mkdirat(p->fd, "staging", 0700) == 0;
}

/* ---- tests ---- */

static void pulled_image_is_found_by_name_and_digest(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;
    char hex[65];

    assert_ok(pull(p, p->source, "mine", PULL_MISSING, &got));
    assert_string_equal(got->name, "docker.io/library/mine:latest");
    assert_string_equal(got->user, "bob");
    assert_string_equal(got->env[0], "A=1");
    assert_int_equal(got->nlayers, 2);
    assert_int_equal(got->size, 22);
    assert_int_equal(p->notes.unpacked, 2);
    assert_int_equal(p->notes.defined, 1);
    hex_encode(got->digest, 32, hex);
    CLEANUP(freep) char *digest = str_printf("sha256:%s", hex);
    hex[12] = 0;
    const char *const ways[] = {"mine", "docker.io/library/mine", "mine:latest", digest, hex};
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        CLEANUP(image_unrefp) image *found = NULL;
        assert_ok(image_find(p->images, ways[i], &found));
        assert_ptr_equal(found, got);
    }
    image *none;
    assert_err(image_find(p->images, "other", &none), ERR_NOT_FOUND);
    assert_true(staging_is_empty(p));
}

/* The row of one name once more under another, as nothing of ours would write it. */
static void plant(place *p, const char *name, const char *as)
{
    image_row *rows = NULL;
    size_t n = 0;

    assert_ok(store_image_list(p->store, &rows, &n));
    for (size_t i = 0; i < n; i++) {
        if (str_eq(rows[i].name, name)) {
            free(rows[i].name);
            rows[i].name = xstrdup(as);
            assert_ok(store_image_put(p->store, &rows[i]));
        }
        image_row_done(&rows[i]);
    }
    free(rows);
}

static void digest_means_its_content_alone(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *one = NULL;
    CLEANUP(image_unrefp) image *two = NULL;
    char hex[65];

    CLEANUP(freep) char *other = str_printf("oci:%s/other:latest", p->dir);
    make_layout(p->fd, "other", platform_here().architecture, "eve");
    assert_ok(pull(p, p->source, "mine", PULL_MISSING, &one));
    assert_ok(pull(p, other, "other", PULL_MISSING, &two));
    hex_encode(one->digest, 32, hex);
    CLEANUP(freep) char *digest = str_printf("sha256:%s", hex);
    CLEANUP(freep) char *shorter = xstrndup(hex, 12);
    CLEANUP(freep) char *at = str_printf("x@%s", digest);
    CLEANUP(freep) char *full = str_printf("docker.io/library/%s:latest", shorter);
    const char *const names[] = {digest, shorter, at, full};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        image *none = NULL;
        assert_err(pull(p, other, names[i], PULL_ALWAYS, &none), ERR_INVALID_REQUEST);
        assert_err(pull(p, other, names[i], PULL_MISSING, &none), ERR_INVALID_REQUEST);
    }
    plant(p, "docker.io/library/other:latest", digest);
    plant(p, "docker.io/library/other:latest", full);
    close_images(p);
    open_images(p);
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(image_unrefp) image *found = NULL;
        CLEANUP(image_unrefp) image *got = NULL;
        assert_ok(image_find(p->images, names[i], &found));
        assert_string_equal(found->user, "bob");
        assert_ok(pull(p, names[i], NULL, PULL_MISSING, &got));
        assert_string_equal(got->user, "bob");
    }
}

static void policy_decides_what_is_fetched(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *one = NULL;
    CLEANUP(image_unrefp) image *two = NULL;
    CLEANUP(image_unrefp) image *three = NULL;
    image *none;

    assert_err(pull(p, p->source, NULL, PULL_NEVER, &none), ERR_NOT_FOUND);
    assert_ok(pull(p, p->source, NULL, PULL_MISSING, &one));
    assert_int_equal(p->notes.unpacked, 2);
    assert_ok(pull(p, p->source, NULL, PULL_MISSING, &two));
    assert_int_equal(p->notes.unpacked, 2);
    assert_ok(pull(p, p->source, NULL, PULL_ALWAYS, &three));
    assert_int_equal(p->notes.unpacked, 4);
}

/* An image whose layers wait while notes.hold is set. */
static char *make_held(place *p)
{
    make_layout(p->fd, "eve", platform_here().architecture, "eve");
    p->notes.hold = true;
    return str_printf("oci:%s/eve:latest", p->dir);
}

static void equal_pulls_join(void **state)
{
    place *p = *state;
    CLEANUP(freep) char *source = make_held(p);
    answer a[4];

    for (size_t i = 0; i < ARRAY_LEN(a); i++)
        ask(p, &a[i], source, "mine", PULL_ALWAYS);
    p->notes.hold = false;
    for (size_t i = 0; i < ARRAY_LEN(a); i++) {
        CLEANUP(image_unrefp) image *got = NULL;
        assert_ok(await(&a[i], &got));
        assert_int_equal(a[i].done, 1);
        assert_true(a[i].progressed > 0);
        assert_string_equal(a[i].stage, "done");
    }
    assert_int_equal(p->notes.unpacked, 2);
}

static bool comes_soon(answer *a)
{
    uint64_t until = now_mono_ns() + 20 * NS_PER_S;

    LOCK_SCOPE(&a->lock);
    while (!a->done && now_mono_ns() < until)
        cond_wait_until(&a->changed, &a->lock, until);
    return a->done;
}

static void what_is_here_does_not_wait_behind_pulls(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;
    answer slow[3], here;

    assert_ok(pull(p, p->source, "mine", PULL_MISSING, &got));
    image_unref(TAKE_PTR(got));
    CLEANUP(freep) char *source = make_held(p);
    ask(p, &slow[0], source, "s0", PULL_ALWAYS);
    ask(p, &slow[1], source, "s1", PULL_ALWAYS);
    ask(p, &slow[2], source, "s2", PULL_ALWAYS);
    ask(p, &here, "mine", NULL, PULL_MISSING);
    bool came = comes_soon(&here);
    p->notes.hold = false;
    assert_ok(await(&here, &got));
    for (size_t i = 0; i < ARRAY_LEN(slow); i++) {
        CLEANUP(image_unrefp) image *other = NULL;
        assert_ok(await(&slow[i], &other));
    }
    assert_true(came);
}

static void pulls_that_never_end_keep_a_place_for_others(void **state)
{
    place *p = *state;
    answer eve[4], ann[2];
    bool came = true;

    p->notes.hold = true;
    for (size_t i = 0; i < ARRAY_LEN(eve); i++) {
        CLEANUP(freep) char *name = str_printf("eve%zu", i);
        CLEANUP(freep) char *source = str_printf("oci:%s/%s:latest", p->dir, name);
        make_layout(p->fd, name, platform_here().architecture, name);
        ask_for(p, &eve[i], "eve", source, name, PULL_ALWAYS);
    }
    for (int i = 0; i < 20000 && p->notes.held < 4; i++)
        usleep(1000);
    usleep(300000); /* a third would have begun */
    int held = p->notes.held;
    for (size_t i = 0; i < ARRAY_LEN(ann); i++) {
        ask_for(p, &ann[i], "ann", p->source, i ? "one" : "two", PULL_ALWAYS);
        came = came && comes_soon(&ann[i]);
    }
    p->notes.hold = false;
    for (size_t i = 0; i < ARRAY_LEN(eve) + ARRAY_LEN(ann); i++) {
        CLEANUP(image_unrefp) image *got = NULL;
        assert_ok(await(i < ARRAY_LEN(eve) ? &eve[i] : &ann[i - ARRAY_LEN(eve)], &got));
    }
    assert_true(came);
    assert_int_equal(held, 4); /* two layers of two images */
}

/* Who asks and goes, and asks again for something else, does not fill the queue. */
static void pulls_of_one_owner_that_wait_are_limited(void **state)
{
    place *p = *state;
    CLEANUP(freep)
    answer *eve = xcalloc(IMAGE_PULLS_EACH + IMAGE_QUEUED_EACH + 1, sizeof *eve);
    answer ann;
    size_t n = 0;

    p->notes.hold = true;
    for (; n < IMAGE_PULLS_EACH + IMAGE_QUEUED_EACH; n++) {
        CLEANUP(freep) char *name = str_printf("eve%zu", n);
        CLEANUP(freep) char *source = str_printf("oci:%s/%s:latest", p->dir, name);
        if (n < IMAGE_PULLS_EACH)
            make_layout(p->fd, name, platform_here().architecture, name);
        ask_for(p, &eve[n], "eve", source, name, PULL_ALWAYS);
        for (int i = 0; i < 20000 && n < IMAGE_PULLS_EACH && p->notes.held < 2 * ((int)n + 1); i++)
            usleep(1000);
    }
    ask_for(p, &eve[n], "eve", "oci:/none:latest", "none", PULL_ALWAYS);
    assert_int_equal(eve[n].done, 1);
    assert_err(TAKE_PTR(eve[n].failure), ERR_QUOTA_EXCEEDED);
    ask_for(p, &ann, "ann", p->source, "one", PULL_ALWAYS);
    CLEANUP(image_unrefp) image *got = NULL;
    assert_ok(await(&ann, &got));
    p->notes.hold = false;
    for (size_t i = 0; i < n; i++) {
        CLEANUP(image_unrefp) image *other = NULL;
        err_free(await(&eve[i], &other));
    }
}

static void failures_have_their_codes(void **state)
{
    place *p = *state;
    image *none;
    CLEANUP(freep) char *absent = str_printf("oci:%s/nothing:latest", p->dir);
    CLEANUP(freep) char *foreign = str_printf("oci:%s/foreign:latest", p->dir);

    assert_err(pull(p, absent, NULL, PULL_MISSING, &none), ERR_IMAGE_PULL_FAILED);
    assert_err(pull(p, "Not A Name", NULL, PULL_MISSING, &none), ERR_INVALID_REQUEST);
    assert_err(pull(p, "sha256:0123456789ab", NULL, PULL_MISSING, &none), ERR_NOT_FOUND);
    make_layout(p->fd, "foreign", "riscv64", "bob");
    assert_err(pull(p, foreign, NULL, PULL_MISSING, &none), ERR_IMAGE_UNSUPPORTED);
    p->notes.refuse = true;
    assert_err(pull(p, p->source, NULL, PULL_MISSING, &none), ERR_IMAGE_UNSUPPORTED);
    assert_int_equal(p->notes.defined, 0);
    assert_true(staging_is_empty(p));
}

static void a_pull_fails_for_want_of_a_thread_and_no_more(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;

    no_threads = true;
    err *e = pull(p, p->source, "mine", PULL_MISSING, &got);
    no_threads = false;
    assert_err(e, ERR_UNAVAILABLE);
    assert_int_equal(p->notes.unpacked, 0);
    assert_ok(pull(p, p->source, "mine", PULL_MISSING, &got));
    assert_int_equal(p->notes.unpacked, 2);
    assert_true(staging_is_empty(p));
}

static void images_survive_a_restart(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;
    CLEANUP(image_unrefp) image *again = NULL;

    assert_ok(pull(p, p->source, "mine", PULL_MISSING, &got));
    assert_int_equal(mkdirat(p->staging, "left-over", 0700), 0);
    close_images(p);
    open_images(p);
    assert_ok(image_find(p->images, "mine", &again));
    assert_memory_equal(again->digest, got->digest, 32);
    assert_memory_equal(again->diff_ids, got->diff_ids, 64);
    assert_string_equal(again->user, "bob");
    assert_string_equal(again->cmd[0], "sh");
    assert_int_equal(again->size, 22);
    assert_true(staging_is_empty(p));
}

static bool always_used(void *arg, const uint8_t digest[32])
{
    (void)arg, (void)digest;
    return true;
}

static void prune_forgets_what_has_no_name(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;
    CLEANUP(image_unrefp) image *second = NULL;
    uint64_t bytes = 7;

    assert_ok(pull(p, p->source, "mine", PULL_MISSING, &got));
    assert_ok(pull(p, p->source, "yours", PULL_MISSING, &second));
    assert_ok(image_remove(p->images, "mine"));
    assert_ok(image_prune(p->images, NULL, NULL, false, &bytes));
    assert_int_equal(p->notes.pruned, 0); /* yours has it */
    assert_ok(image_remove(p->images, "yours"));
    assert_err(image_remove(p->images, "yours"), ERR_NOT_FOUND);
    close_images(p); /* what waits for a prune is not forgotten by a restart */
    open_images(p);
    assert_ok(image_prune(p->images, always_used, NULL, true, &bytes));
    assert_int_equal(p->notes.pruned, 0);
    assert_ok(image_prune(p->images, NULL, NULL, false, &bytes));
    assert_int_equal(p->notes.pruned, 1);
    assert_int_equal(bytes, 100);
    assert_ok(image_prune(p->images, NULL, NULL, false, &bytes));
    assert_int_equal(p->notes.pruned, 1);
}

static void prune_all_keeps_what_is_used(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;
    image **list, *none;
    uint64_t bytes;
    size_t n;

    assert_ok(pull(p, p->source, "mine", PULL_MISSING, &got));
    assert_ok(image_prune(p->images, always_used, NULL, true, &bytes));
    image_list(p->images, &list, &n);
    assert_int_equal(n, 1);
    image_unref(list[0]);
    free(list);
    assert_ok(image_prune(p->images, NULL, NULL, true, &bytes));
    assert_err(image_find(p->images, "mine", &none), ERR_NOT_FOUND);
    assert_int_equal(p->notes.pruned, 1);
}

static void backend_without_images_gets_none(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;

    p->notes.base.caps.images = CAP_ABSENT;
    assert_ok(pull(p, p->source, "mine", PULL_MISSING, &got));
    assert_int_equal(p->notes.unpacked, 0);
    assert_int_equal(p->notes.defined, 0);
}

static void stopping_ends_what_waits(void **state)
{
    place *p = *state;
    answer a[6];

    p->notes.slow = true;
    for (size_t i = 0; i < ARRAY_LEN(a); i++) {
        CLEANUP(freep) char *name = str_printf("n%zu", i);
        ask(p, &a[i], p->source, name, PULL_ALWAYS);
    }
    close_images(p);
    for (size_t i = 0; i < ARRAY_LEN(a); i++) {
        CLEANUP(image_unrefp) image *got = NULL;
        CLEANUP(err_freep) err *e = await(&a[i], &got);
        assert_int_equal(a[i].done, 1);
        assert_true(got || e->code == ERR_DRAINING);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(pulled_image_is_found_by_name_and_digest),
        TEST(digest_means_its_content_alone),
        TEST(policy_decides_what_is_fetched),
        TEST(equal_pulls_join),
        TEST(what_is_here_does_not_wait_behind_pulls),
        TEST(pulls_that_never_end_keep_a_place_for_others),
        TEST(pulls_of_one_owner_that_wait_are_limited),
        TEST(failures_have_their_codes),
        TEST(a_pull_fails_for_want_of_a_thread_and_no_more),
        TEST(images_survive_a_restart),
        TEST(prune_forgets_what_has_no_name),
        TEST(prune_all_keeps_what_is_used),
        TEST(backend_without_images_gets_none),
        TEST(stopping_ends_what_waits),
    };

    log_init("test", LOG_ERROR);
    if (system("command -v skopeo >/dev/null")) { /* NOLINT: a test, no threads yet */
        printf("skopeo is not installed\n");
        return 77; /* skipped */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
