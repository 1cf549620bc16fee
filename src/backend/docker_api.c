/* The calls of the Engine API: paths, status codes, streams of documents. */
#include "backend/docker_api.h"

#include <stdio.h>
#include <string.h>

#include "backend/docker_internal.h"
#include "base/cleanup.h"
#include "base/str.h"

#define API_KNOWN 41 /* the newest minor version whose answers are tested */

#define LIBPOD "/v4.0.0/libpod" /* Podman's own API */

#define SHORT_MS 30000  /* calls that only read */
#define WORK_MS  120000 /* calls that change something: create, start, remove */

/* ---- calls ---- */

static err_code code_of(long status)
{
    switch (status) {
    case 404:
        return ERR_NOT_FOUND;
    case 409:
        return ERR_CONFLICT;
    case 400:
    case 422:
        return ERR_INVALID_REQUEST;
    case 501:
        return ERR_UNSUPPORTED;
    case 503:
        return ERR_UNAVAILABLE;
    default:
        return ERR_INTERNAL;
    }
}

err *docker_error(const char *what, long status, const buf *body)
{
    char text[DOCKER_TEXT_MAX];
    const char *why = docker_parse_message(body->p, body->len, text);
    err_code code = code_of(status);

    if (why && strstr(why, "container state improper")) /* Podman's form of a conflict */
        code = ERR_CONFLICT;
    if (!why && status == 404) /* the call is unknown, not the object */
        code = ERR_UNSUPPORTED;
    err *e = err_new(code, "the engine cannot %s", what);
    return why ? err_because(e, "%s", why) : err_because(e, "its answer has status %ld", status);
}

static err *no_engine(err *e)
{
    if (e && e->code == ERR_UNAVAILABLE)
        e = err_remedy(e, "Start Docker or Podman's service, or correct backend.socket.");
    return e;
}

/* Sends a call. what: for "the engine cannot ...". fine: a status besides 2xx that is a success. */
static err *backend_docker_api_ask(docker_api *a, const char *what, client_call *call, long fine,
                                   client_answer *ret_answer)
{
    bool whole = str_starts(call->path, LIBPOD);
    CLEANUP(freep) char *path = str_printf("%s%s", whole ? "" : a->prefix, call->path);

    call->path = path;
    call->any_status = true;
    if (!call->timeout_ms && !call->on_tick)
        call->timeout_ms = SHORT_MS;
    TRY(no_engine(client_do(a->client, call, ret_answer)));
    long status = ret_answer->status;
    if ((status >= 200 && status < 300) || (fine && status == fine))
        return NULL;
    return docker_error(what, status, &ret_answer->body);
}

/* Sends a call whose answer has no body of interest. Frees path. */
static err *docker_api_tell(docker_api *a, const char *what, const char *method, long fine,
                            const json_t *body, char *path)
{
    CLEANUP(freep) char *mine = path;
    CLEANUP(client_answer_done) client_answer answer = {0};
    client_call call = {.method = method, .path = mine, .json = body, .timeout_ms = WORK_MS};

    return backend_docker_api_ask(a, what, &call, fine, &answer);
}

static err *docker_api_get(docker_api *a, const char *what, char *path, client_answer *ret_answer)
{
    CLEANUP(freep) char *mine = path;
    client_call call = {.method = "GET", .path = mine};

    return backend_docker_api_ask(a, what, &call, 0, ret_answer);
}

/* ---- the engine ---- */

err *docker_api_ask(docker_api *a, docker_engine *ret_engine)
{
    CLEANUP(client_answer_done) client_answer version = {0};
    CLEANUP(client_answer_done) client_answer info = {0};
    docker_engine e;

    TRY(docker_api_get(a, "tell its version", xstrdup("/version"), &version));
    TRY(docker_parse_version(version.body.p, version.body.len, &e));
    TRY(docker_api_get(a, "tell what it is", xstrdup("/info"), &info));
    TRY(docker_parse_info(info.body.p, info.body.len, &e));
    *ret_engine = e;
    return NULL;
}

/* Returns API_KNOWN, or the nearest version that the engine speaks. */
static unsigned choose_api(const docker_engine *e)
{
    unsigned v = e->api_min > API_KNOWN ? e->api_min : API_KNOWN;

    return v < e->api ? v : e->api;
}

