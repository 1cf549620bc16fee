/* …/pause and …/resume, and which state a paused sandbox keeps. */
#include "core/pause.h"

#include "api/openapi.h"
#include "door/rest/internal.h"

static json_t *view_facts(const pause_fact *f)
{
    json_t *list = json_array();

    for (; f->what; f++)
        json_array_append_new(list, json_pack("{s:s,s:s}", "what", f->what, "detail", f->detail));
    return list;
}

static double pause_ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

json_t *view_pause(const sandbox_view *v)
{
    const resume_estimate *r = &v->resume;

    if (!v->paused_ns)
        return json_null();
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o}", "how", "freeze", "since", view_time(v->paused_ns),
                     "until", view_time(v->ends_ns), "kept", view_facts(PAUSE_KEPT), "lost",
                     view_facts(PAUSE_LOST), "resume",
                     r->measured ? json_pack("{s:f,s:f,s:i}", "expect_ms", pause_ms(r->expect_ns),
                                             "worst_ms", pause_ms(r->worst_ns), "measured",
                                             (int)r->measured)
                                 : json_null());
}

static json_t *view_with_pause(sandbox *sb)
{
    CLEANUP(sandbox_view_done) sandbox_view v = {0};

    sandbox_get(sb, &v);
    json_t *o = view_sandbox(&v);
    json_object_set_new(o, "pause", view_pause(&v));
    return o;
}

err *rest_sandbox_pause(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    TRY(engine_pause(rest_engine(rq), rest_caller(rq), sb));
    response_json(rs, 200, view_with_pause(sb));
    return NULL;
}

err *rest_sandbox_resume(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    resumed r;

    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    TRY(engine_resume(rest_engine(rq), rest_caller(rq), sb, &r));
    json_t *o = view_with_pause(sb);
    json_object_set_new(o, "resumed",
                        r.took_ns ? json_pack("{s:f,s:f}", "took_ms", pause_ms(r.took_ns),
                                              "paused_ms", pause_ms(r.paused_ns))
                                  : json_null());
    response_json(rs, 200, o);
    return NULL;
}
