/* Makes a client_stream (client.h): libcurl connects (unix socket, TCP, TLS, a proxy), one request
 * is sent, the head of its answer is read, and the bytes after it are the stream. For clients with
 * addresses and credentials of their own. */
#pragma once

#include <curl/curl.h>

#include "net/client.h"
#include "wire/http1.h"

/* Makes a stream that is not connected. curl must have the address and connection options; takes
 * ownership of it. who: "the server at …", for messages. */
client_stream *client_stream_new(CURL *curl, const char *who);
/* Returns the handle, to ask libcurl about a failure. */
CURL *client_stream_curl(const client_stream *s);
/* Connects. why: libcurl's text about a failure, or "". */
CURLcode client_stream_connect(client_stream *s, uint64_t timeout_ms, char why[CURL_ERROR_SIZE]);
/* Sends the request and reads the answer's head. until: CLOCK_MONOTONIC. */
err *client_stream_ask(client_stream *s, const buf *request, uint64_t until) ERR_MUST;
const http1_answer *client_stream_answer(const client_stream *s);
/* Reads the body of an answer that starts no stream, as far as it comes. */
void client_stream_body(client_stream *s, size_t max, uint64_t until, buf *ret_body);
