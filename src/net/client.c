#include "net/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "net/client_internal.h"

#define CLIENT_BODY_MAX (64 * 1024 * 1024) /* of a collected answer */
#define CLIENT_PIECE    (256 * 1024L)      /* of a body that is sent in pieces */
#define CLIENT_IDLE     4                  /* handles kept for their open connections */

/* One call in progress. */
typedef struct transfer {
    const client_call *call;
    CURL *curl;
    buf body;
    bool replay;
    bool stopped;   /* by the caller's callback */
    bool too_large; /* by the ceiling */
    char why[CURL_ERROR_SIZE];
} transfer;

/* Sets the socket's address. sun_path has 108 bytes, so longer paths go through a descriptor of
 * their directory. */
static err *set_socket(client *c, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (strlen(path) < 100 || !slash) {
        c->socket_path = xstrdup(path);
        return NULL;
    }
    CLEANUP(freep) char *dir = xstrndup(path, (size_t)(slash - path));
    c->socket_dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (c->socket_dir < 0)
        return err_sys(ERR_UNAVAILABLE, errno, "cannot open directory %s", dir);
    c->socket_path = str_printf("/proc/self/fd/%d/%s", c->socket_dir, slash + 1);
    return NULL;
}

static err *set_url(client *c, const char *url)
{
    if (str_starts(url, "unix:")) {
        c->base = xstrdup("http://localhost");
        return set_socket(c, url + 5);
    }
    if (!str_starts(url, "http://") && !str_starts(url, "https://"))
        return err_remedy(err_new(ERR_INVALID_REQUEST, "'%s' is not the address of a server", url),
                          "Use unix:/path/of/socket or http://host:port.");
    size_t n = strlen(url);
    while (n && url[n - 1] == '/')
        n--;
    c->base = xstrndup(url, n);
    return NULL;
}

err *client_new(const char *url, const char *key, client **ret_client)
{
    CLEANUP(client_freep) client *c = xcalloc(1, sizeof *c);

    c->socket_dir = -1;
    handles_init(&c->handles, CLIENT_IDLE);
    if (key && !ascii_visible(key))
        return err_new(ERR_INVALID_REQUEST, "the key has characters no key has");
    if (key)
        c->key_line = str_printf("Authorization: Bearer %s", key);
    TRY(set_url(c, url));
    *ret_client = TAKE_PTR(c);
    return NULL;
}

void client_free(client *c)
{
    if (!c)
        return;
    handles_done(&c->handles);
    if (c->socket_dir >= 0)
        close(c->socket_dir);
    secret_freep(&c->key_line);
    free(c->base);
    free(c->socket_path);
    free(c);
}

void client_answer_done(client_answer *a)
{
    buf_done(&a->body);
}

/* ---- a call ---- */

static bool is_success(CURL *curl)
{
    long status = 0;

    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300;
}

static size_t on_write(char *p, size_t size, size_t n, void *arg)
{
    transfer *t = arg;
    bool good = is_success(t->curl);

    n *= size;
    if (good && t->call->on_bytes) {
        t->stopped = !t->call->on_bytes(t->call->arg, p, n);
        return t->stopped ? 0 : n;
    }
    t->too_large = t->body.len + n > (good ? CLIENT_BODY_MAX : CLIENT_ERROR_MAX);
    if (t->too_large)
        return 0;
    buf_append(&t->body, p, n);
    return n;
}

