/* OCI and Docker manifests: from bytes to plain values. Pure; all input is untrusted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define MANIFEST_MAX        (4u << 20) /* bytes of a manifest or a config */
#define MANIFEST_LAYERS_MAX 128
#define MANIFEST_LAYER_SIZE (UINT64_C(32) << 30)
#define MANIFEST_ENV_MAX    1024
#define MANIFEST_ARGS_MAX   1024

typedef struct descriptor {
    uint8_t sha256[32];
    uint64_t size;
} descriptor;

enum layer_format { /* same values as wp_format and backend_ops.unpack */
    LAYER_PLAIN,
    LAYER_GZIP,
    LAYER_ZSTD
};

typedef struct manifest {
    descriptor config;
    size_t nlayers;
    descriptor layer[MANIFEST_LAYERS_MAX]; /* bottom first */
    enum layer_format format[MANIFEST_LAYERS_MAX];
} manifest;

typedef struct image_config {
    char *os, *architecture;
    char *user, *cwd; /* "" when there is none */
    char **env, **entrypoint, **cmd;
    uint8_t (*diff_ids)[32];
    size_t ndiff_ids;
} image_config;

typedef struct platform {
    const char *os, *architecture; /* Go's names: "linux", "amd64" */
} platform;
/* Returns this machine's platform; os is "linux". */
platform platform_here(void);

/* Parses index.json or an image index. Returns the manifest for the platform, or the only one if
 * there is just one. ret_is_index: the result points to another index. */
err *index_parse(const void *p, size_t n, const platform *here, descriptor *ret_manifest,
                 bool *ret_is_index) ERR_MUST;
err *manifest_parse(const void *p, size_t n, manifest *ret_manifest) ERR_MUST;
/* Parses a config. ERR_IMAGE_UNSUPPORTED if it is for another platform. */
err *image_config_parse(const void *p, size_t n, const platform *here,
                        image_config *ret_config) ERR_MUST;
void image_config_done(image_config *c);

/* Parses "sha256:" and 64 hexadecimal digits. Returns false if it has another form. */
bool digest_parse(const char *text, uint8_t ret_digest[32]);
