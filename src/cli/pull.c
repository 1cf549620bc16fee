#include "cli/pull.h"

#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/bar.h"
#include "cli/out.h"
#include "wire/sse.h"

enum show {
    SHOW_NOTHING,
    SHOW_BAR,
    SHOW_LINES
};

typedef struct pull_state {
    sse_decoder decoder;
    json_t *image;
    err *failed;
    enum show show;
    const char *source;
    bar bar;
    char stage[16];
    char *last; /* the last line of JSON printed */
} pull_state;

static void pull_draw(pull_state *s, const json_t *p)
{
    int64_t layers = json_int(p, "layers", 0), bytes = json_int(p, "bytes", 0);
    int64_t done = json_int(p, "bytes_done", 0), percent = json_int(p, "percent", 0);
    char note[64];

    snprintf(s->stage, sizeof s->stage, "%s", str_or(json_str(p, "stage"), ""));
    s->bar.label = s->stage;
    if (!layers) {
        bar_say(&s->bar, s->source);
        return;
    }
    snprintf(note, sizeof note, "%lld of %lld layers", (long long)json_int(p, "layers_done", 0),
             (long long)layers);
    bar_draw(&s->bar, &(bar_state){.done = done > 0 ? (uint64_t)done : 0,
                                   .total = bytes > 0 ? (uint64_t)bytes : 1,
                                   .percent = percent < 0 ? 0 : (int)percent,
                                   .note = note});
}

static void print_line(pull_state *s, const json_t *p)
{
    buf line = {0};

    json_write(&line, p);
    CLEANUP(freep) char *text = buf_take(&line);
    if (str_eq(text, s->last))
        return;
    fprintf(stderr, "%s\n", text);
    free(s->last);
    s->last = TAKE_PTR(text);
}

/* ---- the stream ---- */

static bool on_event(void *arg, const sse_event *ev)
{
    pull_state *s = arg;
    CLEANUP(json_decrefp) json_t *data = NULL;
    CLEANUP(err_freep) err *bad = json_parse(ev->data, ev->len, &data);

    if (bad)
        return true;
    if (str_eq(ev->event, "progress") && s->show == SHOW_BAR)
        pull_draw(s, data);
    else if (str_eq(ev->event, "progress") && s->show == SHOW_LINES)
        print_line(s, data);
    else if (str_eq(ev->event, "image"))
        s->image = json_incref(data);
    else if (str_eq(ev->event, "error"))
        s->failed = json_to_err(data);
    return !s->image && !s->failed;
}

static bool on_bytes(void *arg, const void *p, size_t n)
{
    pull_state *s = arg;
    err *e = sse_feed(&s->decoder, p, n, on_event, s);

    if (e && !s->failed)
        s->failed = e;
    return !s->image && !s->failed;
}

static err *follow_pull(cli *c, json_t *body, pull_state *s)
{
    client_call call = {.method = "POST",
                        .path = "/v1/images",
                        .json = body,
                        .accept = "text/event-stream",
                        .on_bytes = on_bytes,
                        .arg = s};
    CLEANUP(client_answer_done) client_answer answer = {0};
    CLEANUP(err_freep) err *e = client_do(c->client, &call, &answer);

    sse_decoder_done(&s->decoder);
    free(TAKE_PTR(s->last));
    bar_clear(&s->bar);
    if (s->failed)
        return TAKE_PTR(s->failed);
    if (e && !s->image)
        return TAKE_PTR(e);
    if (!s->image)
        return err_remedy(err_new(ERR_UNAVAILABLE, "the daemon went away during the pull"),
                          "Pull again; what has been fetched is not fetched twice.");
    return NULL;
}

err *cli_pull(cli *c, const pull_wish *w, json_t **ret_image)
{
    CLEANUP(json_decrefp) json_t *body = json_pack("{s:s}", "source", w->source);
    pull_state s = {.source = w->source, .bar = bar_start("")};

    if (!body)
        return err_remedy(usage_error("the image's name is not UTF-8"), "Encode it.");
    if (!w->quiet)
        s.show = c->common.json ? SHOW_LINES : isatty(STDERR_FILENO) ? SHOW_BAR : SHOW_NOTHING;
    if (w->as)
        json_object_set_new(body, "name", json_string(w->as));
    if (w->policy)
        json_object_set_new(body, "pull", json_string(w->policy));
    TRY(follow_pull(c, body, &s));
    *ret_image = s.image;
    return NULL;
}

err *cli_pull_before(cli *c, json_t *create_body)
{
    const char *image = json_str(create_body, "image"), *policy = json_str(create_body, "pull");
    CLEANUP(json_decrefp) json_t *got = NULL;

    if (!image || str_eq(policy, "never"))
        return NULL;
    if (!str_eq(policy, "always")) {
        CLEANUP(freep) char *name = client_escape(image);
        err *e = cli_call(c, "GET", NULL, &got, "/v1/images/%s", name);
        bool missing = e && e->code == ERR_NOT_FOUND;
        err_free(e);
        if (!missing) /* it exists, or the create reports the error better */
            return NULL;
    }
    const pull_wish wish = {
        .source = image, .policy = str_or(policy, "missing"), .quiet = c->common.json};
    json_decref(TAKE_PTR(got));
    err *e = cli_pull(c, &wish, &got);
    if (e && e->code == ERR_UNSUPPORTED) { /* the create itself fetches the image */
        err_free(e);
        return NULL;
    }
    TRY(e);
    json_object_set_new(create_body, "pull", json_string("missing"));
    return NULL;
}
