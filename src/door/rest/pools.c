/* /v1/pools: the backend's pool of warm boxes. */
#include "api/openapi.h"
#include "base/clock.h"
#include "door/rest/internal.h"

#define NAME     "slots"
#define BODY_MAX (64 * 1024)

static json_t *pools_seconds(uint64_t ns)
{
    return json_real((double)(ns / (NS_PER_MS / 10)) / 10000);
}

static json_t *text_or_null(const char *text)
{
    return *text ? json_string(text) : json_null();
}

static void add_numbers(json_t *o, const pool_status *p)
{
    const struct {
        const char *name;
        uint64_t value;
    } NUMBERS[] = {
        {"low", p->low},
        {"high", p->high},
        {"max", p->max},
        {"ready", p->ready},
        {"making", p->making},
        {"claimed", p->claimed},
        {"dying", p->dying},
        {"waiting", p->waiting},
        {"refills_failed", p->refills_failed},
        {"failures", p->failures},
        {"memory", p->memory},
        {"memory_limits", p->memory_limits},
        {"memory_limits_max", p->memory_limits_max},
    };

    for (size_t i = 0; i < ARRAY_LEN(NUMBERS); i++)
        json_object_set_new(o, NUMBERS[i].name, json_integer((json_int_t)NUMBERS[i].value));
}

static json_t *view_pool(const pool_status *p)
{
    json_t *o = json_object();

    json_object_set_new(o, "name", json_string(NAME));
    add_numbers(o, p);
    json_object_set_new(o, "oldest_wait", pools_seconds(p->oldest_wait_ns));
    json_object_set_new(o, "waits_for", text_or_null(str_or(p->waits_for, "")));
    json_object_set_new(o, "state", json_string(str_or(p->state, "")));
    json_object_set_new(o, "refill_time", p->refill_ns ? pools_seconds(p->refill_ns) : json_null());
    json_object_set_new(o, "next_try", pools_seconds(p->next_try_ns));
    json_object_set_new(o, "last_error", text_or_null(p->last_error));
    return o;
}

json_t *view_pool_of(backend *b)
{
    pool_status p = {0};
    err *e = b->ops->pool ? b->ops->pool(b, NULL, &p) : err_new(ERR_UNSUPPORTED, "no pool");
    json_t *o = e ? json_null() : view_pool(&p);

    err_free(e);
    return o;
}

err *rest_pool_list(request *rq, response *rs)
{
    backend *b = engine_backend(rest_engine(rq));
    json_t *list = json_array();
    pool_status p = {0};

    if (b->ops->pool) {
        err *e = b->ops->pool(b, NULL, &p);
        if (e) {
            json_decref(list);
            return e;
        }
        json_array_append_new(list, view_pool(&p));
    }
    response_json(rs, 200, json_pack("{s:o}", "pools", list));
    return NULL;
}

/* Reads the pool that the path names. With `set`, changes it first. */
static err *pools_ask(request *rq, const pool_marks *set, pool_status *ret_status)
{
    backend *b = engine_backend(rest_engine(rq));
    const char *name = request_param(rq, 0);

    if (!b->ops->pool || !str_eq(name, NAME))
        return err_kind(err_new(ERR_NOT_FOUND, "there is no pool '%s'", name), "pool");
    return b->ops->pool(b, set, ret_status);
}

err *rest_pool_get(request *rq, response *rs)
{
    pool_status p = {0};

    TRY(pools_ask(rq, NULL, &p));
    response_json(rs, 200, view_pool(&p));
    return NULL;
}

err *rest_pool_patch(request *rq, response *rs)
{
    CLEANUP(patch_pool_done) patch_pool in = {0};
    CLEANUP(buf_done) buf body = {0};
    pool_status p = {0};

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(patch_pool_decode(body.p, body.len, &in));
    TRY(pools_ask(rq, NULL, &p));
    pool_marks set = {.low = in.has_low ? (uint32_t)in.low : p.low,
                      .high = in.has_high ? (uint32_t)in.high : p.high};
    if (in.has_low && in.has_high && set.low > set.high)
        return err_new(ERR_INVALID_REQUEST, "low must not be above high");
    if (set.low > set.high && in.has_low)
        set.high = set.low;
    else if (set.low > set.high)
        set.low = set.high;
    TRY(pools_ask(rq, &set, &p));
    response_json(rs, 200, view_pool(&p));
    return NULL;
}
