/* Index, manifest and config of an image, as a registry gives them: what is taken lies within every
 * ceiling. The first byte chooses the parser. */
#include "image/manifest.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "fuzz.h"

static const platform HERE = {"linux", "amd64"};

static err *parse_index(const void *p, size_t n)
{
    descriptor d = {.size = UINT64_MAX};
    bool is_index;
    err *e = index_parse(p, n, &HERE, &d, &is_index);

    MUST(e || d.size <= MANIFEST_MAX);
    return e;
}

static err *parse_manifest(const void *p, size_t n)
{
    manifest m;
    err *e = manifest_parse(p, n, &m);

    if (e)
        return e;
    MUST(m.config.size <= MANIFEST_MAX && m.nlayers <= MANIFEST_LAYERS_MAX);
    for (size_t i = 0; i < m.nlayers; i++)
        MUST(m.layer[i].size <= MANIFEST_LAYER_SIZE && m.format[i] <= LAYER_ZSTD);
    return NULL;
}

static err *parse_config(const void *p, size_t n)
{
    image_config c = {0};
    err *e = image_config_parse(p, n, &HERE, &c);

    if (!e) {
        MUST(str_eq(c.os, HERE.os) && str_eq(c.architecture, HERE.architecture));
        MUST(c.user && c.cwd && c.ndiff_ids <= MANIFEST_LAYERS_MAX);
        MUST(strv_len(c.env) <= MANIFEST_ENV_MAX && strv_len(c.cmd) <= MANIFEST_ARGS_MAX);
        MUST(strv_len(c.entrypoint) <= MANIFEST_ARGS_MAX);
    }
    image_config_done(&c);
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    uint8_t kind = fuzz_byte(&in);
    err *e = kind == 'i'   ? parse_index(in.p, in.n)
             : kind == 'm' ? parse_manifest(in.p, in.n)
                           : parse_config(in.p, in.n);

    MUST(!e || (e->message && *e->message));
    err_free(e);
    return 0;
}
