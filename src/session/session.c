/* Sessions of a sandbox: open, find, query, close. */
#include "session/session.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/str.h"
#include "base/thread.h"
#include "session/internal.h"

extern const char SESSION_DRIVER[]; /* driver.sh */

/* ---- the table ---- */

static const char *kind_names[COMMAND_KINDS]; /* without `running` */
static pthread_once_t counted = PTHREAD_ONCE_INIT;
metric SESSION_METRICS[M_SESSION_COUNT] = {
    [M_COMMANDS] = METRIC_COUNTER_BY("bothy_session_commands_total",
                                     "Commands of sessions ended, by kind.", "kind", kind_names),
    [M_COMMAND_SECONDS] = METRIC_HISTOGRAM(
        "bothy_session_command_seconds",
        "Time of a session's command, from its frame to its end record.", .bounds = METRIC_LONG),
};

static void make_metrics(void)
{
    for (enum command_kind k = COMMAND_ENDED; k < COMMAND_KINDS; k++)
        kind_names[k - 1] = command_kind_name(k);
    metric_register(SESSION_METRICS, M_SESSION_COUNT);
}

void session_count(void)
{
    pthread_once(&counted, make_metrics);
}

err *session_table_open(exec_table *t, session_table **ret_table)
{
    session_table *st = xcalloc(1, sizeof *st);

    session_count();
    st->execs = exec_table_ref(t);
    pthread_mutex_init(&st->lock, NULL);
    err *e = session_load(st);
    if (e) {
        session_table_close(st);
        return e;
    }
    *ret_table = st;
    return NULL;
}

void session_table_wake(session_table *t)
{
    LOCK_SCOPE(&t->lock);
    for (size_t i = 0; i < t->n; i++)
        pump_kick(&t->all[i]->job);
}

/* Lock held. Ends a detached session here: no exec carries it that could report the end. */
void session_reset(session *s)
{
    s->info.flags |= JOURNAL_S_CLOSED;
    if (!session_is_detached(s) || s->life == SESSION_ENDED)
        return;
    if (session_end_command(s, &(exec_end){.how = EXEC_KILLED, .signal = SIGKILL}))
        s->life = SESSION_ENDED;
}

void session_table_reset(session_table *t, uint64_t before_id)
{
    LOCK_SCOPE(&t->lock);

    for (size_t i = 0; i < t->n && t->all[i]->id < before_id; i++) {
        session *s = t->all[i];
        {
            LOCK_SCOPE(&s->lock);
            session_reset(s);
        }
        pump_kick(&s->job);
        session_notify(s);
    }
}

static void session_silence(session *s)
{
    LOCK_SCOPE(&s->lock);
    s->closed = true;
    session_drop_shell(s);
    detached_drop_helper(s);
    pump_timer_cancel(exec_table_pump(s->execs), &s->timer);
}

void session_table_close(session_table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++) {
        session_silence(t->all[i]);
        session_unref(t->all[i]);
    }
    free(t->all);
    pthread_mutex_destroy(&t->lock);
    exec_table_unref(t->execs);
    free(t);
}

/* ---- one session ---- */

session *session_alloc(exec_table *t, uint64_t id)
{
    session *s = xcalloc(1, sizeof *s);

    s->refs = 1;
    s->execs = exec_table_ref(t);
    s->id = id;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->watch_lock, NULL);
    session_job_init(s);
    return s;
}

uint64_t session_id(const session *s)
{
    return s->id;
}

bool session_merges(session *s)
{
    LOCK_SCOPE(&s->lock);
    return s->info.flags & JOURNAL_S_MERGE;
}

session *session_ref(session *s)
{
    atomic_fetch_add(&s->refs, 1);
    return s;
}

static void env_wipe(char **env)
{
    for (char **e = env; e && *e; e++)
        secret_wipe(*e, strlen(*e));
    strv_free(env);
}

void session_unref(session *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    session_drop_shell(s);
    detached_drop_helper(s);
    detached_drop_frame(s);
    session_job_done(s);
    env_wipe(s->env);
    map_done(&s->keys);
    free(s->start_cwd);
    free(s->cwd);
    free(s->commands);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->watch_lock);
    exec_table_unref(s->execs);
    free(s);
}

