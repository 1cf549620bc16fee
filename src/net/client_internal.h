/* Shared by client.c and client_upgrade.c. */
#pragma once

#include "net/client.h"
#include "net/handles.h"

#define CLIENT_ERROR_MAX  (1024 * 1024)
#define CLIENT_CONNECT_MS 10000L

struct client {
    char *base;        /* "http://localhost" */
    char *socket_path; /* or NULL */
    int socket_dir;    /* directory of a path too long for a socket address, or -1 */
    char *key_line;    /* "Authorization: Bearer ..." or NULL; wiped */
    handles handles;
};

/* Returns the socket or the address, for messages. */
const char *client_where(const client *c);
/* Returns the error for a connection that failed or broke; errnum is set if none could be made. */
err *client_unreached(const client *c, CURL *h, CURLcode code, const char *why) ERR_MUST;
/* Sets address and connect timeout. */
void client_prepare(const client *c, CURL *h, const char *url);
/* Returns the error that a server wrote, or one made from its status. */
err *client_status_error(const char *method, const char *path, long status,
                         const buf *body) ERR_MUST;
