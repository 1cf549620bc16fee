/* Calls to the API server with libcurl: address, TLS, credentials, retries. */
#include "backend/kubernetes/kube_http.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "backend/kubernetes/kube_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"

#define TOKEN_NS   (60 * NS_PER_S) /* after which it is read again */
#define BUSY_TRIES 4               /* for a call that is answered 429 */

/* One call in progress. */
typedef struct transfer {
    const kube_call *call;
    CURL *curl;
    buf body;
    long status, retry_after;
    bool stopped;   /* by the callback */
    bool too_large; /* by the ceiling */
    char why[CURL_ERROR_SIZE];
} transfer;

/* ---- the server ---- */

static char *dup_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static kube_config config_copy(const kube_config *c)
{
    return (kube_config){
        .server = xstrdup(c->server),
        .ns = dup_or_null(c->ns),
        .ca_file = dup_or_null(c->ca_file),
        .ca = dup_or_null(c->ca),
        .cert_file = dup_or_null(c->cert_file),
        .cert = dup_or_null(c->cert),
        .key_file = dup_or_null(c->key_file),
        .key = dup_or_null(c->key),
        .token = dup_or_null(c->token),
        .token_file = dup_or_null(c->token_file),
        .tls_name = dup_or_null(c->tls_name),
        .proxy = dup_or_null(c->proxy),
        .as = c->as ? strv_copy(c->as) : NULL,
        .insecure = c->insecure,
    };
}

/* Builds the base URL. With tls_name its host is that name, so that libcurl checks the certificate
 * for it. */
static err *set_address(kube *k)
{
    CURLU *u = curl_url();
    char *host = NULL, *port = NULL, *whole = NULL;
    bool fine = u && !curl_url_set(u, CURLUPART_URL, k->c.server, 0) &&
                !curl_url_get(u, CURLUPART_HOST, &host, 0) &&
                !curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) &&
                !curl_url_set(u, CURLUPART_HOST, str_or(k->c.tls_name, host), 0) &&
                !curl_url_get(u, CURLUPART_URL, &whole, 0);

    if (fine) {
        size_t n = strlen(whole);
        while (n && whole[n - 1] == '/')
            n--;
        k->base = xstrndup(whole, n);
        CLEANUP(freep) char *to = str_printf("::%s:%s", host, port);
        if (k->c.tls_name)
            k->connect_to = curl_slist_append(NULL, to);
    }
    curl_free(host);
    curl_free(port);
    curl_free(whole);
    curl_url_cleanup(u);
    return fine ? NULL
                : err_new(ERR_INVALID_REQUEST, "'%s' is not the address of a server", k->c.server);
}

err *kube_new(const kube_config *c, kube **ret_kube)
{
    CLEANUP(kube_freep) kube *k = xcalloc(1, sizeof *k);

    pthread_mutex_init(&k->lock, NULL);
    handles_init(&k->handles, HANDLES_MAX);
    k->c = config_copy(c);
    TRY(set_address(k));
    *ret_kube = TAKE_PTR(k);
    return NULL;
}

void kube_free(kube *k)
{
    if (!k)
        return;
    handles_done(&k->handles);
    secret_freep(&k->token);
    kube_config_done(&k->c);
    free(k->base);
    curl_slist_free_all(k->connect_to);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

const char *kube_server(const kube *k)
{
    return k->c.server;
}

const char *kube_namespace(const kube *k)
{
    return k->c.ns && *k->c.ns ? k->c.ns : "default";
}

/* ---- credentials ---- */

static int64_t mtime_of(const char *path)
{
    struct stat st;

    return stat(path, &st) ? 0
                           : (int64_t)st.st_mtim.tv_sec * (int64_t)NS_PER_S + st.st_mtim.tv_nsec;
}

static err *read_token(const char *path, char **ret_token)
{
    CLEANUP(buf_done) buf text = {0};

    TRY(err_wrap(fs_read_linked(path, KUBE_TOKEN_MAX, &text), "the API server's token"));
    size_t n = text.len;
    while (n && strchr(" \t\r\n", text.p[n - 1]))
        n--;
    char *token = xstrndup(n ? text.p : "", n);
    secret_wipe(text.p, text.len);
    if (!ascii_visible(token)) {
        secret_freep(&token);
        return err_new(ERR_UNAVAILABLE, "%s holds no token", path);
    }
    *ret_token = token;
    return NULL;
}

/* Reads the token file again if needed. If that fails, the old token stays in use. Lock held. */
static err *refresh_token(kube *k, bool fresh)
{
    uint64_t now = now_mono_ns();
    int64_t mtime = mtime_of(k->c.token_file);
    char *token = NULL;

    if (k->token && !fresh && now - k->token_read < TOKEN_NS && mtime == k->token_mtime)
        return NULL;
    err *e = read_token(k->c.token_file, &token);
    if (e && !k->token)
        return e;
    k->token_read = now;
    k->token_mtime = mtime;
    if (e) {
        err_drop(e, "the token that was is used");
        return NULL;
    }
    secret_freep(&k->token);
    k->token = token;
    return NULL;
}

err *kube_credentials(kube *k, bool fresh, char **ret_line)
{
    LOCK_SCOPE(&k->lock);

    if (k->c.token_file)
        TRY(refresh_token(k, fresh));
    const char *token = k->c.token_file ? k->token : k->c.token;
    *ret_line = token ? str_printf("Authorization: Bearer %s", token) : NULL;
    return NULL;
}

/* ---- TLS and connection ---- */

static void set_blob(CURL *h, CURLoption what, char *pem)
{
    struct curl_blob blob = {.data = pem, .len = strlen(pem), .flags = CURL_BLOB_COPY};

    curl_easy_setopt(h, what, &blob);
}

static void set_tls(const kube_config *c, CURL *h)
{
    if (c->ca)
        set_blob(h, CURLOPT_CAINFO_BLOB, c->ca);
    else if (c->ca_file)
        curl_easy_setopt(h, CURLOPT_CAINFO, c->ca_file);
    /* A replaced file takes effect with the next connection. */
    curl_easy_setopt(h, CURLOPT_CA_CACHE_TIMEOUT, 0L);
    if (c->cert)
        set_blob(h, CURLOPT_SSLCERT_BLOB, c->cert);
    else if (c->cert_file)
        curl_easy_setopt(h, CURLOPT_SSLCERT, c->cert_file);
    if (c->key)
        set_blob(h, CURLOPT_SSLKEY_BLOB, c->key);
    else if (c->key_file)
        curl_easy_setopt(h, CURLOPT_SSLKEY, c->key_file);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, c->insecure ? 0L : 1L);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, c->insecure ? 0L : 2L);
}

