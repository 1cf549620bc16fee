/* Pods as the watch tells of them, and the creates that wait for one. There is no API server: what
 * would be asked of it stays in the queue; streams are dialled in vain. */
#include <string.h>

#include "backend/kubernetes/internal.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"

#include "../../unit.h"

#define ID  "t000aaaaaaaaaaaaaaaa"
#define ID2 "t000bbbbbbbbbbbbbbbb"
#define ID3 "t000cccccccccccccccc"
#define OLD "sha256:1"
#define NEW "sha256:2"

static kubernetes *b;
static err *told; /* what became of the create */
static bool is_told;
static bool deleted; /* pods have a deletionTimestamp from here on */

/* ---- the world ---- */

static err *dial(void *arg, const char *handle, unsigned timeout_ms, link_stream *ret_stream)
{
    (void)arg, (void)handle, (void)timeout_ms, (void)ret_stream;
    return err_new(ERR_UNAVAILABLE, "nobody is there");
}

static void condemned(void *arg, const char *handle, const char *why)
{
    (void)arg, (void)handle, (void)why;
}

static uint32_t most; /* 0: no cap, and no pod is made for one */

static err *wish(void *arg, const box_spec *spec, kubernetes_wish *w)
{
    (void)arg, (void)spec;
    if (!most)
        json_decref(TAKE_PTR(w->spec));
    w->most = most;
    w->pool = xstrdup("any");
    w->any_image = true;
    return NULL;
}

static const kubernetes_hooks HOOKS = {.wish = wish};

static int setup(void **state)
{
    (void)state;
    b = xcalloc(1, sizeof *b);
    pthread_mutex_init(&b->lock, NULL);
    pthread_rwlock_init(&b->hooks_lock, NULL);
    cond_init(&b->changed);
    b->ns = (char *)"ns";
    b->cell = (char *)"t000";
    b->world = (pod_world){.ns = "ns", .cell = "t000", .bothy_image = "bothy"};
    b->hooks = &HOOKS;
    b->synced = true;
    told = NULL;
    is_told = deleted = false;
    most = 0;
    assert_ok(link_host_new(
        &(link_options){.name = "pods", .dial = dial, .condemned = condemned, .arg = b},
        &b->links));
    return 0;
}

static work *take_work(void)
{
    work *w = b->queue;

    if (w) {
        b->queue = w->next;
        b->nqueue--;
    }
    return w;
}

/* Callers are told; the API server is not. */
static void run_told(void)
{
    for (work *w; (w = take_work());)
        if (w->failure)
            w->run(b, w);
        else
            work_free(w);
}

static int teardown(void **state)
{
    map_iter left = {0}, it = {0}, ended = {0};

    (void)state;
    b->stop = true;
    while (map_next(&b->pods, &left)) {
        pod *p = left.entry->value;
        if (p->warm)
            link_warm_drop(TAKE_PTR(p->warm));
    }
    link_host_free(b->links);
    requests_end_all(b);
    run_told();
    err_free(told);
    while (map_next(&b->pods, &it)) {
        pod *p = it.entry->value;
        free(p->handle);
        free(p->id_before);
        pod_facts_done(&p->f);
        free(p);
    }
    while (map_next(&b->ended, &ended))
        free(ended.entry->value);
    map_done(&b->pods);
    map_done(&b->ids);
    map_done(&b->handles);
    map_done(&b->ended);
    pthread_cond_destroy(&b->changed);
    pthread_rwlock_destroy(&b->hooks_lock);
    pthread_mutex_destroy(&b->lock);
    free(b);
    return 0;
}

/* ---- what the watch brings ---- */

static pod *seen(const char *uid, bool claimed, unsigned restarts, const char *image_id,
                 const char *what)
{
    CLEANUP(freep)
    char *text = str_printf(
        "{\"metadata\":{\"uid\":\"%s\",\"name\":\"%s\",\"labels\":{\"" POD_POOL
        "\":\"any\",\"" POD_STATE "\":\"%s\"%s},\"annotations\":{\"" POD_NONCE
        "\":\"00000000000000000000000000000000\"}%s},\"spec\":{\"containers\":[{\"name\":\"sandbox\","
        "\"image\":\"%s\"}]},\"status\":{\"phase\":\"Running\",\"containerStatuses\":[{\"name\":"
        "\"sandbox\",\"restartCount\":%u,\"imageID\":\"%s\",\"state\":{%s}}]}}",
        uid, uid, claimed ? POD_CLAIMED : POD_WARM,
        claimed ? ",\"" POD_SANDBOX "\":\"" ID "\"" : "",
        deleted ? ",\"deletionTimestamp\":\"2026-01-02T03:00:00Z\"" : "",
        claimed ? "asked" : "idle", restarts, image_id, what);
    CLEANUP(json_decrefp) json_t *o = NULL;

    assert_ok(json_parse(text, strlen(text), &o));
    PODS_WATCH.there(b, uid, o);
    return pods_by_uid(b, uid);
}

