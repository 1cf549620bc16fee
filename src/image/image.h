/* Images: from a reference to layers that the backend has unpacked.
 *
 * skopeo runs as our own user. It asks the registry, returns manifest, config and the layers that
 * the backend lacks, and checks their size and digest. Each layer goes through a pipe into the
 * backend's unpacker; no copy is kept here. The record goes to the store. Pulls run on worker
 * threads, three at a time. A second pull of the same name joins the first; a layer that another
 * pull fetches is waited for. Callbacks run on a worker. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"
#include "base/spawn.h"
#include "core/registry.h"
#include "store/store.h"

typedef struct image_store image_store;

typedef struct image {  /* an image on this node; refcounted, immutable */
    uint8_t digest[32]; /* sha256 of its config */
    char *name;         /* the name it is found by: "busybox", normalised as Docker does */
    char **env;
    char *user; /* "" when the image names none */
    char *cwd;  /* "" */
    char **entrypoint, **cmd;
    char *os, *architecture;
    uint64_t size;           /* compressed layers */
    uint64_t created_ns;     /* when it was pulled */
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

typedef struct image_options {
    int staging_dir;              /* descriptor; not owned */
    const char *staging_path;     /* the same by path, for skopeo */
    const char *skopeo;           /* program */
    int conf_dir;                 /* files that skopeo reads, and logins; 0700; not owned */
    const char *conf_path;        /* the same by path; NULL: neither registries nor logins */
    const registries *registries; /* not owned; NULL: none */
    bool listed_only;             /* only those registries may be used */
    backend *backend;
    store *store;
    /* Starts skopeo confined; NULL: unconfined. scratch is the directory that it may write to;
     * local means that it reads an image of the node. */
    err *(*start)(const spawn_spec *spec, const char *scratch, bool local, pid_t *ret_pid);
    uint64_t pull_timeout_ms; /* total limit of one pull; 30 min */
} image_options;
err *image_store_new(const image_options *o, image_store **ret_images) ERR_MUST;
void image_store_free(image_store *s);

/* Normalises a reference: "busybox" becomes "docker.io/library/busybox:latest". Local sources
 * ("oci:", "docker-archive:", "dir:") and digests ("sha256:...", or a unique prefix of 12 or more)
 * stay as they are. */
err *image_normalise(const char *reference, char **ret_name) ERR_MUST;
bool image_is_local_source(const char *reference);
/* The same for a name given to an image from elsewhere. A name that promises a content (a digest)
 * is refused. */
err *image_normalise_as(const char *as, char **ret_name) ERR_MUST;

/* Finds an image on this node by digest, or by name as given or normalised. Skips derived images,
 * which have owners. ERR_NOT_FOUND, kind "image". */
err *image_find(image_store *s, const char *reference, image **ret_image) ERR_MUST;
/* Finds an image of any kind, for callers that have already checked access. NULL if it is not on
 * this node. */
image *image_by_digest(image_store *s, const uint8_t digest[32]);
void image_list(image_store *s, image ***ret_images, size_t *ret_n);

/* Makes sure that the image is on this node. `as` names it (NULL: its reference). done is called
 * once. */
typedef struct pull_events {
    const char *owner; /* whose logins may be used; NULL: only the shared ones */
    void (*progress)(void *arg, const pull_progress *p); /* may be NULL */
    void (*done)(void *arg, err *failure, image *got); /* got: a reference, owned by the receiver */
    void *arg;
} pull_events;
void image_ensure(image_store *s, const char *reference, const char *as, enum pull_policy policy,
                  const pull_events *ev);
/* image_remove() forgets a name. image_prune() frees what has no name; all: also forgets names that
 * are not in use. in_use tells which digests live sandboxes have. */
err *image_remove(image_store *s, const char *reference) ERR_MUST;
err *image_prune(image_store *s, bool (*in_use)(void *arg, const uint8_t digest[32]), void *arg,
                 bool all, uint64_t *ret_bytes) ERR_MUST;

/* ---- images of our own ---- */

#define IMAGE_DERIVED    "@snapshot:" /* then an id: their names; no reference begins with it */
#define IMAGE_LAYERS_MAX 128u         /* as for a fetched image: one parser reads both */
typedef struct derivation {
    const char *id;
    const image *base;
    char *const *env;       /* NULL: the base's */
    const char *user, *cwd; /* likewise */
    /* Has the backend make a new layer with this id. */
    err *(*make)(void *arg, const uint8_t layer[32], uint64_t *ret_bytes);
    void *arg;
} derivation;
/* Makes a derived image. Blocking. After a kill at any point a prune finds what is left. Derived
 * images are neither listed nor pruned as unused. */
err *image_derive(image_store *s, const derivation *d, image **ret_image) ERR_MUST;
/* Returns true if a derivation, begun by this or an earlier process, may have left a layer without
 * an image. */
bool image_derive_was_cut(image_store *s);
/* Finds the derived image of this id. ERR_NOT_FOUND, kind "snapshot". */
err *image_derived(image_store *s, const char *id, image **ret_image) ERR_MUST;
err *image_derived_remove(image_store *s, const char *id) ERR_MUST; /* a missing one is success */
char **image_derived_ids(image_store *s);
bool image_is_derived(const image *i);

/* ---- registries ---- */

#define LOGIN_USERNAME_MAX 255
#define LOGIN_PASSWORD_MAX 16384 /* tokens are long */

typedef struct login {
    char *host, *username;
    bool shared; /* set by an administrator for everyone without a login of their own */
    uint64_t created_ns;
} login;
/* Verifies name and password with the registry and stores them for the owner; owner NULL: for
 * everyone. Blocks as long as the registry does, at most a minute. ERR_UNAUTHENTICATED. */
err *image_login(image_store *s, const char *owner, const char *host, const char *username,
                 const char *password) ERR_MUST;
/* Removes a login. ERR_NOT_FOUND, kind "login". */
err *image_logout(image_store *s, const char *owner, const char *host) ERR_MUST;
/* Lists the owner's logins and the shared ones. */
err *image_logins(image_store *s, const char *owner, login **ret_logins, size_t *ret_n) ERR_MUST;
void login_done(login *l);
/* Returns the configured registries; not owned. */
const registries *image_registries(const image_store *s, bool *ret_listed_only);