void kube_prepare(kube *k, CURL *h, const char *url)
{
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, KUBE_CONNECT_MS);
    curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(h, CURLOPT_TCP_KEEPIDLE, 30L);
    curl_easy_setopt(h, CURLOPT_TCP_KEEPINTVL, 10L);
    curl_easy_setopt(h, CURLOPT_PROXY,
                     str_or(k->c.proxy, "")); /* ignore the environment's proxy settings */
    if (k->connect_to)
        curl_easy_setopt(h, CURLOPT_CONNECT_TO, k->connect_to);
    set_tls(&k->c, h);
}

/* ---- a call ---- */

static size_t on_write(char *p, size_t size, size_t n, void *arg)
{
    transfer *t = arg;
    long status = 0;

    n *= size;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    bool good = status >= 200 && status < 300;
    if (good && t->call->on_bytes) {
        t->stopped = !t->call->on_bytes(t->call->arg, p, n);
        return t->stopped ? 0 : n;
    }
    t->too_large = t->body.len + n > (good ? KUBE_ANSWER_MAX : KUBE_ERROR_MAX);
    if (t->too_large)
        return 0;
    buf_append(&t->body, p, n);
    return n;
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
    static const char AFTER[] = "retry-after:";
    transfer *t = arg;
    uint64_t seconds = 0;

    n *= size;
    if (n < sizeof AFTER || strncasecmp(p, AFTER, sizeof AFTER - 1) != 0)
        return n;
    CLEANUP(freep) char *value = xstrndup(p + sizeof AFTER - 1, n - (sizeof AFTER - 1));
    const char *from = value + strspn(value, " \t");
    value[(size_t)(from - value) + strcspn(from, "\r\n ")] = 0;
    if (str_to_u64(from, 86400, &seconds)) /* API servers do not send dates here */
        t->retry_after = (long)seconds;
    return n;
}

static struct curl_slist *header_lines(const kube *k, const kube_call *call, const char *who)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");

    list = curl_slist_append(list, "Accept: application/json");
    if (call->json) {
        CLEANUP(freep)
        char *line = str_printf("Content-Type: %s", str_or(call->type, "application/json"));
        list = curl_slist_append(list, line);
    }
    if (who)
        list = curl_slist_append(list, who);
    for (char **as = k->c.as; as && *as; as++)
        list = curl_slist_append(list, *as);
    return list;
}

static void set_options(transfer *t, const buf *json)
{
    CURL *h = t->curl;
    bool streams = t->call->on_bytes;
    uint64_t ms = t->call->timeout_ms ? t->call->timeout_ms : streams ? 0 : KUBE_CALL_MS;

    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)ms);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, t->why);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "bothyd");
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, t);
    if (streams && t->call->silence_ms) {
        curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)(t->call->silence_ms / 1000));
    }
    if (t->call->on_tick) {
        curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_tick);
        curl_easy_setopt(h, CURLOPT_XFERINFODATA, t);
        curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    }
    if (t->call->json) {
        curl_easy_setopt(h, CURLOPT_POST, 1L);
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)json->len);
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, json->p);
    }
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, t->call->method);
}

static const char *transport_remedy(CURLcode code)
{
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        return "The server's certificate does not fit: check certificate-authority and "
               "tls-server-name in the kubeconfig.";
    if (code == CURLE_SSL_CERTPROBLEM)
        return "Check client-certificate and client-key in the kubeconfig.";
    return NULL;
}