err *docker_api_new(const char *url, docker_api **ret_api)
{
    CLEANUP(docker_api_freep) docker_api *a = xcalloc(1, sizeof *a);

    TRY(client_new(url, NULL, &a->client));
    TRY(docker_api_ask(a, &a->engine)); /* without a prefix, so with any version */
    snprintf(a->prefix, sizeof a->prefix, "/v1.%u", choose_api(&a->engine));
    *ret_api = TAKE_PTR(a);
    return NULL;
}

void docker_api_free(docker_api *a)
{
    if (!a)
        return;
    client_free(a->client);
    free(a);
}

const docker_engine *docker_api_engine(const docker_api *a)
{
    return &a->engine;
}

/* ---- containers ---- */

err *docker_create(docker_api *a, const char *name, const json_t *body,
                   char ret_id[DOCKER_ID_LEN + 1])
{
    CLEANUP(freep)
    char *path =
        name ? str_printf("/containers/create?name=%s", name) : xstrdup("/containers/create");
    CLEANUP(client_answer_done) client_answer answer = {0};
    client_call call = {.method = "POST", .path = path, .json = body, .timeout_ms = WORK_MS};

    TRY(backend_docker_api_ask(a, "make a container", &call, 0, &answer));
    return docker_parse_made(answer.body.p, answer.body.len, ret_id);
}

err *docker_start(docker_api *a, const char *id)
{
    return docker_api_tell(a, "start a container", "POST", 304, NULL,
                           str_printf("/containers/%s/start", id));
}

err *docker_inspect(docker_api *a, const char *id, docker_container *ret)
{
    CLEANUP(client_answer_done) client_answer answer = {0};

    TRY(docker_api_get(a, "show a container", str_printf("/containers/%s/json", id), &answer));
    return docker_parse_container(answer.body.p, answer.body.len, ret);
}

/* Returns {"label":["key=value"]}, percent-encoded. */
static char *filter_of(const char *name, const char *value)
{
    CLEANUP(json_decrefp) json_t *o = json_pack("{s:[s]}", name, value);
    CLEANUP(buf_done) buf text = {0};

    json_write(&text, o);
    return client_escape(buf_cstr(&text));
}

err *docker_list_labelled(docker_api *a, const char *label, docker_list *ret)
{
    CLEANUP(client_answer_done) client_answer answer = {0};
    CLEANUP(freep) char *filter = filter_of("label", label);

    TRY(docker_api_get(a, "list its containers",
                       str_printf("/containers/json?all=true&filters=%s", filter), &answer));
    return docker_parse_list(answer.body.p, answer.body.len, ret);
}

err *docker_rename(docker_api *a, const char *id, const char *name)
{
    return docker_api_tell(a, "rename a container", "POST", 0, NULL,
                           str_printf("/containers/%s/rename?name=%s", id, name));
}

/* Returns the prefix of Podman's own API, whose kill and remove act at once like Docker's; Podman's
 * Docker calls wait for seconds. */
static const char *docker_api_own(const docker_api *a)
{
    return a->engine.podman ? LIBPOD : "";
}

err *docker_kill(docker_api *a, const char *id, const char *signal)
{
    return docker_api_tell(
        a, "signal a container", "POST", 0, NULL,
        str_printf("%s/containers/%s/kill?signal=%s", docker_api_own(a), id, signal));
}

err *docker_remove(docker_api *a, const char *id)
{
    return docker_api_tell(a, "remove a container", "DELETE", 404, NULL,
                           str_printf("%s/containers/%s?force=true&v=true%s", docker_api_own(a), id,
                                      a->engine.podman ? "&timeout=0" : ""));
}

err *docker_update(docker_api *a, const char *id, const json_t *limits)
{
    return docker_api_tell(a, "change a container's limits", "POST", 0, limits,
                           str_printf("/containers/%s/update", id));
}

err *docker_pause(docker_api *a, const char *id)
{
    return docker_api_tell(a, "pause a container", "POST", 0, NULL,
                           str_printf("/containers/%s/pause", id));
}

err *docker_unpause(docker_api *a, const char *id)
{
    return docker_api_tell(a, "resume a container", "POST", 0, NULL,
                           str_printf("/containers/%s/unpause", id));
}

err *docker_wait(docker_api *a, const char *id, uint64_t timeout_ms, int *ret_exit_code)
{
    CLEANUP(client_answer_done) client_answer answer = {0};
    CLEANUP(freep) char *path = str_printf("/containers/%s/wait", id);
    client_call call = {.method = "POST", .path = path, .timeout_ms = timeout_ms};

    TRY(backend_docker_api_ask(a, "wait for a container", &call, 0, &answer));
    return docker_parse_wait(answer.body.p, answer.body.len, ret_exit_code);
}

