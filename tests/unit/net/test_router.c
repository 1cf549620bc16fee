#include <string.h>

#include "base/str.h"
#include "net/internal.h"
#include "net/router.h"

#include "unit.h"

static err *one(request *rq, response *rs)
{
    (void)rq;
    (void)rs;
    return NULL;
}

static const route TABLE[] = {
    {"GET", "/", one, ROLE_ANYONE, "root"},
    {"GET", "/v1/sandboxes", one, ROLE_READ, "list"},
    {"POST", "/v1/sandboxes", one, ROLE_USER, "create"},
    {"GET", "/v1/sandboxes/{id}", one, ROLE_READ, "show"},
    {"DELETE", "/v1/sandboxes/{id}", one, ROLE_USER, "remove"},
    {"GET", "/v1/sandboxes/{id}/processes/{x}/output", one, ROLE_READ, "output"},
    {"GET", "/v1/sandboxes/{id}/files", one, ROLE_READ, "read"},
    {"HEAD", "/v1/sandboxes/{id}/files", one, ROLE_READ, "stat"},
    {"*", "/v1/sandboxes/{id}/ports/{port}/{path*}", one, ROLE_USER, "port"},
};

typedef struct asked {
    request *rq;
    response rs;
    const route *route;
} asked;

static err *ask(asked *a, const char *method, const char *target)
{
    memset(a, 0, sizeof *a);
    a->rq = xcalloc(1, sizeof *a->rq);
    a->rq->h1.method = method;
    a->rq->h1.target = (char *)target;
    assert_ok(request_open(a->rq));
    return router_match(TABLE, ARRAY_LEN(TABLE), a->rq, &a->rs, &a->route);
}

static void done(asked *a)
{
    request_close(a->rq);
    response_done(&a->rs);
}

static void routes_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *method, *target, *operation, *param[3];
    } CASES[] = {
        {"GET", "/", "root", {0}},
        {"GET", "/v1/sandboxes?x=/y", "list", {0}},
        {"POST", "/v1/sandboxes", "create", {0}},
        {"GET", "/v1/sandboxes/abc", "show", {"abc"}},
        {"HEAD", "/v1/sandboxes/abc", "show", {"abc"}},
        {"DELETE", "/v1/sandboxes/a%2Fb", "remove", {"a/b"}},
        {"GET", "/v1/sandboxes/abc/processes/7/output", "output", {"abc", "7"}},
        {"HEAD", "/v1/sandboxes/abc/files?path=x", "stat", {"abc"}},
        {"GET", "/v1/sandboxes/abc/ports/80/", "port", {"abc", "80", ""}},
        {"PROPFIND", "/v1/sandboxes/abc/ports/80/x", "port", {"abc", "80", "x"}},
        {"HEAD", "/v1/sandboxes/abc/ports/80/x", "port", {"abc", "80", "x"}},
        {"GET", "/v1/sandboxes/abc/ports/80/a/%20b//c", "port", {"abc", "80", "a/ b//c"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        asked a;
        assert_ok(ask(&a, CASES[i].method, CASES[i].target));
        assert_string_equal(a.route->operation, CASES[i].operation);
        for (size_t k = 0; k < 3; k++)
            assert_true(str_eq(request_param(a.rq, k), CASES[i].param[k]));
        done(&a);
    }
}

static void what_is_not_there_is_not_found(void **state)
{
    (void)state;
    static const char *const CASES[] = {
        "/v1",
        "/v1/sandboxes/",
        "/v1/sandboxes/a/b",
        "/v1/sandboxes//files",
        "/v1/%73andboxes", /* an escaped letter is another path */
        "/v1/sandboxesx",
        "/v1/sandboxes/a/ports/80",
        "//v1/sandboxes",
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        asked a;
        err *e = ask(&a, "GET", CASES[i]);
        assert_non_null(e);
        assert_int_equal(e->code, ERR_NOT_FOUND);
        assert_string_equal(e->kind, "route");
        err_free(e);
        done(&a);
    }
}

static void other_methods_are_told_what_is_allowed(void **state)
{
    (void)state;
    asked a;

    assert_err(ask(&a, "PUT", "/v1/sandboxes/abc"), ERR_METHOD_NOT_ALLOWED);
    assert_string_equal(buf_cstr(&a.rs.kept), "Allow: GET, HEAD, DELETE\r\n");
    done(&a);
}

static void queries_are_decoded(void **state)
{
    (void)state;
    asked a;

    assert_ok(ask(&a, "GET", "/?a=1&b=%26%3D&a=2&flag&=x&&c=d=e&plus=a+b"));
    assert_string_equal(request_query(a.rq, "a"), "1");
    assert_string_equal(request_query(a.rq, "b"), "&=");
    assert_string_equal(request_query(a.rq, "flag"), "");
    assert_string_equal(request_query(a.rq, ""), "x");
    assert_string_equal(request_query(a.rq, "c"), "d=e");
    assert_string_equal(request_query(a.rq, "plus"), "a+b");
    assert_null(request_query(a.rq, "d"));
    done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_are_found),
        cmocka_unit_test(what_is_not_there_is_not_found),
        cmocka_unit_test(other_methods_are_told_what_is_allowed),
        cmocka_unit_test(queries_are_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
