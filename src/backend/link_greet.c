/* From a dialled stream to an open one: checks which init it is, that it is the same as before, and
 * whether it was claimed.
 *
 * GREETING and REFUSED are not sealed: anything in between may have forged them. A claimed box
 * accepts from them only what would end it anyway. An init that greets as fresh gets the secret
 * only while no tenant's code can have run there. HELLO is sealed with the secret, so it comes from
 * the init that was given the secret. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/link_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

static enum link_phase phase_of(box *x)
{
    LOCK_SCOPE(&x->lock);
    return x->phase;
}

static bool link_greet_taint(box *x, const char *how)
{
    char why[160];

    snprintf(why, sizeof why, "tainted: %s", how);
    link_box_condemn(x, why);
    return false;
}

/* ---- GREETING, REFUSED ---- */

bool link_on_greeting(box *x, const struct spl_greeting *g)
{
    if (g->state == SPL_FRESH && (x->instance || phase_of(x) == LINK_BOX))
        return link_greet_taint(x, "pid 1 was restarted, it knows no secret any more");
    LOCK_SCOPE(&x->lock);
    buf_reserve(&x->out, SPL_ATTACH_ROOM);
    x->out.len += spl_attach(&x->end, x->secret, x->out.p + x->out.len);
    return true; /* sent when this turn ends */
}

bool link_on_refused(box *x, const struct sp_hdr *h)
{
    bool believed = phase_of(x) != LINK_BOX && !x->was_claimed;

    if (believed && h->err == EACCES)
        return link_greet_taint(x, "pid 1 has another's secret");
    atomic_fetch_add(&x->h->nforged, 1);
    link_box_broken(x, "init refused the attach");
    return false;
}

/* ---- open ---- */

static box_timing timing_of(const box *x)
{
    return (box_timing){.claim_ns = now_mono_ns() - x->claim_ns, .walls = box_walls_of(x->hello)};
}

static void is_up(box *x)
{
    x->complained = false;
    link_timer(x, x->heard_ns + x->h->o.ping_ms * NS_PER_MS);
}

/* Notifies the creator first, then the receiver of events. Messages that they queue are sent after
 * the unanswered ones. */
static bool link_greet_opened(box *x)
{
    create_done *done;
    bool told;

    {
        LOCK_SCOPE(&x->lock);
        done = x->done;
        x->done = NULL;
        x->phase = LINK_BOX;
        x->newer = false;
        link_out_free(x->claim);
        x->claim = NULL;
    }
    is_up(x);
    link_claim_timer(x, 0);
    if (done) {
        box_timing timing = timing_of(x);
        done(x->done_arg, NULL, x, &timing);
    }
    told = atomic_load(&x->users) > 0;
    if (told)
        x->ev->attached(x->arg, x->hello, spine_hello_recs(x->hello));
    free(x->hello);
    x->hello = NULL;
    LOCK_SCOPE(&x->lock);
    x->state = LINK_OPEN;
    link_flush(x);
    return true;
}

static void set_warm_ready(box *x)
{
    bool warm;

    {
        LOCK_SCOPE(&x->lock);
        x->state = LINK_OPEN;
        warm = x->phase == LINK_WARM;
        if (x->phase == LINK_CLAIMING)
            link_send_claim(x);
    }
    is_up(x);
    if (warm && x->wev->ready)
        x->wev->ready(x->warg, x);
}

/* ---- HELLO ---- */

static bool is_mine(box *x, const sps_message *m)
{
    LOCK_SCOPE(&x->lock);
    return m->nextra == sizeof x->sandbox && !memcmp(m->extra, x->sandbox, sizeof x->sandbox);
}

static bool claimed_by_another(box *x)
{
    link_box_end(x, ERR_CONFLICT, EALREADY, "somebody else has claimed it");
    return false;
}

/* Handles HELLO of a known box. A claim of another sandbox means that the container was found by a
 * wrong name. */
static bool greet_box(box *x, bool claimed, bool mine)
{
    if (claimed && !mine)
        return claimed_by_another(x);
    if (!claimed && x->was_claimed)
        return link_greet_taint(x, "pid 1 has forgotten its claim");
    x->was_claimed = claimed;
    return link_greet_opened(x);
}

static bool greet_other(box *x, bool claimed, bool mine)
{
    if (!claimed) {
        set_warm_ready(x);
        return true;
    }
    x->was_claimed = true;
    if (!mine || phase_of(x) != LINK_CLAIMING)
        return claimed_by_another(x);
    return link_greet_opened(x);
}

static void take_whose(box *x, const sps_message *m)
{
    uint32_t packed[4];

    if (m->nextra != sizeof packed)
        return;
    memcpy(packed, m->extra, sizeof packed);
    if (!link_id_unpack(packed, x->whose))
        x->whose[0] = 0;
}

bool link_on_hello(box *x, const sps_message *m)
{
    const struct sp_hello *h = m->record;
    bool claimed = h->flags & SP_HELLO_CLAIMED;

    if (x->instance && x->instance != h->instance)
        return link_greet_taint(x, "pid 1 is another than it was");
    x->instance = h->instance;
    x->hello = xmalloc(m->size);
    memcpy(x->hello, h, m->size);
    if (claimed)
        take_whose(x, m);
    return phase_of(x) == LINK_BOX ? greet_box(x, claimed, is_mine(x, m))
                                   : greet_other(x, claimed, is_mine(x, m));
}

/* After a downgrade, bothyd may find boxes of a newer release: it must not end them. */
bool link_on_newer(box *x)
{
    bool told;

    {
        LOCK_SCOPE(&x->lock);
        told = x->newer;
        x->newer = true;
    }
    if (!told)
        log_error("link",
                  "container %s: init speaks a newer version of the spine than this bothyd (%u to "
                  "%u): it lives on, out of reach; run the newer bothyd again",
                  x->handle, SP_VERSION_MIN, SP_VERSION);
    if (!told && phase_of(x) == LINK_BOX && atomic_load(&x->users) && x->ev->newer)
        x->ev->newer(x->arg);
    link_box_broken(x, "init is newer than this bothyd");
    return false;
}

/* ---- the answer to CLAIM ---- */

static const char *failed_walls(uint64_t walls, buf *names)
{
    uint32_t failed = SP_TRIED(walls) & ~SP_HELD(walls) & WALLS_ALL;

    for (unsigned i = 0; i < WALL_COUNT; i++)
        if (failed & 1u << i)
            buf_printf(names, "%s'%s': %s", names->len ? "; " : "", wall_info(i)->name,
                       wall_info(i)->what);
    return names->len ? buf_cstr(names) : "one that this bothyd does not know";
}

bool link_on_claimed(box *x, const struct sp_hdr *h)
{
    CLEANUP(buf_done) buf names = {0};
    CLEANUP(freep) char *why = NULL;

    if (!h->err) {
        x->was_claimed = true;
        return link_greet_opened(x);
    }
    if (h->err == EALREADY)
        return claimed_by_another(x);
    if (h->err == SP_EWALL) {
        why = str_printf("a wall failed after the claim, tried from inside: %s",
                         failed_walls(h->id, &names));
        link_box_end(x, ERR_WALL_FAILED, 0, why);
        return false;
    }
    why = str_printf("init refused the claim: %s",
                     str_or(strerrordesc_np(h->err), "an unknown error"));
    link_box_end(x, ERR_CREATE_FAILED, h->err, why);
    return false;
}
