/* Parses the answers of a container engine. */
#include "backend/docker_answer.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/str.h"

#define CPU_PERIOD_US 100000

static err *docker_answer_parse(const void *p, size_t n, const char *what, json_t **ret_root)
{
    if (n > DOCKER_ANSWER_MAX)
        return err_new(ERR_TOO_LARGE, "the engine's answer about %s has more than %u bytes", what,
                       DOCKER_ANSWER_MAX);
    err *e = json_parse_foreign(n ? p : "", n, ret_root);
    if (e)
        e->code = ERR_INTERNAL;
    return err_wrap(e, "the engine's answer about %s", what);
}

static err *docker_answer_shape(const char *what)
{
    return err_new(ERR_INTERNAL, "the engine's answer about %s has another form", what);
}

static err *parse_object(const void *p, size_t n, const char *what, json_t **ret_root)
{
    TRY(docker_answer_parse(p, n, what, ret_root));
    if (json_is_object(*ret_root))
        return NULL;
    json_decref(TAKE_PTR(*ret_root));
    return docker_answer_shape(what);
}

/* Copies a text, cut to size: it is for people, or compared with short words. */
static void copy_text(char *to, size_t size, const json_t *o, const char *key)
{
    str_copy(to, size, str_or(json_str(o, key), ""));
}

static int clamp_int(int64_t v)
{
    return v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : (int)v;
}

/* Reads a number that may be given as a string. */
static int number_of(const json_t *v, int otherwise)
{
    const char *s = json_string_value(v);
    uint64_t n;

    if (s && str_to_u64(s, INT32_MAX, &n))
        return (int)n;
    return json_is_integer(v) ? clamp_int(json_integer_value(v)) : otherwise;
}

static bool take_id(const char *s, char ret_id[DOCKER_ID_LEN + 1])
{
    unsigned char bytes[DOCKER_ID_LEN / 2];

    if (!s || strlen(s) != DOCKER_ID_LEN || !hex_decode(s, bytes, sizeof bytes))
        return false;
    memcpy(ret_id, s, DOCKER_ID_LEN + 1);
    return true;
}

/* Accepts "sha256:<hex>", or the hex alone (Podman). */
static bool take_digest(const char *s, char ret_id[DOCKER_ID_LEN + 1])
{
    if (s && str_starts(s, "sha256:"))
        s += strlen("sha256:");
    return take_id(s, ret_id);
}

/* Appends the strings of an array; skips other values. */
static void add_words(const json_t *array, char ***words)
{
    size_t i, n = strv_len(*words);
    json_t *v;

    json_array_foreach(array, i, v) if (json_is_string(v) && n++ < DOCKER_WORDS_MAX)
        strv_push(words, xstrdup(json_string_value(v)));
}

static char **words_of(const json_t *array)
{
    char **words = NULL;

    add_words(array, &words);
    return words;
}

/* Returns "key=value" for each string of an object. */
static char **pairs_of(json_t *object)
{
    char **pairs = NULL;
    const char *key;
    json_t *v;
    size_t n = 0;

    json_object_foreach(object, key, v) if (json_is_string(v) && n++ < DOCKER_WORDS_MAX)
        strv_push(&pairs, str_printf("%s=%s", key, json_string_value(v)));
    return pairs;
}

const char *docker_label(char *const *labels, const char *key)
{
    return labels ? strv_env_get(labels, key) : NULL;
}

const char *docker_parse_message(const void *p, size_t n, char ret[DOCKER_TEXT_MAX])
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    err *e = docker_answer_parse(p, n, "an error", &root);

    err_free(e); /* an answer that is not JSON has no message */
    const char *text = root ? json_str(root, "message") : NULL;
    if (!text)
        return NULL;
    str_copy(ret, DOCKER_TEXT_MAX, text);
    return ret;
}

/* ---- the engine ---- */

/* Returns 41 for "1.41"; 0 for any other form. */
static unsigned api_of(const char *s)
{
    uint64_t minor = 0;

    return s && str_starts(s, "1.") && str_to_u64(s + 2, 9999, &minor) ? (unsigned)minor : 0;
}

