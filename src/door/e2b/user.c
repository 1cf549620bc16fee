/* The user "user" of E2B's own images. Old SDKs name it with every call, whether or not the image
 * has it; if it does not, the call runs as the sandbox's own user. */
#include <pthread.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/thread.h"
#include "door/e2b/internal.h"
#include "engine/files.h"

#define NAME     "user"
#define KNOWN    4096           /* sandboxes remembered; beyond that all are forgotten */
#define ABSENT   (5 * NS_PER_S) /* time until an absent user is looked for again: it may be added */
#define PATIENCE (30 * NS_PER_S)
#define SLICE_MS 1000

struct e2b_users {
    pthread_mutex_t lock;
    /* By sandbox id: an odd value if the user exists there, otherwise the monotonic time in ns
     * until which it counts as absent. */
    map until;
};

e2b_users *e2b_users_new(void)
{
    e2b_users *u = xcalloc(1, sizeof *u);

    pthread_mutex_init(&u->lock, NULL);
    return u;
}

void e2b_users_free(e2b_users *u)
{
    if (!u)
        return;
    map_done(&u->until);
    pthread_mutex_destroy(&u->lock);
    free(u);
}

enum known {
    UNKNOWN,
    THERE,
    NOT_THERE
};

static enum known user_recall(e2b_users *u, const char *id)
{
    LOCK_SCOPE(&u->lock);
    uint64_t until = (uint64_t)(uintptr_t)map_get_str(&u->until, id);

    return until & 1 ? THERE : until > now_mono_ns() ? NOT_THERE : UNKNOWN;
}

static void user_remember(e2b_users *u, const char *id, bool there)
{
    uint64_t until = there ? 1 : (now_mono_ns() + ABSENT) & ~UINT64_C(1);
    LOCK_SCOPE(&u->lock);

    if (u->until.count >= KNOWN) {
        map_done(&u->until);
        u->until = (map){0};
    }
    map_put_str(&u->until, id, (void *)(uintptr_t)until);
}

static void on_bytes(void *arg)
{
    eventfd_write(*(int *)arg, 1);
}

/* Finds out whether the user exists, by running the kit as that user. */
static err *user_probe(envd_call *c, request *rq, bool *ret_there)
{
    const kit_request ask = {.verb = KIT_STAT, .path = "/", .mode = KIT_MODE_NONE};
    CLEANUP(closep) int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CLEANUP(kit_call_freep) kit_call *k = NULL; /* freed before the event it writes to */
    eventfd_t v;
    uint64_t began = now_mono_ns();
    enum kit_next next = KIT_WAIT;
    kit_record r;

    if (event < 0)
        return err_new(ERR_UNAVAILABLE, "no descriptor is left");
    TRY(engine_kit(c->door->o.engine, c->as, c->sb, &ask, NAME, &k));
    kit_call_watch(k, on_bytes, &event);
    for (;;) {
        err *e = kit_call_next(k, now_mono_ns(), &next, &r);
        if (e && e->code == ERR_USER_NOT_FOUND) {
            err_free(e);
            *ret_there = false;
            return NULL;
        }
        TRY(e);
        if (next != KIT_WAIT)
            break;
        if (now_mono_ns() - began > PATIENCE)
            return err_new(ERR_TIMEOUT, "no answer from inside the sandbox for 30 s");
        TRY(request_wait(rq, event, SLICE_MS));
        eventfd_read(event, &v);
    }
    *ret_there = true;
    return NULL;
}

err *e2b_user(envd_call *c, request *rq)
{
    const char *id = sandbox_id(c->sb);
    bool there = true;

    if (!str_eq(c->user, NAME))
        return NULL;
    enum known known = user_recall(c->door->users, id);
    if (known == UNKNOWN) {
        TRY(user_probe(c, rq, &there));
        user_remember(c->door->users, id, there);
        known = there ? THERE : NOT_THERE;
    }
    if (known == NOT_THERE)
        c->user = NULL;
    return NULL;
}

err *e2b_user_error(err *e)
{
    if (!e || (e->code != ERR_USER_NOT_FOUND && e->code != ERR_USER_NOT_MAPPED))
        return e;
    err *told = err_remedy(err_new(ERR_UNAUTHENTICATED, "error looking up user: %s", e->message),
                           "%s", err_remedy_of(e));
    err_free(e);
    return told;
}
