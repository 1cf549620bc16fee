/* Which requests are E2B's, and what they mean. */
#include <string.h>

#include "door/e2b/route.h"

#include "../unit.h"

#define ID    "b000aaaabbbbccccdddd"
#define TOKEN ID "0123456789012345678901234567890123456789"

static void expect(const e2b_asked *a, enum e2b_plane plane, const char *id, uint16_t port)
{
    e2b_way w = e2b_route(a);

    assert_int_equal(w.plane, plane);
    assert_string_equal(w.id, id);
    assert_int_equal(w.port, port);
}

static void native_paths_are_not_ours(void **state)
{
    (void)state;
    expect(&(e2b_asked){.path = "/v1/sandboxes", .api_key = "k"}, PLANE_OTHER, "", 0);
    expect(&(e2b_asked){.path = "/healthz"}, PLANE_OTHER, "", 0);
    expect(&(e2b_asked){.path = "/sandboxesx", .api_key = "k"}, PLANE_OTHER, "", 0);
    expect(&(e2b_asked){.path = "/v1/info", .host = "localhost:7070"}, PLANE_OTHER, "", 0);
}

static void a_key_and_a_control_path_go_before_all(void **state)
{
    (void)state;
    /* Python 2.7 to 2.26 send routing headers with connect */
    expect(&(e2b_asked){.path = "/sandboxes/x/connect", .api_key = "k", .sandbox = ID, .port = "1"},
           PLANE_CONTROL, "", 0);
    expect(&(e2b_asked){.path = "/v2/sandboxes", .api_key = "k"}, PLANE_CONTROL, "", 0);
    expect(&(e2b_asked){.path = "/v3/templates", .api_key = "k"}, PLANE_CONTROL, "", 0);
    expect(&(e2b_asked){.path = "/secrets", .api_key = "k", .token = TOKEN}, PLANE_CONTROL, "", 0);
}

static void routing_headers_win_over_native_paths(void **state)
{
    (void)state;
    expect(&(e2b_asked){.path = "/v1/sandboxes", .sandbox = ID, .port = "3000"}, PLANE_DATA, ID,
           3000);
    expect(&(e2b_asked){.path = "/health", .sandbox = ID "-client", .port = "49983"}, PLANE_DATA,
           ID, 49983);
    expect(&(e2b_asked){.path = "/health", .sandbox = ID}, PLANE_DATA, ID, 49983);
    expect(&(e2b_asked){.path = "/sandboxes", .sandbox = ID, .port = "80"}, PLANE_DATA, ID, 80);
    expect(&(e2b_asked){.path = "/health", .sandbox = "short"}, PLANE_DATA, "", 49983);
    expect(&(e2b_asked){.path = "/health", .sandbox = "B000AAAABBBBCCCCDDDD"}, PLANE_DATA, "",
           49983);
    expect(&(e2b_asked){.path = "/health", .sandbox = ID, .port = "70000"}, PLANE_DATA, ID, 0);
}

static void hosts_name_port_and_sandbox(void **state)
{
    (void)state;
    expect(&(e2b_asked){.path = "/", .host = "49983-" ID ".dom"}, PLANE_DATA, ID, 49983);
    expect(&(e2b_asked){.path = "/", .host = "49983-" ID "-local.dom:7070"}, PLANE_DATA, ID, 49983);
    expect(&(e2b_asked){.path = "/", .host = "3000-B000AAAABBBBCCCCDDDD.DOM"}, PLANE_DATA, ID,
           3000);
    expect(&(e2b_asked){.path = "/", .host = "49983-" ID}, PLANE_OTHER, "", 0);
    expect(&(e2b_asked){.path = "/", .host = "0-" ID ".dom"}, PLANE_OTHER, "", 0);
    expect(&(e2b_asked){.path = "/", .host = "127.0.0.1:7070"}, PLANE_OTHER, "", 0);
    expect(&(e2b_asked){.path = "/", .host = ""}, PLANE_OTHER, "", 0);
}

static void hosts_of_the_native_domain_stay_native(void **state)
{
    (void)state;
    assert_true(
        e2b_route(&(e2b_asked){.path = "/", .host = "3000-" ID ".dom", .domain = "dom"}).native);
    assert_false(
        e2b_route(&(e2b_asked){.path = "/", .host = "49983-" ID ".dom", .domain = "dom"}).native);
    assert_false(
        e2b_route(
            &(e2b_asked){.path = "/", .host = "3000-" ID ".dom", .domain = "dom", .token = TOKEN})
            .native);
}

static void hosts_of_other_domains_are_nobodys(void **state)
{
    (void)state;
    static const char *const OTHERS[] = {"49983-" ID ".other", "49983-" ID ".dom.org",
                                         "49983-" ID ".xdom", "49983-" ID ".do"};
    static const char *const OURS[] = {"49983-" ID ".dom.", "49983-" ID ".DOM:80",
                                       "49983-" ID ".dom.:80"};

    for (size_t i = 0; i < ARRAY_LEN(OTHERS); i++)
        expect(&(e2b_asked){.path = "/", .host = OTHERS[i], .domain = "dom"}, PLANE_OTHER, "", 0);
    for (size_t i = 0; i < ARRAY_LEN(OURS); i++)
        expect(&(e2b_asked){.path = "/", .host = OURS[i], .domain = "dom"}, PLANE_DATA, ID, 49983);
}

static void what_has_somebody_elses_form_routes_nothing(void **state)
{
    (void)state;
    expect(&(e2b_asked){.path = "/v1/info", .token = "e2b_c0ffee"}, PLANE_OTHER, "", 0);
    expect(&(e2b_asked){.path = "/v1/info", .sandbox = "e2b_c0ffee"}, PLANE_OTHER, "", 0);
    expect(&(e2b_asked){.path = "/sandboxes", .token = "e2b_c0ffee"}, PLANE_CONTROL, "", 0);
    expect(&(e2b_asked){.path = "/files", .token = "e2b_c0ffee"}, PLANE_DATA, "", 49983);
}

static void tokens_and_signatures_route_without_headers(void **state)
{
    (void)state;
    expect(&(e2b_asked){.path = "/process.Process/Start", .token = TOKEN}, PLANE_DATA, ID, 49983);
    expect(&(e2b_asked){.path = "/health", .token = "short"}, PLANE_DATA, "", 49983);
    expect(&(e2b_asked){.path = "/files", .has_signature = true}, PLANE_SIGNED, "", 49983);
    expect(&(e2b_asked){.path = "/files", .has_signature = true, .token = TOKEN}, PLANE_SIGNED, "",
           49983);
    expect(&(e2b_asked){.path = "/files", .has_signature = true, .sandbox = ID}, PLANE_DATA, ID,
           49983);
    expect(&(e2b_asked){.path = "/sandboxes"}, PLANE_CONTROL, "", 0);
    /* nobody's, and told so in E2B's form */
    expect(&(e2b_asked){.path = "/process.Process/List"}, PLANE_DATA, "", 49983);
    expect(&(e2b_asked){.path = "/files"}, PLANE_DATA, "", 49983);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native_paths_are_not_ours),
        cmocka_unit_test(a_key_and_a_control_path_go_before_all),
        cmocka_unit_test(routing_headers_win_over_native_paths),
        cmocka_unit_test(hosts_name_port_and_sandbox),
        cmocka_unit_test(hosts_of_the_native_domain_stay_native),
        cmocka_unit_test(hosts_of_other_domains_are_nobodys),
        cmocka_unit_test(what_has_somebody_elses_form_routes_nothing),
        cmocka_unit_test(tokens_and_signatures_route_without_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