err *docker_usage(docker_api *a, const char *id, docker_stats *ret)
{
    CLEANUP(client_answer_done) client_answer answer = {0};

    TRY(docker_api_get(a, "tell what a container uses",
                       str_printf("/containers/%s/stats?stream=false&one-shot=true", id), &answer));
    return docker_parse_stats(answer.body.p, answer.body.len, ret);
}

err *docker_put(docker_api *a, const char *id, const char *dir, const void *tar, size_t n)
{
    CLEANUP(client_answer_done) client_answer answer = {0};
    CLEANUP(freep) char *to = client_escape(dir);
    CLEANUP(freep) char *path = str_printf("/containers/%s/archive?path=%s", id, to);
    client_call call = {.method = "PUT",
                        .path = path,
                        .bytes = tar,
                        .nbytes = n,
                        .type = "application/x-tar",
                        .timeout_ms = WORK_MS};

    return backend_docker_api_ask(a, "write into a container", &call, 0, &answer);
}

err *docker_has(docker_api *a, const char *id, const char *path, bool *ret_has)
{
    CLEANUP(client_answer_done) client_answer answer = {0};
    CLEANUP(freep) char *what = client_escape(path);
    CLEANUP(freep) char *at = str_printf("/containers/%s/archive?path=%s", id, what);
    client_call call = {.method = "HEAD", .path = at};

    TRY(backend_docker_api_ask(a, "look into a container", &call, 404, &answer));
    *ret_has = answer.status != 404;
    return NULL;
}

/* ---- streams of documents ---- */

typedef struct reading {
    docker_lines lines;
    docker_line *line;
    const docker_watch *watch;
    const docker_pull_request *pull;
    bool (*on_tick)(void *arg);
    void *arg;
    err *failure; /* from a line */
    bool ended;   /* by the reader's callback */
} reading;

static bool on_bytes(void *arg, const void *p, size_t n)
{
    reading *r = arg;

    r->failure = docker_lines_feed(&r->lines, p, n, r->line, r);
    return !r->failure && !r->ended;
}

static bool on_tick(void *arg)
{
    reading *r = arg;

    r->ended = r->ended || !r->on_tick(r->arg);
    return !r->ended;
}

/* Reads a stream to its end. */
static err *read_stream(docker_api *a, const char *what, client_call *call, reading *r)
{
    CLEANUP(client_answer_done) client_answer answer = {0};

    call->on_bytes = on_bytes;
    call->arg = r;
    err *e = backend_docker_api_ask(a, what, call, 0, &answer);
    if (!e && !r->failure && !r->ended)
        e = docker_lines_end(&r->lines, r->line, r);
    docker_lines_done(&r->lines);
    if (r->failure || r->ended) { /* libcurl's error is of no use then */
        err_free(e);
        return r->failure;
    }
    return e;
}

static err *event_line(void *arg, const char *p, size_t n)
{
    reading *r = arg;
    CLEANUP(docker_event_done) docker_event e = {0};

    if (r->ended)
        return NULL;
    TRY(docker_parse_event(p, n, &e));
    r->ended = !r->watch->on_event(r->arg, &e);
    return NULL;
}

/* Writes the time as seconds with a fraction, as the engine expects. */
static char *events_path(const docker_watch *w)
{
    CLEANUP(json_decrefp)
    json_t *o = json_pack("{s:[s],s:[s]}", "type", "container", "label", w->label);
    CLEANUP(buf_done) buf text = {0};

    json_write(&text, o);
    CLEANUP(freep) char *filters = client_escape(buf_cstr(&text));
    if (!w->since_ns)
        return str_printf("/events?filters=%s", filters);
    return str_printf("/events?filters=%s&since=%llu.%09llu", filters,
                      (unsigned long long)(w->since_ns / 1000000000),
                      (unsigned long long)(w->since_ns % 1000000000));
}

err *docker_events(docker_api *a, const docker_watch *w)
{
    CLEANUP(freep) char *path = events_path(w);
    reading r = {.line = event_line, .watch = w, .on_tick = w->on_tick, .arg = w->arg};
    client_call call = {.method = "GET", .path = path, .on_tick = on_tick};

    return read_stream(a, "tell its events", &call, &r);
}

/* ---- volumes and networks ---- */

