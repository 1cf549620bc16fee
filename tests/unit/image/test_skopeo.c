#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "image/skopeo.h"

#include "../unit.h"

static void reasons_become_errors_one_can_act_on(void **state)
{
    static const struct {
        const char *text;
        err_code code;
        bool again;
        const char *remedy;
    } SAID[] = {
        {"reading manifest 2 in h:5/bb: manifest unknown: manifest unknown", ERR_NOT_FOUND, false,
         "tag or digest"},
        {"reading manifest 1 in h/t: unauthorized: authentication required", ERR_UNAUTHENTICATED,
         false, "bothy login h:5'"},
        {"requested access to the resource is denied", ERR_UNAUTHENTICATED, false,
         "bothy login h:5'"},
        {"open /srv/x/index.json: permission denied", ERR_IMAGE_PULL_FAILED, false, "read"},
        {"pinging container registry h:5: Get \"https://h:5/v2/\": x509: certificate signed by "
         "unknown authority",
         ERR_IMAGE_PULL_FAILED, false, "'ca'"},
        {"Get \"https://h:5/v2/\": http: server gave HTTP response to HTTPS client",
         ERR_IMAGE_PULL_FAILED, false, "insecure"},
        {"dial tcp: lookup nowhere: no such host", ERR_IMAGE_PULL_FAILED, false, "host"},
        {"dial tcp 1.2.3.4:5: connect: connection refused", ERR_IMAGE_PULL_FAILED, true, "runs"},
        {"read tcp 1.2.3.4:5: connection reset by peer", ERR_IMAGE_PULL_FAILED, true, "stays"},
        {"unexpected EOF", ERR_IMAGE_PULL_FAILED, true, "stays"},
        {"corrupted blob, expecting sha256:12", ERR_IMAGE_PULL_FAILED, false, "push"},
        {"expected 12 bytes in blob, got 7", ERR_IMAGE_PULL_FAILED, false, "push"},
        {"no image found in manifest list for architecture amd64, OS linux", ERR_IMAGE_UNSUPPORTED,
         false, "architecture"},
        {"toomanyrequests: You have reached your pull rate limit", ERR_IMAGE_PULL_FAILED, false,
         "bothy login h:5'"},
        {"something nobody has heard of", ERR_IMAGE_PULL_FAILED, false, "name"},
        {"", ERR_IMAGE_PULL_FAILED, false, "name"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SAID); i++) {
        CLEANUP(err_freep) err *e = skopeo_reason("h:5/team/tool:1", SAID[i].text);
        if (e->code != SAID[i].code || (e->errnum == FETCH_AGAIN) != SAID[i].again ||
            !strstr(err_remedy_of(e), SAID[i].remedy))
            fail_msg("%s: %s, %s, %s", SAID[i].text, err_info_of(e->code)->name,
                     e->errnum == FETCH_AGAIN ? "again" : "not again", err_remedy_of(e));
    }
}

static err *parse(const char *text, proxy_reply *r)
{
    return proxy_reply_parse(text, strlen(text), "x", r);
}

static void answers_are_read(void **state)
{
    proxy_reply r = {.fd = -1};

    (void)state;
    assert_ok(parse("{\"success\":true,\"value\":7,\"pipeid\":9,\"error\":\"\"}", &r));
    assert_int_equal(json_integer_value(r.value), 7);
    assert_int_equal(r.pipe, 9);
    proxy_reply_done(&r);
    assert_err(parse("{\"success\":false,\"error\":\"manifest unknown\"}", &r), ERR_NOT_FOUND);
    assert_err(parse("{\"success\":false}", &r), ERR_IMAGE_PULL_FAILED);
    static const char *const BAD[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"success\":1}",
                                      "nonsense",
                                      "{\"success\":true,\"pipeid\":-1}",
                                      "{\"success\":true,\"pipeid\":4294967296}"};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_err(parse(BAD[i], &r), ERR_INTERNAL);
}

static void the_fatal_line_of_a_log_counts(void **state)
{
    static const char *const LOGS[][2] = {
        {"time=\"x\" level=warning msg=\"a\"\ntime=\"x\" level=fatal msg=\"say \\\"b\\\"\"\n",
         "say \"b\""},
        {"one\ntwo\n\n", "two"},
        {"level=fatal msg=\"cut \\\nnext\n", "cut \\"}, /* one line, whatever escapes its end */
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(LOGS); i++) {
        CLEANUP(buf_done) buf log = {0};
        buf_str(&log, LOGS[i][0]);
        CLEANUP(freep) char *text = skopeo_log_text(&log);
        assert_string_equal(text, LOGS[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasons_become_errors_one_can_act_on),
        cmocka_unit_test(answers_are_read),
        cmocka_unit_test(the_fatal_line_of_a_log_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