static bool is_podman(const json_t *components)
{
    size_t i;
    json_t *v;

    json_array_foreach(components, i,
                       v) if (str_eq(json_str(v, "Name"), "Podman Engine")) return true;
    return false;
}

err *docker_parse_version(const void *p, size_t n, docker_engine *e)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    TRY(parse_object(p, n, "its version", &root));
    *e = (docker_engine){.api = api_of(json_str(root, "ApiVersion")),
                         .api_min = api_of(json_str(root, "MinAPIVersion")),
                         .podman = is_podman(json_object_get(root, "Components"))};
    if (!e->api)
        return docker_answer_shape("its version");
    str_copy(e->name, sizeof e->name, e->podman ? "podman" : "docker");
    copy_text(e->version, sizeof e->version, root, "Version");
    copy_text(e->os, sizeof e->os, root, "Os");
    copy_text(e->arch, sizeof e->arch, root, "Arch");
    return NULL;
}

/* options look like "name=rootless", "name=seccomp,profile=default" */
static bool has_option(const json_t *options, const char *name)
{
    size_t i;
    json_t *v;

    json_array_foreach(options, i, v)
    {
        const char *s = json_string_value(v);
        size_t n = strlen(name);
        if (s && str_starts(s, "name=") && !strncmp(s + 5, name, n) &&
            (!s[5 + n] || s[5 + n] == ','))
            return true;
    }
    return false;
}

err *docker_parse_info(const void *p, size_t n, docker_engine *e)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    TRY(parse_object(p, n, "itself", &root));
    const json_t *options = json_object_get(root, "SecurityOptions");
    e->rootless = json_flag(root, "Rootless") || has_option(options, "rootless");
    e->seccomp = has_option(options, "seccomp");
    e->cgroup = (unsigned)number_of(json_object_get(root, "CgroupVersion"), 0);
    e->memory_limit = json_flag(root, "MemoryLimit");
    e->swap_limit = json_flag(root, "SwapLimit");
    e->cpu_limit = json_flag(root, "CpuCfsQuota");
    /* Podman says yes even if its user was given no controller at all. */
    e->pids_limit = json_flag(root, "PidsLimit") && (e->memory_limit || !e->rootless);
    e->live_restore = json_flag(root, "LiveRestoreEnabled");
    return NULL;
}

/* ---- containers ---- */

void docker_container_done(docker_container *c)
{
    strv_free(c->labels);
    c->labels = NULL;
}

void docker_list_done(docker_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        docker_container_done(&l->c[i]);
    free(l->c);
    *l = (docker_list){0};
}

err *docker_parse_made(const void *p, size_t n, char ret_id[DOCKER_ID_LEN + 1])
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    TRY(parse_object(p, n, "what it made", &root));
    return take_id(json_str(root, "Id"), ret_id) ? NULL : docker_answer_shape("what it made");
}

static enum docker_state state_of(const char *s)
{
    static const struct {
        const char *word;
        enum docker_state state;
    } STATES[] = {{"created", DOCKER_CREATED},     {"configured", DOCKER_CREATED},
                  {"initialized", DOCKER_CREATED}, {"running", DOCKER_RUNNING},
                  {"paused", DOCKER_PAUSED},       {"exited", DOCKER_DEAD},
                  {"stopped", DOCKER_DEAD},        {"dead", DOCKER_DEAD},
                  {"removing", DOCKER_DEAD}};

    for (size_t i = 0; i < ARRAY_LEN(STATES); i++)
        if (str_eq(s, STATES[i].word))
            return STATES[i].state;
    return DOCKER_UNKNOWN;
}

static void take_name(const char *s, char ret_name[DOCKER_NAME_MAX])
{
    s = str_or(s, "");
    str_copy(ret_name, DOCKER_NAME_MAX, *s == '/' ? s + 1 : s);
}

