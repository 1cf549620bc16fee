/* Parsers of index, manifest and config. */
#include "image/manifest.h"

#include <string.h>
#include <sys/utsname.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/str.h"

#define INDEX_MAX 256 /* manifests in an index */

static const struct {
    const char *media;
    enum layer_format format;
} LAYERS[] = {
    {"application/vnd.oci.image.layer.v1.tar", LAYER_PLAIN},
    {"application/vnd.oci.image.layer.v1.tar+gzip", LAYER_GZIP},
    {"application/vnd.oci.image.layer.v1.tar+zstd", LAYER_ZSTD},
    {"application/vnd.docker.image.rootfs.diff.tar", LAYER_PLAIN},
    {"application/vnd.docker.image.rootfs.diff.tar.gzip", LAYER_GZIP},
    {"application/vnd.docker.image.rootfs.diff.tar.zstd", LAYER_ZSTD},
};

static const char *const INDEXES[] = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
};
static const char *const MANIFESTS[] = {
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
};

#define unsupported(...) \
    err_because(err_new(ERR_IMAGE_UNSUPPORTED, "the image cannot be used"), __VA_ARGS__)

platform platform_here(void)
{
    static const char *const ARCH[][2] = {{"x86_64", "amd64"}, {"aarch64", "arm64"}};
    struct utsname u;

    if (!uname(&u))
        for (size_t i = 0; i < ARRAY_LEN(ARCH); i++)
            if (str_eq(u.machine, ARCH[i][0]))
                return (platform){"linux", ARCH[i][1]};
    return (platform){"linux", "unknown"};
}

bool digest_parse(const char *text, uint8_t ret_digest[32])
{
    return text && str_starts(text, "sha256:") &&
           hex_decode(text + strlen("sha256:"), ret_digest, 32);
}

static bool is_one_of(const char *s, const char *const *list, size_t n)
{
    for (size_t i = 0; s && i < n; i++)
        if (str_eq(s, list[i]))
            return true;
    return false;
}

static err *parse_root(const void *p, size_t n, const char *what, json_t **ret_root)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    if (n > MANIFEST_MAX)
        return unsupported("its %s is larger than 4 MiB", what);
    CLEANUP(err_freep) err *bad = json_parse(p, n, &root);
    if (bad)
        return unsupported("its %s is not JSON: %s", what, bad->message);
    if (!json_is_object(root))
        return unsupported("its %s is not an object", what);
    *ret_root = TAKE_PTR(root);
    return NULL;
}

static err *parse_descriptor(const json_t *j, uint64_t max, descriptor *ret_descriptor)
{
    int64_t size = json_int(j, "size", -1);

    if (!json_is_object(j) || !digest_parse(json_str(j, "digest"), ret_descriptor->sha256))
        return unsupported("a descriptor has no sha256 digest");
    if (size < 0 || (uint64_t)size > max)
        return unsupported("a descriptor's size is out of range");
    ret_descriptor->size = (uint64_t)size;
    return NULL;
}

/* ---- index ---- */

static bool manifest_fits(const json_t *entry, const platform *here)
{
    const json_t *p = json_object_get(entry, "platform");

    return str_eq(json_str(p, "os"), here->os) &&
           str_eq(json_str(p, "architecture"), here->architecture);
}

static bool is_usable(const json_t *entry)
{
    const char *media = json_str(entry, "mediaType");

    return is_one_of(media, INDEXES, ARRAY_LEN(INDEXES)) ||
           is_one_of(media, MANIFESTS, ARRAY_LEN(MANIFESTS));
}

/* Chooses the entry for this platform. A single entry without a platform is accepted; its config
 * names the platform. */
static const json_t *manifest_choose(const json_t *list, const platform *here)
{
    const json_t *entry, *only = NULL;
    size_t i, usable = 0;

    json_array_foreach(list, i, entry)
    {
        if (!is_usable(entry))
            continue;
        if (manifest_fits(entry, here))
            return entry;
        usable++;
        only = entry;
    }
    return usable == 1 && !json_object_get(only, "platform") ? only : NULL;
}

err *index_parse(const void *p, size_t n, const platform *here, descriptor *ret_manifest,
                 bool *ret_is_index)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    TRY(parse_root(p, n, "index", &root));
    const json_t *list = json_object_get(root, "manifests");
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > INDEX_MAX)
        return unsupported("its index has no manifests, or more than %d", INDEX_MAX);
    const json_t *entry = manifest_choose(list, here);
    if (!entry)
        return unsupported("it has no manifest for linux/%s", here->architecture);
    TRY(parse_descriptor(entry, MANIFEST_MAX, ret_manifest));
    *ret_is_index = is_one_of(json_str(entry, "mediaType"), INDEXES, ARRAY_LEN(INDEXES));
    return NULL;
}

/* ---- manifest ---- */

static err *parse_layer(const json_t *j, descriptor *ret_layer, enum layer_format *ret_format)
{
    const char *media = json_str(j, "mediaType");

    TRY(parse_descriptor(j, MANIFEST_LAYER_SIZE, ret_layer));
    for (size_t i = 0; media && i < ARRAY_LEN(LAYERS); i++)
        if (str_eq(media, LAYERS[i].media)) {
            *ret_format = LAYERS[i].format;
            return NULL;
        }
    return unsupported("a layer is of the type %.100s", str_or(media, "(none)"));
}