#define RUNS     "\"running\":{}"
#define STARTING "\"waiting\":{\"reason\":\"ContainerCreating\"}"
#define WAITING  "\"waiting\":{\"reason\":\"CreateContainerError\",\"message\":\"no\"}"

static void on_done(void *arg, err *failure, box *made, const box_timing *timing)
{
    (void)arg, (void)made, (void)timing;
    err_free(told);
    told = failure;
    is_told = true;
}

/* A warm one that is ready. */
static pod *warm(const char *uid)
{
    pod *p = seen(uid, false, 0, OLD, RUNS);

    assert_non_null(p->warm);
    p->ready = p->was_ready = p->greeted = true;
    return p;
}

/* The patch is done as the API server would. */
static void patched(pod *p)
{
    LOCK_SCOPE(&b->lock);
    work *w = take_work();

    assert_true(w && w->r && str_eq(w->uid, p->f.uid));
    w->r->state = REQUEST_STARTS;
    p->marked = true;
    p->r = TAKE_PTR(w->r);
    work_free(w);
    pods_look(b, p);
}

static void ask_for(const char *id)
{
    static sandbox_spec s = {.network = NETWORK_OPEN};
    box_spec spec = {.image_name = "asked", .spec = &s, .queue_ms = 1000};

    str_copy(spec.id, sizeof spec.id, id);
    requests_begin(&b->base, &spec, NULL, NULL, on_done);
}

static void ask(void)
{
    ask_for(ID);
}

static void offer(void)
{
    LOCK_SCOPE(&b->lock);
    requests_offer(b);
}

static void look(void)
{
    LOCK_SCOPE(&b->lock);
    requests_expire(b, now_mono_ns());
}

static bool is_claimed(void)
{
    return b->requests && b->requests->state == REQUEST_CLAIMS;
}

/* ---- the cases ---- */

static void a_container_with_another_image_is_claimed(void **state)
{
    pod *p = warm("u1");

    (void)state;
    ask();
    patched(p);
    seen("u1", true, 0, OLD, RUNS);
    assert_false(is_claimed());
    seen("u1", true, 1, NEW, RUNS);
    assert_true(is_claimed());
    assert_string_equal(p->klass, BOX_KUBELET);
}

/* It died by itself when its image was changed: the kubelet had not seen that. */
static void the_old_image_once_more_is_not_claimed(void **state)
{
    pod *p = warm("u1"), *other = warm("u2");

    (void)state;
    other->seen_ns++;
    ask();
    patched(p);
    seen("u1", true, 1, OLD, RUNS);
    look();
    assert_false(is_claimed());
    seen("u1", true, 2, NEW, RUNS); /* which one that is, nobody knows: another pod is taken */
    assert_true(p->going && !*p->id);
    assert_ptr_equal(pods_by_id(b, ID), other);
    assert_string_equal(other->klass, BOX_KUBELET);
    assert_false(is_told);
}

/* Another name of the same image has the same id. */
static void the_same_image_is_claimed_when_it_stays(void **state)
{
    pod *p = warm("u1");

    (void)state;
    ask();
    patched(p);
    seen("u1", true, 1, OLD, RUNS);
    assert_false(is_claimed());
    p->same_ns -= POD_SAME_NS;
    look();
    assert_true(is_claimed());
}

/* Where its kubelet is lost, each dial would take a dialler's whole time, for ever. */
static void a_warm_pod_that_goes_is_dialled_no_more(void **state)
{
    (void)state;
    pod *p = seen("warm", false, 0, OLD, RUNS);
    assert_non_null(p->warm);
    deleted = true;
    seen("warm", false, 0, OLD, RUNS);
    assert_null(p->warm);
    seen("warm", false, 0, OLD, RUNS); /* nor linked anew */
    assert_null(p->warm);
}

static void a_pod_that_was_retired_says_so(void **state)
{
    (void)state;
    seen("warm", false, 0, OLD, RUNS)->was_ready = true;
    assert_int_equal(kubernetes_init_of(&b->base, "warm"), KUBERNETES_LOST);
    assert_true(kubernetes_retire(&b->base, "warm"));
    assert_int_equal(kubernetes_init_of(&b->base, "warm"), KUBERNETES_RETIRED);
    assert_null(seen("warm", false, 0, OLD, RUNS)->warm); /* nor is it dialled */
}

