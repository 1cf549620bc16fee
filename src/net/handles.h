/* Handles of libcurl: one a call, kept afterwards for the connection they hold. Any thread. */
#pragma once

#include <curl/curl.h>
#include <pthread.h>
#include <stddef.h>

#define HANDLES_MAX 16

typedef struct handles {
    pthread_mutex_t lock;
    CURL *idle[HANDLES_MAX];
    size_t nidle, keep; /* keep: at most so many */
} handles;

/* keep: up to HANDLES_MAX. libcurl is begun with the first. */
void handles_init(handles *h, size_t keep);
void handles_done(handles *h);
CURL *handles_take(handles *h);
/* Its options go, its connections stay. */
void handles_give(handles *h, CURL *curl);