/* Engines store the limit in billionths of a core, or as a quota of a period. */
static uint32_t cpu_milli_of(const json_t *host)
{
    uint64_t nano = json_count(host, "NanoCpus"), quota = json_count(host, "CpuQuota"),
             period = json_count(host, "CpuPeriod");
    uint64_t milli = nano / 1000000;

    if (!nano && quota < UINT64_MAX / 1000)
        milli = quota * 1000 / (period ? period : CPU_PERIOD_US);
    return milli > UINT32_MAX ? UINT32_MAX : (uint32_t)milli;
}

err *docker_parse_container(const void *p, size_t n, docker_container *ret)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    docker_container c = {0};

    TRY(parse_object(p, n, "a container", &root));
    const json_t *state = json_object_get(root, "State"),
                 *host = json_object_get(root, "HostConfig");
    if (!take_id(json_str(root, "Id"), c.id) || !json_is_object(state))
        return docker_answer_shape("a container");
    take_name(json_str(root, "Name"), c.name);
    c.state = state_of(json_str(state, "Status"));
    c.oom_killed = json_flag(state, "OOMKilled");
    c.exit_code = clamp_int(json_int(state, "ExitCode", 0));
    copy_text(c.error, sizeof c.error, state, "Error");
    c.memory = json_count(host, "Memory");
    c.pids = json_count(host, "PidsLimit");
    c.cpu_milli = cpu_milli_of(host);
    c.labels = pairs_of(json_object_get(json_object_get(root, "Config"), "Labels"));
    *ret = c;
    return NULL;
}

static bool list_entry(json_t *v, docker_container *ret)
{
    if (!take_id(json_str(v, "Id"), ret->id))
        return false;
    take_name(json_string_value(json_array_get(json_object_get(v, "Names"), 0)), ret->name);
    ret->state = state_of(json_str(v, "State"));
    ret->labels = pairs_of(json_object_get(v, "Labels"));
    return true;
}

err *docker_parse_list(const void *p, size_t n, docker_list *ret)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    docker_list l = {0};
    size_t i;
    json_t *v;

    TRY(docker_answer_parse(p, n, "its containers", &root));
    if (!json_is_array(root) || json_array_size(root) > DOCKER_LIST_MAX)
        return docker_answer_shape("its containers");
    l.c = xcalloc(json_array_size(root) + 1, sizeof *l.c);
    json_array_foreach(root, i, v) if (list_entry(v, &l.c[l.n])) l.n++;
    *ret = l;
    return NULL;
}

err *docker_parse_wait(const void *p, size_t n, int *ret_exit_code)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    TRY(parse_object(p, n, "an end", &root));
    if (!json_is_integer(json_object_get(root, "StatusCode")))
        return docker_answer_shape("an end");
    *ret_exit_code = clamp_int(json_int(root, "StatusCode", 0));
    return NULL;
}

static uint64_t sum_of_devices(const json_t *entries, const char *op)
{
    uint64_t sum = 0;
    size_t i;
    json_t *v;

    json_array_foreach(entries, i, v)
    {
        const char *s = json_str(v, "op");
        if (s && (s[0] | 0x20) == op[0] && !strcmp(s + 1, op + 1)) /* "Read" and "read" */
            sum += json_count(v, "value");
    }
    return sum;
}

static void take_networks(json_t *networks, docker_stats *s)
{
    const char *key;
    json_t *v;

    json_object_foreach(networks, key, v)
    {
        s->net_rx += json_count(v, "rx_bytes");
        s->net_tx += json_count(v, "tx_bytes");
        s->net_dropped += json_count(v, "rx_dropped") + json_count(v, "tx_dropped");
    }
}

/* Returns 0 for 9223372036854771712 and the like, the kernel's way to say "no limit". */
static uint64_t real_limit(uint64_t limit)
{
    return limit >> 62 ? 0 : limit;
}

