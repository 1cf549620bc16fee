#include <string.h>

#include "base/str.h"
#include "image/image.h"

#include "../unit.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void names_are_normalised_as_docker_does(void **state)
{
    static const char *const PAIRS[][2] = {
        {"busybox", "docker.io/library/busybox:latest"},
        {"busybox:1.36", "docker.io/library/busybox:1.36"},
        {"library/busybox", "docker.io/library/busybox:latest"},
        {"me/tool", "docker.io/me/tool:latest"},
        {"docker.io/busybox", "docker.io/library/busybox:latest"},
        {"index.docker.io/busybox:2", "docker.io/library/busybox:2"},
        {"localhost/x", "localhost/x:latest"},
        {"localhost:5000/x:y", "localhost:5000/x:y"},
        {"host.example/a/b__c/d-e.f", "host.example/a/b__c/d-e.f:latest"},
        {"10.0.0.1:80/x", "10.0.0.1:80/x:latest"},
        {"busybox@sha256:" HEX, "docker.io/library/busybox@sha256:" HEX},
        {"busybox:1@sha256:" HEX, "docker.io/library/busybox:1@sha256:" HEX},
        {"oci:/images/busybox:latest", "oci:/images/busybox:latest"},
        {"docker-archive:/a.tar", "docker-archive:/a.tar"},
        {"dir:/a", "dir:/a"},
        {"sha256:" HEX, "sha256:" HEX},
        {"sha256:0123456789ab", "sha256:0123456789ab"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(PAIRS); i++) {
        CLEANUP(freep) char *name = NULL;
        assert_ok(image_normalise(PAIRS[i][0], &name));
        assert_string_equal(name, PAIRS[i][1]);
    }
}

static void what_is_no_name_is_refused(void **state)
{
    static const char *const BAD[] = {
        "",          "Busybox",      "a b",         "-x",
        "x:",        ":x",           "a//b",        "/a",
        "a/",        "x:-tag",       "x@sha256:12", "x@md5:" HEX,
        "a/../b",    "x.",           "x..y",        "x___y",
        "--help",    "oci:",         "a.b:c/x",     "x:tag/../y",
        HEX,         "oci:/a\nb",    "http://a/b",  "a_-b",
        "\xff",      "x:t\x01",      "dir:",        "host.-/x",
        "x@",        "@sha256:" HEX, "dir:/\xff",   "dir:/\xc2\x9b",
        "oci:/\x7f",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        CLEANUP(freep) char *name = NULL;
        CLEANUP(err_freep) err *e = image_normalise(BAD[i], &name);
        if (!e)
            fail_msg("'%s' was taken as '%s'", BAD[i], name);
        assert_int_equal(e->code, ERR_INVALID_REQUEST);
    }
}

static void no_digest_can_be_given_as_a_name(void **state)
{
    static const char *const BAD[] = {
        "sha256:" HEX,
        "sha256:0123456789ab",
        "x@sha256:" HEX,
        "x:1@sha256:" HEX,
        HEX,
        "0123456789ab",
        "0123456789abcdef:latest",
        "docker.io/library/0123456789ab",
        "0123456789ab:1",
    };
    static const char *const GOOD[] = {"x", "0123456789a", "0123456789abx", "me/0123456789ab",
                                       "oci:/a@b"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        CLEANUP(freep) char *name = NULL;
        CLEANUP(err_freep) err *e = image_normalise_as(BAD[i], &name);
        if (!e)
            fail_msg("'%s' was taken as '%s'", BAD[i], name);
        assert_int_equal(e->code, ERR_INVALID_REQUEST);
    }
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++) {
        CLEANUP(freep) char *name = NULL;
        assert_ok(image_normalise_as(GOOD[i], &name));
    }
}

static void local_sources_are_known(void **state)
{
    (void)state;
    assert_true(image_is_local_source("oci:/x"));
    assert_true(image_is_local_source("dir:/x"));
    assert_true(image_is_local_source("docker-archive:x"));
    assert_false(image_is_local_source("ociimage"));
    assert_false(image_is_local_source("docker://x"));
}

/* What a name is completed with counts: else the normal name would be refused later. */
static void a_normal_name_stays_valid(void **state)
{
    char word[248] = {0};

    (void)state;
    for (size_t n = 230; n < sizeof word; n++) {
        CLEANUP(freep) char *name = NULL;
        CLEANUP(freep) char *again = NULL;
        memset(word, 'a', n);
        err *e = image_normalise(word, &name);
        assert_int_equal(e == NULL, n <= 255 - strlen("docker.io") - strlen("library/"));
        if (!e)
            assert_ok(image_normalise(name, &again));
        err_free(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_normalised_as_docker_does),
        cmocka_unit_test(what_is_no_name_is_refused),
        cmocka_unit_test(no_digest_can_be_given_as_a_name),
        cmocka_unit_test(local_sources_are_known),
        cmocka_unit_test(a_normal_name_stays_valid),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
