/* List and watch without a server: lines as one wrote them, cut anywhere. */
#include <string.h>

#include "backend/kubernetes/kube_watch.h"
#include "base/str.h"

#include "../../unit.h"

#define OBJECT(uid, rv)      "{\"metadata\":{\"uid\":\"" uid "\",\"resourceVersion\":\"" rv "\"}}"
#define EVENT(type, uid, rv) "{\"type\":\"" type "\",\"object\":" OBJECT(uid, rv) "}\n"
#define BOOKMARK(rv, more)                                                                        \
    "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"resourceVersion\":\"" rv \
    "\"" more "}}}\n"
#define TOO_OLD                                                                                  \
    "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{}," \
    "\"status\":\"Failure\",\"message\":\"too old resource version: 1 (1851)\",\"reason\":"      \
    "\"Expired\",\"code\":410}}\n"

/* What was told, in order: "+a1" is a at version 1, "-a" is gone, "=" a whole list. */
typedef struct world {
    buf told;
    kube_watch *w;
} world;

static void on_there(void *arg, const char *uid, const json_t *object)
{
    world *x = arg;

    buf_printf(&x->told, "+%s%s", uid,
               json_str(json_object_get(object, "metadata"), "resourceVersion"));
}

static void on_gone(void *arg, const char *uid, const json_t *object)
{
    world *x = arg;

    buf_printf(&x->told, "-%s%s", uid, object ? "!" : "");
}

static void on_synced(void *arg)
{
    world *x = arg;

    buf_char(&x->told, '=');
}

static const kube_watch_events EVENTS = {on_there, on_gone, on_synced};

static uint32_t zero(void)
{
    return 0;
}

static void begin(world *x, bool initial)
{
    *x = (world){0};
    x->w = kube_watch_new(&(kube_watch_options){.path = "/api/v1/pods",
                                                .labels = "a=b",
                                                .initial_events = initial,
                                                .events = &EVENTS,
                                                .arg = x,
                                                .random = zero});
}

static void end(world *x)
{
    kube_watch_free(x->w);
    buf_done(&x->told);
}

static void asks(world *x, const char *path, uint64_t wait_ms)
{
    kube_watch_ask ask;

    kube_watch_next(x->w, &ask);
    assert_string_equal(ask.path, path);
    assert_int_equal(ask.wait_ms, wait_ms);
}

static void page(world *x, const char *text)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    assert_ok(json_parse(text, strlen(text), &root));
    kube_watch_page(x->w, root);
}

static bool feed(world *x, const char *text)
{
    return kube_watch_feed(x->w, text, strlen(text));
}

static void told(world *x, const char *what)
{
    assert_string_equal(buf_cstr(&x->told), what);
    buf_clear(&x->told);
}

#define LIST  "/api/v1/pods?labelSelector=a%3Db&limit=500"
#define WATCH "/api/v1/pods?labelSelector=a%3Db&watch=1&allowWatchBookmarks=true&resourceVersion="
#define TIME  "&timeoutSeconds=300"
#define PAGES                                                                                 \
    "{\"metadata\":{\"resourceVersion\":\"10\"},\"items\":[" OBJECT("a", "3") "," OBJECT("b", \
                                                                                         "4") "]}"
#define INITIAL                                                                                \
    "/api/v1/pods?labelSelector=a%3Db&watch=1&allowWatchBookmarks=true&sendInitialEvents=true" \
    "&resourceVersionMatch=NotOlderThan" TIME

static void synced(world *x)
{
    begin(x, false);
    asks(x, LIST, 0);
    page(x, PAGES);
    told(x, "+a3+b4=");
    asks(x, WATCH "10" TIME, 0);
}

static void events_are_told(void **state)
{
    world x;

    (void)state;
    synced(&x);
    assert_true(feed(&x, EVENT("ADDED", "c", "11") EVENT("MODIFIED", "a", "12")
                             EVENT("DELETED", "b", "13") EVENT("DELETED", "z", "14")));
    told(&x, "+c11+a12-b!");
    kube_watch_ended(x.w, NULL, 300000);
    asks(&x, WATCH "14" TIME, 0); /* deletes have versions, too */
    end(&x);
}

