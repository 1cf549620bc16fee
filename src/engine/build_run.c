/* Runs one build on a thread of its own: base, steps, finalize, snapshot; and if it has a start
 * command, a first sandbox of the snapshot, which must become ready.
 *
 * Every wait checks twice a second whether the build was cancelled. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/fault.h"
#include "base/json.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/build_internal.h"

#define SLICE_MS    500
#define STEP_MS     (UINT64_C(3600) * 1000) /* per command */
#define LIFE_MS     (UINT64_C(6) * 3600 * 1000)
#define QUEUE_MS    (UINT64_C(600) * 1000)
#define READY_NS    (600 * NS_PER_S)
#define READY_EVERY (NS_PER_S / 2)
#define SNAPSHOT_NS (600 * NS_PER_S) /* how long to retry while too many are under way */
#define OUTPUT_MAX  (1u << 20)
#define TAIL_MAX    1024u /* last output of a failed command, for the reason */

static err *build_run_off(build *b)
{
    return err_new(ERR_CONFLICT, "build %s is not wanted any more", b->id);
}

/* ---- a sandbox ---- */

/* A create that a build waits for. Shared with the create, which may end later than the wait. */
typedef struct making {
    pthread_mutex_t lock;
    pthread_cond_t told;
    unsigned refs;
    bool done;
    err *failure;
    sandbox *sb;
} making;

