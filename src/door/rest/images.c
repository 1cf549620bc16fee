/* /v1/images. */
#include <string.h>

#include "api/openapi.h"
#include "base/str.h"
#include "door/rest/internal.h"

#define BODY_MAX  (64 * 1024)
#define PULL_HELD (64 * 1024) /* memory that a pull counts for */

err *rest_image_list(request *rq, response *rs)
{
    image **list = NULL;
    size_t n = 0;

    image_list(engine_images(rest_engine(rq)), &list, &n);
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(all, view_image(list[i]));
        image_unref(list[i]);
    }
    free(list);
    response_json(rs, 200, json_pack("{s:o}", "images", all));
    return NULL;
}

/* Returns the progress. The bytes are complete before the layers are, so
 * the last percent is for layers. */
static int percent_of(const pull_progress *p)
{
    if (str_eq(p->stage, "done"))
        return 100;
    return p->bytes ? (int)((double)p->bytes_done * 99 / (double)p->bytes) : 0;
}

static void on_progress(void *arg, const pull_progress *p)
{
    wait_event(arg, "progress",
               json_pack("{s:s,s:i,s:i,s:I,s:I,s:i}", "stage", p->stage, "layers", (int)p->layers,
                         "layers_done", (int)p->layers_done, "bytes", (json_int_t)p->bytes,
                         "bytes_done", (json_int_t)p->bytes_done, "percent", percent_of(p)));
}

static void on_pulled(void *arg, err *failure, image *got)
{
    wait_finish(arg, failure, 200, got ? view_image(got) : NULL, false);
    image_unref(got);
}

/* Checks the name of a pull. Names are shared by the node, so only administrators may give an
 * image another name than its source. */
static err *check_name(const caller *c, const pull_image *in)
{
    CLEANUP(freep) char *name = NULL;
    CLEANUP(freep) char *source = NULL;

    if (!in->name)
        return NULL;
    TRY(image_normalise_as(in->name, &name));
    TRY(image_normalise(in->source, &source));
    if (str_eq(name, source))
        return NULL;
    err *e = caller_require(c, CALLER_ADMIN);
    return e ? err_remedy(err_wrap(e, "another name than the source's"),
                          "Leave 'name' out and use the image by its own name, or let an "
                          "administrator pull it.")
             : NULL;
}

static err *check_store(const backend *b)
{
    if (b->caps.images != CAP_ABSENT)
        return NULL;
    return err_remedy(err_new(ERR_UNSUPPORTED,
                              "images are only names here: '%s' has them fetched when a sandbox "
                              "is made",
                              b->caps.name),
                      "Create a sandbox of it.");
}

err *rest_image_pull(request *rq, response *rs)
{
    CLEANUP(pull_image_done) pull_image in = {0};
    CLEANUP(buf_done) buf body = {0};
    bool events = rest_wants_events(rq);
    request_hold *hold = NULL;

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(pull_image_decode(body.p, body.len, &in));
    if (image_is_local_source(in.source))
        TRY(err_wrap(caller_require(rest_caller(rq), CALLER_ADMIN), "a path of the node"));
    TRY(check_name(rest_caller(rq), &in));
    TRY(check_store(engine_backend(rest_engine(rq))));
    enum pull_policy policy = in.pull == PULL_IMAGE_PULL_MISSING ? PULL_MISSING
                              : in.pull == PULL_IMAGE_PULL_NEVER ? PULL_NEVER
                                                                 : PULL_ALWAYS;
    TRY(request_hold_new(rq, PULL_HELD, &hold));
    wait_ticket *t = wait_start(rq, rs, events);
    wait_hold(t, hold);
    image_ensure(engine_images(rest_engine(rq)), in.source, in.name, policy,
                 &(pull_events){.owner = rest_caller(rq)->owner,
                                .progress = events ? on_progress : NULL,
                                .done = on_pulled,
                                .arg = t});
    return NULL;
}

err *rest_image_get(request *rq, response *rs)
{
    CLEANUP(image_unrefp) image *i = NULL;

    TRY(image_find(engine_images(rest_engine(rq)), request_param(rq, 0), &i));
    response_json(rs, 200, view_image(i));
    return NULL;
}

err *rest_image_delete(request *rq, response *rs)
{
    TRY(image_remove(engine_images(rest_engine(rq)), request_param(rq, 0)));
    response_status(rs, 204);
    return NULL;
}

err *rest_image_prune(request *rq, response *rs)
{
    CLEANUP(prune_images_done) prune_images in = {0};
    CLEANUP(buf_done) buf body = {0};
    uint64_t bytes = 0;

    TRY(request_body(rq, BODY_MAX, &body));
    if (body.len)
        TRY(prune_images_decode(body.p, body.len, &in));
    TRY(engine_prune_images(rest_engine(rq), rest_caller(rq), in.all, &bytes));
    response_json(rs, 200, json_pack("{s:I}", "freed_bytes", (json_int_t)bytes));
    return NULL;
}
