/* Names: of images, of registries and their mirrors. What is normal stays as it is, and no name
 * holds a byte that could mean something to whom it is given. */
#include "base/cleanup.h"
#include "core/registry.h"
#include "image/image.h"
#include "image/images.h"

#include "fuzz.h"

static void check_plain(const char *s)
{
    for (; *s; s++)
        MUST((unsigned char)*s > 0x20 && *s < 0x7f && !strchr("\"'\\`$<>|;&#?% ", *s));
}

static void check_name(const char *name)
{
    CLEANUP(freep) char *again = NULL;
    CLEANUP(freep) char *host = registry_of(name);

    MUST(!image_normalise(name, &again) && again && !strcmp(name, again));
    if (image_is_local_source(name)) {
        fuzz_harmless(name, strlen(name));
        MUST(!host);
        return;
    }
    check_plain(name);
    MUST(str_starts(name, "sha256:") || (host && *host && strlen(host) <= 255));
    MUST(str_starts(name, "sha256:") || strchr(name, ':') || strchr(name, '@'));
}

static void image_name(const char *text)
{
    CLEANUP(freep) char *name = NULL;
    CLEANUP(freep) char *as = NULL;
    err *e = image_normalise(text, &name), *bad;

    MUST(!e == (name != NULL));
    if (name)
        check_name(name);
    bad = image_normalise_as(text, &as);
    MUST(bad || (name && !strcmp(name, as)));
    if (!bad && !image_is_local_source(as))
        MUST(!strchr(as, '@') && !str_starts(as, "sha256:"));
    err_free(e);
    err_free(bad);
}

static void registry_name(const char *text)
{
    if (registry_host_ok(text)) {
        CLEANUP(freep) char *name = registry_name_of(text);
        check_plain(text);
        MUST(*name && strlen(name) <= 253 && registry_host_ok(name) && !strchr(text, '/'));
        MUST(registry_mirror_ok(text));
    }
    if (registry_mirror_ok(text)) {
        check_plain(text);
        MUST(!strstr(text, "..") && !strstr(text, "//") && *text != '/');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    CLEANUP(freep) char *text = fuzz_word(&in, 0);

    image_name(text);
    registry_name(text);
    return 0;
}
