/* Images of an engine's own store: an engine that is a table here, a real store. */
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "image/images.h"

#include "../unit.h"

#define HOST "reg.example:5000"

/* ---- an engine ---- */

typedef struct engine_stub {
    backend base;
    const char *_Atomic has;              /* a name it has, or NULL */
    uint8_t content;                      /* every byte of its digest */
    const char *elsewhere;                /* a name that a registry has */
    const char *os;                       /* NULL: linux */
    unsigned nenv;                        /* variables, if not 0 */
    atomic_bool dead, hold;               /* it does not answer; a fetch waits to be cancelled */
    atomic_int looks, fetches, now, most; /* now and most: fetches at a time */
    char login[64];                       /* of the last fetch */
    char asked[128];
} engine_stub;

static err *not_there(const char *name)
{
    return err_kind(err_new(ERR_NOT_FOUND, "no such image: %s", name), "image");
}

static void tell_facts(const engine_stub *e, image_facts *ret_facts)
{
    memset(ret_facts->digest, e->content, sizeof ret_facts->digest);
    for (unsigned i = 0; i < e->nenv; i++)
        strv_push(&ret_facts->env, str_printf("V%u=1", i));
    strv_push(&ret_facts->env, xstrdup("A=1"));
    strv_push(&ret_facts->cmd, xstrdup("sh"));
    ret_facts->user = xstrdup("bob");
    ret_facts->os = xstrdup(str_or(e->os, "linux"));
    ret_facts->architecture = xstrdup(platform_here().architecture);
    ret_facts->size = 77;
}

static bool is_its_digest(const engine_stub *e, const char *name)
{
    uint8_t digest[32];
    char hex[65];

    memset(digest, e->content, sizeof digest);
    hex_encode(digest, 32, hex);
    return e->has && str_starts(name, "sha256:") && !strncmp(hex, name + 7, strlen(name + 7));
}

static err *wait_cancelled(const image_request *rq)
{
    struct pollfd p = {rq->cancel_fd, POLLIN, 0};

    assert_int_equal(poll(&p, 1, 10000), 1);
    return err_new(ERR_DRAINING, "cancelled");
}

static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER; /* workers come side by side */

static void note(char *to, size_t n, const char *a, const char *between, const char *b)
{
    LOCK_SCOPE(&noting);
    snprintf(to, n, "%s%s%s", a, between, b);
}

static err *stub_get(backend *b, const image_request *rq, image_facts *ret_facts)
{
    engine_stub *e = (engine_stub *)b;

    note(e->asked, sizeof e->asked, rq->name, "", "");
    if (e->dead)
        return err_new(ERR_UNAVAILABLE, "no engine");
    if (rq->policy == PULL_NEVER) {
        e->looks++;
        if (!str_eq(e->has, rq->name) && !is_its_digest(e, rq->name))
            return not_there(rq->name);
        tell_facts(e, ret_facts);
        return NULL;
    }
    e->fetches++;
    note(e->login, sizeof e->login, rq->login ? rq->login->username : "", "/",
         rq->login ? rq->login->password : "");
    rq->progress(rq->arg, &(pull_progress){.stage = "fetch", .bytes = 10, .bytes_done = 5});
    if (e->hold)
        return wait_cancelled(rq);
    int now = ++e->now;
    e->most = now > e->most ? now : e->most;
    usleep(20000);
    e->now--;
    if (!str_eq(e->elsewhere, rq->name))
        return not_there(rq->name);
    e->has = e->elsewhere;
    tell_facts(e, ret_facts);
    return NULL;
}

static const backend_ops STUB_OPS = {.image_get = stub_get};

/* ---- a place ---- */

typedef struct place {
    char dir[64];
    int fd, staging, conf;
    char *staging_path, *conf_path;
    engine_stub engine;
    registry host;
    registries registries;
    store *store;
    image_store *images;
} place;