static size_t on_read(char *p, size_t size, size_t n, void *arg)
{
    transfer *t = arg;
    ssize_t got = t->call->on_read(t->call->arg, p, size * n);

    return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

static int on_tick(void *arg, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal,
                   curl_off_t ulnow)
{
    transfer *t = arg;

    (void)dltotal, (void)dlnow, (void)ultotal, (void)ulnow;
    return !t->call->on_tick(t->call->arg);
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    static const char REPLAY[] = "idempotent-replay: true";
    transfer *t = arg;

    n *= size;
    if (n >= sizeof REPLAY - 1 && !strncasecmp(p, REPLAY, sizeof REPLAY - 1))
        t->replay = true;
    return n;
}

static void add_line(struct curl_slist **list, const char *name, const char *value)
{
    if (!value)
        return;
    CLEANUP(freep) char *line = str_printf("%s: %s", name, value);
    *list = curl_slist_append(*list, line);
}

static struct curl_slist *header_lines(const client *c, const client_call *call)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");

    if (c->key_line)
        list = curl_slist_append(list, c->key_line);
    if (call->json)
        add_line(&list, "Content-Type", "application/json");
    else if (call->bytes || call->on_read)
        add_line(&list, "Content-Type", call->type ? call->type : "application/octet-stream");
    add_line(&list, "Accept", call->accept ? call->accept : "application/json");
    add_line(&list, "Idempotency-Key", call->idempotency_key);
    add_line(&list, "Last-Event-ID", call->last_event_id);
    if (call->line)
        list = curl_slist_append(list, call->line);
    return list;
}

static void set_body(CURL *h, const client_call *call, const buf *json)
{
    bool sends = call->json || call->bytes || !strcmp(call->method, "POST") ||
                 !strcmp(call->method, "PUT") || !strcmp(call->method, "PATCH");

    if (!strcmp(call->method, "HEAD"))
        curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
    else if (call->on_read) /* of unknown length: sent in chunks */
        curl_easy_setopt(h, CURLOPT_UPLOAD, 1L);
    else if (sends) {
        const void *p = call->json ? json->p : call->bytes;
        size_t n = call->json ? json->len : call->nbytes;
        curl_easy_setopt(h, CURLOPT_POST, 1L);
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(p ? n : 0));
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, p ? p : "");
    }
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, call->method);
}

const char *client_where(const client *c)
{
    return c->socket_path ? c->socket_path : c->base;
}

/* Returns the error of a failed connect. For a unix socket curl's text names the URL's host and
 * port, so the cause is the kernel's errno instead. */
err *client_unreached(const client *c, CURL *h, CURLcode code, const char *why)
{
    err *e = err_new(ERR_UNAVAILABLE, "cannot reach the server at %s", client_where(c));
    long errnum = 0;

    if (code == CURLE_COULDNT_CONNECT)
        curl_easy_getinfo(h, CURLINFO_OS_ERRNO, &errnum);
    e->errnum = (int)errnum;
    if (c->socket_path && errnum && strerrordesc_np(e->errnum))
        return err_because(e, "%s (%s)", strerrordesc_np(e->errnum), strerrorname_np(e->errnum));
    return err_because(e, "%s", *why ? why : curl_easy_strerror(code));
}

void client_prepare(const client *c, CURL *h, const char *url)
{
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, CLIENT_CONNECT_MS);
    curl_easy_setopt(h, CURLOPT_PROXY, "");         /* ignore proxies of the environment */
    curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L); /* notices a server that lost power */
    curl_easy_setopt(h, CURLOPT_TCP_KEEPIDLE, 30L);
    curl_easy_setopt(h, CURLOPT_TCP_KEEPINTVL, 10L);
    if (c->socket_path)
        curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, c->socket_path);
}

static void set_options(transfer *t)
{
    CURL *h = t->curl;

    /* Use a fresh connection: curl repeats a request if a kept connection breaks, but the server
     * may have executed it before it died. */
    bool once = str_eq(t->call->method, "POST") && !t->call->idempotency_key;

    curl_easy_setopt(h, CURLOPT_FRESH_CONNECT, (long)once);
    curl_easy_setopt(h, CURLOPT_FORBID_REUSE, (long)once);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)t->call->timeout_ms);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, t->why);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, t);
    if (t->call->on_read) {
        curl_easy_setopt(h, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(h, CURLOPT_READDATA, t);
        curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, CLIENT_PIECE);
    }
    if (t->call->on_tick) {
        curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_tick);
        curl_easy_setopt(h, CURLOPT_XFERINFODATA, t);
        curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    }
}

