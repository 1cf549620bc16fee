#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "door/rest/internal.h"

json_t *view_time(uint64_t real_ns)
{
    char text[CLOCK_TEXT_MAX];

    if (!real_ns)
        return json_null();
    clock_format(real_ns, text);
    return json_string(text);
}

json_t *view_strings(char *const *v)
{
    json_t *a = json_array();

    for (size_t i = 0; v && v[i]; i++) {
        json_t *s = json_string(v[i]);
        json_array_append_new(a, s ? s : json_string(""));
    }
    return a;
}

static json_t *text_or_null(const char *s)
{
    json_t *j = s ? json_string(s) : NULL;

    return j ? j : json_null();
}

static json_t *view_digest(const uint8_t digest[32])
{
    char text[7 + 64 + 1] = "sha256:";

    hex_encode(digest, 32, text + 7);
    return json_string(text);
}

static json_t *view_limits(const limits *l)
{
    json_t *o = json_object();

    json_object_set_new(o, "memory", json_integer((json_int_t)l->memory));
    json_object_set_new(o, "cpu", json_real(l->cpu_milli / 1000.0));
    json_object_set_new(o, "pids", json_integer(l->pids));
    if (l->disk)
        json_object_set_new(o, "disk", json_integer((json_int_t)l->disk));
    json_object_set_new(o, "nofile", json_integer(l->nofile));
    json_object_set_new(o, "nofile_hard", json_integer(l->nofile_hard));
    json_object_set_new(o, "shm", json_integer((json_int_t)l->shm_mib << 20));
    json_object_set_new(o, "execs", json_integer(l->execs));
    return o;
}

static json_t *view_labels(char *const *labels)
{
    json_t *o = json_object();

    for (size_t i = 0; labels && labels[i]; i++) {
        const char *eq = strchr(labels[i], '=');
        if (!eq)
            continue;
        CLEANUP(freep) char *key = xstrndup(labels[i], (size_t)(eq - labels[i]));
        json_object_set_new(o, key, json_string(eq + 1));
    }
    return o;
}

/* Leaves an unknown digest out: a backend that does not have the images does not know it. */
static json_t *view_sandbox_image(const sandbox_view *v)
{
    static const uint8_t UNKNOWN[sizeof v->digest];
    json_t *o = json_object();

    json_object_set_new(o, "name", json_string(v->image_name));
    if (memcmp(v->digest, UNKNOWN, sizeof UNKNOWN) != 0)
        json_object_set_new(o, "digest", view_digest(v->digest));
    if (v->image) {
        json_object_set_new(o, "entrypoint", view_strings(v->image->entrypoint));
        json_object_set_new(o, "cmd", view_strings(v->image->cmd));
        json_object_set_new(o, "user", json_string(v->image->user));
        json_object_set_new(o, "cwd", json_string(v->image->cwd));
    }
    return o;
}

static json_t *view_timing(const box_timing *t)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f}", "queue_ms", (double)t->queue_ns / 1e6, "build_ms",
                     (double)t->build_ns / 1e6, "swap_ms", (double)t->swap_ns / 1e6, "claim_ms",
                     (double)t->claim_ns / 1e6, "commit_ms", (double)t->commit_ns / 1e6);
}

static json_t *view_octal(uint32_t n)
{
    char text[16];

    snprintf(text, sizeof text, "%03o", n);
    return json_string(text);
}

static void add_open(json_t *list, const char *name, const char *why)
{
    json_array_append_new(list, json_pack("{s:s,s:s}", "name", name, "why", why));
}

#define NO_CONTROLLER "unsupported: the backend has no controller for it here"

static const struct {
    uint32_t bit;
    const char *name, *why;
} OPEN[] = {
    {RECEIPT_OPEN_DISK, "disk", "unsupported: the node's store has no quotas"},
    {RECEIPT_OPEN_SWAP, "swap", "unsupported: the node's kernel does not account swap"},
    {RECEIPT_OPEN_MEMORY, "memory", NO_CONTROLLER},
    {RECEIPT_OPEN_CPU, "cpu", NO_CONTROLLER},
    {RECEIPT_OPEN_PIDS, "pids", NO_CONTROLLER},
};

/* Lists the protections that a reader may expect and this sandbox does not have. */
static json_t *view_open(const sandbox_view *v)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ARRAY_LEN(OPEN); i++)
        if (v->receipt.open & OPEN[i].bit)
            add_open(list, OPEN[i].name, OPEN[i].why);
    if (v->setuid)
        add_open(list, "nnp", "granted: set-uid programs may gain privileges inside");
    return list;
}

