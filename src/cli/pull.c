#include "cli/pull.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/out.h"
#include "wire/sse.h"

#define BAR_MAX      40
#define WIDTH        80
#define PERCENT_FULL 100

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
    uint64_t began_ns;
    int64_t first_bytes; /* what was here when it began: not part of the rate */
    char *last;          /* the line of JSON before */
} pull_state;

/* ---- the bar ---- */

static size_t terminal_width(void)
{
    struct winsize w;

    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : WIDTH;
}

static void put_bar(buf *out, size_t width, int64_t percent)
{
    size_t full = width * (size_t)percent / PERCENT_FULL;

    buf_char(out, '[');
    for (size_t i = 0; i < width; i++)
        buf_char(out, i < full ? '=' : i == full ? '>' : ' ');
    buf_char(out, ']');
}

static void put_rate(buf *out, const pull_state *s, int64_t done)
{
    uint64_t ms = (now_mono_ns() - s->began_ns) / NS_PER_MS;

    if (ms < 500 || done <= s->first_bytes) /* too early to say */
        return;
    buf_str(out, "  ");
    out_size(out, (uint64_t)(done - s->first_bytes) * 1000 / ms);
    buf_str(out, "/s");
}

/* "fetch  [=====>    ]  52 %  50.1 of 96.2 MiB  2 of 4 layers  31.0 MiB/s", as wide as fits. */
static void draw(pull_state *s, const json_t *p)
{
    int64_t layers = json_int(p, "layers", 0), bytes = json_int(p, "bytes", 0);
    int64_t done = json_int(p, "bytes_done", 0), percent = json_int(p, "percent", 0);
    size_t width = terminal_width();
    CLEANUP(buf_done) buf tail = {0};
    CLEANUP(buf_done) buf line = {0};

    if (percent < 0 || percent > PERCENT_FULL)
        percent = 0;
    if (layers && s->first_bytes < 0)
        s->first_bytes = done;
    out_safe(&line, str_or(json_str(p, "stage"), ""));
    while (line.len < 8)
        buf_char(&line, ' ');
    if (!layers) {
        out_safe(&line, s->source);
    } else {
        buf_printf(&tail, "%4lld %%  ", (long long)percent);
        out_size(&tail, (uint64_t)done);
        buf_str(&tail, " of ");
        out_size(&tail, (uint64_t)bytes);
        buf_printf(&tail, "  %lld of %lld layers", (long long)json_int(p, "layers_done", 0),
                   (long long)layers);
        put_rate(&tail, s, done);
        size_t used = line.len + tail.len + 3, room = width > used ? width - used : 0;
        if (room > 4)
            put_bar(&line, room < BAR_MAX ? room : BAR_MAX, percent);
        buf_append(&line, tail.p, tail.len);
    }
    if (line.len >= width)
        line.len = width - 1;
    fprintf(stderr, "\r%s\x1b[K", buf_cstr(&line));
    fflush(stderr);
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
        draw(s, data);
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
    if (s->show == SHOW_BAR)
        fputs("\r\x1b[K", stderr);
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
    pull_state s = {.source = w->source, .began_ns = now_mono_ns(), .first_bytes = -1};

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
        if (!missing) /* here, or something the create will say better */
            return NULL;
    }
    const pull_wish wish = {
        .source = image, .policy = str_or(policy, "missing"), .quiet = c->common.json};
    json_decref(TAKE_PTR(got));
    TRY(cli_pull(c, &wish, &got));
    json_object_set_new(create_body, "pull", json_string("missing"));
    return NULL;
}