static void open_images(place *p)
{
    assert_ok(store_open(p->fd, "store.db", "normal", &p->store));
    assert_ok(image_store_new(&(image_options){.staging_dir = p->staging,
                                               .staging_path = p->staging_path,
                                               .conf_dir = p->conf,
                                               .conf_path = p->conf_path,
                                               .skopeo = "/bin/false",
                                               .registries = &p->registries,
                                               .listed_only = true,
                                               .backend = &p->engine.base,
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
    assert_ok(fs_dir(p->fd, "conf", 0700, &p->conf));
    p->staging_path = str_printf("%s/staging", p->dir);
    p->conf_path = str_printf("%s/conf", p->dir);
    p->host = (registry){.host = (char *)HOST};
    p->registries = (registries){.v = &p->host, .n = 1};
    p->engine.base = (backend){.ops = &STUB_OPS, .caps = {.name = "stub", .images = CAP_EMULATED}};
    p->engine.content = 0x11;
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
    close(p->conf);
    err_free(fs_remove(AT_FDCWD, p->dir));
    free(p->staging_path);
    free(p->conf_path);
    free(p);
    return 0;
}

typedef struct answer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int done, progressed;
    err *failure;
    image *got;
} answer;

static void on_progress(void *arg, const pull_progress *p)
{
    answer *a = arg;

    LOCK_SCOPE(&a->lock);
    a->progressed += p->bytes_done == 5;
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

static void ask(place *p, answer *a, const char *reference, const char *as, enum pull_policy policy)
{
    *a = (answer){.done = 0};
    pthread_mutex_init(&a->lock, NULL);
    cond_init(&a->changed);
    image_ensure(p->images, reference, as, policy,
                 &(pull_events){.progress = on_progress, .done = on_done, .arg = a});
}

static err *await(answer *a, image **ret_image)
{
    LOCK_SCOPE(&a->lock);
    while (!a->done)
        cond_wait_until(&a->changed, &a->lock, 0);
    *ret_image = a->got;
    return a->failure;
}

static err *pull(place *p, const char *reference, enum pull_policy policy, image **ret_image)
{
    answer a;

    ask(p, &a, reference, NULL, policy);
    return await(&a, ret_image);
}

/* ---- tests ---- */

static void what_the_engine_has_is_not_fetched(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;
    CLEANUP(image_unrefp) image *again = NULL;
    CLEANUP(image_unrefp) image *found = NULL;

    p->engine.has = "docker.io/library/app:latest";
    assert_ok(pull(p, "app", PULL_MISSING, &got));
    assert_string_equal(got->name, "docker.io/library/app:latest");
    assert_string_equal(got->user, "bob");
    assert_string_equal(got->env[0], "A=1");
    assert_string_equal(got->cmd[0], "sh");
    assert_int_equal(got->size, 77);
    assert_int_equal(got->digest[31], 0x11);
    assert_int_equal(p->engine.fetches, 0);
    assert_ok(pull(p, "app", PULL_MISSING, &again));
    assert_ptr_equal(again, got); /* nothing was written anew */
    assert_int_equal(p->engine.looks, 2);
    close_images(p);
    open_images(p);
    assert_ok(image_find(p->images, "app", &found));
    assert_string_equal(found->user, "bob");
}

static void a_name_that_moved_is_another_image(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *one = NULL;
    CLEANUP(image_unrefp) image *two = NULL;

    p->engine.has = "docker.io/library/app:latest";
    assert_ok(pull(p, "app", PULL_MISSING, &one));
    p->engine.content = 0x22;
    assert_ok(pull(p, "app", PULL_MISSING, &two));
    assert_int_equal(two->digest[0], 0x22);
    p->engine.has = NULL;
    image *none = NULL;
    assert_err(pull(p, "app", PULL_NEVER, &none), ERR_NOT_FOUND);
}

static void what_is_missing_is_fetched_once_for_all_who_ask(void **state)
{
    place *p = *state;
    answer a, b;
    CLEANUP(image_unrefp) image *one = NULL;
    CLEANUP(image_unrefp) image *two = NULL;

    p->engine.elsewhere = HOST "/x:1";
    ask(p, &a, HOST "/x:1", NULL, PULL_MISSING);
    ask(p, &b, HOST "/x:1", NULL, PULL_MISSING);
    assert_ok(await(&a, &one));
    assert_ok(await(&b, &two));
    assert_int_equal(p->engine.fetches, 1);
    assert_true(a.progressed);
    assert_string_equal(one->name, HOST "/x:1");
    assert_memory_equal(one->digest, two->digest, 32);
}

static void always_asks_the_registry(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;

    p->engine.has = p->engine.elsewhere = HOST "/x:1";
    assert_ok(pull(p, HOST "/x:1", PULL_ALWAYS, &got));
    assert_int_equal(p->engine.fetches, 1);
    assert_int_equal(p->engine.looks, 0);
}

static void never_asks_no_registry(void **state)
{
    place *p = *state;
    image *none = NULL;

    p->engine.elsewhere = HOST "/x:1";
    assert_err(pull(p, HOST "/x:1", PULL_NEVER, &none), ERR_NOT_FOUND);
    assert_int_equal(p->engine.fetches, 0);
}

/* The engine could reach what our callers may not have it reach. */
static void a_registry_that_is_not_listed_is_not_asked(void **state)
{
    place *p = *state;
    image *none = NULL;

    p->engine.elsewhere = "other.example/x:1";
    assert_err(pull(p, "other.example/x:1", PULL_MISSING, &none), ERR_FORBIDDEN);
    assert_err(pull(p, "other.example/x:1", PULL_ALWAYS, &none), ERR_FORBIDDEN);
    assert_int_equal(p->engine.fetches, 0);
}

static void a_digest_is_the_engines_id(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;
    image *none = NULL, **list;
    size_t n;

    p->engine.has = "docker.io/library/app:latest";
    assert_ok(pull(p, "sha256:111111111111", PULL_MISSING, &got));
    assert_int_equal(strlen(got->name), 71);
    assert_err(pull(p, "sha256:333333333333", PULL_MISSING, &none), ERR_NOT_FOUND);
    assert_int_equal(p->engine.fetches, 0);
    image_list(p->images, &list, &n); /* it has no name: nothing is kept of it */
    assert_int_equal(n, 0);
    free(list);
}

static void a_tag_beside_a_digest_is_not_asked_for(void **state)
{
    place *p = *state;
    image *none = NULL;

    assert_err(pull(p,
                    HOST "/x:1@sha256:"
                         "1111111111111111111111111111111111111111111111111111111111111111",
                    PULL_NEVER, &none),
               ERR_NOT_FOUND);
    assert_string_equal(p->engine.asked,
                        HOST "/x@sha256:"
                             "1111111111111111111111111111111111111111111111111111111111111111");
}

static void files_and_names_of_ours_are_refused_with_a_remedy(void **state)
{
    place *p = *state;
    image *none = NULL;
    answer a;

    err *e = pull(p, "oci:/srv/x:latest", PULL_MISSING, &none);
    assert_non_null(strstr(err_remedy_of(e), "docker load"));
    assert_err(e, ERR_UNSUPPORTED);
    assert_err(pull(p, "docker-archive:/x.tar", PULL_ALWAYS, &none), ERR_UNSUPPORTED);
    ask(p, &a, HOST "/x:1", "mine", PULL_MISSING);
    assert_err(await(&a, &none), ERR_UNSUPPORTED);
    assert_int_equal(p->engine.looks + p->engine.fetches, 0);
}

static void an_engine_that_does_not_answer_is_not_a_missing_image(void **state)
{
    place *p = *state;
    image *none = NULL;

    p->engine.dead = true;
    assert_err(pull(p, HOST "/x:1", PULL_MISSING, &none), ERR_UNAVAILABLE);
    assert_err(pull(p, HOST "/x:1", PULL_NEVER, &none), ERR_UNAVAILABLE);
}

static void what_cannot_be_used_is_refused(void **state)
{
    place *p = *state;
    image *none = NULL;

    p->engine.has = "docker.io/library/app:latest";
    p->engine.os = "windows";
    assert_err(pull(p, "app", PULL_MISSING, &none), ERR_IMAGE_UNSUPPORTED);
    p->engine.os = "lin\xffux";
    assert_err(pull(p, "app", PULL_MISSING, &none), ERR_IMAGE_UNSUPPORTED);
    p->engine.os = NULL;
    p->engine.nenv = MANIFEST_ENV_MAX;
    assert_err(pull(p, "app", PULL_MISSING, &none), ERR_IMAGE_UNSUPPORTED);
}

static void the_login_of_a_host_goes_to_the_engine(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;
    /* alice, alice:se:cret */
    const char *text = "bothy-logins 1\n" HOST " 5 YWxpY2U= YWxpY2U6c2U6Y3JldA==\n";

    assert_ok(fs_write(p->conf, "logins-shared", text, strlen(text), 0600, false));
    p->engine.elsewhere = HOST "/x:1";
    assert_ok(pull(p, HOST "/x:1", PULL_MISSING, &got));
    assert_string_equal(p->engine.login, "alice/se:cret");
}

/* The stub has neither prune nor image: they are not called. */
static void forgetting_is_of_our_records_alone(void **state)
{
    place *p = *state;
    CLEANUP(image_unrefp) image *got = NULL;
    CLEANUP(image_unrefp) image *again = NULL;
    image *none = NULL;
    uint64_t bytes = 1;

    p->engine.has = "docker.io/library/app:latest";
    assert_ok(pull(p, "app", PULL_MISSING, &got));
    assert_ok(image_remove(p->images, "app"));
    assert_err(image_find(p->images, "app", &none), ERR_NOT_FOUND);
    assert_ok(image_prune(p->images, NULL, NULL, true, &bytes));
    assert_int_equal(bytes, 0);
    assert_ok(pull(p, "app", PULL_MISSING, &again));
}

static void going_down_cancels_a_fetch(void **state)
{
    place *p = *state;
    image *none = NULL;
    answer a;

    p->engine.hold = true;
    ask(p, &a, HOST "/x:1", NULL, PULL_MISSING);
    while (!p->engine.fetches)
        usleep(1000);
    close_images(p);
    assert_err(await(&a, &none), ERR_DRAINING);
    open_images(p);
}

/* Many more than there are workers: what is asked for again keeps its place in the queue. */
static void many_names_are_all_answered(void **state)
{
    place *p = *state;
    answer a[40];

    for (size_t i = 0; i < ARRAY_LEN(a); i++) {
        CLEANUP(freep) char *name = str_printf(HOST "/many:%zu", i);
        ask(p, &a[i], name, NULL, PULL_MISSING);
    }
    for (size_t i = 0; i < ARRAY_LEN(a); i++) {
        image *none = NULL;
        assert_err(await(&a[i], &none), ERR_NOT_FOUND);
    }
    assert_int_equal(p->engine.fetches, 40);
    assert_in_range(p->engine.most, 1, IMAGE_PULLS_EACH); /* looking needs no turn, fetching does */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_the_engine_has_is_not_fetched),
        TEST(a_name_that_moved_is_another_image),
        TEST(what_is_missing_is_fetched_once_for_all_who_ask),
        TEST(always_asks_the_registry),
        TEST(never_asks_no_registry),
        TEST(a_registry_that_is_not_listed_is_not_asked),
        TEST(a_digest_is_the_engines_id),
        TEST(a_tag_beside_a_digest_is_not_asked_for),
        TEST(files_and_names_of_ours_are_refused_with_a_remedy),
        TEST(an_engine_that_does_not_answer_is_not_a_missing_image),
        TEST(what_cannot_be_used_is_refused),
        TEST(the_login_of_a_host_goes_to_the_engine),
        TEST(forgetting_is_of_our_records_alone),
        TEST(going_down_cancels_a_fetch),
        TEST(many_names_are_all_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
