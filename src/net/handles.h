/* A pool of libcurl handles: one per call, kept afterwards for its open connections. Any thread. */
#pragma once

#include <curl/curl.h>
#include <pthread.h>
#include <stddef.h>

#define HANDLES_MAX 16

typedef struct handles {
    pthread_mutex_t lock;
    CURL *idle[HANDLES_MAX];
    size_t nidle, keep; /* keep: at most this many */
} handles;

/* Initialises a pool. keep: up to HANDLES_MAX. The first call initialises libcurl. */
void handles_init(handles *h, size_t keep);
void handles_done(handles *h);
CURL *handles_take(handles *h);
/* Returns a handle to the pool: its options are reset, its connections stay. */
void handles_give(handles *h, CURL *curl);