static void making_unref(making *m)
{
    pthread_mutex_lock(&m->lock);
    bool last = !--m->refs;
    pthread_mutex_unlock(&m->lock);
    if (!last)
        return;
    err_free(m->failure);
    sandbox_unref(m->sb);
    pthread_cond_destroy(&m->told);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void on_created(void *arg, err *failure, sandbox *sb, bool replay)
{
    making *m = arg;

    (void)replay;
    pthread_mutex_lock(&m->lock);
    m->done = true;
    m->failure = failure;
    m->sb = sb;
    pthread_cond_broadcast(&m->told);
    pthread_mutex_unlock(&m->lock);
    making_unref(m);
}

static bool wait_made(making *m)
{
    LOCK_SCOPE(&m->lock);

    if (!m->done)
        cond_wait_until(&m->told, &m->lock, now_mono_ns() + SLICE_MS * NS_PER_MS);
    return m->done;
}

static err *make_once(build *b, sandbox_spec *spec, sandbox **ret_sandbox)
{
    engine *e = b->e;
    making *m = xcalloc(1, sizeof *m);
    const idempotency none = {0};
    CLEANUP(sandbox_unrefp) sandbox *under_way = NULL;
    err *failure = NULL;

    pthread_mutex_init(&m->lock, NULL);
    cond_init(&m->told);
    m->refs = 2;
    under_way = engine_create(e, &b->who, spec, PULL_MISSING, &none, on_created, m);
    while (!wait_made(m))
        if (build_is_off(b)) {
            if (under_way)
                engine_create_leave(e, under_way);
            making_unref(m);
            return build_run_off(b);
        }
    failure = TAKE_PTR(m->failure);
    *ret_sandbox = TAKE_PTR(m->sb);
    making_unref(m);
    return failure;
}

/* Copies a spec, because a create takes what it is given. */
static sandbox_spec spec_copy(const sandbox_spec *s)
{
    sandbox_spec copy = {.template = s->template ? xstrdup(s->template) : NULL,
                         .queue_ms = s->queue_ms,
                         .no_start = s->no_start};

    sandbox_spec_fill(&copy, s);
    return copy;
}

/* Makes a sandbox. If the key's rate or concurrency refuses it, retries later instead of
 * failing. */
static err *make_sandbox(build *b, sandbox_spec *spec, sandbox **ret_sandbox)
{
    const quota q = quota_of(b->e, &b->who);
    uint64_t by = now_mono_ns() + QUEUE_MS * NS_PER_MS;

    spec->ttl_ms = q.ttl_ms && q.ttl_ms < LIFE_MS ? q.ttl_ms : LIFE_MS;
    spec->queue_ms = QUEUE_MS;
    spec->limits = b->limits;
    spec->setuid = true;
    strv_push(&spec->labels, str_printf(BUILD_LABEL "=%s", b->id));
    for (;;) {
        CLEANUP(sandbox_spec_done) sandbox_spec once = spec_copy(spec);
        err *failure = make_once(b, &once, ret_sandbox);
        uint64_t pause = failure ? quota_pause_ns(failure) : 0;
        if (!pause || now_mono_ns() + pause > by)
            return failure;
        err_free(failure);
        for (uint64_t until = now_mono_ns() + pause; now_mono_ns() < until;) {
            if (build_is_off(b))
                return build_run_off(b);
            poll(NULL, 0, SLICE_MS / 2);
        }
    }
}

static void drop_sandbox(build *b, sandbox **sb)
{
    sandbox *gone = TAKE_PTR(*sb);

    if (!gone)
        return;
    err_drop(engine_delete(b->e, &b->who, gone, CAUSE_REQUESTED, NULL), "build");
    sandbox_unref(gone);
}

/* ---- a command ---- */

typedef struct running {
    build *b;
    exec *x;
    exec_hold *hold[2];
    uint64_t at[2];
    buf line[2]; /* lines whose end has not come yet */
    buf *out;    /* stdout goes here instead */
    buf tail;    /* its last output */
    const char *level;
} running;

static void running_done(running *r)
{
    for (int i = 0; i < 2; i++) {
        exec_hold_free(r->hold[i]);
        buf_done(&r->line[i]);
    }
    buf_done(&r->tail);
    exec_unref(r->x);
}

static void keep_tail(running *r, const char *p, size_t n)
{
    buf_append(&r->tail, p, n);
    if (r->tail.len > 4 * TAIL_MAX) {
        memmove(r->tail.p, r->tail.p + r->tail.len - TAIL_MAX, TAIL_MAX);
        r->tail.len = TAIL_MAX;
    }
}

static void say_lines(running *r, int i, bool last)
{
    buf *l = &r->line[i];
    size_t from = 0;

    for (size_t k = 0; k < l->len; k++) {
        bool full = k - from >= BUILD_LOG_LINE;
        if (l->p[k] != '\n' && !full)
            continue;
        build_say_line(r->b, r->level, l->p + from, k - from);
        from = k + !full;
    }
    if (last && from < l->len) {
        build_say_line(r->b, r->level, l->p + from, l->len - from);
        from = l->len;
    }
    if (from)
        buf_consume(l, from);
}

static err *take_output(running *r, int i)
{
    char piece[16384];
    uint64_t gap = 0;
    size_t n = 1;

    while (n) {
        TRY(exec_read(r->x, i + 1, r->at[i], piece, sizeof piece, &n, &gap));
        if (!n && gap > r->at[i]) {
            r->at[i] = gap;
            n = 1;
            continue;
        }
        r->at[i] += n;
        keep_tail(r, piece, n);
        if (r->out && i == 0) {
            if (r->out->len + n > OUTPUT_MAX)
                return err_new(ERR_TOO_LARGE, "the command wrote more than 1 MiB");
            buf_append(r->out, piece, n);
        } else {
            buf_append(&r->line[i], piece, n);
            say_lines(r, i, false);
        }
        if (r->hold[i])
            exec_hold_move(r->hold[i], r->at[i]);
    }
    return NULL;
}

static void on_bytes(void *arg)
{
    eventfd_write(*(int *)arg, 1);
}

static err *build_run_follow(running *r, exec_state *ret_state)
{
    CLEANUP(closep) int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    exec_watch watch = {.notify = on_bytes, .arg = &event};
    err *failure = NULL;
    bool ended = false;
    eventfd_t v;

    if (event < 0)
        return err_new(ERR_UNAVAILABLE, "no descriptor is left");
    exec_watch_add(r->x, &watch);
    while (!ended && !failure) {
        exec_get(r->x, ret_state);
        ended = ret_state->end.how != EXEC_RUNNING;
        for (int i = 0; i < 2 && !failure; i++)
            failure = take_output(r, i);
        if (ended || failure)
            break;
        struct pollfd p = {.fd = event, .events = POLLIN};
        poll(&p, 1, SLICE_MS);
        eventfd_read(event, &v);
        if (build_is_off(r->b))
            failure = build_run_off(r->b);
    }
    exec_unwatch(r->x, &watch);
    for (int i = 0; i < 2; i++)
        say_lines(r, i, true);
    return failure;
}

/* Returns the last output, on one line. */
static char *last_words(running *r)
{
    size_t n = r->tail.len, from;

    while (n && (r->tail.p[n - 1] == '\n' || r->tail.p[n - 1] == ' '))
        n--;
    from = n > TAIL_MAX ? n - TAIL_MAX : 0;
    while (from < n && ((unsigned char)r->tail.p[from] & 0xc0) == 0x80)
        from++; /* not within a character */
    char *text = xstrndup(r->tail.p ? r->tail.p + from : "", n - from);
    for (char *p = text; *p; p++)
        if (*p == '\n' || *p == '\r' || *p == '\t')
            *p = ' ';
    return text;
}

static err *end_error(running *r, const exec_end *end)
{
    CLEANUP(freep) char *words = last_words(r);
    const char *sep = *words ? ": " : "";

    switch (end->how) {
    case EXEC_EXITED:
        return end->exit_code
                   ? err_new(ERR_INVALID_REQUEST, "exit status %d%s%s", end->exit_code, sep, words)
                   : NULL;
    case EXEC_TIMED_OUT:
        return err_new(ERR_TIMEOUT, "it did not end within an hour%s%s", sep, words);
    case EXEC_SIGNALLED:
    case EXEC_KILLED:
        return err_new(ERR_INVALID_REQUEST, "killed by signal %d%s%s%s", end->signal,
                       end->oom ? ", as the memory was used up" : "", sep, words);
    case EXEC_NOT_STARTED:
        return exec_end_error(end);
    default:
        return err_new(ERR_INTERNAL, "its sandbox has ended%s%s", sep, words);
    }
}

err *build_command_run(build *b, const build_command *c, buf *ret_out)
{
    CLEANUP(running_done) running r = {.b = b, .out = ret_out, .level = str_or(c->level, "info")};
    exec_spec spec = {.argv = c->argv,
                      .env = c->bare ? NULL : b->env,
                      .user = (char *)c->user,
                      .cwd = (char *)(c->cwd ? c->cwd : "~"),
                      .cwd_home = !c->cwd,
                      .timeout_ms = STEP_MS,
                      .exec_fd = -1};
    const idempotency none = {0};
    exec_state st = {0};
    bool replay;

    TRY(engine_exec(b->e, &b->who, b->sb, &spec, &none, &r.x, &replay));
    for (int i = 0; i < 2; i++)
        r.hold[i] = exec_hold_new(r.x, i + 1, 0);
    err *failure = build_run_follow(&r, &st);
    return failure ? failure : end_error(&r, &st.end);
}

/* ---- phases ---- */

/* Adds "step 3 (RUN make): …", shortened, to a failure. */
static err *at_step(build *b, const build_step *s, err *failure)
{
    CLEANUP(buf_done) buf text = {0};

    for (size_t i = 0; s->args && s->args[i]; i++)
        buf_printf(&text, "%s%s", i ? " " : "", s->args[i]);
    size_t n = text.len < 160 ? text.len : 160;
    while (n && n < text.len && ((unsigned char)text.p[n] & 0xc0) == 0x80)
        n--;
    return err_wrap(failure, "step %s (%s %.*s%s)", b->step, BUILD_VERB_NAMES[s->verb], (int)n,
                    buf_cstr(&text), n < text.len ? "…" : "");
}

static err *run_steps(build *b)
{
    for (size_t i = 0; i < b->recipe.nsteps; i++) {
        const build_step *s = &b->recipe.steps[i];

        snprintf(b->step, sizeof b->step, "%zu", i + 1);
        build_say(b, "info", "[%zu/%zu] %s %s", i + 1, b->recipe.nsteps, BUILD_VERB_NAMES[s->verb],
                  str_or(s->args ? s->args[0] : NULL, ""));
        if (build_is_off(b))
            return build_run_off(b);
        TRY(at_step(b, s, build_step_run(b, s)));
    }
    return NULL;
}

/* Sets the first user and directory: for an image `user` and its home, for a template those of its
 * sandboxes. */
static void begin_as(build *b)
{
    sandbox_view v = {0};

    if (b->recipe.as_user) {
        b->user = xstrdup("user");
        b->cwd = xstrdup("/home/user");
        return;
    }
    sandbox_get(b->sb, &v);
    b->user = xstrdup(v.user && *v.user ? v.user : "root");
    b->cwd = v.cwd && *v.cwd ? xstrdup(v.cwd) : NULL;
    sandbox_view_done(&v);
}

static char **copy_args(char *const *v)
{
    return v ? strv_copy(v) : NULL;
}

/* Reads what a base template sets besides its files: env goes into the image, too, and its start
 * command is kept unless the recipe has one. For a base with a tag, the recipe has these
 * already. */
static err *read_base(build *b, char ***ret_env, start_spec *ret_start)
{
    CLEANUP(template_view_done) template_view t = {0};
    const sandbox_spec *base = &b->recipe.base;

    if (base->template) {
        TRY(engine_template_find(b->e, &b->who, base->template, &t));
        base = &t.spec;
    }
    *ret_env = copy_args(base->env);
    if (base->start.argv)
        *ret_start = (start_spec){.argv = strv_copy(base->start.argv),
                                  .user = base->start.user ? xstrdup(base->start.user) : NULL,
                                  .cwd = base->start.cwd ? xstrdup(base->start.cwd) : NULL};
    return NULL;
}

static void build_run_merge(char ***env, char *const *more)
{
    for (size_t i = 0; more && more[i]; i++) {
        const char *eq = strchr(more[i], '=');
        CLEANUP(freep) char *name = xstrndup(more[i], eq ? (size_t)(eq - more[i]) : 0);
        if (eq)
            strv_env_set(env, name, eq + 1);
    }
}

/* Takes the snapshot; retries while too many others are under way. */
static err *take_snapshot(build *b, char *const *template_env, snapshot_row *ret_row)
{
    uint64_t by = now_mono_ns() + SNAPSHOT_NS, still = 0;
    sandbox_view v = {0};

    sandbox_get(b->sb, &v);
    CLEANUP(strv_freep) char **env = strv_copy(v.image ? v.image->env : NULL);
    sandbox_view_done(&v);
    build_run_merge(&env, template_env);
    build_run_merge(&env, b->env);
    const snapshot_config as = {.env = env, .user = b->user, .cwd = b->cwd ? b->cwd : ""};
    for (;;) {
        err *failure = snapshot_as(b->e, &b->who, b->sb, &as, ret_row, &still);
        if (!failure || failure->code != ERR_UNAVAILABLE || now_mono_ns() > by || build_is_off(b))
            return failure;
        err_free(failure);
        poll(NULL, 0, SLICE_MS);
    }
}

static start_spec start_of(const build *b)
{
    start_spec s = {.user = xstrdup(b->user), .cwd = b->cwd ? xstrdup(b->cwd) : NULL};

    strv_push(&s.argv, xstrdup(b->shell));
    strv_push(&s.argv, xstrdup("-l"));
    strv_push(&s.argv, xstrdup("-c"));
    strv_push(&s.argv, xstrdup(b->recipe.start));
    return s;
}

static void start_done(start_spec *s)
{
    strv_free(s->argv);
    free(s->user);
    free(s->cwd);
}

/* Fails if the start command has ended with a failure: then waiting for it to become ready is
 * useless. */
static err *check_started(build *b)
{
    sandbox_view v = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;
    exec_state st = {0};
    char id[24];

    sandbox_get(b->sb, &v);
    snprintf(id, sizeof id, "%llu", (unsigned long long)v.start_exec);
    bool begun = v.start_exec != 0;
    sandbox_view_done(&v);
    if (!begun)
        return NULL;
    TRY(engine_exec_find(b->sb, id, &x));
    exec_get(x, &st);
    if (st.end.how == EXEC_RUNNING || (st.end.how == EXEC_EXITED && !st.end.exit_code))
        return NULL;
    CLEANUP(running_done) running r = {.b = b, .x = TAKE_PTR(x), .level = "info"};
    for (int i = 0; i < 2; i++)
        err_drop(take_output(&r, i), "build");
    return err_wrap(end_error(&r, &st.end), "start command");
}

/* Makes a first sandbox of the snapshot, as all later ones will be made, and waits until the ready
 * command succeeds in it. */
static err *try_start(build *b, const char *snapshot, const start_spec *start)
{
    CLEANUP(sandbox_spec_done)
    sandbox_spec spec = {.snapshot = xstrdup(snapshot),
                         .network = b->recipe.base.network,
                         .has_network = true,
                         .start = {.argv = strv_copy(start->argv),
                                   .user = start->user ? xstrdup(start->user) : NULL,
                                   .cwd = start->cwd ? xstrdup(start->cwd) : NULL}};
    char *argv[] = {b->shell, (char *)"-l", (char *)"-c", b->recipe.ready, NULL};
    uint64_t by = now_mono_ns() + READY_NS;

    build_say(b, "info", "Waiting until it is ready: %s", b->recipe.ready);
    TRY(err_wrap(make_sandbox(b, &spec, &b->sb), "a sandbox of it"));
    for (;;) {
        err *failure = build_command_run(
            b,
            &(build_command){
                .argv = argv, .user = b->user, .cwd = b->cwd, .bare = true, .level = "debug"},
            NULL);
        if (!failure)
            return NULL;
        bool again = failure->code == ERR_INVALID_REQUEST && now_mono_ns() < by;
        if (!again)
            return err_wrap(failure, "ready command");
        err_free(failure);
        TRY(check_started(b));
        if (build_is_off(b))
            return build_run_off(b);
        poll(NULL, 0, (int)(READY_EVERY / NS_PER_MS));
    }
}

static void take_source(build *b, sandbox_spec *spec)
{
    const sandbox_spec *base = &b->recipe.base;

    *spec = (sandbox_spec){.image = base->image ? xstrdup(base->image) : NULL,
                           .template = base->template ? xstrdup(base->template) : NULL,
                           .snapshot = base->snapshot ? xstrdup(base->snapshot) : NULL,
                           .has_network = true,
                           .network = base->network,
                           .no_start = true}; /* the files it writes would be in the snapshot */
}

static err *make_files(build *b, char *const *env, snapshot_row *ret_row)
{
    CLEANUP(sandbox_spec_done) sandbox_spec spec = {0};

    take_source(b, &spec);
    build_say(b, "info", "FROM %s",
              spec.image      ? spec.image
              : spec.template ? spec.template
                              : spec.snapshot);
    TRY(err_wrap(make_sandbox(b, &spec, &b->sb), "base"));
    begin_as(b);
    TRY(err_wrap(build_provision(b, false), "base"));
    TRY(run_steps(b));
    strcpy(b->step, "finalize");
    TRY(err_wrap(build_provision(b, true), "finalize"));
    return err_wrap(take_snapshot(b, env, ret_row), "finalize");
}

static err *build_all(build *b, build_row *row)
{
    CLEANUP(snapshot_row_done) snapshot_row made = {0};
    CLEANUP(start_done) start_spec start = {0};
    CLEANUP(strv_freep) char **env = NULL;
    sandbox_spec spec = {.limits = b->limits, .setuid = true};

    TRY(read_base(b, &env, &start));
    TRY(make_files(b, env, &made));
    free(row->snapshot);
    row->snapshot = xstrdup(made.id);
    err *failure = store_build_update(b->e->o.store, row, 1); /* names it if bothyd is killed */
    FAULT_KILL("build.kept");
    drop_sandbox(b, &b->sb);
    if (b->recipe.start) {
        start_done(&start);
        start = start_of(b);
    }
    if (!failure && start.argv && b->recipe.ready)
        failure = try_start(b, made.id, &start);
    if (failure) {
        err_drop(snapshot_remove_built(b->e, &b->who, made.id), "build");
        return failure;
    }
    spec.start = start;
    free(row->spec);
    row->spec = template_spec_text(&spec);
    row->changed_ns = clock_real(b->e->o.clock);
    return NULL;
}

err *build_run(build *b, build_row *row)
{
    err *failure = build_all(b, row);

    drop_sandbox(b, &b->sb);
    return failure;
}
