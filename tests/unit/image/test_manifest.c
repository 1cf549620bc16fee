#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "image/manifest.h"

#include "../unit.h"

#define HEX  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DESC "\"digest\":\"sha256:" HEX "\",\"size\":7"
#define OCI  "application/vnd.oci.image."

static const platform AMD = {"linux", "amd64"};

static err *index_of(const char *text, descriptor *d, bool *is_index)
{
    return index_parse(text, strlen(text), &AMD, d, is_index);
}

static void index_chooses_the_platform(void **state)
{
    descriptor d;
    bool again;

    (void)state;
    assert_ok(index_of("{\"manifests\":["
                       "{\"mediaType\":\"" OCI "manifest.v1+json\",\"digest\":\"sha256:"
                       "ff"
                       "23456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                       "\",\"size\":1,\"platform\":{\"os\":\"linux\",\"architecture\":\"arm64\"}},"
                       "{\"mediaType\":\"" OCI "manifest.v1+json\"," DESC
                       ",\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}}]}",
                       &d, &again));
    assert_int_equal(d.sha256[0], 0x01);
    assert_int_equal(d.size, 7);
    assert_false(again);
    assert_ok(index_of("{\"manifests\":[{\"mediaType\":\"" OCI "index.v1+json\"," DESC "}]}", &d,
                       &again));
    assert_true(again);
}

static void index_without_this_platform_is_unsupported(void **state)
{
    static const char *const BAD[] = {
        "{}",
        "[]",
        "{\"manifests\":[]}",
        "{\"manifests\":{}}",
        "nonsense",
        "{\"manifests\":[{\"mediaType\":\"" OCI "manifest.v1+json\"," DESC
        ",\"platform\":{\"os\":\"linux\",\"architecture\":\"arm64\"}}]}",
        "{\"manifests\":[{\"mediaType\":\"text/plain\"," DESC "}]}",
        "{\"manifests\":[{\"mediaType\":\"" OCI "manifest.v1+json\",\"digest\":\"sha256:12\","
        "\"size\":1}]}",
        "{\"manifests\":[{\"mediaType\":\"" OCI "manifest.v1+json\",\"digest\":\"sha256:" HEX
        "\",\"size\":-1}]}",
        "{\"manifests\":[{\"mediaType\":\"" OCI "manifest.v1+json\",\"digest\":\"sha256:" HEX
        "\",\"size\":99999999999}]}",
    };
    descriptor d;
    bool again;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_err(index_of(BAD[i], &d, &again), ERR_IMAGE_UNSUPPORTED);
}

static char *manifest_text(size_t nlayers, const char *media)
{
    buf b = {0};

    buf_str(&b, "{\"schemaVersion\":2,\"config\":{" DESC "},\"layers\":[");
    for (size_t i = 0; i < nlayers; i++)
        buf_printf(&b, "%s{\"mediaType\":\"%s\"," DESC "}", i ? "," : "", media);
    buf_str(&b, "]}");
    return buf_take(&b);
}

static err *manifest_of(size_t nlayers, const char *media, manifest *m)
{
    CLEANUP(freep) char *text = manifest_text(nlayers, media);

    return manifest_parse(text, strlen(text), m);
}

static void layer_types_become_formats(void **state)
{
    manifest m;

    (void)state;
    assert_ok(manifest_of(2, OCI "layer.v1.tar", &m));
    assert_int_equal(m.nlayers, 2);
    assert_int_equal(m.format[1], LAYER_PLAIN);
    assert_ok(manifest_of(1, OCI "layer.v1.tar+gzip", &m));
    assert_int_equal(m.format[0], LAYER_GZIP);
    assert_ok(manifest_of(1, OCI "layer.v1.tar+zstd", &m));
    assert_int_equal(m.format[0], LAYER_ZSTD);
    assert_ok(manifest_of(1, "application/vnd.docker.image.rootfs.diff.tar.gzip", &m));
    assert_int_equal(m.format[0], LAYER_GZIP);
    assert_err(manifest_of(1, OCI "layer.v1.tar+gzip+encrypted", &m), ERR_IMAGE_UNSUPPORTED);
}

static void layers_are_counted(void **state)
{
    manifest m;

    (void)state;
    assert_ok(manifest_of(128, OCI "layer.v1.tar", &m));
    assert_err(manifest_of(129, OCI "layer.v1.tar", &m), ERR_IMAGE_UNSUPPORTED);
}

static void broken_manifests_are_unsupported(void **state)
{
    static const char *const BAD[] = {
        "",
        "{}",
        "{\"schemaVersion\":1}",
        "{\"schemaVersion\":2,\"config\":{" DESC "}}",
        "{\"schemaVersion\":2,\"layers\":[]}",
        "{\"schemaVersion\":2,\"mediaType\":\"x\",\"config\":{" DESC "},\"layers\":[]}",
        "{\"schemaVersion\":2,\"config\":{" DESC "},\"layers\":[7]}",
        "{\"schemaVersion\":2,\"schemaVersion\":2,\"config\":{" DESC "},\"layers\":[]}",
    };
    manifest m;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_err(manifest_parse(BAD[i], strlen(BAD[i]), &m), ERR_IMAGE_UNSUPPORTED);
}

static err *config_of(const char *run, const char *arch, image_config *c)
{
    CLEANUP(freep)
    char *text = str_printf("{\"os\":\"linux\",\"architecture\":\"%s\",\"config\":%s,"
                            "\"rootfs\":{\"diff_ids\":[\"sha256:" HEX "\"]}}",
                            arch, run);

    return image_config_parse(text, strlen(text), &AMD, c);
}

static void config_is_read(void **state)
{
    CLEANUP(image_config_done) image_config c = {0};

    (void)state;
    assert_ok(config_of("{\"Env\":[\"A=1\",\"bad\",\"=x\",\"B=\"],\"User\":\"alice\","
                        "\"WorkingDir\":\"work\",\"Entrypoint\":null,\"Cmd\":[\"sh\",\"-c\"]}",
                        "amd64", &c));
    assert_int_equal(strv_len(c.env), 2);
    assert_string_equal(c.env[1], "B=");
    assert_string_equal(c.user, "alice");
    assert_string_equal(c.cwd, "/work");
    assert_null(c.entrypoint);
    assert_string_equal(c.cmd[1], "-c");
    assert_int_equal(c.ndiff_ids, 1);
}

static void config_of_another_machine_is_unsupported(void **state)
{
    CLEANUP(image_config_done) image_config c = {0};

    (void)state;
    assert_ok(config_of("{}", "amd64", &c));
    assert_string_equal(c.user, "");
    assert_string_equal(c.cwd, "");
    image_config other = {0};
    assert_err(config_of("{}", "riscv64", &other), ERR_IMAGE_UNSUPPORTED);
    assert_err(config_of("{\"Env\":{}}", "amd64", &other), ERR_IMAGE_UNSUPPORTED);
    assert_err(config_of("{\"Cmd\":[1]}", "amd64", &other), ERR_IMAGE_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(index_chooses_the_platform),
        cmocka_unit_test(index_without_this_platform_is_unsupported),
        cmocka_unit_test(layer_types_become_formats),
        cmocka_unit_test(layers_are_counted),
        cmocka_unit_test(broken_manifests_are_unsupported),
        cmocka_unit_test(config_is_read),
        cmocka_unit_test(config_of_another_machine_is_unsupported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