err *docker_volume_make(docker_api *a, const char *name, const char *label)
{
    CLEANUP(json_decrefp)
    json_t *body = json_pack("{s:s,s:{s:s}}", "Name", name, "Labels", label, "");

    return docker_api_tell(a, "make a volume", "POST", 0, body, xstrdup("/volumes/create"));
}

err *docker_volume_list(docker_api *a, const char *label, char ***ret_names)
{
    CLEANUP(client_answer_done) client_answer answer = {0};
    CLEANUP(freep) char *filter = filter_of("label", label);

    TRY(docker_api_get(a, "list its volumes", str_printf("/volumes?filters=%s", filter), &answer));
    return docker_parse_volumes(answer.body.p, answer.body.len, ret_names);
}

err *docker_volume_inspect(docker_api *a, const char *name)
{
    return docker_api_tell(a, "show a volume", "GET", 0, NULL, str_printf("/volumes/%s", name));
}

err *docker_volume_remove(docker_api *a, const char *name)
{
    return docker_api_tell(a, "remove a volume", "DELETE", 404, NULL,
                           str_printf("/volumes/%s", name));
}

err *docker_network_inspect(docker_api *a, const char *name)
{
    return docker_api_tell(a, "show a network", "GET", 0, NULL, str_printf("/networks/%s", name));
}

/* ---- images ---- */

err *docker_image_inspect(docker_api *a, const char *name, docker_image *ret)
{
    CLEANUP(client_answer_done) client_answer answer = {0};

    /* Slashes in the name are not escaped: the engine's path contains them. */
    TRY(err_kind(docker_api_get(a, "show an image", str_printf("/images/%s/json", name), &answer),
                 "image"));
    return docker_parse_image(answer.body.p, answer.body.len, ret);
}

err *docker_image_list(docker_api *a, docker_images *ret)
{
    CLEANUP(client_answer_done) client_answer answer = {0};

    TRY(docker_api_get(a, "list its images", xstrdup("/images/json"), &answer));
    return docker_parse_images(answer.body.p, answer.body.len, ret);
}

/* Makes the header line of a login: JSON in base64 with the URL-safe alphabet. The caller wipes
 * it. */
static char *login_line(const docker_login *l)
{
    CLEANUP(json_decrefp)
    json_t *o = json_pack("{s:s,s:s,s:s}", "username", l->user, "password", l->password,
                          "serveraddress", str_or(l->registry, ""));
    CLEANUP(buf_done) buf text = {0};

    json_write(&text, o);
    char *b64 = base64_encode(text.p, text.len);
    secret_wipe(text.p, text.cap);
    for (char *c = b64; *c; c++)
        *c = (char)(*c == '+' ? '-' : *c == '/' ? '_' : *c);
    char *line = str_printf("X-Registry-Auth: %s", b64);
    secret_freep(&b64);
    return line;
}

static err *pull_line(void *arg, const char *p, size_t n)
{
    reading *r = arg;
    docker_progress progress;

    if (r->ended)
        return NULL;
    TRY(docker_parse_progress(p, n, &progress));
    if (progress.error[0])
        return err_because(err_new(ERR_IMAGE_PULL_FAILED, "the engine cannot pull the image"), "%s",
                           progress.error);
    r->ended = r->pull->on_progress && !r->pull->on_progress(r->arg, &progress);
    return NULL;
}

err *docker_pull(docker_api *a, const docker_pull_request *rq)
{
    const docker_login *login = rq->login;
    CLEANUP(freep) char *image = client_escape(rq->name);
    CLEANUP(freep) char *path = str_printf("/images/create?fromImage=%s", image);
    CLEANUP(secret_freep) char *line = login && login->user ? login_line(login) : NULL;
    reading r = {.line = pull_line, .pull = rq, .on_tick = rq->on_tick, .arg = rq->arg};
    client_call call = {.method = "POST",
                        .path = path,
                        .line = line,
                        .on_tick = rq->on_tick ? on_tick : NULL,
                        .timeout_ms = PULL_MS};

    err *e = read_stream(a, "pull the image", &call, &r);
    if (e && e->code != ERR_UNAVAILABLE && e->code != ERR_TIMEOUT && e->code != ERR_NOT_FOUND)
        e->code = ERR_IMAGE_PULL_FAILED;
    if (!e && r.ended)
        return err_new(ERR_CONFLICT, "the pull of %s was given up", rq->name);
    return e;
}