static err *transport_error(const client *c, const transfer *t, CURLcode code)
{
    double connected = 0;

    curl_easy_getinfo(t->curl, CURLINFO_PRETRANSFER_TIME, &connected);
    if (t->too_large)
        return err_new(ERR_TOO_LARGE, "the answer to %s %s is too large", t->call->method,
                       t->call->path);
    if (code == CURLE_OPERATION_TIMEDOUT && connected > 0)
        return err_new(ERR_TIMEOUT, "%s %s did not end within %llu ms", t->call->method,
                       t->call->path, (unsigned long long)t->call->timeout_ms);
    return client_unreached(c, t->curl, code, t->why);
}

/* Returns the first code of the table with this status, for answers of other servers (a proxy). */
static err_code code_of_status(long status)
{
    for (err_code code = 0; code < ERR_CODES; code++)
        if (err_info_of(code)->http == status)
            return code;
    return status >= 400 && status < 500 ? ERR_INVALID_REQUEST : ERR_INTERNAL;
}

err *client_status_error(const char *method, const char *path, long status, const buf *body)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    err *e = NULL;

    err_free(json_parse(body->p ? body->p : "", body->len, &root)); /* a proxy's body may be HTML */
    if (root)
        e = json_to_err(root);
    if (e)
        return e;
    e = err_new(code_of_status(status), "%s %s was answered with status %ld", method, path, status);
    const char *why = json_str(root, "message"); /* the form of other servers' errors */
    return why ? err_because(e, "%s", why) : e;
}

static err *client_perform(const client *c, transfer *t, long *ret_status)
{
    CLEANUP(buf_done) buf json = {0};
    CLEANUP(freep) char *url = str_printf("%s%s", c->base, t->call->path);
    struct curl_slist *lines = header_lines(c, t->call);

    if (t->call->json)
        json_write(&json, t->call->json);
    client_prepare(c, t->curl, url);
    set_options(t);
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, lines);
    set_body(t->curl, t->call, &json);
    CURLcode code = curl_easy_perform(t->curl);
    curl_slist_free_all(lines);
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, ret_status);
    if (code != CURLE_OK && !t->stopped)
        return transport_error(c, t, code);
    bool fine = t->call->any_status || (*ret_status >= 200 && *ret_status < 300);
    return fine ? NULL : client_status_error(t->call->method, t->call->path, *ret_status, &t->body);
}

err *client_do(client *c, const client_call *call, client_answer *ret_answer)
{
    transfer t = {.call = call, .curl = handles_take(&c->handles)};
    long status = 0;
    err *e = client_perform(c, &t, &status);

    handles_give(&c->handles, t.curl);
    if (e) {
        buf_done(&t.body);
        return e;
    }
    *ret_answer = (client_answer){.status = status, .body = t.body, .replay = t.replay};
    return NULL;
}

err *client_json(client *c, const client_call *call, json_t **ret_json)
{
    CLEANUP(client_answer_done) client_answer a = {0};

    TRY(client_do(c, call, &a));
    if (!a.body.len) { /* 204 */
        *ret_json = json_null();
        return NULL;
    }
    err *e = json_parse(a.body.p, a.body.len, ret_json);
    if (e)
        e->code = ERR_INTERNAL; /* the server is at fault, not the request */
    return err_wrap(e, "%s %s", call->method, call->path);
}

char *client_escape(const char *s)
{
    static const char SAFE[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    CLEANUP(buf_done) buf b = {0};

    for (; *s; s++) {
        char hex[4];
        if (strchr(SAFE, *s)) {
            buf_char(&b, *s);
            continue;
        }
        snprintf(hex, sizeof hex, "%%%02X", (unsigned char)*s);
        buf_append(&b, hex, 3);
    }
    return buf_take(&b);
}
