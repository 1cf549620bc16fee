/* What client.c and client_upgrade.c share. */
#pragma once

#include "net/client.h"
#include "net/handles.h"

#define CLIENT_ERROR_MAX  (1024 * 1024)
#define CLIENT_CONNECT_MS 10000L

struct client {
    char *base;        /* "http://localhost" */
    char *socket_path; /* or NULL */
    int socket_dir;    /* a path that is too long for an address goes through it */
    char *key_line;    /* "Authorization: Bearer ..." or NULL; wiped */
    handles handles;
};

/* For messages: the socket or the address. */
const char *client_where(const client *c);
/* No connection came about, or it broke; errnum is set where there was none. */
err *client_unreached(const client *c, CURL *h, CURLcode code, const char *why) ERR_MUST;
/* Address and time to connect. */
void client_prepare(const client *c, CURL *h, const char *url);
/* The error that a server wrote, or one made of its status. */
err *client_status_error(const char *method, const char *path, long status,
                         const buf *body) ERR_MUST;
