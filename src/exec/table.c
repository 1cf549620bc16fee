/* Tables: the index of a sandbox's journal, and the execs that are in memory. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/count.h"
#include "exec/internal.h"

/* ---- index ---- */

struct past *table_past(exec_table *t, uint64_t id)
{
    size_t low = 0, high = t->npast;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (t->past[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < t->npast && t->past[low].id == id ? &t->past[low] : NULL;
}

struct past *table_begin(exec_table *t, uint64_t id, uint32_t index, bool transient)
{
    if (t->npast == t->past_cap) {
        t->past_cap = t->past_cap ? 2 * t->past_cap : 16;
        t->past = xrealloc(t->past, t->past_cap * sizeof *t->past);
    }
    t->past[t->npast] =
        (struct past){.id = id, .begin = index, .evicted = transient, .transient = transient};
    return &t->past[t->npast++];
}

bool exec_key_is_set(const uint8_t key[16])
{
    static const uint8_t none[16];

    return memcmp(key, none, 16) != 0;
}

struct key_entry *table_key(exec_table *t, const uint8_t key[16])
{
    struct key_entry *k = map_get(&t->keys, key, 16);

    if (!k || now_real_ns() < k->real_ns + KEY_LIFE_NS)
        return k;
    table_key_free(t, key, k->id);
    return NULL;
}

void table_key_put(exec_table *t, uint64_t id, const struct journal_begin *b)
{
    if (!exec_key_is_set(b->key))
        return;
    struct key_entry *k = xcalloc(1, sizeof *k);
    memcpy(k->key, b->key, 16);
    memcpy(k->body, b->body, 16);
    k->id = id;
    k->real_ns = b->real_ns;
    free(map_put(&t->keys, k->key, 16, k));
}

void table_key_free(exec_table *t, const uint8_t key[16], uint64_t id)
{
    struct key_entry *k = map_get(&t->keys, key, 16);

    if (k && k->id == id)
        free(map_take(&t->keys, key, 16));
}

/* ---- reading the journal ---- */

/* Returns true if the exec was never forked: then its key is free again, and a start command can be
 * begun again, in this process and the next. A program that init could not run (SP_FAILED) would
 * fail again. */
static bool never_forked(const struct journal_end *e)
{
    return e->how == EXEC_NOT_STARTED && e->rec.state != SP_FAILED;
}

void table_never_forked(exec_table *t, uint64_t id, const uint8_t key[16],
                        const struct journal_end *e)
{
    if (!never_forked(e))
        return;
    if (t->start_id == id)
        t->start_id = 0;
    table_key_free(t, key, id);
}

static void load_end(exec_table *t, struct past *p, uint32_t index, const journal_rec *r)
{
    journal_rec begin = {0};

    if (p->end) {
        log_error("journal", "exec %lu has two end records; the first one holds", p->id);
        return;
    }
    p->end = index + 1;
    if (p->transient)
        return; /* sweep_transient() removes its streams; it has no key */
    for (unsigned i = 0; i < 2; i++)
        p->has |= r->end.length[i] ? 1u << i : 0;
    table_count_bytes(t, (int64_t)(r->end.length[0] + r->end.length[1]));
    if (!never_forked(&r->end))
        return;
    err_drop(journal_read(&t->journal, p->begin, &begin), "journal"); /* then no key is freed */
    table_never_forked(t, p->id, begin.begin.key, &r->end);
}

static void frame_reach(struct frame_end *f, const uint64_t to[2])
{
    for (int i = 0; i < 2; i++)
        if (to[i] > f->least[i])
            f->least[i] = to[i];
}

/* Records where the newest frame is in a shell's stdin file. A frame is a session's command as the
 * shell reads it. table_adopt() later cuts off a frame that was written only in part. */
static void frame_note(exec_table *t, uint64_t session, const struct journal_command *c)
{
    struct frame_end *f = map_get_u64(&t->frame_ends, c->shell);

    if (!f) {
        f = xcalloc(1, sizeof *f);
        map_put_u64(&t->frame_ends, c->shell, f);
    }
    f->at = c->in_offset;
    f->n = c->in_bytes;
    memcpy(f->start, c->start, sizeof f->start);
    frame_reach(f, c->start);
    map_put_u64(&t->carriers, session, f);
}

/* Notes the lengths in a command's end record: it was written after these bytes were in the
 * spool. */
static void frame_over(exec_table *t, uint64_t session, const struct journal_command_end *e)
{
    struct frame_end *f = map_get_u64(&t->carriers, session);
    uint64_t to[2] = {e->stop[0] + e->tail[0], e->stop[1] + e->tail[1]};

    if (f)
        frame_reach(f, to);
}

static void load_mark(exec_table *t, struct past *p, uint32_t index, const struct journal_mark *m)
{
    table_count_bytes(t, -(int64_t)drops_add(t, p, m, index));
    if (!p->gone[m->stream - 1])
        return;
    p->has &= (uint8_t)~m->stream; /* the number of the stream is also its bit */
    p->evicted |= !p->has;
}

/* Skips the id of a shell whose BEGIN was never written: an exec with this id would be taken for
 * the session's. */
static void table_take_shell_id(exec_table *t, const journal_rec *r)
{
    uint64_t shell = r->type == JOURNAL_SESSION   ? r->session.shell
                     : r->type == JOURNAL_COMMAND ? r->command.shell
                                                  : 0;

    if (shell >= t->next_id)
        t->next_id = shell + 1;
}

static void load_record(void *arg, uint32_t index, const journal_rec *r)
{
    exec_table *t = arg;
    struct past *p = table_past(t, r->exec);

    if (r->type == JOURNAL_BEGIN) {
        if (t->npast && r->exec <= t->past[t->npast - 1].id) {
            log_error("journal", "exec %lu begins out of order and is ignored", r->exec);
            return;
        }
        /* Only tunnels take ids without a BEGIN. */
        t->behind |= r->exec > t->next_id && r->exec > t->ids_until;
        bool transient = r->begin.flags & JOURNAL_F_TRANSIENT;
        t->had_transient |= transient;
        table_begin(t, r->exec, index, transient);
        table_key_put(t, r->exec, &r->begin);
        if (r->begin.flags & JOURNAL_F_START)
            t->start_id = r->exec;
        t->next_id = r->exec + 1;
    } else if (r->type == JOURNAL_END && p) {
        if (r->end.ooms > t->ooms)
            t->ooms = r->end.ooms;
        load_end(t, p, index, r);
    } else if (r->type == JOURNAL_MARK && p) {
        load_mark(t, p, index, &r->mark);
    } else if (r->type == JOURNAL_ASKED && p) {
        p->asked |= 1u << r->asked.signo;
    } else if (r->type == JOURNAL_RESET) {
        table_reset_load(t, r);
    } else if (r->type == JOURNAL_IDS) {
        if (r->ids.until > t->ids_until)
            t->ids_until = r->ids.until;
    } else if (r->type == JOURNAL_PAUSE) {
        pause_spans_add(&t->pauses, r->pause.from_ns, r->pause.to_ns);
    } else if (journal_is_session(r->type)) {
        table_log(t, index);
        table_take_shell_id(t, r);
        if (r->type == JOURNAL_COMMAND)
            frame_note(t, r->exec, &r->command);
        if (r->type == JOURNAL_COMMAND_END)
            frame_over(t, r->exec, &r->command_end);
        if (r->type == JOURNAL_COMMAND_END && r->command_end.ooms > t->ooms)
            t->ooms = r->command_end.ooms;
    }
}

/* Counts the output of an adopted exec. Nothing of a verb's is kept: its reader is gone, and no
 * mark says which of its bytes are in the file. */
static void adopt_streams(exec_table *t, exec *x, const struct frame_end *f)
{
    for (int i = 0; i < 2; i++) {
        spool *s = &x->out[i];
        uint64_t length = atomic_load(&s->length);
        if (f)
            s->base = f->start[i]; /* bytes may come before its session is loaded */
        if (!exec_is_transient(x))
            table_count_bytes(t, (int64_t)length);
        else if (length)
            spool_set_mark(s, 0, length);
    }
}

/* Adopts the execs that have a BEGIN and no END. They wait for the box's HELLO. */
static err *table_adopt(exec_table *t)
{
    map_iter it = {0};

    for (size_t i = 0; i < t->npast; i++) {
        exec *x;
        if (t->past[i].end)
            continue;
        TRY(table_exec(t, &t->past[i], &x));
        x->discarded = exec_is_transient(x);
        x->reset = x->lost = x->id < t->reset_id;
        const struct frame_end *f = map_get_u64(&t->frame_ends, x->id);
        if (f)
            input_mend(x, f->at, f->n);
        adopt_streams(t, x, f);
        table_live_add(x);
        if (x->reset)
            pump_kick(&x->job);
        exec_unref(x);
    }
    while (map_next(&t->frame_ends, &it))
        free(it.entry->value);
    map_done(&t->frame_ends);
    map_done(&t->carriers);
    t->frame_ends = t->carriers = (map){0};
    return NULL;
}

/* Removes streams of ended verbs, which a kill between an end and their removal left. */
static err *sweep_transient(exec_table *t)
{
    int fd = openat(t->hub->o.spool_dir, t->sandbox, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *n;

    if (!d) {
        closep(&fd);
        return err_sys(ERR_INTERNAL, errno, "cannot list a spool directory");
    }
    while ((n = readdir(d))) { /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        const struct past *p = table_past(t, strtoull(n->d_name, NULL, 10));
        if (p && p->transient && p->end)
            unlinkat(fd, n->d_name, 0);
    }
    closedir(d);
    return NULL;
}

/* Reads the journal. Its descriptor is open meanwhile: load_end() looks records up. */
static err *read_journal(exec_table *t)
{
    CLEANUP(freep) char *path = str_printf("%s/journal", t->sandbox);

    TRY(journal_open(t->hub->o.spool_dir, path, &t->journal, load_record, t));
    if (t->next_id < t->ids_until)
        t->next_id = t->ids_until;
    return NULL;
}

/* Puts t into the hub's map and returns NULL, with t's lock held; or returns a reference to the
 * table that is there already. One journal has one table: a second one would count records, and
 * write ends, of its own. Locks hub->lock → table->lock only here, before other threads know the
 * table. */
static exec_table *table_enter(exec_hub *h, exec_table *t)
{
    LOCK_SCOPE(&h->lock);
    exec_table *there = map_get_str(&h->tables, t->sandbox);
    if (there)
        return exec_table_ref(there);
    pthread_mutex_lock(&t->lock);
    map_put_str(&h->tables, t->sandbox, t);
    return NULL;
}

/* Waits until the thread that opened the table has read its journal. Takes the reference to t. */
static err *table_share(exec_table *t, exec_table **ret_table)
{
    bool sound;

    {
        LOCK_SCOPE(&t->lock);
        sound = t->journal.fd >= 0;
    }
    if (!sound) {
        exec_table_unref(t);
        return err_new(ERR_INTERNAL, "the sandbox's journal cannot be read");
    }
    *ret_table = t;
    return NULL;
}

static void table_free(exec_table *t);

static err *check_id(const char *sandbox)
{
    if (strlen(sandbox) > SANDBOX_ID_LEN || strchr(sandbox, '/') || !*sandbox || *sandbox == '.')
        return err_new(ERR_INTERNAL, "%s is no sandbox id", sandbox);
    return NULL;
}

static err *make_directory(exec_hub *h, const char *sandbox)
{
    if (mkdirat(h->o.spool_dir, sandbox, 0700) && errno != EEXIST)
        return fs_error(errno, "cannot make the spool of sandbox %s", sandbox);
    return NULL;
}

static exec_table *table_alloc(exec_hub *h, const char *sandbox)
{
    exec_table *t = xcalloc(1, sizeof *t);

    t->refs = 1;
    t->hub = h;
    t->live_max = h->o.live_max;
    t->next_id = 1;
    t->journal.fd = -1;
    snprintf(t->sandbox, sizeof t->sandbox, "%s", sandbox);
    snprintf(t->box_id, sizeof t->box_id, "%s", sandbox);
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->list_lock, NULL);
    close_init(t);
    return t;
}

err *exec_table_new(exec_hub *h, const char *sandbox, exec_table **ret_table)
{
    TRY(check_id(sandbox));
    exec_table *t = table_alloc(h, sandbox), *there = table_enter(h, t);
    if (there) {
        table_free(t);
        exec_table_unref(there);
        return err_new(ERR_CONFLICT, "sandbox %s has a journal already", sandbox);
    }
    pthread_mutex_unlock(&t->lock);
    *ret_table = t;
    return NULL;
}

err *exec_table_make(exec_table *t)
{
    TRY(make_directory(t->hub, t->sandbox));
    LOCK_SCOPE(&t->lock);
    return err_wrap(read_journal(t), "sandbox %s", t->sandbox);
}

void table_abandon(exec_table *t)
{
    bool bound;

    for (;;) {
        exec *x;
        {
            LOCK_SCOPE(&t->lock);
            x = t->live;
        }
        if (!x)
            break;
        for (int i = 0; i < SP_FDS_MAX; i++)
            closep(&x->fd[i]);
        memset(x->fd, 0xff, sizeof x->fd);
        table_live_drop(x);
    }
    tunnels_abandon(t);
    {
        LOCK_SCOPE(&t->lock);
        bound = t->bound;
        t->bound = false;
    }
    if (bound)
        exec_table_unref(t);
}

err *exec_table_open(exec_hub *h, const char *sandbox, exec_table **ret_table)
{
    return exec_table_open_box(h, sandbox, sandbox, ret_table);
}

err *exec_table_open_box(exec_hub *h, const char *sandbox, const char *box_id,
                         exec_table **ret_table)
{
    TRY(check_id(sandbox));
    TRY(make_directory(h, sandbox));
    exec_table *t = table_alloc(h, sandbox);
    str_copy(t->box_id, sizeof t->box_id, box_id);
    exec_table *there = table_enter(h, t);
    if (there) {
        table_free(t);
        return table_share(there, ret_table);
    }
    err *e = read_journal(t);
    if (!e)
        e = table_adopt(t);
    if (!e && t->had_transient)
        e = sweep_transient(t);
    pthread_mutex_unlock(&t->lock);
    if (e) {
        table_abandon(t);
        exec_table_unref(t); /* NOLINT(clang-analyzer-unix.Malloc): ours is the last reference */
        return err_wrap(e, "sandbox %s", sandbox);
    }
    *ret_table = t;
    return NULL;
}

exec_table *exec_table_ref(exec_table *t)
{
    atomic_fetch_add(&t->refs, 1);
    return t;
}

/* ---- owners ---- */

/* Returns an owner's account, counted: it stays as long as the table does. */
static struct exec_account *account_of(exec_hub *h, const char *owner)
{
    LOCK_SCOPE(&h->lock);
    struct exec_account *a = map_get_str(&h->accounts, owner);

    if (!a) {
        size_t n = strlen(owner) + 1;
        a = xcalloc(1, sizeof *a + n);
        memcpy(a->owner, owner, n);
        map_put_str(&h->accounts, owner, a);
    }
    a->tables++;
    return a;
}

/* The table's lock is held over both counts: adopted execs may end meanwhile. */
void exec_table_own(exec_table *t, const char *owner)
{
    struct exec_account *a = account_of(t->hub, owner);
    LOCK_SCOPE(&t->lock);

    int64_t kept = atomic_load(&t->spool_bytes);

    atomic_fetch_add(&a->live, (unsigned)t->nlive);
    atomic_fetch_add(&a->bytes, kept);
    atomic_fetch_add(&t->counted, kept);
    atomic_store(&t->account, a);
}

static void table_disown(exec_table *t)
{
    struct exec_account *a = atomic_load(&t->account);

    atomic_fetch_sub(&t->hub->spool_bytes, atomic_load(&t->spool_bytes));
    LOCK_SCOPE(&t->hub->lock);
    if (a)
        atomic_fetch_sub(&a->bytes, atomic_load(&t->counted));
    if (a && !--a->tables)
        free(map_take_str(&t->hub->accounts, a->owner));
}

unsigned exec_table_owner_live(const exec_table *t)
{
    return t->account ? atomic_load(&t->account->live) : 0;
}

unsigned exec_hub_owner_max(const exec_hub *h)
{
    rlim_t max = h->descriptors / 8; /* a command has three or four */

    return max < UINT32_MAX ? (unsigned)max : UINT32_MAX;
}

static void table_free(exec_table *t)
{
    map_iter it = {0};

    if (t->box)
        t->ops->box_unref(t->box);
    table_disown(t);
    while (map_next(&t->keys, &it))
        free(it.entry->value);
    map_done(&t->keys);
    map_done(&t->execs);
    map_done(&t->tunnels);
    readers_free(t);
    close_done(t);
    journal_close(&t->journal);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->list_lock);
    free(t->past);
    drops_free(t);
    pause_spans_done(&t->pauses);
    free(t->logs);
    free(t->early);
    free(t->due.id);
    free(t);
}

void exec_table_unref(exec_table *t)
{
    if (!t)
        return;
    {
        LOCK_SCOPE(&t->hub->lock); /* the hub's map finds it only while it is referenced */
        if (atomic_fetch_sub(&t->refs, 1) != 1)
            return;
        if (map_get_str(&t->hub->tables, t->sandbox) == t)
            map_take_str(&t->hub->tables, t->sandbox);
        sync_leave(t->hub, t);
    }
    table_free(t);
}

static err *remove_streams(int dir)
{
    DIR *d = fdopendir(dup(dir));
    err *e = NULL;

    if (!d)
        return err_sys(ERR_INTERNAL, errno, "cannot read a spool directory");
    struct dirent *n;
    while (!e && (n = readdir(d))) /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        if (n->d_name[0] != '.' && strcmp(n->d_name, "journal") != 0)
            e = fs_remove(dir, n->d_name);
    closedir(d);
    return e;
}

err *exec_table_remove(exec_hub *h, const char *sandbox, bool keep_journal)
{
    CLEANUP(closep) int dir = -1;

    if (!keep_journal)
        return fs_remove(h->o.spool_dir, sandbox);
    dir = openat(h->o.spool_dir, sandbox, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0)
        return errno == ENOENT ? NULL : err_sys(ERR_INTERNAL, errno, "cannot open %s", sandbox);
    return remove_streams(dir);
}

err *exec_hub_sweep(exec_hub *h, bool (*known)(void *arg, const char *sandbox), void *arg)
{
    int fd = openat(h->o.spool_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!d) {
        closep(&fd);
        return err_sys(ERR_INTERNAL, errno, "cannot list the spools");
    }
    while ((e = readdir(d))) /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        if (e->d_name[0] != '.' && !known(arg, e->d_name))
            err_drop(fs_remove(h->o.spool_dir, e->d_name), "sweep");
    closedir(d);
    return NULL;
}

/* ---- execs in memory ---- */

exec *table_exec_new(exec_table *t, uint64_t id, const struct journal_begin *b)
{
    exec *x = xcalloc(1, sizeof *x);

    x->refs = 1;
    x->table = exec_table_ref(t);
    x->id = id;
    x->flags = b->flags;
    x->begin_ns = b->real_ns;
    x->timeout_ms = b->timeout_ms;
    memcpy(x->key, b->key, 16);
    memcpy(x->command, b->command, sizeof x->command);
    memset(x->fd, 0xff, sizeof x->fd);
    pthread_mutex_init(&x->in_lock, NULL);
    pthread_mutex_init(&x->watch_lock, NULL);
    for (int i = 0; i < 2; i++)
        spool_init(&x->out[i], &t->hub->spools, t->sandbox, id, i + 1, table_marker, x);
    if (exec_is_transient(x))
        for (int i = 0; i < 2; i++)
            spool_limit(&x->out[i], TRANSIENT_STREAM_MAX);
    job_init(x);
    map_put_u64(&t->execs, id, x);
    return x;
}

/* Loads the streams' lengths. The journal may be on the disk before the file is, so a power loss
 * may have taken bytes that it counts. */
static void load_streams(exec_table *t, struct past *p, exec *x, const uint64_t least[2])
{
    uint64_t lost = 0;

    for (int i = 0; i < 2; i++)
        lost += spool_load(&x->out[i], least[i]);
    if (lost && !p->lost && !p->transient)
        table_count_bytes(t, -(int64_t)lost);
    p->lost = lost;
}

err *table_exec(exec_table *t, struct past *p, exec **ret_exec)
{
    static const uint64_t NONE[2];
    journal_rec begin, end = {0};
    exec *x = map_get_u64(&t->execs, p->id);

    if (x) {
        *ret_exec = exec_ref(x);
        return NULL;
    }
    TRY(journal_read(&t->journal, p->begin, &begin));
    if (p->end)
        TRY(journal_read(&t->journal, p->end - 1, &end));
    x = table_exec_new(t, p->id, &begin.begin);
    x->asked = p->asked;
    err_drop(drops_load(t, p, x), "mark"); /* then its bytes read as lost */
    const struct frame_end *f = map_get_u64(&t->frame_ends, p->id);
    load_streams(t, p, x, p->end ? end.end.length : f ? f->least : NONE);
    input_load(x);
    if (p->end) {
        x->ended = x->stdin_over = true;
        x->rec = end.end.rec;
        x->pid = end.end.rec.pid;
        exec_end_of(&end, &x->end);
    }
    *ret_exec = x;
    return NULL;
}

static void exec_free(exec *x)
{
    exec_table *t = x->table;

    pump_timer_cancel(t->hub->pump, &x->deadline);
    pump_timer_cancel(t->hub->pump, &x->retry);
    close_soon(t, x->fd, SP_FDS_MAX);
    job_done(x);
    spool_done(&x->out[0]);
    spool_done(&x->out[1]);
    buf_done(&x->tty_in);
    pthread_mutex_destroy(&x->in_lock);
    pthread_mutex_destroy(&x->watch_lock);
    free(x);
    exec_table_unref(t);
}

exec *exec_ref(exec *x)
{
    atomic_fetch_add(&x->refs, 1);
    return x;
}

/* Drops a reference; the last one under the table's lock, where a search could take a new one.
 * Callers that hold the lock never hold the last reference: the list of live execs has it. */
void exec_unref(exec *x)
{
    if (!x)
        return;
    unsigned n = atomic_load(&x->refs);
    while (n > 1)
        if (atomic_compare_exchange_weak(&x->refs, &n, n - 1))
            return;
    {
        LOCK_SCOPE(&x->table->lock);
        if (atomic_fetch_sub(&x->refs, 1) != 1)
            return;
        if (map_get_u64(&x->table->execs, x->id) ==
            x) /* a BEGIN that failed left its id to another */
            map_take_u64(&x->table->execs, x->id);
    }
    exec_free(x);
}

void table_live_add(exec *x)
{
    exec_table *t = x->table;

    if (x->live)
        return;
    x->live = true;
    x->live_prev = NULL;
    x->live_next = t->live;
    if (t->live)
        t->live->live_prev = x;
    t->live = exec_ref(x);
    t->nlive++;
    t->ntransient += exec_is_transient(x);
    count_live(x, 1);
    if (t->account)
        atomic_fetch_add(&t->account->live, 1);
}

void table_live_drop(exec *x)
{
    exec_table *t = x->table;

    {
        LOCK_SCOPE(&t->lock);
        if (!x->live)
            return;
        x->live = false;
        const struct past *p = table_past(t, x->id);
        if (p && (size_t)(p - t->past) < t->evicted) /* eviction has passed over it */
            t->evicted = (size_t)(p - t->past);
        if (x->live_prev)
            x->live_prev->live_next = x->live_next;
        else
            t->live = x->live_next;
        if (x->live_next)
            x->live_next->live_prev = x->live_prev;
        t->nlive--;
        t->ntransient -= exec_is_transient(x);
        count_live(x, -1);
        if (t->account)
            atomic_fetch_sub(&t->account->live, 1);
    }
    /* No timer may fire when the last reference is gone. */
    pump_timer_cancel(t->hub->pump, &x->deadline);
    pump_timer_cancel(t->hub->pump, &x->retry);
    exec_unref(x);
}

bool table_marker(void *arg, int stream, uint64_t from, uint64_t to)
{
    exec *x = arg;
    exec_table *t = x->table;
    journal_rec r = {.type = JOURNAL_MARK, .exec = x->id};

    r.mark = (struct journal_mark){.stream = (uint32_t)stream, .from = from, .to = to};
    LOCK_SCOPE(&t->lock);
    int64_t went = (int64_t)(to - from - spool_dropped(&x->out[stream - 1], from, to));
    if (exec_is_transient(x)) { /* it is not read after a restart, so it needs no mark */
        table_count_bytes(t, -went);
        return true;
    }
    uint32_t index;
    struct past *p = table_past(t, x->id);
    err *e = journal_append(&t->journal, &r, &index);
    if (e || !p) {
        err_drop(e, "mark");
        return false;
    }
    drops_add(t, p, &r.mark, index);
    metric_add(&EXEC_METRICS[M_DROPPED], 0, went);
    table_count_bytes(t, -went);
    return true;
}

void table_forget_streams(exec *x)
{
    if (atomic_exchange(&x->forgotten, true))
        return;
    for (int i = 0; i < 2; i++) {
        uint64_t length = atomic_load(&x->out[i].length);
        uint64_t kept = length - spool_dropped(&x->out[i], 0, length);
        if (length && spool_forget(&x->out[i]))
            table_count_bytes(x->table, -(int64_t)kept);
    }
}
