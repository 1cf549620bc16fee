/* bothy image: pulls, lists and removes images. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/pull.h"
#include "cli/verbs.h"

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

static err *cli_image_pull(cli *c, void *args, const opt_words *words, int *status)
{
    const image_args *a = args;
    CLEANUP(json_decrefp) json_t *image = NULL;

    (void)status;
    TRY(cli_connect(c));
    TRY(cli_pull(
        c, &(pull_wish){.source = words->v[0], .as = a->as, .policy = a->pull, .quiet = a->quiet},
        &image));
    if (c->common.json)
        out_json(stdout, image);
    else
        out_line(stdout, json_str(image, "name"));
    return NULL;
}

static const verb PULL = {
    .name = "pull",
    .usage = "[OPTIONS] SOURCE",
    .summary = "Bring an image onto the node and print its name",
    .text =
        "SOURCE is a name, or oci:PATH, docker-archive:PATH or dir:PATH with a path of the node.\n"
        "On a terminal a bar shows how far it is; with --json each step is a line of JSON with a\n"
        "percentage on stderr, and the image is on stdout. A pull that broke goes on where it was\n"
        "when it is asked for again.",
    .opts = PULL_OPTS,
    .args_size = sizeof(image_args),
    .words_min = 1,
    .words_max = 1,
    .run = cli_image_pull,
};

/* ---- ls ---- */

static const opt LS_OPTS[] = {
    OPT('q', "quiet", NULL, OPT_FLAG, image_args, quiet, "names only"),
    COMMON_OPTS(image_args),
};

/* Returns the first twelve digits of "sha256:1234…", as docker prints them. */
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

static err *image_ls(cli *c, void *args, const opt_words *words, int *status)
{
    const image_args *a = args;
    CLEANUP(json_decrefp) json_t *images = NULL;
    CLEANUP(out_table_done) out_table t = {0};
    size_t i;
    json_t *image;

    (void)words, (void)status;
    TRY(cli_list(c, "/v1/images", "images", &images));
    if (a->quiet) {
        json_array_foreach(images, i, image) out_line(stdout, json_str(image, "name"));
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
    .run = image_ls,
};

/* ---- rm ---- */

static const opt RM_OPTS[] = {COMMON_OPTS(image_args)};

static err *image_rm(cli *c, void *args, const opt_words *words, int *status)
{
    (void)args, (void)status;
    return cli_remove(c, words->v, "/v1/images");
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
    .run = image_rm,
};

/* ---- prune ---- */

static const opt PRUNE_OPTS[] = {
    OPT('a', "all", NULL, OPT_FLAG, image_args, all, "also images that no live sandbox uses"),
    COMMON_OPTS(image_args),
};

static err *cli_image_prune(cli *c, void *args, const opt_words *words, int *status)
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
    .run = cli_image_prune,
};

static const verb *const VERBS[] = {&PULL, &LS, &RM, &PRUNE, NULL};
const verb VERB_IMAGE = {
    .name = "image",
    .usage = "COMMAND ...",
    .summary = "Fetch, list and remove images",
    .of = VERBS,
};
