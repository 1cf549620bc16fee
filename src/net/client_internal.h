/* What client.c and client_upgrade.c share. */
#pragma once

#include <curl/curl.h>
#include <pthread.h>

#include "net/client.h"

#define CLIENT_ERROR_MAX  (1024 * 1024)
#define CLIENT_CONNECT_MS 10000L
#define CLIENT_IDLE       4 /* handles kept for their open connections */

struct client {
    char *base;        /* "http://localhost" */
    char *socket_path; /* or NULL */
    int socket_dir;    /* a path that is too long for an address goes through it */
    char *key_line;    /* "Authorization: Bearer ..." or NULL; wiped */
    pthread_mutex_t lock;
    CURL *idle[CLIENT_IDLE];
    size_t nidle;
};

/* The error that a server wrote, or one made of its status. */
err *client_status_error(const char *method, const char *path, long status,
                         const buf *body) ERR_MUST;