err *kube_transport_err(const kube *k, CURL *h, CURLcode code, const char *why)
{
    err *e = err_new(ERR_UNAVAILABLE, "cannot reach the API server at %s", k->c.server);
    long errnum = 0;

    curl_easy_getinfo(h, CURLINFO_OS_ERRNO, &errnum);
    e->errnum = code == CURLE_COULDNT_CONNECT ? (int)errnum : 0;
    e = err_because(e, "%s", why && *why ? why : curl_easy_strerror(code));
    /* "alert certificate expired" and the like: the server rejected our certificate. */
    const char *remedy = strstr(e->cause, "alert certificate")
                             ? transport_remedy(CURLE_SSL_CERTPROBLEM)
                             : transport_remedy(code);
    return remedy ? err_remedy(e, "%s", remedy) : e;
}

static err *kube_http_failed(const kube *k, const transfer *t, CURLcode code)
{
    double began = 0;
    int n = (int)strcspn(t->call->path, "?");

    if (t->too_large)
        return err_new(ERR_TOO_LARGE, "the answer to %s %.*s is too large", t->call->method, n,
                       t->call->path);
    curl_easy_getinfo(t->curl, CURLINFO_PRETRANSFER_TIME, &began);
    if (code == CURLE_OPERATION_TIMEDOUT && began > 0)
        return err_because(
            err_new(ERR_TIMEOUT, "%s %.*s did not end in time", t->call->method, n, t->call->path),
            "%s", t->why[0] ? t->why : curl_easy_strerror(code));
    return kube_transport_err(k, t->curl, code, t->why);
}

/* Sends the call once. An answer of any status is success. */
static err *kube_http_perform(kube *k, transfer *t, const buf *json, bool fresh)
{
    CLEANUP(freep) char *url = str_printf("%s%s", k->base, t->call->path);
    CLEANUP(secret_freep) char *who = NULL;

    TRY(kube_credentials(k, fresh, &who));
    struct curl_slist *lines = header_lines(k, t->call, who);
    kube_prepare(k, t->curl, url);
    set_options(t, json);
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, lines);
    CURLcode code = curl_easy_perform(t->curl);
    curl_slist_free_all(lines);
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &t->status);
    return code != CURLE_OK && !t->stopped ? kube_http_failed(k, t, code) : NULL;
}

static err *kube_http_reply(const transfer *t)
{
    kube_reply r = {.status = t->status,
                    .retry_after = t->retry_after,
                    .body = t->body.p,
                    .nbody = t->body.len,
                    .json_patch = str_eq(t->call->type, "application/json-patch+json")};

    return r.status >= 200 && r.status < 300 ? NULL
                                             : kube_reply_err(&r, t->call->method, t->call->path);
}

static err *kube_http_attempt(kube *k, const kube_call *call, const buf *json, bool fresh,
                              buf *ret_body)
{
    transfer t = {.call = call, .curl = handles_take(&k->handles)};
    err *e = kube_http_perform(k, &t, json, fresh);

    if (!e)
        e = kube_http_reply(&t);
    handles_give(&k->handles, t.curl);
    if (e)
        buf_done(&t.body);
    else
        *ret_body = t.body;
    return e;
}

static void sleep_s(int seconds)
{
    struct timespec t = {.tv_sec = seconds};

    while (nanosleep(&t, &t) && errno == EINTR)
        continue;
}

/* Returns whether to send the call again; waits first if the server asked for it. */
static bool kube_http_again(kube *k, const kube_call *call, const err *e, unsigned tries,
                            uint64_t until)
{
    int wait = e->retry_after ? e->retry_after : 1;

    if (kube_is(e, "Unauthorized"))
        return tries == 1 && k->c.token_file;
    if (call->once || call->on_bytes || !kube_is(e, KUBE_BUSY) || tries >= BUSY_TRIES ||
        now_mono_ns() + (uint64_t)wait * NS_PER_S >= until)
        return false;
    sleep_s(wait);
    return true;
}

err *kube_do(kube *k, const kube_call *call, json_t **ret_json)
{
    CLEANUP(buf_done) buf json = {0};
    CLEANUP(buf_done) buf body = {0};
    uint64_t ms = call->timeout_ms ? call->timeout_ms : KUBE_CALL_MS;
    uint64_t until = now_mono_ns() + ms * NS_PER_MS;

    if (call->json)
        json_write(&json, call->json);
    err *e = kube_http_attempt(k, call, &json, false, &body);
    for (unsigned tries = 1; e && kube_http_again(k, call, e, tries, until); tries++) {
        bool fresh = kube_is(e, "Unauthorized");
        err_free(e);
        e = kube_http_attempt(k, call, &json, fresh, &body);
    }
    TRY(e);
    if (!ret_json)
        return NULL;
    if (!body.len) {
        *ret_json = json_null();
        return NULL;
    }
    e = json_parse(body.p, body.len, ret_json);
    if (e) { /* the server's fault, not the request's */
        e->code = ERR_UNAVAILABLE;
        e->retryable = true;
    }
    return err_wrap(e, "%s %s", call->method, call->path);
}