json_t *view_walls(const sandbox_view *v)
{
    const box_walls *w = &v->receipt.walls;
    json_t *list = json_array();

    if (!w->refill && !v->receipt.klass) { /* it never ran */
        json_decref(list);
        return json_null();
    }
    for (unsigned i = 0; i < WALL_COUNT; i++) {
        if (!((w->refill | w->claim) >> i & 1))
            continue; /* not a wall of this sandbox, or of this node: view_open() lists it */
        json_array_append_new(list, json_pack("{s:s,s:s,s:b,s:b}", "name", wall_info(i)->name,
                                              "what", wall_info(i)->what, "refill",
                                              w->refill >> i & 1, "claim", w->claim >> i & 1));
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "refill", view_time(w->refill_ns), "claim",
                     view_time(w->claim_ns), "held", list, "not_enforced", view_open(v));
}

static json_t *exec_id_text(uint64_t id)
{
    char text[24];

    snprintf(text, sizeof text, "%lu", id);
    return json_string(text);
}

static json_t *view_start(const sandbox_view *v)
{
    if (!v->start)
        return json_null();
    json_t *o = json_copy(v->start);
    json_object_set_new(o, "exec", v->start_exec ? exec_id_text(v->start_exec) : json_null());
    return o;
}

json_t *view_sandbox(const sandbox_view *v)
{
    json_t *o = json_object();
    json_t *why = v->cause ? json_loads(v->cause, 0, NULL) : NULL;

    json_object_set_new(o, "id", json_string(v->id));
    json_object_set_new(o, "name", text_or_null(v->name));
    json_object_set_new(o, "state", json_string(v->state));
    json_object_set_new(o, "cause", why ? why : json_null());
    json_object_set_new(o, "image", view_sandbox_image(v));
    json_object_set_new(o, "owner", json_string(v->owner));
    json_object_set_new(o, "created", view_time(v->created_ns));
    json_object_set_new(o, "ends", v->ended_ns ? json_null() : view_time(v->ends_ns));
    json_object_set_new(o, "ended", view_time(v->ended_ns));
    json_object_set_new(o, "ttl_left",
                        v->ttl_left_ns == UINT64_MAX ? json_null()
                                                     : json_real((double)v->ttl_left_ns / 1e9));
    json_object_set_new(o, "paused_at", view_time(v->paused_ns));
    json_object_set_new(o, "idle",
                        v->idle_ms ? json_integer((json_int_t)(v->idle_ms / 1000)) : json_null());
    json_object_set_new(o, "idle_for",
                        v->idle_for_ns == UINT64_MAX
                            ? json_null()
                            : json_integer((json_int_t)(v->idle_for_ns / NS_PER_S)));
    json_object_set_new(o, "labels", view_labels(v->labels));
    json_object_set_new(o, "limits", view_limits(&v->limits));
    json_object_set_new(o, "user", text_or_null(v->user));
    json_object_set_new(o, "cwd", text_or_null(v->cwd));
    json_object_set_new(o, "read_only", json_boolean(v->read_only));
    json_object_set_new(o, "tmpfs", v->tmpfs ? json_incref(v->tmpfs) : json_array());
    json_object_set_new(o, "umask", view_octal(v->umask));
    json_object_set_new(o, "grants", v->setuid ? json_pack("[s]", "setuid") : json_array());
    json_object_set_new(o, "tier", json_string("light"));
    json_object_set_new(o, "class", text_or_null(v->receipt.klass));
    json_object_set_new(o, "network", json_string(network_grant_name(v->network)));
    json_object_set_new(o, "running_execs", json_integer((json_int_t)v->live_execs));
    json_object_set_new(o, "template", text_or_null(v->template));
    json_object_set_new(o, "snapshot", text_or_null(v->snapshot));
    json_object_set_new(o, "holds_secrets", json_boolean(v->secrets));
    json_object_set_new(o, "start", view_start(v));
    if (v->has_timing)
        json_object_set_new(o, "timing", view_timing(&v->timing));
    return o;
}

json_t *view_sandbox_now(sandbox *sb)
{
    CLEANUP(sandbox_view_done) sandbox_view v = {0};

    sandbox_get(sb, &v);
    return view_sandbox(&v);
}

static const char *stage_name(int stage)
{
    static const char *const NAMES[] = {"?",   "parse", "rlimit", "tty",  "cwd",  "groups",
                                        "gid", "uid",   "exec",   "user", "privs"};

    return stage > 0 && (size_t)stage < ARRAY_LEN(NAMES) ? NAMES[stage] : NAMES[0];
}

static json_t *view_user(const exec_end *end)
{
    char text[32];

    if (end->uid == UINT32_MAX || end->how == EXEC_NOT_STARTED || end->how == EXEC_UNKNOWN)
        return json_null();
    snprintf(text, sizeof text, "%u:%u", end->uid, end->gid);
    return json_string(text);
}

