/* What kube_http.c and kube_stream.c share. */
#pragma once

#include <pthread.h>

#include "backend/kubernetes/kube_http.h"
#include "net/handles.h"

#define KUBE_CONNECT_MS 10000L
#define KUBE_ERROR_MAX  (1024 * 1024) /* of an answer that is none of ours */

struct kube {
    kube_config c;
    char *base;                    /* what URLs begin with */
    struct curl_slist *connect_to; /* where they lead if the certificate has another name */
    handles handles;
    pthread_mutex_t lock;
    /* of token_file */
    char *token;
    uint64_t token_read; /* CLOCK_MONOTONIC; 0: not yet */
    int64_t token_mtime;
};

/* Address, TLS, proxy, time to connect. */
void kube_prepare(kube *k, CURL *h, const char *url);
/* "Authorization: Bearer ..." to be wiped and freed, or NULL; fresh: whatever was read is read
 * again. */
err *kube_credentials(kube *k, bool fresh, char **ret_line) ERR_MUST;
err *kube_transport_err(const kube *k, CURL *h, CURLcode code, const char *why) ERR_MUST;
