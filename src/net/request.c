/* Requests: id, path, query, accessors for handlers, and reading the body. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "net/internal.h"

/* ---- opening ---- */

static bool id_valid(const char *s)
{
    size_t n = s ? strlen(s) : 0;

    return n && n <= NET_ID_MAX &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") == n;
}

/* Sets the request's id: the client's valid X-Request-Id, or the server's random prefix and a
 * count, which is unique without asking the kernel each time. */
void request_set_id(request *rq)
{
    const char *theirs = http1_header_get(&rq->h1, "x-request-id");

    if (id_valid(theirs))
        memcpy(rq->id, theirs, strlen(theirs) + 1);
    else
        snprintf(rq->id, sizeof rq->id, "%s-%llx", rq->server->id_prefix,
                 (unsigned long long)atomic_fetch_add(&rq->server->next_id, 1));
}

static err *request_decode(const char *what, const char *raw, size_t n, bool plus, char **ret_text)
{
    CLEANUP(freep) char *text = xstrndup(raw, n);
    size_t len;

    for (char *p = text; plus && (p = strchr(p, '+'));)
        *p = ' ';
    if (!percent_decode(text, &len))
        return err_new(ERR_INVALID_REQUEST, "the request's %s has a bad percent escape", what);
    *ret_text = TAKE_PTR(text);
    return NULL;
}

static err *add_query(request *rq, const char *p, size_t n, bool plus)
{
    const char *eq = memchr(p, '=', n);
    size_t nname = eq ? (size_t)(eq - p) : n;
    query_param *q = &rq->query[rq->nquery];

    if (!n)
        return NULL;
    rq->nquery++;
    TRY(request_decode("query", p, nname, plus, &q->name));
    return request_decode("query", eq ? eq + 1 : "", eq ? n - nname - 1 : 0, plus, &q->value);
}

/* Splits the query into parameters. The limit on heads bounds their number. */
static err *open_query(request *rq, const char *p, bool plus)
{
    size_t n = 1;

    for (const char *c = p; *c; c++)
        n += *c == '&';
    rq->query = xcalloc(n, sizeof *rq->query);
    while (*p) {
        size_t len = strcspn(p, "&");
        TRY(add_query(rq, p, len, plus));
        p += len + (p[len] == '&');
    }
    return NULL;
}

err *request_open(request *rq)
{
    size_t n = strcspn(rq->h1.target, "?");

    rq->raw_path = xstrndup(rq->h1.target, n);
    TRY(request_decode("path", rq->raw_path, n, false, &rq->path));
    return rq->h1.target[n] ? open_query(rq, rq->h1.target + n + 1, false) : NULL;
}

static void close_query(request *rq)
{
    for (size_t i = 0; i < rq->nquery; i++) {
        free(rq->query[i].name);
        free(rq->query[i].value);
    }
    free(rq->query);
    rq->query = NULL;
    rq->nquery = 0;
}

err *request_query_as_form(request *rq)
{
    const char *query = strchr(rq->h1.target, '?');

    close_query(rq);
    return query ? open_query(rq, query + 1, true) : NULL;
}

void lapse_done(lapse *l)
{
    if (l->release)
        l->release(l->arg);
    *l = (lapse){0};
}

lapse request_take_lapse(request *rq)
{
    lapse l = rq->lapse;

    rq->lapse = (lapse){0};
    return l;
}

void request_rest(request *rq)
{
    request_set_user(rq, NULL, NULL);
    lapse_done(&rq->lapse);
    if (rq->slow)
        party_give(rq->server, rq->party, 0, 1);
    rq->slow = false;
    party_give_thread(rq);
}

void request_close(request *rq)
{
    request_rest(rq);
    request_keep(rq, NULL, NULL);
    free(rq->party);
    close_query(rq);
    for (size_t i = 0; i < HTTP_PARAMS_MAX; i++)
        free(rq->param[i]);
    free(rq->raw_path);
    free(rq->path);
    buf_done(&rq->head);
    free(rq);
}

/* ---- what handlers ask ---- */

