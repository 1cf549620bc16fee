/* Inside src/image: the table of images (image.c), the pulls (pull.c), one fetch (fetch.c) and its
 * layers (stream.c), or what an engine's own store has (engine_store.c), what may be reached
 * (registry.c), who may read it (login.c). */
#pragma once

#include <pthread.h>

#include "base/map.h"
#include "base/thread.h"
#include "image/image.h"
#include "image/manifest.h"

#define IMAGE_PULLS       3
#define IMAGE_PULLS_EACH  2   /* of one owner, so that slow registries are not everybody's */
#define IMAGE_QUEUED_EACH 256 /* pulls of one owner that wait */
#define IMAGE_WORKERS     (IMAGE_PULLS + 1) /* one is always free for what is here already */
#define IMAGE_LANES       3 /* layers of one pull at a time; the warden has a thread for each */

typedef struct pull_job pull_job;

struct image_store {
    image_options o;
    char *staging_path, *skopeo, *conf_path; /* o's point here */
    platform here;
    pthread_mutex_t lock; /* everything below, never held across I/O */
    pthread_cond_t changed;
    map by_name;            /* name -> image, one reference each */
    map gone;               /* hex digest: no name has it any more, the backend still may */
    map unmade;             /* hex id: a layer of our own that has no image yet, or never will */
    map jobs;               /* "policy name as login" -> pull_job */
    map fetching;           /* hex diff id: a pull has this layer under way */
    pull_job *first, *last; /* waiting */
    unsigned pulling;
    const pull_job *running[IMAGE_PULLS]; /* those that fetch, in any order; NULL: a free place */
    bool stopping;
    int stop_fd; /* eventfd: readable when stopping */
    pthread_t worker[IMAGE_WORKERS];
    unsigned nworkers;
    pthread_mutex_t commit; /* a pull's last step and a prune exclude each other; before lock */
    pthread_mutex_t logins; /* the files of logins */
};

/* image.c */
/* An OCI config of the fields we use plus `size`; NULL if a text is not UTF-8. */
char *image_record(const image *i);
err *image_of_row(const image_row *r, const platform *here, image **ret_image) ERR_MUST;
image *image_new(const uint8_t digest[32], const char *name, image_config *taken, uint64_t size,
                 uint64_t created_ns);
/* Records it under its name, durable, and gives the backend its layers. */
err *image_commit(image_store *s, image *i) ERR_MUST;

/* derive.c: rows that say which layers are being made. A prune that takes away what has no image
 * asks for those there are before, and says so afterwards. */
bool derive_is_note(const char *name);
void derive_load_note(image_store *s, const uint8_t layer[32]);
char **derive_notes(image_store *s);
void derive_drop_notes(image_store *s, char *const *notes);

/* pull.c */
void pull_start(image_store *s);
void pull_stop(image_store *s);

/* fetch.c: the whole of one pull, on a worker. progress is told stages and counts. */
typedef struct fetch_progress {
    void (*tell)(void *arg, const pull_progress *p);
    void *arg;
} fetch_progress;
typedef struct fetch_request {
    const char *owner;     /* whose logins are used; NULL: those for everybody */
    const char *reference; /* normalised */
    const char *name;      /* under which it will be found */
    fetch_progress progress;
} fetch_request;
err *fetch_image(image_store *s, const fetch_request *rq, image **ret_image) ERR_MUST;

/* engine_store.c: images of an engine's own store. The last two ask the backend, on a worker. */
bool engine_has_images(const image_store *s);
err *engine_check(const char *reference, const char *as) ERR_MUST;
/* What the engine has of that name, now. ERR_NOT_FOUND, kind "image". */
err *engine_look(image_store *s, const char *name, image **ret_image) ERR_MUST;
err *engine_fetch(image_store *s, const fetch_request *rq, uint64_t until,
                  image **ret_image) ERR_MUST;

/* stream.c: brings the layers that the backend does not have. */
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

/* scratch.c: a directory for one call of skopeo; it goes with what is in it. */
typedef struct scratch {
    int staging; /* not owned */
    char name[17];
    char *path; /* NULL: none */
} scratch;
err *scratch_make(image_store *s, scratch *ret_scratch) ERR_MUST;
void scratch_done(scratch *x);

/* registry.c: writes what skopeo reads; whether the host of a reference may be asked. */
err *registry_write_conf(image_store *s) ERR_MUST;
err *registry_check(image_store *s, const char *reference) ERR_MUST;
err *registry_check_host(image_store *s, const char *host) ERR_MUST;
/* "docker.io" of "docker.io/library/busybox:latest"; NULL for local sources. */
char *registry_of(const char *reference);

/* login.c: removes what a kill left of a login half written. */
err *login_clean(image_store *s) ERR_MUST;
/* An authentication file in memory with what is needed for the reference; -1: nothing. */
err *login_file(image_store *s, const char *owner, const char *reference, int *ret_fd) ERR_MUST;
/* The same as words, the caller's to wipe; username NULL: nothing. */
err *login_words(image_store *s, const char *owner, const char *reference,
                 pull_login *ret_login) ERR_MUST;
/* Tells pulls with different logins apart; 0 without. */
uint64_t login_tag(image_store *s, const char *owner, const char *reference);