err *manifest_parse(const void *p, size_t n, manifest *ret_manifest)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    CLEANUP(freep) manifest *m = xcalloc(1, sizeof *m);

    TRY(parse_root(p, n, "manifest", &root));
    if (json_int(root, "schemaVersion", 0) != 2)
        return unsupported("its manifest is not of schemaVersion 2");
    const char *media = json_str(root, "mediaType");
    if (media && !is_one_of(media, MANIFESTS, ARRAY_LEN(MANIFESTS)))
        return unsupported("its manifest is of the type %.100s", media);
    TRY(parse_descriptor(json_object_get(root, "config"), MANIFEST_MAX, &m->config));
    const json_t *list = json_object_get(root, "layers");
    if (!json_is_array(list) || json_array_size(list) > MANIFEST_LAYERS_MAX)
        return unsupported("it has no list of layers, or more than %d", MANIFEST_LAYERS_MAX);
    for (; m->nlayers < json_array_size(list); m->nlayers++)
        TRY(parse_layer(json_array_get(list, m->nlayers), &m->layer[m->nlayers],
                        &m->format[m->nlayers]));
    *ret_manifest = *m;
    return NULL;
}

/* ---- config ---- */

void image_config_done(image_config *c)
{
    free(c->os);
    free(c->architecture);
    free(c->user);
    free(c->cwd);
    strv_free(c->env);
    strv_free(c->entrypoint);
    strv_free(c->cmd);
    free(c->diff_ids);
    *c = (image_config){0};
}

/* Parses a list of strings; null and absent mean empty. */
static err *parse_strings(const json_t *j, size_t max, const char *what, char ***ret_strings)
{
    CLEANUP(strv_freep) char **v = NULL;
    const json_t *s;
    size_t i;

    if (j && !json_is_null(j) && !json_is_array(j))
        return unsupported("its %s is not a list", what);
    if (json_array_size(j) > max)
        return unsupported("its %s is too long", what);
    json_array_foreach(j, i, s)
    {
        if (!json_is_string(s))
            return unsupported("its %s is not a list of strings", what);
        strv_push(&v, xstrdup(json_string_value(s)));
    }
    *ret_strings = TAKE_PTR(v);
    return NULL;
}

/* Drops variables without a name or without '='. Docker defines no meaning for them, and a shell
 * could not export them. */
static void drop_bad_env(char **env)
{
    size_t n = 0;

    for (size_t i = 0; env && env[i]; i++) {
        const char *eq = strchr(env[i], '=');
        if (eq && eq != env[i])
            env[n++] = env[i];
        else
            free(env[i]);
    }
    if (env)
        env[n] = NULL;
}

static err *parse_diff_ids(const json_t *root, image_config *c)
{
    const json_t *list = json_object_get(json_object_get(root, "rootfs"), "diff_ids");

    if (!json_is_array(list) || json_array_size(list) > MANIFEST_LAYERS_MAX)
        return unsupported("its config has no diff ids, or more than %d", MANIFEST_LAYERS_MAX);
    c->diff_ids = xcalloc(json_array_size(list) + 1, sizeof *c->diff_ids);
    for (; c->ndiff_ids < json_array_size(list); c->ndiff_ids++) {
        const char *text = json_string_value(json_array_get(list, c->ndiff_ids));
        if (!digest_parse(text, c->diff_ids[c->ndiff_ids]))
            return unsupported("a diff id is not a sha256 digest");
    }
    return NULL;
}

static err *parse_run(const json_t *run, image_config *c)
{
    const char *cwd = str_or(json_str(run, "WorkingDir"), "");

    TRY(parse_strings(json_object_get(run, "Env"), MANIFEST_ENV_MAX, "Env", &c->env));
    TRY(parse_strings(json_object_get(run, "Entrypoint"), MANIFEST_ARGS_MAX, "Entrypoint",
                      &c->entrypoint));
    TRY(parse_strings(json_object_get(run, "Cmd"), MANIFEST_ARGS_MAX, "Cmd", &c->cmd));
    drop_bad_env(c->env);
    c->user = xstrdup(str_or(json_str(run, "User"), ""));
    c->cwd = *cwd && *cwd != '/' ? str_printf("/%s", cwd) : xstrdup(cwd);
    return NULL;
}

err *image_config_parse(const void *p, size_t n, const platform *here, image_config *ret_config)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    CLEANUP(image_config_done) image_config c = {0};

    TRY(parse_root(p, n, "config", &root));
    c.os = xstrdup(str_or(json_str(root, "os"), ""));
    c.architecture = xstrdup(str_or(json_str(root, "architecture"), ""));
    if (!str_eq(c.os, here->os) || !str_eq(c.architecture, here->architecture)) {
        return unsupported("it is for %.40s/%.40s, this machine needs %s/%s", c.os, c.architecture,
                           here->os, here->architecture);
    }
    TRY(parse_run(json_object_get(root, "config"), &c));
    TRY(parse_diff_ids(root, &c));
    *ret_config = c;
    c = (image_config){0};
    return NULL;
}
