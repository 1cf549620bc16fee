/* Shared by kube_http.c and kube_stream.c. */
#pragma once

#include <pthread.h>

#include "backend/kubernetes/kube_http.h"
#include "net/handles.h"

#define KUBE_CONNECT_MS 10000L
#define KUBE_ERROR_MAX  (1024 * 1024) /* bytes of an error answer */

struct kube {
    kube_config c;
    char *base;                    /* prefix of all URLs */
    struct curl_slist *connect_to; /* redirects them if the certificate has another name */
    handles handles;
    pthread_mutex_t lock;
    /* cache of token_file */
    char *token;
    uint64_t token_read; /* CLOCK_MONOTONIC; 0: not yet */
    int64_t token_mtime;
};

/* Sets address, TLS, proxy and connect timeout. */
void kube_prepare(kube *k, CURL *h, const char *url);
/* Returns "Authorization: Bearer ...", to be wiped and freed, or NULL. fresh: reads the token file
 * again in any case. */
err *kube_credentials(kube *k, bool fresh, char **ret_line) ERR_MUST;
err *kube_transport_err(const kube *k, CURL *h, CURLcode code, const char *why) ERR_MUST;
