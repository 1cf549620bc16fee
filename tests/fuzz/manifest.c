/* Index, manifest and config of an image. The first byte chooses the parser. */
#include "image/manifest.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static err *parse(char which, const uint8_t *data, size_t size)
{
    static const platform HERE = {"linux", "amd64"};
    descriptor d;
    bool is_index;

    if (which == 'i')
        return index_parse(data, size, &HERE, &d, &is_index);
    if (which == 'm') {
        manifest m;
        return manifest_parse(data, size, &m);
    }
    if (which == 'r') {
        char text[512] = {0}, *name = NULL;
        memcpy(text, data, size < sizeof text - 1 ? size : sizeof text - 1);
        err *e = image_normalise(text, &name);
        free(name);
        return e;
    }
    image_config c = {0};
    err *e = image_config_parse(data, size, &HERE, &c);
    image_config_done(&c);
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size)
        err_free(parse((char)data[0], data + 1, size - 1));
    return 0;
}
