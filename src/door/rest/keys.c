/* /v1/keys: the keys of callers, with their quotas. */
#include "api/openapi.h"
#include "base/str.h"
#include "door/rest/internal.h"

#define BODY_MAX (64 << 10)

/* Converts a rate to thousandths. A rate that would round to none becomes the smallest one. */
static uint32_t milli_of(double a_second)
{
    uint32_t milli = (uint32_t)(a_second * 1000 + 0.5);

    return a_second > 0 && !milli ? 1 : milli;
}

err *rest_key_list(request *rq, response *rs)
{
    CLEANUP(freep) key_row *rows = NULL;
    size_t n = 0;

    TRY(engine_key_list(rest_engine(rq), rest_caller(rq), &rows, &n));
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(all, view_key(&rows[i], NULL));
        key_row_done(&rows[i]);
    }
    response_json(rs, 200, json_pack("{s:o}", "keys", all));
    return NULL;
}

err *rest_key_create(request *rq, response *rs)
{
    static const char *const ROLES[] = {"user", "admin", "user", "read"};
    CLEANUP(create_key_done) create_key in = {0};
    CLEANUP(key_row_done) key_row row = {0};
    CLEANUP(secret_freep) char *secret = NULL;
    CLEANUP(buf_done) buf body = {0};

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(create_key_decode(body.p, body.len, &in));
    key_request k = {.owner = in.owner,
                     .role = ROLES[in.role],
                     .note = in.note,
                     .ttl_ms = in.has_expires_in ? in.expires_in * 1000 : 0};
    k.quota = (quota){.sandboxes = (uint32_t)in.max_sandboxes,
                      .creates_milli = milli_of(in.creates_per_second),
                      .creating = (uint32_t)in.max_concurrent,
                      .ttl_ms = in.max_ttl * 1000};
    TRY(engine_key_create(rest_engine(rq), rest_caller(rq), &k, &row, &secret));
    response_json(rs, 201, view_key(&row, secret));
    return NULL;
}

err *rest_key_update(request *rq, response *rs)
{
    CLEANUP(patch_key_done) patch_key in = {0};
    CLEANUP(key_row_done) key_row row = {0};
    CLEANUP(buf_done) buf body = {0};

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(patch_key_decode(body.p, body.len, &in));
    quota q = {.sandboxes = (uint32_t)in.max_sandboxes,
               .creates_milli = milli_of(in.creates_per_second),
               .creating = (uint32_t)in.max_concurrent,
               .ttl_ms = in.max_ttl * 1000};
    unsigned has = (in.has_max_sandboxes ? QUOTA_SANDBOXES : 0) |
                   (in.has_creates_per_second ? QUOTA_CREATES : 0) |
                   (in.has_max_concurrent ? QUOTA_CREATING : 0) | (in.has_max_ttl ? QUOTA_TTL : 0);
    TRY(engine_key_update(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &q, has, &row));
    response_json(rs, 200, view_key(&row, NULL));
    return NULL;
}

err *rest_key_delete(request *rq, response *rs)
{
    TRY(engine_key_remove(rest_engine(rq), rest_caller(rq), request_param(rq, 0)));
    response_status(rs, 204);
    return NULL;
}