static void on_shell(void *arg)
{
    pump_kick(&((session *)arg)->job);
}

void session_take_shell(session *s, exec *x)
{
    s->shell = x;
    exec_mark_shell(x);
    s->watch = (exec_watch){.notify = on_shell, .arg = s};
    exec_watch_add(x, &s->watch);
}

/* May be called with the session's lock held. exec_unwatch() waits for a running notify, which
 * takes no session lock. */
void session_drop_shell(session *s)
{
    if (!s->shell)
        return;
    exec_unwatch(s->shell, &s->watch);
    for (int i = 0; i < 2; i++) {
        exec_hold_free(s->hold[i]);
        s->hold[i] = NULL;
    }
    exec_unref(TAKE_PTR(s->shell));
}

/* ---- starting a shell ---- */

/* Uses bash if it works, else sh. sh itself finds out, in the same exec. */
#define CHOOSE                                                           \
    "if command -v bash >/dev/null 2>&1 && bash -c : 2>/dev/null; then " \
    "exec bash -c \"$0\"; fi; exec /bin/sh -c \"$0\""

static char **shell_argv(const char *program, const char *script)
{
    char **argv = NULL;

    if (!strcmp(program, "auto")) {
        strv_push(&argv, xstrdup("/bin/sh"));
        strv_push(&argv, xstrdup("-c"));
        strv_push(&argv, xstrdup(CHOOSE));
        strv_push(&argv, xstrdup(script));
        return argv;
    }
    if (!strcmp(program, "sh"))
        program = "/bin/sh";
    for (const char *p = program; *p;) {
        size_t n = strcspn(p, " ");
        if (n)
            strv_push(&argv, xstrndup(p, n));
        p += n + (p[n] == ' ');
    }
    strv_push(&argv, xstrdup("-c"));
    strv_push(&argv, xstrdup(script));
    return argv;
}

/* Builds the shell's script. A restarted shell's directory may be gone: then it starts where it
 * can. */
static char *script_of(const session *s)
{
    CLEANUP(buf_done) buf b = {0};

    buf_printf(&b, "__by_k=%s __by_D=\n", s->token);
    if (session_is_detached(s))
        detached_place(s, &b);
    if (s->info.restarts)
        buf_printf(&b,
                   "__by_l=/dev/shm/.by-%s\n"
                   "if [ -O $__by_l ] && [ ! -L $__by_l ]; then command . $__by_l; fi\n",
                   s->token);
    if (s->cwd) {
        buf_str(&b, "cd -- '");
        for (const char *p = s->cwd; *p; p++)
            *p == '\'' ? buf_str(&b, "'\\''") : buf_char(&b, *p);
        buf_str(&b, "' 2>/dev/null\n");
    }
    buf_str(&b, SESSION_DRIVER);
    return buf_take(&b);
}

err *session_start_shell(session *s, const exec_key *key, bool *ret_replay, exec **ret_exec)
{
    journal_rec r = {.type = JOURNAL_SESSION, .exec = s->id};
    CLEANUP(exec_spec_done) exec_spec spec = {.exec_fd = -1};

    if (!s->info.restarts) /* kept variables are found by the token */
        random_bytes(s->info.token, sizeof s->info.token);
    hex_encode(s->info.token, sizeof s->info.token, s->token);
    s->info.real_ns = now_real_ns();
    r.session = s->info;
    CLEANUP(freep) char *script = script_of(s);
    spec.argv = shell_argv(s->info.program, script);
    if (session_is_detached(s))
        spec.argv = detached_argv(s, "start", spec.argv);
    spec.env = strv_copy(s->env);
    spec.user = *s->info.user ? xstrdup(s->info.user) : NULL;
    spec.cwd = s->start_cwd && !s->cwd ? xstrdup(s->start_cwd) : NULL;
    spec.stdio = STDIO_PIPES;
    spec.stdin_open = !session_is_detached(s);
    spec.setuid = s->setuid;
    spec.nofile = s->nofile;
    spec.nofile_hard = s->nofile_hard;
    TRY(exec_spec_check(&spec));
    exec_log_entry log = {.rec = &r};
    TRY(exec_start_session(s->execs, &spec, key, &log, ret_exec, ret_replay));
    if (!*ret_replay)
        s->info = r.session;
    return NULL;
}

