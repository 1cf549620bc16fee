/* A table's clock, which stops while its sandbox is paused. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/thread.h"
#include "exec/internal.h"

uint64_t table_clock(const exec_table *t)
{
    return (t->paused_mono ? t->paused_mono : now_mono_ns()) - t->still_ns;
}

uint64_t table_left(const exec_table *t, uint64_t begin_ns, uint64_t timeout_ms)
{
    uint64_t now = t->paused_real ? t->paused_real : now_real_ns();
    uint64_t end =
        begin_ns + timeout_ms * NS_PER_MS + pause_spans_between(&t->pauses, begin_ns, now);

    return end > now ? end - now : 0;
}

/* Sets the timer of an exec's time limit, unless the clock has stopped. Lock held. */
static void pause_arm(exec *x)
{
    exec_table *t = x->table;

    if (x->deadline_at && !t->paused_mono)
        pump_timer_set(t->hub->pump, &x->deadline, x->deadline_at + t->still_ns);
}

/* Returns the time at which a time limit begins. A command that begins while a snapshot holds its
 * sandbox runs until the files are copied: its limit begins now, not when the hold did. Lock
 * held. */
static uint64_t pause_begin_clock(const exec_table *t)
{
    return t->briefly ? now_mono_ns() - t->still_ns : table_clock(t);
}

void exec_deadline(exec *x, uint64_t left_ns)
{
    x->deadline_at = pause_begin_clock(x->table) + left_ns;
    pause_arm(x);
}

/* Stops the clock, and the timers of all execs. Lock held. */
static void stand_still(exec_table *t, uint64_t since_ns)
{
    t->paused_real = since_ns;
    t->paused_mono = now_mono_ns();
    for (exec *x = t->live; x; x = x->live_next)
        pump_timer_cancel(t->hub->pump, &x->deadline);
}

/* Starts the clock again, still_ns later, and the timers of all execs. Lock held. */
static void go_on(exec_table *t, uint64_t still_ns)
{
    t->still_ns += still_ns;
    t->paused_mono = t->paused_real = 0;
    for (exec *x = t->live; x; x = x->live_next) {
        if (!x->ended)
            pause_arm(x);
        pump_kick(&x->limit);
        pump_kick(&x->job);
    }
}

void exec_table_pause(exec_table *t, uint64_t since_ns)
{
    LOCK_SCOPE(&t->lock);
    if (!t->paused_mono)
        stand_still(t, since_ns);
}

err *exec_table_note_pause(exec_table *t, uint64_t now_ns)
{
    journal_rec r = {.type = JOURNAL_PAUSE, .exec = 1};

    LOCK_SCOPE(&t->lock);
    if (!t->paused_real)
        return NULL;
    r.pause = (struct journal_pause){.from_ns = t->paused_real,
                                     .to_ns = now_ns > t->paused_real ? now_ns : t->paused_real};
    pause_spans_add(&t->pauses, r.pause.from_ns, r.pause.to_ns);
    return journal_append(&t->journal, &r, NULL);
}

void exec_table_resume(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    if (t->paused_mono)
        go_on(t, now_mono_ns() - t->paused_mono);
}

bool exec_table_is_paused(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    return t->paused_mono && !t->briefly;
}

void exec_table_hold(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    if (t->paused_mono)
        return;
    stand_still(t, now_real_ns());
    t->briefly = true;
}

/* Records a hold in the journal, if it extends the time limit of a live exec. Lock held. */
static void note_hold(exec_table *t, uint64_t still_ns)
{
    journal_rec r = {.type = JOURNAL_PAUSE, .exec = 1};
    uint64_t now = now_real_ns();
    bool counts = false;

    for (exec *x = t->live; x; x = x->live_next)
        counts |= x->timeout_ms && !x->ended;
    if (!counts || !still_ns || t->pauses.n >= PAUSES_MAX)
        return;
    r.pause = (struct journal_pause){.from_ns = now - still_ns, .to_ns = now};
    pause_spans_add(&t->pauses, r.pause.from_ns, r.pause.to_ns);
    err_drop(journal_append(&t->journal, &r, NULL), "time limit");
}

/* Extends the limits of commands that began during the hold by less: they were frozen for less.
 * Lock held. */
static void shorten_late(exec_table *t, uint64_t still_ns)
{
    uint64_t from = now_mono_ns() - still_ns;

    for (exec *x = t->live; x; x = x->live_next)
        if (x->here && x->deadline_at && x->asked_ns > from)
            x->deadline_at -= x->asked_ns - from;
}

void exec_table_let_go(exec_table *t, uint64_t still_ns)
{
    LOCK_SCOPE(&t->lock);
    if (!t->briefly)
        return;
    uint64_t held = now_mono_ns() - t->paused_mono;
    uint64_t still = still_ns < held ? still_ns : held;
    t->briefly = false;
    t->held_ns += held;
    note_hold(t, still);
    shorten_late(t, still);
    go_on(t, still);
}

uint64_t exec_held_ns(exec *x)
{
    const exec_table *t = x->table;

    LOCK_SCOPE(&x->table->lock);
    return t->held_ns + (t->briefly ? now_mono_ns() - t->paused_mono : 0);
}

size_t exec_table_pauses(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    return t->pauses.n;
}

uint64_t exec_table_clock(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    return table_clock(t);
}

uint64_t exec_table_begin_clock(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    return pause_begin_clock(t);
}

void exec_table_timer(exec_table *t, pump_timer *timer, uint64_t at_ns)
{
    LOCK_SCOPE(&t->lock);
    if (!t->paused_mono)
        pump_timer_set(t->hub->pump, timer, at_ns + t->still_ns);
}

uint64_t exec_table_left(exec_table *t, uint64_t begin_ns, uint64_t timeout_ms)
{
    LOCK_SCOPE(&t->lock);
    return table_left(t, begin_ns, timeout_ms);
}
