/* A request's target and headers, up to its handler: paths, percent escapes, queries, routes, the
 * error that says no. The first line is "METHOD target", the others are headers. */
#include <strings.h>

#include "api/openapi.h"
#include "base/cleanup.h"
#include "net/client.h"
#include "net/internal.h"
#include "net/router.h"

#include "fuzz.h"

static void make_head(fuzz_in *in, buf *head)
{
    CLEANUP(freep) char *first = fuzz_word(in, '\n');

    buf_printf(head, "%s HTTP/1.1\r\nHost: bothy\r\n", first);
    while (in->n) {
        CLEANUP(freep) char *line = fuzz_word(in, '\n');
        buf_printf(head, "%s\r\n", line);
    }
    buf_str(head, "\r\n");
}

static void check_text(const char *text)
{
    CLEANUP(freep) char *again = client_escape(text);
    size_t n = 0;

    MUST(percent_decode(again, &n) && !strcmp(again, text));
}

static void check_query(void *arg, const char *name, const char *value)
{
    (void)arg;
    check_text(name);
    check_text(value);
}

static void check_route(const request *rq, const route *r)
{
    size_t want = 0;

    for (const char *c = r->pattern; *c; c++)
        want += *c == '{';
    for (size_t i = 0; i < HTTP_PARAMS_MAX; i++) {
        MUST(!rq->param[i] == (i >= want));
        if (rq->param[i])
            check_text(rq->param[i]);
    }
    MUST(!strcmp(r->method, rq->h1.method) || !strcmp(r->method, "*") ||
         (!strcmp(r->method, "GET") && !strcmp(rq->h1.method, "HEAD")));
}

static const char *find(void *arg, const char *name)
{
    return request_query(arg, name);
}

#define DECODE(type)                                                   \
    do {                                                               \
        CLEANUP(type##_done) type q_ = {0};                            \
        err *e_ = type##_decode(find, rq, &q_);                        \
        MUST(!e_ || (e_->code == ERR_INVALID_REQUEST && e_->message)); \
        err_free(e_);                                                  \
    } while (0)

static void decode_queries(request *rq)
{
    DECODE(process_output_query);
    DECODE(process_stdin_query);
    DECODE(sandbox_list_query);
    DECODE(registry_logout_query);
}

/* An answer is a head of whole lines and one JSON document, whatever the request was. */
static void check_answer(const request *rq, const err *e, const response *rs)
{
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(json_decrefp) json_t *body = NULL;

    response_error((response *)rs, e);
    response_render(rs, rq, true, &out);
    const char *text = buf_cstr(&out), *end = strstr(text, "\r\n\r\n");
    MUST(end && !strncmp(text, "HTTP/1.1 ", 9));
    for (const char *c = text; c < end; c++)
        MUST(*c == '\r' ? c[1] == '\n' : *c == '\n' ? c[-1] == '\r' : (unsigned char)*c >= 0x20);
    if (!request_is_head(rq))
        MUST(!json_parse(end + 4, out.len - (size_t)(end + 4 - text), &body) && body);
}

static void run(request *rq)
{
    response rs = {.id = rq->id};
    const route *found = NULL;
    err *e = http1_parse(rq->head.p, rq->head.len, &rq->h1);

    if (!e) {
        request_set_id(rq);
        e = request_open(rq);
    }
    if (!e) {
        check_text(rq->path);
        request_query_each(rq, check_query, NULL);
        e = router_match(OPENAPI_ROUTES, OPENAPI_NROUTES, rq, &rs, &found);
    }
    if (found) {
        check_route(rq, found);
        decode_queries(rq);
    }
    MUST(!e == (found != NULL));
    if (e && rq->h1.method)
        check_answer(rq, e, &rs);
    err_free(e);
    response_done(&rs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static server here = {.id_prefix = "fuzz0000"};
    fuzz_in in = {data, size};
    http1_guard guard = {0};
    size_t used = 0;
    request *rq = xcalloc(1, sizeof *rq);

    rq->server = &here;
    make_head(&in, &rq->head);
    if (http1_guard_feed(&guard, rq->head.p, rq->head.len, &used) == HTTP1_DONE) {
        rq->head.len = used;
        run(rq);
    }
    request_close(rq);
    return 0;
}
