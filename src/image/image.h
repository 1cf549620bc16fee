/* Images: from a reference to layers the backend has unpacked (design, section 6).
 *
 * Fetch: skopeo, as our own user, copies into staging/<random> as an OCI layout, digests checked.
 * Unpack: each layer the backend does not have is handed to it by descriptor. The record goes to
 * the store; the staging copy is removed. Pulls run on two workers; a second pull of the same name
 * joins the first. Callbacks come from a worker. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"
#include "store/store.h"

typedef struct image_store image_store;

typedef struct image {  /* one image on this node; refcounted, immutable */
    uint8_t digest[32]; /* sha256 of its config */
    char *name;         /* as it is found: "busybox", normalised as Docker does */
    char **env;
    char *user; /* "" when the image names none */
    char *cwd;  /* "" */
    char **entrypoint, **cmd;
    char *os, *architecture;
    uint64_t size;           /* compressed layers */
    uint64_t created_ns;     /* when it came here */
    uint8_t (*diff_ids)[32]; /* bottom first */
    size_t nlayers;
    _Atomic int refs;
} image;
image *image_ref(image *i);
void image_unref(image *i);
static inline void image_unrefp(image **i)
{
    image_unref(*i);
}

enum pull_policy {
    PULL_MISSING,
    PULL_ALWAYS,
    PULL_NEVER
};

typedef struct image_options {
    int staging_dir;          /* descriptor; not owned */
    const char *staging_path; /* the same by path, for skopeo */
    const char *skopeo;       /* program */
    backend *backend;
    store *store;
    uint64_t pull_timeout_ms; /* 30 min */
} image_options;
err *image_store_new(const image_options *o, image_store **ret_images) ERR_MUST;
void image_store_free(image_store *s);

/* "busybox" -> "docker.io/library/busybox:latest"; local sources ("oci:", "docker-archive:",
 * "dir:") and digests ("sha256:...", or a unique prefix of 12 or more) stay as they are. */
err *image_normalise(const char *reference, char **ret_name) ERR_MUST;
bool image_is_local_source(const char *reference);

/* What is here: by name as given or normalised, or by digest. ERR_NOT_FOUND, kind "image". */
err *image_find(image_store *s, const char *reference, image **ret_image) ERR_MUST;
void image_list(image_store *s, image ***ret_images, size_t *ret_n);

/* Makes it be here. `as` names it (NULL: its reference). Progress: bytes done and in all, 0 when
 * not known. done is called once. */
typedef struct pull_progress {
    const char *stage; /* "fetch", "unpack", "done" */
    unsigned layers, layers_done;
} pull_progress;
typedef struct pull_events {
    void (*progress)(void *arg, const pull_progress *p); /* may be NULL */
    void (*done)(void *arg, err *failure, image *got);   /* got: a reference for the receiver */
    void *arg;
} pull_events;
void image_ensure(image_store *s, const char *reference, const char *as, enum pull_policy policy,
                  const pull_events *ev);
/* Forgets the name. in_use says which digests live sandboxes have. */
err *image_remove(image_store *s, const char *reference) ERR_MUST;
err *image_prune(image_store *s, bool (*in_use)(void *arg, const uint8_t digest[32]), void *arg,
                 bool all, uint64_t *ret_bytes) ERR_MUST;