err *docker_parse_stats(const void *p, size_t n, docker_stats *ret)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    TRY(parse_object(p, n, "usage", &root));
    const json_t *cpu = json_object_get(root, "cpu_stats"),
                 *memory = json_object_get(root, "memory_stats");
    const json_t *io =
        json_object_get(json_object_get(root, "blkio_stats"), "io_service_bytes_recursive");
    uint64_t pids = json_count(json_object_get(root, "pids_stats"), "current");
    if (!json_is_object(cpu) || !json_is_object(memory))
        return docker_answer_shape("usage");
    docker_stats s = {.cpu_us = json_count(json_object_get(cpu, "cpu_usage"), "total_usage") / 1000,
                      .cpu_throttled_us =
                          json_count(json_object_get(cpu, "throttling_data"), "throttled_time") /
                          1000,
                      .memory = json_count(memory, "usage"),
                      .memory_peak = json_count(memory, "max_usage"),
                      .memory_limit = real_limit(json_count(memory, "limit")),
                      .io_read = sum_of_devices(io, "read"),
                      .io_written = sum_of_devices(io, "write"),
                      .pids = pids > UINT32_MAX ? UINT32_MAX : (uint32_t)pids};
    take_networks(json_object_get(root, "networks"), &s);
    *ret = s;
    return NULL;
}

/* ---- images ---- */

void docker_image_done(docker_image *i)
{
    strv_free(i->names);
    strv_free(i->env);
    strv_free(i->entrypoint);
    strv_free(i->cmd);
    free(i->user);
    free(i->cwd);
    *i = (docker_image){0};
}

void docker_images_done(docker_images *l)
{
    for (size_t i = 0; i < l->n; i++)
        docker_image_done(&l->i[i]);
    free(l->i);
    *l = (docker_images){0};
}

static char **names_of(const json_t *v)
{
    char **names = words_of(json_object_get(v, "RepoTags"));

    add_words(json_object_get(v, "RepoDigests"), &names);
    return names;
}

err *docker_parse_image(const void *p, size_t n, docker_image *ret)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    docker_image i = {0};

    TRY(parse_object(p, n, "an image", &root));
    if (!take_digest(json_str(root, "Id"), i.digest))
        return docker_answer_shape("an image");
    const json_t *config = json_object_get(root, "Config");
    i.names = names_of(root);
    i.env = words_of(json_object_get(config, "Env"));
    i.entrypoint = words_of(json_object_get(config, "Entrypoint"));
    i.cmd = words_of(json_object_get(config, "Cmd"));
    i.user = xstrdup(str_or(json_str(config, "User"), ""));
    i.cwd = xstrdup(str_or(json_str(config, "WorkingDir"), ""));
    copy_text(i.os, sizeof i.os, root, "Os");
    copy_text(i.arch, sizeof i.arch, root, "Architecture");
    i.size = json_count(root, "Size");
    *ret = i;
    return NULL;
}

err *docker_parse_images(const void *p, size_t n, docker_images *ret)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    docker_images l = {0};
    size_t i;
    json_t *v;

    TRY(docker_answer_parse(p, n, "its images", &root));
    if (!json_is_array(root) || json_array_size(root) > DOCKER_LIST_MAX)
        return docker_answer_shape("its images");
    l.i = xcalloc(json_array_size(root) + 1, sizeof *l.i);
    json_array_foreach(root, i, v)
    {
        docker_image *to = &l.i[l.n];
        if (!take_digest(json_str(v, "Id"), to->digest))
            continue;
        to->names = names_of(v);
        to->size = json_count(v, "Size");
        l.n++;
    }
    *ret = l;
    return NULL;
}

/* Checks a volume's name, because it becomes part of a path. */
static bool is_name(const char *s)
{
    static const char LETTERS[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

    return s && *s && *s != '.' && s[strspn(s, LETTERS)] == 0;
}

err *docker_parse_volumes(const void *p, size_t n, char ***ret_names)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    char **names = NULL;
    size_t i;
    json_t *v;

    TRY(docker_answer_parse(p, n, "its volumes", &root));
    const json_t *all = json_object_get(root, "Volumes");
    if (!json_is_object(root) || json_array_size(all) > DOCKER_LIST_MAX)
        return docker_answer_shape("its volumes");
    json_array_foreach(all, i, v)
    {
        if (is_name(json_str(v, "Name")))
            strv_push(&names, xstrdup(json_str(v, "Name")));
    }
    *ret_names = names;
    return NULL;
}