static void lines_may_be_cut_anywhere(void **state)
{
    static const char TEXT[] = EVENT("ADDED", "c", "11") "\r\n" BOOKMARK("20", "");
    world x;

    (void)state;
    synced(&x);
    for (size_t i = 0; i < sizeof TEXT - 1; i++)
        assert_true(kube_watch_feed(x.w, TEXT + i, 1));
    told(&x, "+c11");
    assert_string_equal(kube_watch_version(x.w), "20");
    end(&x);
}

/* What came of an event that is not whole counts for nothing. */
static void a_cut_event_comes_again(void **state)
{
    world x;

    (void)state;
    synced(&x);
    assert_true(feed(&x, EVENT("ADDED", "c", "11") "{\"type\":\"ADDED\",\"obj"));
    kube_watch_ended(x.w, err_new(ERR_UNAVAILABLE, "cut"), 5000);
    told(&x, "+c11");
    asks(&x, WATCH "11" TIME, 400);
    assert_true(feed(&x, EVENT("ADDED", "d", "12")));
    told(&x, "+d12");
    end(&x);
}

static void too_old_lists_anew(void **state)
{
    world x;

    (void)state;
    synced(&x);
    assert_false(feed(&x, TOO_OLD));
    kube_watch_ended(x.w, NULL, 10);
    asks(&x, LIST, 0);
    page(&x, "{\"metadata\":{\"resourceVersion\":\"90\"},\"items\":[" OBJECT("a", "3") "," OBJECT(
                 "c", "80") "]}");
    told(&x, "+c80-b="); /* a is as it was, b was noticed to be missing */
    asks(&x, WATCH "90" TIME, 0);
    end(&x);
}

static err *gone_410(void)
{
    static const char BODY[] = "{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"The "
                               "provided continue parameter is too old\",\"reason\":\"Expired\","
                               "\"code\":410}";

    return kube_reply_err(&(kube_reply){.status = 410, .body = BODY, .nbody = sizeof BODY - 1},
                          "GET", "/x");
}

static void pages(void **state)
{
    world x;

    (void)state;
    begin(&x, false);
    asks(&x, LIST, 0);
    page(&x, "{\"metadata\":{\"resourceVersion\":\"10\",\"continue\":\"t1\"},\"items\":[" OBJECT(
                 "a", "1") "]}");
    asks(&x, LIST "&continue=t1", 0);
    page(&x, "{\"metadata\":{\"resourceVersion\":\"10\"},\"items\":[" OBJECT("b", "2") "]}");
    told(&x, "+a1+b2=");
    end(&x);
}

static void a_continuation_that_expires(void **state)
{
    world x;

    (void)state;
    begin(&x, false);
    for (int i = 0; i < 3; i++) {
        asks(&x, LIST, 0);
        page(&x, "{\"metadata\":{\"resourceVersion\":\"10\",\"continue\":\"t1\"},\"items\":["
                 "]}");
        asks(&x, LIST "&continue=t1", 0);
        kube_watch_ended(x.w, gone_410(), 5);
    }
    asks(&x, "/api/v1/pods?labelSelector=a%3Db", 0); /* whole: it cannot expire */
    page(&x, PAGES);
    told(&x, "+a3+b4=");
    end(&x);
}

static void a_name_used_again_is_another(void **state)
{
    world x;

    (void)state;
    synced(&x);
    kube_watch_ended(x.w, gone_410(), 5);
    asks(&x, LIST, 0);
    page(&x, "{\"metadata\":{\"resourceVersion\":\"90\"},\"items\":[" OBJECT("a2", "85") "]}");
    assert_non_null(strstr(buf_cstr(&x.told), "+a285"));
    assert_non_null(strstr(buf_cstr(&x.told), "-a"));
    end(&x);
}

