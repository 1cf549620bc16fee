#include "warden/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "warden/cgroup.h"
#include "warden/conn.h"
#include "warden/copy.h"

#define MARK "snapshot" /* in the slot's directory: it is frozen for a copy */

typedef struct taking {
    warden *w;
    slot *s;
    const job *j;
    bool was_frozen;
    uint64_t until_ns;
    uint64_t begun_ns, still_ns;
} taking;

/* Opens the upper that the sandbox writes to. That is the second one if the slot was claimed for
 * another image than it had ahead. */
static err *open_upper(const warden *w, const slot *s, int *ret_fd)
{
    static const char *const FORMS[] = {"%u/b/u", "%u/u"};
    char name[24];

    for (size_t i = 0; i < ARRAY_LEN(FORMS); i++) {
        snprintf(name, sizeof name, FORMS[i],
                 s->n); /* NOLINT(clang-diagnostic-format-nonliteral) */
        *ret_fd = openat(w->uppers_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (*ret_fd >= 0 || errno != ENOENT)
            break;
    }
    return *ret_fd < 0 ? err_sys(ERR_INTERNAL, errno, "cannot open what the sandbox wrote") : NULL;
}

/* ---- whether it is wanted ---- */

static bool is_given_up(void *arg)
{
    const taking *t = arg;
    return conn_closed(t->j->c);
}

static err *check_wanted(taking *t)
{
    if (is_given_up(t))
        return err_sys(ERR_CONFLICT, ECANCELED, "who asked for the snapshot has gone");
    if (now_mono_ns() > t->until_ns)
        return err_sys(ERR_TIMEOUT, ETIMEDOUT, "the time of the snapshot is over");
    return NULL;
}

/* ---- standing still ---- */

static err *snapshot_ended(const slot *s)
{
    return err_sys(ERR_SANDBOX_GONE, ESRCH, "sandbox %s has ended", s->id);
}

/* Checks that a copy may begin. There is one copy at a time, and none while a FREEZE or THAW is
 * under way: the first that is done would thaw the slot under the other. Lock held. */
static err *look_locked(taking *t)
{
    const slot *s = t->s;

    if (s->state != SLOT_CLAIMED)
        return snapshot_ended(s);
    if (s->still || s->freezing)
        return err_retry_after(
            err_sys(ERR_CONFLICT, EBUSY, "another snapshot, pause or resume of it is under way"),
            1);
    t->was_frozen = s->frozen;
    return NULL;
}

static err *snapshot_look(taking *t)
{
    LOCK_SCOPE(&t->w->lock);
    return look_locked(t);
}

/* Begins the copy. From here on a FREEZE or THAW is noted, and go_on() does what the last one
 * said. */
static err *snapshot_begin(taking *t)
{
    LOCK_SCOPE(&t->w->lock);

    TRY(look_locked(t));
    t->s->still = true;
    return NULL;
}

/* Ends the copy and thaws the slot, unless it is to stay frozen. Returns an error if it is being
 * destroyed: the files were going away during the copy. Lock held. */
static err *go_on_locked(warden *w, slot *s)
{
    s->still = false;
    err *e = s->frozen ? NULL : cgroup_freeze(&w->cg, s->n, false);
    if (s->state != SLOT_CLAIMED) { /* its destroyer has thawed it; its cgroup may be gone */
        err_free(e);
        return snapshot_ended(s);
    }
    if (!e)
        unlinkat(s->dirfd, MARK, 0);
    return e;
}

static err *go_on(taking *t)
{
    LOCK_SCOPE(&t->w->lock);
    err *e = go_on_locked(t->w, t->s);
    t->still_ns = t->was_frozen ? 0 : now_mono_ns() - t->begun_ns;
    return e;
}

bool snapshot_leaves(warden *w, slot *s, bool freeze)
{
    LOCK_SCOPE(&w->lock);

    if (!s->still) {
        s->freezing = true;
        return false;
    }
    s->frozen = freeze;
    if (freeze)
        unlinkat(s->dirfd, MARK, 0);
    else
        err_drop(fs_write(s->dirfd, MARK, "", 0, 0600, false), "snapshot");
    return true;
}

static bool is_claimed(taking *t)
{
    LOCK_SCOPE(&t->w->lock);
    return t->s->state == SLOT_CLAIMED;
}

/* Freezes the slot, and checks its state again afterwards: a destroy has thawed it, perhaps before
 * this froze it. */
static err *snapshot_freeze(taking *t)
{
    TRY(fs_write(t->s->dirfd, MARK, "", 0, 0600, false));
    FAULT_KILL("snapshot.marked");
    err *e = cgroup_freeze(&t->w->cg, t->s->n, true);
    if (e && e->errnum == ETIMEDOUT)
        e->errnum = EAGAIN; /* not the copy's deadline */
    return e || is_claimed(t) ? e : snapshot_ended(t->s);
}

/* ---- taking one ---- */

/* Lets the sandbox continue before its layer is put in place, or removed, which takes as long as
 * the disk does. */
static err *snapshot_copied(void *arg)
{
    taking *t = arg;

    TRY(go_on(t));
    return check_wanted(t);
}

static err *snapshot_copy(taking *t, int upper, const uint8_t layer[32], layers_unpacked *ret_made)
{
    t->begun_ns = now_mono_ns();
    err *e = t->was_frozen ? NULL : snapshot_freeze(t);
    if (e) {
        err_free(go_on(t));
        return e;
    }
    FAULT_KILL("snapshot.frozen");
    return layers_copy(t->w->layers, layer,
                       &(layers_copying){.tree_fd = upper,
                                         .until_ns = t->until_ns,
                                         .given_up = is_given_up,
                                         .copied = snapshot_copied,
                                         .arg = t,
                                         .of = t->j->c},
                       ret_made);
}

err *snapshot_take(warden *w, slot *s, const job *j, const struct wp_snapshot *ask,
                   struct wp_snapshotted *ret_what)
{
    CLEANUP(closep) int upper = -1;
    layers_unpacked made = {0};
    taking t = {.w = w, .s = s, .j = j, .until_ns = j->received_ns + ask->deadline_ms * NS_PER_MS};

    TRY(check_wanted(&t));
    TRY(open_upper(w, s, &upper));
    TRY(snapshot_look(&t));
    if (!t.was_frozen)
        copy_flush(upper); /* so that it is frozen for less time */
    TRY(check_wanted(&t));
    TRY(snapshot_begin(&t));
    TRY(snapshot_copy(&t, upper, ask->layer.sha256, &made));
    if (is_given_up(&t)) /* after its layer was put in place, or just before */
        layers_let_go(w->layers, j->c);
    FAULT_KILL("snapshot.taken");
    *ret_what = (struct wp_snapshotted){
        .bytes = made.bytes, .entries = made.entries, .still_ns = t.still_ns};
    return NULL;
}

void snapshot_recover(warden *w, slot *s)
{
    if (faccessat(s->dirfd, MARK, F_OK, 0))
        return;
    err *e = go_on_locked(w, s);
    if (!e)
        return;
    log_warn("snapshot", "slot %u stands still after a snapshot: %s", s->n, e->message);
    err_free(e);
}
