/* bothy image: what sandboxes are made from. */
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"
#include "wire/sse.h"

typedef struct image_args {
    common_args common;
    const char *as, *pull;
    bool quiet, all;
} image_args;

/* ---- pull ---- */

static const opt PULL_OPTS[] = {
    OPT(0, "as", "NAME", OPT_TEXT, image_args, as, "what to call it here"),
    OPT(0, "pull", "missing|always|never", OPT_CHOICE, image_args, pull,
        "missing: not if it is here (default always)"),
    OPT('q', "quiet", NULL, OPT_FLAG, image_args, quiet, "no progress"),
    COMMON_OPTS(image_args),
};

typedef struct pull_state {
    sse_decoder decoder;
    json_t *image;
    err *failed;
    bool show; /* progress on stderr */
} pull_state;

static void print_progress(const json_t *p)
{
    int64_t all = json_int(p, "layers", 0), done = json_int(p, "layers_done", 0);

    fprintf(stderr, "\r\x1b[K%s", str_or(json_str(p, "stage"), ""));
    if (all)
        fprintf(stderr, " %lld of %lld layers", (long long)done, (long long)all);
    fflush(stderr);
}

static bool on_event(void *arg, const sse_event *ev)
{
    pull_state *s = arg;
    CLEANUP(json_decrefp) json_t *data = NULL;
    CLEANUP(err_freep) err *bad = json_parse(ev->data, ev->len, &data);

    if (bad)
        return true;
    if (str_eq(ev->event, "progress") && s->show)
        print_progress(data);
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

static err *pull_events(cli *c, json_t *body, pull_state *s)
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
    if (s->show)
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

static err *pull(cli *c, void *args, const opt_words *words, int *status)
{
    const image_args *a = args;
    CLEANUP(json_decrefp) json_t *body = json_pack("{s:s}", "source", words->v[0]);
    pull_state s = {.show = !a->quiet && !c->common.json && isatty(STDERR_FILENO)};

    (void)status;
    if (a->as)
        json_object_set_new(body, "name", json_string(a->as));
    if (a->pull)
        json_object_set_new(body, "pull", json_string(a->pull));
    TRY(cli_connect(c));
    TRY(pull_events(c, body, &s));
    CLEANUP(json_decrefp) json_t *image = s.image;
    if (c->common.json)
        out_json(stdout, image);
    else
        puts(str_or(json_str(image, "name"), "-"));
    return NULL;
}

static const verb PULL = {
    .name = "pull",
    .usage = "[OPTIONS] SOURCE",
    .summary = "Bring an image onto the node and print its name",
    .text =
        "SOURCE is a name, or oci:PATH, docker-archive:PATH or dir:PATH with a path of the node.",
    .opts = PULL_OPTS,
    .args_size = sizeof(image_args),
    .words_min = 1,
    .words_max = 1,
    .run = pull,
};

/* ---- ls ---- */

static const opt LS_OPTS[] = {
    OPT('q', "quiet", NULL, OPT_FLAG, image_args, quiet, "names only"),
    COMMON_OPTS(image_args),
};

/* "sha256:1234…" as the twelve digits people know. */
static const char *short_digest(const char *digest, char buffer[13])
{
    const char *hex = digest && str_starts(digest, "sha256:") ? digest + 7 : str_or(digest, "-");

    snprintf(buffer, 13, "%s", hex);
    return buffer;
}

static void add_image(out_table *t, const json_t *image)
{
    CLEANUP(buf_done) buf size = {0}, age = {0}, layers = {0};
    uint64_t created = out_parse_time(json_str(image, "created")), now = now_real_ns();
    char digest[13];

    out_size(&size, (uint64_t)json_int(image, "size", 0));
    if (created)
        out_age(&age, now > created ? (now - created) / NS_PER_S : 0);
    buf_printf(&layers, "%zu", json_array_size(json_object_get(image, "layers")));
    out_table_cell(t, json_str(image, "name"));
    out_table_cell(t, short_digest(json_str(image, "digest"), digest));
    out_table_cell(t, buf_cstr(&layers));
    out_table_cell(t, buf_cstr(&size));
    out_table_cell(t, buf_cstr(&age));
}

static err *ls(cli *c, void *args, const opt_words *words, int *status)
{
    const image_args *a = args;
    CLEANUP(json_decrefp) json_t *images = NULL;
    CLEANUP(out_table_done) out_table t = {0};
    size_t i;
    json_t *image;

    (void)words, (void)status;
    TRY(cli_list(c, "/v1/images", "images", &images));
    if (a->quiet) {
        json_array_foreach(images, i, image) puts(str_or(json_str(image, "name"), "-"));
        return NULL;
    }
    if (c->common.json) {
        out_json(stdout, images);
        return NULL;
    }
    out_table_init(&t, "NAME DIGEST LAYERS SIZE AGE");
    json_array_foreach(images, i, image) add_image(&t, image);
    out_table_print(&t, stdout, out_colours(stdout));
    return NULL;
}

static const verb LS = {
    .name = "ls",
    .usage = "[OPTIONS]",
    .summary = "List the images of the node",
    .opts = LS_OPTS,
    .args_size = sizeof(image_args),
    .run = ls,
};

/* ---- rm ---- */

static const opt RM_OPTS[] = {COMMON_OPTS(image_args)};

static err *rm(cli *c, void *args, const opt_words *words, int *status)
{
    (void)args, (void)status;
    for (char **w = words->v; *w; w++) {
        CLEANUP(freep) char *name = client_escape(*w);
        TRY(cli_call(c, "DELETE", NULL, NULL, "/v1/images/%s", name));
        if (!c->common.json)
            puts(*w);
    }
    return NULL;
}

static const verb RM = {
    .name = "rm",
    .usage = "IMAGE...",
    .summary = "Forget images",
    .text = "Sandboxes made from them live on. 'bothy image prune' frees the space.",
    .opts = RM_OPTS,
    .args_size = sizeof(image_args),
    .words_min = 1,
    .words_max = -1,
    .run = rm,
};

/* ---- prune ---- */

static const opt PRUNE_OPTS[] = {
    OPT('a', "all", NULL, OPT_FLAG, image_args, all, "also images that no live sandbox uses"),
    COMMON_OPTS(image_args),
};

static err *prune(cli *c, void *args, const opt_words *words, int *status)
{
    const image_args *a = args;
    CLEANUP(json_decrefp) json_t *answer = NULL;
    CLEANUP(buf_done) buf size = {0};

    (void)words, (void)status;
    TRY(cli_call(c, "POST", json_pack("{s:b}", "all", a->all), &answer, "/v1/images/prune"));
    out_size(&size, (uint64_t)json_int(answer, "freed_bytes", 0));
    if (c->common.json)
        out_json(stdout, answer);
    else
        printf("%s freed\n", buf_cstr(&size));
    return NULL;
}

static const verb PRUNE = {
    .name = "prune",
    .usage = "[OPTIONS]",
    .summary = "Free the space of layers nobody needs",
    .opts = PRUNE_OPTS,
    .args_size = sizeof(image_args),
    .run = prune,
};

static const verb *const VERBS[] = {&PULL, &LS, &RM, &PRUNE, NULL};
const verb VERB_IMAGE = {
    .name = "image",
    .usage = "COMMAND ...",
    .summary = "Fetch, list and remove images",
    .of = VERBS,
};
