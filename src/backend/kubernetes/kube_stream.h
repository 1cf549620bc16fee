/* A connection to the API server that was upgraded to a byte stream (client_stream_recv, …). */
#pragma once

#include "backend/kubernetes/kube_http.h"
#include "net/client.h"

/* Sends GET with "Upgrade: websocket"; lines are further headers, each with CRLF. Waits for the
 * 101; any other answer becomes its error (kube_reply_err). */
err *kube_upgrade(kube *k, const char *path, const char *lines, unsigned timeout_ms,
                  client_stream **ret_stream) ERR_MUST;