/* Its label names the sandbox: it must not stay beside the pod that serves it. */
static void a_pod_that_does_not_start_goes(void **state)
{
    pod *p = warm("u1"), *other = warm("u2");

    (void)state;
    other->seen_ns++;
    ask();
    patched(p);
    seen("u1", true, 1, NEW, WAITING);
    assert_true(p->going && !*p->id);
    assert_ptr_equal(pods_by_id(b, ID), other);
    seen("u1", true, 1, NEW, WAITING); /* nor is it taken for it again */
    assert_ptr_equal(pods_by_id(b, ID), other);
    assert_string_equal(p->id, "");
}

static void who_waits_longest_is_served_first(void **state)
{
    (void)state;
    ask_for(ID);
    ask_for(ID2);
    pod *p = warm("u1");
    offer();
    assert_ptr_equal(pods_by_id(b, ID), p);
    assert_null(pods_by_id(b, ID2));
    p = warm("u2"); /* nobody has been told of it when another comes */
    ask_for(ID3);
    assert_ptr_equal(pods_by_id(b, ID2), p);
    assert_null(pods_by_id(b, ID3));
}

static void room_is_for_who_waits_longest(void **state)
{
    pod *first = warm("u1"), *second = warm("u2");

    (void)state;
    second->seen_ns++;
    b->max = 1;
    ask_for(ID);
    assert_ptr_equal(pods_by_id(b, ID), first);
    ask_for(ID2);
    assert_null(pods_by_id(b, ID2));
    first->going = true;
    ask_for(ID3);
    assert_ptr_equal(pods_by_id(b, ID2), second);
    assert_null(pods_by_id(b, ID3));
}

static void a_full_cell_names_what_to_raise(void **state)
{
    (void)state;
    warm("u1");
    warm("u2");
    b->max = 1;
    ask_for(ID);
    ask_for(ID2);
    {
        LOCK_SCOPE(&b->lock);
        requests_expire(b, now_mono_ns() + 3600 * NS_PER_S);
    }
    run_told();
    assert_true(is_told);
    assert_int_equal(told->code, ERR_POOL_EXHAUSTED);
    assert_non_null(told->remedy);
    assert_non_null(strstr(told->remedy, "backend.max"));
}

static unsigned waiting(void)
{
    return kubernetes_pending(&b->base, "any");
}

/* Those that are ready, those that start and those that are asked for are all pods of it. */
static void a_pool_has_no_more_pods_than_it_may_have(void **state)
{
    (void)state;
    most = 2;
    seen("u1", false, 0, OLD, STARTING);
    ask_for(ID);
    assert_int_equal(b->nmaking, 1);
    ask_for(ID2);
    assert_int_equal(b->nmaking, 1);
    assert_int_equal(waiting(), 1);
    pod *p = warm("u1");
    offer();
    assert_ptr_equal(pods_by_id(b, ID2), p);
    ask_for(ID3);
    assert_int_equal(waiting(), 1);
    {
        LOCK_SCOPE(&b->lock);
        requests_expire(b, now_mono_ns() + 2000 * NS_PER_MS);
    }
    run_told();
    assert_true(told && told->code == ERR_POOL_EXHAUSTED && strstr(told->message, "may have"));
}

/* Its cap was lowered. */
static void a_pod_that_is_too_many_is_not_claimed(void **state)
{
    pod *p = warm("u1"), *other = warm("u2");

    (void)state;
    other->seen_ns++;
    most = 1;
    ask_for(ID);
    assert_ptr_equal(pods_by_id(b, ID), p);
    ask_for(ID2);
    assert_null(pods_by_id(b, ID2));
    p->going = true;
    offer();
    assert_ptr_equal(pods_by_id(b, ID2), other);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_container_with_another_image_is_claimed),
        CASE(the_old_image_once_more_is_not_claimed),
        CASE(the_same_image_is_claimed_when_it_stays),
        CASE(a_warm_pod_that_goes_is_dialled_no_more),
        CASE(a_pod_that_was_retired_says_so),
        CASE(a_pod_that_does_not_start_goes),
        CASE(who_waits_longest_is_served_first),
        CASE(room_is_for_who_waits_longest),
        CASE(a_full_cell_names_what_to_raise),
        CASE(a_pool_has_no_more_pods_than_it_may_have),
        CASE(a_pod_that_is_too_many_is_not_claimed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
