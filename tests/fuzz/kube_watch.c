/* A watch, and pages before it. What is told does not depend on how the bytes are cut; nothing is
 * gone that was not there; behind what is not understood nothing counts; the next request is one.
 */
#include "backend/kubernetes/kube_watch.h"

#include "base/cleanup.h"
#include "base/map.h"

#include "fuzz.h"

typedef struct world {
    map there;
    buf told;
} world;

static void on_there(void *arg, const char *uid, const json_t *object)
{
    world *w = arg;

    MUST(json_is_object(object));
    map_put_str(&w->there, uid, w);
    buf_printf(&w->told, "+%s", uid);
}

static void on_gone(void *arg, const char *uid, const json_t *object)
{
    world *w = arg;

    (void)object;
    MUST(map_take_str(&w->there, uid));
    buf_printf(&w->told, "-%s", uid);
}

static void on_synced(void *arg)
{
    buf_char(&((world *)arg)->told, '=');
}

static const kube_watch_events EVENTS = {on_there, on_gone, on_synced};

static uint32_t zero(void)
{
    return 0;
}

static void asked(kube_watch *m)
{
    kube_watch_ask ask;

    kube_watch_next(m, &ask);
    MUST(str_starts(ask.path, "/x?"));
    MUST(ascii_visible(ask.path));
    MUST(ask.wait_ms <= 3600 * 1000);
    MUST((ask.what == KUBE_ASK_STREAM) == (strstr(ask.path, "watch=1") != NULL));
}

/* The input's lines before an empty one are pages, what follows is the stream. */
static void run(const uint8_t *data, size_t size, size_t step, bool initial, world *w)
{
    kube_watch *m = kube_watch_new(&(kube_watch_options){
        .path = "/x", .initial_events = initial, .events = &EVENTS, .arg = w, .random = zero});
    fuzz_in in = {data, size};
    bool more = true;

    for (int i = 0; i < 4 && !*kube_watch_version(m) && !initial; i++) {
        CLEANUP(freep) char *text = fuzz_word(&in, '\n');
        CLEANUP(json_decrefp) json_t *page = NULL;
        asked(m);
        err *e = json_parse(text, strlen(text), &page);
        if (e)
            kube_watch_ended(m, e, 1);
        else
            kube_watch_page(m, page);
    }
    asked(m);
    for (size_t at = 0; at < in.n; at += step)
        more = kube_watch_feed(m, in.p + at, step < in.n - at ? step : in.n - at) && more;
    size_t before = w->told.len;
    if (!more)
        kube_watch_feed(m,
                        "\n{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"uid\":\"u\","
                        "\"resourceVersion\":\"1\"}}}\n",
                        79);
    MUST(more || w->told.len == before);
    kube_watch_ended(m, NULL, 1);
    asked(m);
    kube_watch_free(m);
}

static void both(const uint8_t *data, size_t size, bool initial)
{
    world whole = {0}, pieces = {0};

    run(data, size, size ? size : 1, initial, &whole);
    run(data, size, 1, initial, &pieces);
    MUST(whole.told.len == pieces.told.len);
    MUST(!whole.told.len || !memcmp(whole.told.p, pieces.told.p, whole.told.len));
    map_done(&whole.there);
    map_done(&pieces.there);
    buf_done(&whole.told);
    buf_done(&pieces.told);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    both(data, size, false);
    both(data, size, true);
    return 0;
}