/* ---- opening one ---- */

static bool is_live(session *s)
{
    LOCK_SCOPE(&s->lock);
    return s->life != SESSION_ENDED && !detached_is_over(s);
}

static session *by_id(session_table *t, uint64_t id)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->all[i]->id == id)
            return t->all[i];
    return NULL;
}

/* Returns the live session of this name, or else the last one. */
static session *by_name(session_table *t, const char *name)
{
    session *found = NULL;

    for (size_t i = 0; i < t->n; i++)
        if (str_eq(t->all[i]->info.name, name) && (!found || is_live(t->all[i])))
            found = t->all[i];
    return found;
}

static err *session_admit(session_table *t, const session_spec *spec)
{
    size_t live = 0;

    for (size_t i = 0; i < t->n; i++)
        live += is_live(t->all[i]);
    if (live >= SESSIONS_MAX)
        return err_remedy(err_kind(err_new(ERR_SANDBOX_EXHAUSTED,
                                           "the sandbox has %zu live sessions, the limit is %d",
                                           live, SESSIONS_MAX),
                                   "session"),
                          "End one of them.");
    session *same = spec->name ? by_name(t, spec->name) : NULL;
    if (same && is_live(same))
        return err_kind(
            err_new(ERR_CONFLICT, "session %lu has the name '%s'", same->id, spec->name),
            "session");
    return NULL;
}

static void session_enter(session_table *t, session *s)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 8;
        t->all = xrealloc(t->all, t->cap * sizeof(session *));
    }
    t->all[t->n++] = session_ref(s);
}

static err *session_fill(session *s, const session_spec *spec)
{
    if (!str_copy(s->info.name, sizeof s->info.name, str_or(spec->name, "")) ||
        !str_copy(s->info.user, sizeof s->info.user, str_or(spec->user, "")) ||
        !str_copy(s->info.program, sizeof s->info.program, spec->shell))
        return err_new(ERR_INVALID_REQUEST, "a name, a user or a shell is too long");
    if (!spec->shell[strspn(spec->shell, " ")])
        return err_new(ERR_INVALID_REQUEST, "shell: has no program");
    s->info.flags = (spec->merge ? JOURNAL_S_MERGE : 0) |
                    (spec->mode == SESSION_DETACHED ? JOURNAL_S_DETACHED : 0);
    s->env = strv_copy(spec->env);
    s->start_cwd = spec->cwd ? xstrdup(spec->cwd) : NULL;
    s->setuid = spec->setuid;
    s->nofile = spec->nofile;
    s->nofile_hard = spec->nofile_hard;
    return NULL;
}

err *session_new(session_table *t, const session_spec *spec, const exec_key *key,
                 session **ret_session, bool *ret_replay)
{
    CLEANUP(session_unrefp) session *s = session_alloc(t->execs, 0);
    exec *x = NULL;

    TRY(session_fill(s, spec));
    LOCK_SCOPE(&t->lock);
    err *refused = session_admit(t, spec);
    if (refused && (!key || !exec_is_known(t->execs, key)))
        return refused;
    err_free(refused);
    LOCK_SCOPE(&s->lock);
    TRY(session_start_shell(s, key, ret_replay, &x));
    if (*ret_replay) {
        session *same = by_id(t, exec_id(x));
        exec_unref(x);
        if (!same)
            return err_new(ERR_CONFLICT, "this idempotency key belongs to no session");
        *ret_session = session_ref(same);
        return NULL;
    }
    s->id = exec_id(x);
    s->created_ns = s->info.real_ns;
    exec_pump_beside(x, &s->job);
    session_take_shell(s, x);
    session_enter(t, s);
    *ret_session = session_ref(s);
    pump_kick(&s->job);
    return NULL;
}

err *session_find(session_table *t, const char *id_or_name, session **ret_session)
{
    uint64_t id = 0;

    LOCK_SCOPE(&t->lock);
    session *s = str_to_u64(id_or_name, UINT64_MAX, &id) ? by_id(t, id) : by_name(t, id_or_name);
    if (!s)
        return err_kind(err_new(ERR_NOT_FOUND, "there is no session '%s'", id_or_name), "session");
    *ret_session = session_ref(s);
    return NULL;
}