static void failures_back_off(void **state)
{
    static const uint64_t WAITS[] = {400, 800, 1600, 3200, 6400, 12800, 15000, 15000};
    world x;

    (void)state;
    synced(&x);
    for (size_t i = 0; i < ARRAY_LEN(WAITS); i++) {
        kube_watch_ended(x.w, err_new(ERR_UNAVAILABLE, "no"), 5);
        asks(&x, WATCH "10" TIME, WAITS[i]);
    }
    kube_watch_ended(x.w, err_retry_after(err_new(ERR_UNAVAILABLE, "busy"), 40), 5);
    asks(&x, WATCH "10" TIME, 40000);
    feed(&x, BOOKMARK("11", ""));
    kube_watch_ended(x.w, NULL, 5);
    asks(&x, WATCH "11" TIME, 0); /* all is well again */
    kube_watch_ended(x.w, NULL, 5);
    asks(&x, WATCH "11" TIME, 400); /* it ended at once, without a word */
    end(&x);
}

static void what_is_not_understood_lists_anew(void **state)
{
    static const char *const ROWS[] = {
        "nonsense\n",
        "{\"type\":\"ADDED\"}\n",
        "{\"type\":\"NEWS\",\"object\":{}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"uid\":\"\",\"resourceVersion\":\"1\"}}}\n",
        "{\"type\":\"BOOKMARK\",\"object\":{}}\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        world x;
        synced(&x);
        assert_false(feed(&x, ROWS[i]));
        assert_false(feed(&x, EVENT("ADDED", "q", "99"))); /* nothing behind it counts */
        kube_watch_ended(x.w, NULL, 5);
        told(&x, "");
        asks(&x, LIST, 400);
        end(&x);
    }
}

static void a_line_has_an_end(void **state)
{
    static char piece[1 << 20];
    world x;
    bool more = true;

    (void)state;
    memset(piece, 'x', sizeof piece);
    synced(&x);
    for (int i = 0; i < 9 && more; i++)
        more = kube_watch_feed(x.w, piece, sizeof piece);
    assert_false(more);
    end(&x);
}

static void initial_events(void **state)
{
    world x;

    (void)state;
    begin(&x, true);
    asks(&x, INITIAL, 0);
    assert_true(feed(&x, EVENT("ADDED", "a", "3") BOOKMARK("5", "") EVENT("ADDED", "b", "4")));
    told(&x, "+a3+b4");
    assert_string_equal(kube_watch_version(x.w), ""); /* cut here, it would begin again */
    assert_true(
        feed(&x, BOOKMARK("10", ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}")));
    told(&x, "=");
    kube_watch_ended(x.w, NULL, 5000);
    asks(&x, WATCH "10" TIME, 0);
    end(&x);
}

static void a_server_without_initial_events(void **state)
{
    world x;

    (void)state;
    begin(&x, true);
    asks(&x, INITIAL, 0);
    kube_watch_ended(x.w, err_new(ERR_INVALID_REQUEST, "sendInitialEvents is forbidden"), 5);
    asks(&x, LIST, 0);
    page(&x, PAGES);
    told(&x, "+a3+b4=");
    kube_watch_ended(x.w, gone_410(), 5);
    end(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_told),
        cmocka_unit_test(lines_may_be_cut_anywhere),
        cmocka_unit_test(a_cut_event_comes_again),
        cmocka_unit_test(too_old_lists_anew),
        cmocka_unit_test(pages),
        cmocka_unit_test(a_continuation_that_expires),
        cmocka_unit_test(a_name_used_again_is_another),
        cmocka_unit_test(failures_back_off),
        cmocka_unit_test(what_is_not_understood_lists_anew),
        cmocka_unit_test(a_line_has_an_end),
        cmocka_unit_test(initial_events),
        cmocka_unit_test(a_server_without_initial_events),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
