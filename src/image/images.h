/* Inside src/image: the table of images (image.c), the pulls (pull.c), one fetch (fetch.c) and its
 * layers (stream.c), images in an engine's own store (engine_store.c), which registries may be
 * reached (registry.c), and logins (login.c). */
#pragma once

#include <pthread.h>

#include "base/map.h"
#include "base/thread.h"
#include "image/image.h"
#include "image/manifest.h"

#define IMAGE_PULLS       3
#define IMAGE_PULLS_EACH  2   /* of one owner, so that slow registries do not hold up others */
#define IMAGE_QUEUED_EACH 256 /* waiting pulls of one owner */
#define IMAGE_WORKERS     (IMAGE_PULLS + 1) /* one is always free for images that are here */
#define IMAGE_LANES       3 /* layers of one pull at a time; the warden has a thread for each */

typedef struct pull_job pull_job;

struct image_store {
    image_options o;
    char *staging_path, *skopeo, *conf_path; /* o's pointers point here */
    platform here;
    pthread_mutex_t lock; /* guards everything below; never held across I/O */
    pthread_cond_t changed;
    map by_name;            /* name -> image, one reference each */
    map gone;               /* hex digest: has no name any more, the backend may still have it */
    map unmade;             /* hex id: a derived layer that has no image yet, or never will */
    map jobs;               /* "policy name as login" -> pull_job */
    map fetching;           /* hex diff id: a pull has this layer under way */
    pull_job *first, *last; /* the queue */
    unsigned pulling;
    const pull_job *running[IMAGE_PULLS]; /* those that fetch; NULL: a free place */
    bool stopping;
    int stop_fd; /* eventfd: readable when stopping */
    pthread_t worker[IMAGE_WORKERS];
    unsigned nworkers;
    pthread_mutex_t commit; /* held by a pull's last step and by a prune; taken before lock */
    pthread_mutex_t logins; /* guards the files of logins */
};

/* image.c */
/* Returns an OCI config of the fields we use plus `size`; NULL if a text is not UTF-8. */
char *image_record(const image *i);
err *image_of_row(const image_row *r, const platform *here, image **ret_image) ERR_MUST;
image *image_new(const uint8_t digest[32], const char *name, image_config *taken, uint64_t size,
                 uint64_t created_ns);
/* Gives the backend the image's layers and records it under its name, durably. */
err *image_commit(image_store *s, image *i) ERR_MUST;

/* derive.c: rows that record which layers are being made. A prune that removes layers without an
 * image reads them before (derive_notes) and drops them afterwards (derive_drop_notes). */
bool derive_is_note(const char *name);
void derive_load_note(image_store *s, const uint8_t layer[32]);
char **derive_notes(image_store *s);
void derive_drop_notes(image_store *s, char *const *notes);

/* pull.c */
void pull_start(image_store *s);
void pull_stop(image_store *s);

/* fetch.c: one whole pull, on a worker. progress reports stages and counts. */
typedef struct fetch_progress {
    void (*tell)(void *arg, const pull_progress *p);
    void *arg;
} fetch_progress;
typedef struct fetch_request {
    const char *owner;     /* whose logins are used; NULL: only the shared ones */
    const char *reference; /* normalised */
    const char *name;      /* the name it will be found by */
    fetch_progress progress;
} fetch_request;
err *fetch_image(image_store *s, const fetch_request *rq, image **ret_image) ERR_MUST;

/* engine_store.c: images of an engine's own store. The last two functions ask the backend, on a
 * worker. */
bool engine_has_images(const image_store *s);
err *engine_check(const char *reference, const char *as) ERR_MUST;
/* Returns the image that the engine has under this name now. ERR_NOT_FOUND, kind "image". */
err *engine_look(image_store *s, const char *name, image **ret_image) ERR_MUST;
err *engine_fetch(image_store *s, const fetch_request *rq, uint64_t until,
                  image **ret_image) ERR_MUST;

/* stream.c: fetches the layers that the backend lacks. */
typedef struct layer_source {
    struct proxy *proxy;
    const struct skopeo_limit *limit;
    int64_t image; /* skopeo's handle */
    const char *reference;
    const manifest *manifest;
    const image_config *config;
    const fetch_progress *progress;
} layer_source;
err *stream_layers(image_store *s, const layer_source *src) ERR_MUST;

/* scratch.c: a directory for one call of skopeo, removed with its content. */
typedef struct scratch {
    int staging; /* not owned */
    char name[17];
    char *path; /* NULL: none */
} scratch;
err *scratch_make(image_store *s, scratch *ret_scratch) ERR_MUST;
void scratch_done(scratch *x);

/* registry.c: writes the files that skopeo reads; checks whether the host of a reference may be
 * asked. */
err *registry_write_conf(image_store *s) ERR_MUST;
err *registry_check(image_store *s, const char *reference) ERR_MUST;
err *registry_check_host(image_store *s, const char *host) ERR_MUST;
/* Returns the host: "docker.io" for "docker.io/library/busybox:latest"; NULL for local sources. */
char *registry_of(const char *reference);

/* login.c: removes temporary files that a kill left. */
err *login_clean(image_store *s) ERR_MUST;
/* Makes an authentication file in memory with the logins for the reference; -1 if there are none.
 */
err *login_file(image_store *s, const char *owner, const char *reference, int *ret_fd) ERR_MUST;
/* Returns the same login as strings, which the caller wipes; username NULL if there is none. */
err *login_words(image_store *s, const char *owner, const char *reference,
                 pull_login *ret_login) ERR_MUST;
/* Returns a number that distinguishes pulls with different logins; 0 without a login. */
uint64_t login_tag(image_store *s, const char *owner, const char *reference);