size_t session_count_live(session_table *t)
{
    LOCK_SCOPE(&t->lock);
    size_t live = 0;

    for (size_t i = 0; i < t->n; i++)
        live += is_live(t->all[i]);
    return live;
}

void session_list(session_table *t, session ***ret_sessions, size_t *ret_n)
{
    LOCK_SCOPE(&t->lock);
    session **list = xcalloc(t->n + 1, sizeof(session *));

    for (size_t i = 0; i < t->n; i++)
        list[i] = session_ref(t->all[i]);
    *ret_sessions = list;
    *ret_n = t->n;
}

size_t session_count_busy(session_table *t)
{
    size_t n = 0;

    LOCK_SCOPE(&t->lock);
    for (size_t i = 0; i < t->n; i++) {
        LOCK_SCOPE(&t->all[i]->lock);
        n += t->all[i]->life == SESSION_RUNNING;
    }
    return n;
}

/* ---- looking ---- */

void session_get(session *s, session_state *ret_state)
{
    LOCK_SCOPE(&s->lock);
    *ret_state = (session_state){
        .id = s->id,
        .shell_exec = s->info.shell,
        .life = detached_is_over(s) ? SESSION_ENDED : s->life,
        .dialect = s->dialect,
        .merge = s->info.flags & JOURNAL_S_MERGE,
        .detached = s->info.flags & JOURNAL_S_DETACHED,
        .created_ns = s->created_ns,
        .commands = s->ncommands,
        .running = s->run.seq,
        .restarts = s->info.restarts,
        .cwd = s->cwd ? xstrdup(s->cwd) : NULL,
    };
    memcpy(ret_state->name, s->info.name, sizeof s->info.name);
    memcpy(ret_state->user, s->info.user, sizeof s->info.user);
    memcpy(ret_state->program, s->info.program, sizeof s->info.program);
    if (s->shell)
        exec_get(s->shell, &ret_state->shell);
}

void session_state_done(session_state *st)
{
    free(st->cwd);
    st->cwd = NULL;
}

/* ---- acting ---- */

err *session_close(session *s)
{
    journal_rec r = {.type = JOURNAL_SESSION, .exec = s->id};

    LOCK_SCOPE(&s->lock);
    if (s->life == SESSION_ENDED || !s->shell)
        return NULL;
    if (session_is_detached(s))
        return detached_close(s);
    if (!(s->info.flags & JOURNAL_S_CLOSED)) {
        r.session = s->info;
        r.session.flags |= JOURNAL_S_CLOSED;
        TRY(exec_log(s->execs, &r, NULL));
        s->info = r.session;
        FAULT_KILL("session.closed");
    }
    err *e = exec_signal(s->shell, SIGKILL, SP_TO_TREE);
    if (e && e->code == ERR_CONFLICT) { /* it has ended by itself */
        err_free(e);
        e = NULL;
    }
    pump_kick(&s->job);
    return e;
}

err *session_interrupt(session *s)
{
    LOCK_SCOPE(&s->lock);
    if (!s->run.seq)
        return NULL;
    uint64_t now = exec_table_clock(s->execs);
    if (!(s->run.flags & COMMAND_F_TIMED_OUT))
        s->run.flags |= COMMAND_F_INTERRUPTED;
    ladder_start(&s->run.ladder, now,
                 session_is_detached(s) || now < s->run.begun_ns + 100 * NS_PER_MS);
    pump_kick(&s->job);
    return NULL;
}

/* ---- watching ---- */

void session_watch_add(session *s, exec_watch *w)
{
    LOCK_SCOPE(&s->watch_lock);
    w->next = s->watches;
    s->watches = w;
}

void session_unwatch(session *s, exec_watch *w)
{
    LOCK_SCOPE(&s->watch_lock);
    for (exec_watch **p = &s->watches; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            return;
        }
}

void session_notify(session *s)
{
    LOCK_SCOPE(&s->watch_lock);
    for (exec_watch *w = s->watches; w; w = w->next)
        w->notify(w->arg);
}