static json_t *view_usage(const exec_end *end)
{
    if (end->how == EXEC_NOT_STARTED || end->how == EXEC_UNKNOWN)
        return json_null();
    return json_pack("{s:I,s:I,s:I}", "user_us", (json_int_t)end->utime_us, "system_us",
                     (json_int_t)end->stime_us, "maxrss_kb", (json_int_t)end->maxrss_kb);
}

json_t *view_end(uint64_t exec_id, const exec_end *end, const char *cause_json)
{
    json_t *o = json_object();

    json_object_set_new(o, "exec", exec_id_text(exec_id));
    json_object_set_new(o, "how", json_string(exec_how_name(end->how)));
    json_object_set_new(o, "exit_code",
                        end->how == EXEC_EXITED ? json_integer(end->exit_code) : json_null());
    json_object_set_new(o, "signal", end->signal ? json_integer(end->signal) : json_null());
    json_object_set_new(o, "oom", json_boolean(end->oom));
    if (end->how == EXEC_NOT_STARTED) {
        json_object_set_new(o, "errno", json_integer(end->errnum));
        json_object_set_new(o, "stage", json_string(stage_name(end->stage)));
    }
    if (end->how == EXEC_UNKNOWN && cause_json)
        json_object_set_new(o, "cause", json_loads(cause_json, 0, NULL));
    json_object_set_new(o, "user", view_user(end));
    json_object_set_new(o, "cwd", json_null());
    json_object_set_new(o, "started", view_time(end->started_ns));
    json_object_set_new(o, "ended", view_time(end->ended_ns));
    json_object_set_new(o, "usage", view_usage(end));
    json_object_set_new(o, "out_bytes", json_integer((json_int_t)end->out_bytes));
    json_object_set_new(o, "err_bytes", json_integer((json_int_t)end->err_bytes));
    json_object_set_new(o, "out_dropped", json_integer((json_int_t)end->out_dropped));
    json_object_set_new(o, "err_dropped", json_integer((json_int_t)end->err_dropped));
    return o;
}

json_t *view_process(const exec_state *st, const char *cause_json)
{
    static const char *const STDIO[] = {"pipes", "merged", "pty"};
    bool running = st->end.how == EXEC_RUNNING;
    json_t *o = json_object();
    json_t *command = json_string(st->command);

    json_object_set_new(o, "exec", exec_id_text(st->id));
    json_object_set_new(o, "command", command ? command : json_string("?"));
    json_object_set_new(o, "stdio", json_string(STDIO[st->stdio]));
    json_object_set_new(o, "running", json_boolean(running));
    json_object_set_new(o, "started", json_boolean(st->started));
    json_object_set_new(o, "start", json_boolean(st->start));
    json_object_set_new(o, "pid", st->pid ? json_integer(st->pid) : json_null());
    json_object_set_new(o, "stdin_open", json_boolean(st->stdin_open));
    json_object_set_new(o, "lingering", json_boolean(st->lingering));
    json_object_set_new(o, "out_bytes", json_integer((json_int_t)st->length[0]));
    json_object_set_new(o, "err_bytes", json_integer((json_int_t)st->length[1]));
    json_object_set_new(o, "end", running ? json_null() : view_end(st->id, &st->end, cause_json));
    return o;
}

/* Returns text from a sandbox as JSON. Invalid UTF-8 is replaced. */
static json_t *view_text(const char *text)
{
    CLEANUP(buf_done) buf b = {0};

    if (!text)
        return json_null();
    buf_json_string(&b, text, strlen(text));
    json_t *j = json_loadb(b.p, b.len, JSON_DECODE_ANY, NULL);
    return j ? j : json_null();
}

json_t *view_session(const session_state *s, const char *cause_json)
{
    static const char *const LIFE[] = {"starting", "idle", "running", "ended"};
    const char *dialect = dialect_name(s->dialect);
    json_t *o = json_object();

    json_object_set_new(o, "id", exec_id_text(s->id));
    json_object_set_new(o, "name", *s->name ? json_string(s->name) : json_null());
    json_object_set_new(o, "shell", json_string(s->program));
    json_object_set_new(o, "dialect", dialect ? json_string(dialect) : json_null());
    json_object_set_new(o, "state", json_string(LIFE[s->life]));
    json_object_set_new(o, "cwd", view_text(s->cwd));
    json_object_set_new(o, "user", *s->user ? json_string(s->user) : json_null());
    json_object_set_new(o, "merge", json_boolean(s->merge));
    json_object_set_new(o, "mode", json_string(s->detached ? "detached" : "attached"));
    json_object_set_new(o, "created", view_time(s->created_ns));
    json_object_set_new(o, "commands", json_integer((json_int_t)s->commands));
    json_object_set_new(o, "running",
                        s->running ? json_integer((json_int_t)s->running) : json_null());
    json_object_set_new(o, "restarts", json_integer(s->restarts));
    json_object_set_new(o, "exec", exec_id_text(s->shell_exec));
    json_object_set_new(o, "end",
                        s->life == SESSION_ENDED
                            ? view_end(s->shell_exec, &s->shell.end, cause_json)
                            : json_null());
    return o;
}