const char *request_method(const request *rq)
{
    return rq->h1.method;
}

bool request_is_head(const request *rq)
{
    return rq->h1.method && !strcmp(rq->h1.method, "HEAD");
}

const char *request_path(const request *rq)
{
    return rq->path;
}

const char *request_target(const request *rq)
{
    return rq->h1.target;
}

const char *request_id(const request *rq)
{
    return rq->id;
}

const char *request_param(const request *rq, size_t i)
{
    return i < HTTP_PARAMS_MAX ? rq->param[i] : NULL;
}

void request_set_param(request *rq, size_t i, const char *raw, size_t n)
{
    size_t len;

    assert(i < HTTP_PARAMS_MAX);
    free(rq->param[i]);
    rq->param[i] = xstrndup(raw, n);
    bool good = percent_decode(rq->param[i], &len); /* the whole path was checked before */
    assert(good);
}

const char *request_header(const request *rq, const char *name)
{
    return http1_header_get(&rq->h1, name);
}

void request_header_each(const request *rq,
                         void (*each)(void *arg, const char *name, const char *value), void *arg)
{
    for (size_t i = 0; i < rq->h1.nheader; i++)
        each(arg, rq->h1.header[i].name, rq->h1.header[i].value);
}

const char *request_query(const request *rq, const char *name)
{
    for (size_t i = 0; i < rq->nquery; i++)
        if (!strcmp(rq->query[i].name, name))
            return rq->query[i].value;
    return NULL;
}

void request_query_each(const request *rq,
                        void (*each)(void *arg, const char *name, const char *value), void *arg)
{
    for (size_t i = 0; i < rq->nquery; i++)
        each(arg, rq->query[i].name, rq->query[i].value);
}

bool request_is_unix(const request *rq)
{
    return rq->conn->is_unix;
}

bool request_upgrades(const request *rq, const char *protocol)
{
    const char *to = request_header(rq, "Upgrade");

    return rq->h1.upgrade && rq->h1.http11 && !strcmp(rq->h1.method, "GET") && to &&
           !strcasecmp(to, protocol);
}

int request_socket(const request *rq)
{
    return rq->conn->fd;
}

void request_set_operation(request *rq, size_t door, size_t operation)
{
    rq->door = door;
    rq->operation = operation;
}

void request_set_kind(request *rq, enum stream_kind kind)
{
    rq->kind = kind;
}

void *request_door(const request *rq)
{
    return rq->handler ? rq->handler : rq->server->o.arg;
}

void request_set_door(request *rq, void *door)
{
    rq->handler = door;
}

void *request_user(const request *rq)
{
    return rq->user;
}

void request_set_user(request *rq, void *user, void (*release)(void *))
{
    if (rq->release)
        rq->release(rq->user);
    rq->user = user;
    rq->release = release;
}

void *request_kept(const request *rq)
{
    return rq->kept;
}

void request_keep(request *rq, void *kept, void (*release)(void *))
{
    if (rq->release_kept)
        rq->release_kept(rq->kept);
    rq->kept = kept;
    rq->release_kept = release;
}

void request_set_lapse(request *rq, void *arg, bool (*lapsed)(void *), void (*release)(void *))
{
    lapse_done(&rq->lapse);
    rq->lapse = (lapse){arg, lapsed, release};
    rq->lapse_at = now_mono_ns() + NET_LAPSE;
}

/* ---- the body ---- */

static err *request_broken(request *rq, err *e)
{
    rq->broken = true;
    return e;
}

