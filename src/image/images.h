/* Inside src/image: the table of images (image.c), the pulls (pull.c), one fetch (fetch.c). */
#pragma once

#include <pthread.h>

#include "base/map.h"
#include "base/thread.h"
#include "image/image.h"
#include "image/manifest.h"

#define IMAGE_WORKERS 3 /* one is always free for what is here already */
#define IMAGE_PULLS   2

typedef struct pull_job pull_job;

struct image_store {
    image_options o;
    char *staging_path, *skopeo; /* o's point here */
    platform here;
    pthread_mutex_t lock; /* everything below, never held across I/O */
    pthread_cond_t changed;
    map by_name;            /* name -> image, one reference each */
    map gone;               /* hex digest: no name has it any more, the backend still may */
    map jobs;               /* "policy name as" -> pull_job */
    pull_job *first, *last; /* waiting */
    unsigned pulling;
    bool stopping;
    int stop_fd; /* eventfd: readable when stopping */
    pthread_t worker[IMAGE_WORKERS];
    unsigned nworkers;
    pthread_mutex_t commit; /* a pull's last step and a prune exclude each other; before lock */
};

/* image.c */
image *image_new(const uint8_t digest[32], const char *name, image_config *taken, uint64_t size,
                 uint64_t created_ns);
/* Records it under its name, durable, and gives the backend its layers. */
err *image_commit(image_store *s, image *i) ERR_MUST;

/* pull.c */
void pull_start(image_store *s);
void pull_stop(image_store *s);

/* fetch.c: the whole of one pull, on a worker. progress is told stages and counts. */
typedef struct fetch_progress {
    void (*tell)(void *arg, const pull_progress *p);
    void *arg;
} fetch_progress;
err *fetch_image(image_store *s, const char *reference, const char *name,
                 const fetch_progress *progress, image **ret_image) ERR_MUST;