json_t *view_command(const command_state *c)
{
    bool known =
        c->kind != COMMAND_RUNNING && c->kind != COMMAND_UNKNOWN && c->kind != COMMAND_NOT_RUN;
    bool asked = c->flags & (COMMAND_F_TIMED_OUT | COMMAND_F_INTERRUPTED);
    const char *rung = asked ? rung_name(c->rung) : NULL;
    json_t *o = json_object();

    json_object_set_new(o, "session", exec_id_text(c->session));
    json_object_set_new(o, "seq", json_integer((json_int_t)c->seq));
    json_object_set_new(o, "command", view_text(c->text));
    json_object_set_new(o, "kind", json_string(command_kind_name(c->kind)));
    json_object_set_new(o, "exit_code", known ? json_integer(c->status) : json_null());
    json_object_set_new(o, "oom", json_boolean(c->flags & COMMAND_F_OOM));
    json_object_set_new(o, "timed_out", json_boolean(c->flags & COMMAND_F_TIMED_OUT));
    json_object_set_new(o, "interrupted", json_boolean(c->flags & COMMAND_F_INTERRUPTED));
    json_object_set_new(o, "rung", rung ? json_string(rung) : json_null());
    json_object_set_new(o, "restarted", json_boolean(c->flags & COMMAND_F_RESTARTED));
    json_object_set_new(o, "cwd", view_text(c->cwd));
    json_object_set_new(o, "started", view_time(c->started_ns));
    json_object_set_new(o, "ended", view_time(c->ended_ns));
    json_object_set_new(o, "out_bytes", json_integer((json_int_t)c->length[0]));
    json_object_set_new(o, "err_bytes", json_integer((json_int_t)c->length[1]));
    json_object_set_new(o, "out_dropped", json_integer((json_int_t)c->dropped[0]));
    json_object_set_new(o, "err_dropped", json_integer((json_int_t)c->dropped[1]));
    return o;
}

json_t *view_image(const image *i)
{
    json_t *o = json_object(), *layers = json_array();

    for (size_t k = 0; k < i->nlayers; k++)
        json_array_append_new(layers, view_digest(i->diff_ids[k]));
    json_object_set_new(o, "name", json_string(i->name));
    json_object_set_new(o, "digest", view_digest(i->digest));
    json_object_set_new(o, "size", json_integer((json_int_t)i->size));
    json_object_set_new(o, "created", view_time(i->created_ns));
    json_object_set_new(o, "os", text_or_null(i->os));
    json_object_set_new(o, "architecture", text_or_null(i->architecture));
    json_object_set_new(o, "layers", layers);
    json_object_set_new(o, "env", view_strings(i->env));
    json_object_set_new(o, "entrypoint", view_strings(i->entrypoint));
    json_object_set_new(o, "cmd", view_strings(i->cmd));
    json_object_set_new(o, "user", json_string(i->user));
    json_object_set_new(o, "cwd", json_string(i->cwd));
    return o;
}

json_t *view_event(const event_row *r)
{
    json_t *why = r->detail ? json_loads(r->detail, 0, NULL) : NULL;
    char id[24];

    snprintf(id, sizeof id, "%lu", r->seq);
    return json_pack("{s:s,s:o,s:s,s:s?,s:s?,s:o}", "id", id, "time", view_time(r->time_ns), "type",
                     r->type, "sandbox", r->sandbox, "owner", r->owner, "cause",
                     why ? why : json_null());
}

static json_t *number_or_null(uint64_t n)
{
    return n ? json_integer((json_int_t)n) : json_null();
}

static void view_quota(json_t *o, const quota *q)
{
    json_object_set_new(o, "max_sandboxes", number_or_null(q->sandboxes));
    json_object_set_new(o, "creates_per_second",
                        q->creates_milli ? json_real(q->creates_milli / 1000.0) : json_null());
    json_object_set_new(o, "max_concurrent", number_or_null(q->creating));
    json_object_set_new(o, "max_ttl", number_or_null(q->ttl_ms / 1000));
}

json_t *view_key(const key_row *k, const char *secret)
{
    json_t *o = json_object();

    json_object_set_new(o, "id", json_string(k->id));
    if (secret)
        json_object_set_new(o, "key", json_string(secret));
    json_object_set_new(o, "owner", json_string(k->owner));
    json_object_set_new(o, "role", json_string(k->role));
    json_object_set_new(o, "note", text_or_null(k->note));
    json_object_set_new(o, "created", view_time(k->created_ns));
    json_object_set_new(o, "expires", view_time(k->expires_ns));
    view_quota(o, &k->quota);
    return o;
}