/* Sends "100 Continue" if the client waits for it. */
static void say_continue(request *rq)
{
    static const char LINE[] = "HTTP/1.1 100 Continue\r\n\r\n";

    if (!rq->h1.expect_continue || rq->continued || rq->conn->in.len)
        return;
    rq->continued = true;
    /* The socket's buffer is empty; if this does not fit all the same, reading times out. */
    (void)!send(rq->conn->fd, LINE, sizeof LINE - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static err *too_slow(request *rq)
{
    metric_add(&NET_METRICS[M_REFUSED], 0, 1);
    err *e = err_because(err_new(ERR_QUOTA_EXCEEDED, "too many of your requests are slow"),
                         "%u of them wait for their bodies already", rq->server->party_slow);
    return request_broken(rq, err_retry_after(e, NET_RETRY_AFTER));
}

/* Charges a thread that waits for a slow body. A tenant may have few of those; once it has them,
 * none of its requests may wait at all. */
static err *count_slow(request *rq)
{
    bool in_time = rq->waited < NET_BODY_GRACE;

    if (rq->slow)
        return NULL;
    if (!(in_time ? party_has_room : party_take)(rq->server, rq->party, 0, 1))
        return too_slow(rq);
    rq->slow = !in_time;
    return NULL;
}

static err *check_lapse(request *rq)
{
    uint64_t now = rq->lapse.lapsed ? now_mono_ns() : 0;

    if (!now || now < rq->lapse_at)
        return NULL;
    rq->lapse_at = now + NET_LAPSE;
    if (!rq->lapse.lapsed(rq->lapse.arg))
        return NULL;
    return request_broken(rq, err_new(ERR_UNAUTHENTICATED, "the key is not valid any more"));
}

static err *no_body(const request *rq)
{
    return err_because(err_new(ERR_TIMEOUT, "the request's body did not come"),
                       "no byte of it for %llu s",
                       (unsigned long long)(rq->server->times.body_idle / NS_PER_S));
}

static err *poll_readable(request *rq)
{
    uint64_t now = now_mono_ns(), until = now + rq->server->times.body_idle;

    for (;;) {
        TRY(count_slow(rq));
        TRY(check_lapse(rq));
        struct pollfd p = {.fd = rq->conn->fd, .events = POLLIN};
        uint64_t left = now < until ? until - now : 0;
        if (!rq->slow && left > NET_BODY_GRACE - rq->waited)
            left = NET_BODY_GRACE - rq->waited;
        if (rq->lapse.lapsed && left > NET_LAPSE)
            left = NET_LAPSE;
        int n = poll(&p, 1, left ? (int)(left / NS_PER_MS) + 1 : 0);
        uint64_t then = now;
        now = now_mono_ns();
        rq->waited += now - then;
        if (n > 0)
            return NULL;
        if (n == 0 && now >= until)
            return request_broken(rq, no_body(rq));
        if (n < 0 && errno != EINTR)
            return request_broken(rq, err_sys(ERR_INTERNAL, errno, "cannot wait for the body"));
    }
}

static err *given_up(request *rq)
{
    metric_add(&NET_METRICS[M_REFUSED], 0, 1);
    err *e = err_new(ERR_UNAVAILABLE, "%u requests wait for their bodies, this one for the longest",
                     rq->server->o.threads);
    return request_broken(rq, err_retry_after(e, NET_RETRY_AFTER));
}

static err *wait_readable(request *rq)
{
    body_wait w = {.conn = rq->conn};

    server_wait_begin(rq->server, &w);
    err *e = poll_readable(rq);
    server_wait_end(rq->server, &w);
    if (!atomic_load(&w.given_up))
        return e;
    err_free(e);
    return given_up(rq);
}

err *request_wait(request *rq, int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    body_wait w = {.conn = rq->conn, .elsewhere = true};

    TRY(count_slow(rq));
    TRY(check_lapse(rq));
    uint64_t then = now_mono_ns();
    server_wait_begin(rq->server, &w);
    poll(&p, 1, ms);
    server_wait_end(rq->server, &w);
    rq->waited += now_mono_ns() - then;
    return atomic_load(&w.given_up) ? given_up(rq) : NULL;
}

/* Reads the next bytes, waiting if needed, into the connection's buffer or straight to p. */
static err *net_request_receive(request *rq, char *p, size_t max, size_t *ret_n)
{
    for (;;) {
        ssize_t n = p ? recv(rq->conn->fd, p, max, MSG_DONTWAIT) : conn_fill(rq->conn);
        int bad = p ? errno : (int)-n;
        if (n > 0) {
            *ret_n = (size_t)n;
            return NULL;
        }
        if (n == 0)
            return request_broken(rq,
                                  err_new(ERR_INVALID_REQUEST, "the request's body ended early"));
        if (bad == EAGAIN)
            TRY(wait_readable(rq));
        else if (bad != EINTR)
            return request_broken(rq,
                                  err_sys(ERR_INVALID_REQUEST, bad, "the request's body was cut"));
    }
}

/* Decodes body bytes from the connection's buffer. */
static err *decode_body(request *rq, char *p, size_t max, size_t *ret_n)
{
    buf *in = &rq->conn->in;
    size_t used, n = in->len < max ? in->len : max;
    err *e = http1_body(&rq->h1.body, in->p, n, p, &used, ret_n);

    if (e)
        return request_broken(rq, e);
    buf_consume(in, used);
    return NULL;
}

/* Makes one step towards the next piece; *ret_n may still be 0 after it. */
static err *body_step(request *rq, char *p, size_t max, size_t *ret_n)
{
    size_t n = 0, used;

    if (rq->conn->in.len)
        return decode_body(rq, p, max, ret_n);
    if (rq->h1.body.chunked) /* through the buffer: the next request may follow the body */
        return net_request_receive(rq, NULL, 0, &n);
    TRY(net_request_receive(rq, p, max < rq->h1.body.left ? max : (size_t)rq->h1.body.left, &n));
    return http1_body(&rq->h1.body, p, n, p, &used, ret_n);
}

err *request_body_read(request *rq, void *p, size_t max, size_t *ret_n)
{
    size_t n = 0;

    assert(max);
    if (rq->broken)
        return err_new(ERR_INVALID_REQUEST, "the request's body ended early");
    say_continue(rq);
    TRY(check_lapse(rq));
    while (!n && !http1_body_ended(&rq->h1.body))
        TRY(body_step(rq, p, max, &n));
    net_count_bytes(M_RECEIVED, rq->door, rq->kind, n);
    *ret_n = n;
    return NULL;
}

static err *too_large(size_t max)
{
    return err_new(ERR_TOO_LARGE, "the request's body is larger than %zu bytes", max);
}

err *request_body(request *rq, size_t max, buf *ret_body)
{
    CLEANUP(buf_done) buf body = {0};

    if (!rq->h1.body.chunked && rq->h1.body.left > max)
        return too_large(max);
    for (;;) {
        size_t room = rq->h1.body.chunked ? NET_READ : (size_t)rq->h1.body.left, n = 0;
        /* Reserve memory for received bytes, not for the announced length. */
        if (room > 4 * NET_READ)
            room = 4 * NET_READ;
        buf_reserve(&body, room + 1);
        TRY(request_body_read(rq, body.p + body.len, room + 1, &n));
        if (!n)
            break;
        body.len += n;
        if (body.len > max)
            return too_large(max);
    }
    *ret_body = body;
    body = (buf){0};
    return NULL;
}

void request_body_take(request *rq, http1_framing *ret_framing, bool *ret_expects)
{
    *ret_expects = rq->h1.expect_continue && !rq->continued && !rq->conn->in.len;
    http1_framing_move(&rq->h1.body, ret_framing);
    rq->taken = true;
}

bool request_settle(request *rq)
{
    char scratch[4096];
    size_t n, total = 0;

    if (rq->taken)
        return true;
    if (rq->broken)
        return false;
    if (rq->h1.expect_continue && !rq->continued && !rq->conn->in.len)
        return false; /* the client may still send the body or not: unknown */
    while (!http1_body_ended(&rq->h1.body) && total < NET_DRAIN) {
        if (!rq->conn->in.len && conn_fill(rq->conn) <= 0)
            return false;
        err *e = decode_body(rq, scratch, sizeof scratch, &n);
        if (e) {
            err_free(e);
            return false;
        }
        total += n ? n : 1;
    }
    return http1_body_ended(&rq->h1.body);
}