/* ---- streams of documents ---- */

void docker_lines_done(docker_lines *l)
{
    buf_done(&l->part);
}

static err *one_line(docker_lines *l, const char *p, size_t n, docker_line *line, void *arg)
{
    if (l->part.len + n > DOCKER_LINE_MAX)
        return err_new(ERR_TOO_LARGE, "a line of the engine has more than %u bytes",
                       DOCKER_LINE_MAX);
    if (!l->part.len)
        return n && !(n == 1 && *p == '\r') ? line(arg, p, n) : NULL;
    buf_append(&l->part, p, n);
    CLEANUP(buf_done) buf whole = l->part;
    l->part = (buf){0};
    return line(arg, whole.p, whole.len);
}

err *docker_lines_feed(docker_lines *l, const void *p, size_t n, docker_line *line, void *arg)
{
    const char *at = p, *end = at + n;

    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop)
            break;
        TRY(one_line(l, at, (size_t)(stop - at), line, arg));
        at = stop + 1;
    }
    if (l->part.len + (size_t)(end - at) > DOCKER_LINE_MAX)
        return err_new(ERR_TOO_LARGE, "a line of the engine has more than %u bytes",
                       DOCKER_LINE_MAX);
    if (at < end)
        buf_append(&l->part, at, (size_t)(end - at));
    return NULL;
}

err *docker_lines_end(docker_lines *l, docker_line *line, void *arg)
{
    return l->part.len ? one_line(l, "", 0, line, arg) : NULL;
}

void docker_event_done(docker_event *e)
{
    strv_free(e->labels);
    e->labels = NULL;
}

/* Includes Podman's own words, which differ between its versions. */
static enum docker_action action_of(const char *s)
{
    static const struct {
        const char *word;
        enum docker_action action;
    } ACTIONS[] = {{"die", DOCKER_DIE},         {"died", DOCKER_DIE},       {"oom", DOCKER_OOM},
                   {"destroy", DOCKER_DESTROY}, {"remove", DOCKER_DESTROY}, {"rm", DOCKER_DESTROY}};

    for (size_t i = 0; i < ARRAY_LEN(ACTIONS); i++)
        if (str_eq(s, ACTIONS[i].word))
            return ACTIONS[i].action;
    return DOCKER_OTHER;
}

err *docker_parse_event(const void *p, size_t n, docker_event *ret)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    docker_event e = {.exit_code = -1};

    TRY(parse_object(p, n, "an event", &root));
    const json_t *actor = json_object_get(root, "Actor");
    json_t *attributes = json_object_get(actor, "Attributes");
    e.time_ns = json_count(root, "timeNano");
    if (str_eq(json_str(root, "Type"), "container") && take_id(json_str(actor, "ID"), e.id))
        e.action = action_of(json_str(root, "Action"));
    e.exit_code = number_of(json_object_get(attributes, "exitCode"), -1);
    if (e.exit_code < 0)
        e.exit_code = number_of(json_object_get(attributes, "containerExitCode"), -1);
    e.labels = pairs_of(attributes);
    *ret = e;
    return NULL;
}

err *docker_parse_progress(const void *p, size_t n, docker_progress *ret)
{
    CLEANUP(json_decrefp) json_t *root = NULL;
    docker_progress r = {0};

    TRY(parse_object(p, n, "a pull", &root));
    const json_t *detail = json_object_get(root, "progressDetail");
    copy_text(r.layer, sizeof r.layer, root, "id");
    copy_text(r.status, sizeof r.status, root, "status");
    if (!r.status[0])
        copy_text(r.status, sizeof r.status, root, "stream");
    copy_text(r.error, sizeof r.error, root, "error");
    if (!r.error[0])
        copy_text(r.error, sizeof r.error, json_object_get(root, "errorDetail"), "message");
    r.current = json_count(detail, "current");
    r.total = json_count(detail, "total");
    *ret = r;
    return NULL;
}
