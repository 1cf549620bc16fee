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
#include "warden/copy.h"

#define MARK "snapshot" /* in the slot's directory: it stands still for a copy */

/* A slot that was claimed for another image than it had ahead writes to its second upper. */
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

/* Without a freezer's leave nobody else thaws it: who dies meanwhile was thawed by who ends it. */
static bool begin(warden *w, slot *s)
{
    LOCK_SCOPE(&w->lock);

    s->still = s->state == SLOT_CLAIMED;
    return s->still;
}

/* With the lock, so that nobody who freezes it now finds it still for another reason. */
static err *go_on_locked(warden *w, slot *s)
{
    s->still = false;
    err *e = s->frozen ? NULL : cgroup_freeze(&w->cg, s->n, false);
    if (e && s->state != SLOT_CLAIMED) { /* its cgroup may be gone */
        err_free(e);
        return err_sys(ERR_SANDBOX_GONE, ESRCH, "sandbox %s has ended", s->id);
    }
    if (!e)
        unlinkat(s->dirfd, MARK, 0);
    return e;
}

static err *go_on(warden *w, slot *s)
{
    LOCK_SCOPE(&w->lock);
    return go_on_locked(w, s);
}

bool snapshot_leaves(warden *w, slot *s, bool freeze)
{
    LOCK_SCOPE(&w->lock);

    if (!s->still)
        return false;
    s->frozen = freeze;
    if (freeze)
        unlinkat(s->dirfd, MARK, 0);
    return true;
}

static err *stand_still(warden *w, slot *s)
{
    TRY(fs_write(s->dirfd, MARK, "", 0, 0600, false));
    FAULT_KILL("snapshot.marked");
    err *e = cgroup_freeze(&w->cg, s->n, true);
    if (!e && begin(w, s))
        return NULL;
    err *stuck = go_on(w, s);
    if (e) {
        err_free(stuck);
        return e;
    }
    TRY(stuck);
    return err_sys(ERR_SANDBOX_GONE, ESRCH, "sandbox %s has ended", s->id);
}

static bool is_frozen(warden *w, const slot *s)
{
    LOCK_SCOPE(&w->lock);
    return s->frozen;
}

/* Who has it frozen already keeps it so until the answer: bothyd moves a sandbox one way at a time.
 */
err *snapshot_take(warden *w, slot *s, const uint8_t layer[32], struct wp_snapshotted *ret_what)
{
    CLEANUP(closep) int upper = -1;
    layers_unpacked made = {0};
    bool was_frozen = is_frozen(w, s);

    TRY(open_upper(w, s, &upper));
    if (!was_frozen)
        copy_flush(upper); /* so that it stands still for less */
    uint64_t begun = now_mono_ns();
    if (!was_frozen)
        TRY(stand_still(w, s));
    FAULT_KILL("snapshot.frozen");
    err *e = layers_copy(w->layers, layer, upper, &made);
    err *stuck = was_frozen ? NULL : go_on(w, s);
    uint64_t still_ns = was_frozen ? 0 : now_mono_ns() - begun;
    if (e) {
        err_free(stuck);
        return e;
    }
    TRY(stuck);
    FAULT_KILL("snapshot.taken");
    *ret_what =
        (struct wp_snapshotted){.bytes = made.bytes, .entries = made.entries, .still_ns = still_ns};
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
