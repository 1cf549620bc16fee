/* /v1/registries: mirrors and logins. */
#include <pthread.h>
#include <string.h>

#include "api/openapi.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"
#include "door/rest/internal.h"

#define BODY_MAX    (64 * 1024)
#define LOGINS_MAX  8 /* logins that are tested at a time; each has a thread and a process */
#define LOGINS_EACH 2 /* of one owner: a registry may take a minute to answer */

static json_t *view_login(const char *host, const char *username, bool shared, uint64_t created_ns)
{
    return json_pack("{s:s,s:s,s:b,s:o}", "host", host, "username", username, "shared", shared,
                     "created", view_time(created_ns));
}

static json_t *view_registry(const registry *r)
{
    return json_pack("{s:s,s:o,s:b,s:b}", "host", r->host, "mirrors", view_strings(r->mirrors),
                     "insecure", r->insecure, "ca", r->ca != NULL);
}

err *rest_registry_list(request *rq, response *rs)
{
    image_store *images = engine_images(rest_engine(rq));
    CLEANUP(freep) login *logins = NULL;
    bool listed_only;
    size_t n = 0;
    const registries *all = image_registries(images, &listed_only);

    TRY(image_logins(images, rest_caller(rq)->owner, &logins, &n));
    json_t *hosts = json_array(), *list = json_array();
    for (size_t i = 0; i < all->n; i++)
        json_array_append_new(hosts, view_registry(&all->v[i]));
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, view_login(logins[i].host, logins[i].username, logins[i].shared,
                                               logins[i].created_ns));
        login_done(&logins[i]);
    }
    response_json(rs, 200,
                  json_pack("{s:s,s:o,s:o}", "from", listed_only ? "listed" : "any", "registries",
                            hosts, "logins", list));
    return NULL;
}

/* ---- login: a registry may be slow, so a thread of its own waits, not one of the server ---- */

typedef struct proving {
    struct proving *next; /* in the list of running tests */
    image_store *images;
    wait_ticket *ticket;
    char *by; /* owner who requested it */
    bool shared;
    char *host, *username, *password;
} proving;

static pthread_mutex_t under_way_lock = PTHREAD_MUTEX_INITIALIZER;
static proving *under_way;

static err *too_many(void)
{
    return err_retry_after(err_new(ERR_UNAVAILABLE, "too many logins at a time"), 2);
}

static err *proving_begin(proving *p)
{
    unsigned all = 0, own = 0;
    LOCK_SCOPE(&under_way_lock);

    for (const proving *o = under_way; o; o = o->next, all++)
        own += str_eq(o->by, p->by);
    if (all >= LOGINS_MAX || own >= LOGINS_EACH)
        return too_many();
    p->next = under_way;
    under_way = p;
    return NULL;
}

static void proving_end(proving *p)
{
    LOCK_SCOPE(&under_way_lock);

    for (proving **o = &under_way; *o; o = &(*o)->next)
        if (*o == p) {
            *o = p->next;
            return;
        }
}

static void proving_free(proving *p)
{
    free(p->by);
    free(p->host);
    free(p->username);
    secret_freep(&p->password);
    free(p);
}

static void *registries_prove(void *arg)
{
    proving *p = arg;
    err *e = image_login(p->images, p->shared ? NULL : p->by, p->host, p->username, p->password);

    wait_finish(p->ticket, e, 200,
                e ? NULL : view_login(p->host, p->username, p->shared, now_real_ns()), false);
    proving_end(p);
    proving_free(p);
    return NULL;
}

err *rest_registry_login(request *rq, response *rs)
{
    CLEANUP(registry_login_done) registry_login in = {0};
    CLEANUP(body_wipe) buf body = {0};

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(registry_login_decode(body.p, body.len, &in));
    if (in.shared)
        TRY(err_wrap(caller_require(rest_caller(rq), CALLER_ADMIN), "a login for everybody"));
    proving *p = xcalloc(1, sizeof *p);
    *p = (proving){.images = engine_images(rest_engine(rq)),
                   .by = xstrdup(rest_caller(rq)->owner),
                   .shared = in.shared,
                   .host = xstrdup(request_param(rq, 0)),
                   .username = TAKE_PTR(in.username),
                   .password = TAKE_PTR(in.password)};
    err *refused = proving_begin(p);
    if (refused) {
        proving_free(p);
        return refused;
    }
    p->ticket = wait_start(rq, rs, false);
    if (!thread_try_detach(registries_prove, p)) {
        wait_finish(p->ticket, too_many(), 0, NULL, false);
        proving_end(p);
        proving_free(p);
    }
    return NULL;
}

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

err *rest_registry_logout(request *rq, response *rs)
{
    CLEANUP(registry_logout_query_done) registry_logout_query q = {0};

    TRY(registry_logout_query_decode(query_find, rq, &q));
    if (q.shared)
        TRY(err_wrap(caller_require(rest_caller(rq), CALLER_ADMIN), "a login for everybody"));
    TRY(image_logout(engine_images(rest_engine(rq)), q.shared ? NULL : rest_caller(rq)->owner,
                     request_param(rq, 0)));
    response_status(rs, 204);
    return NULL;
}
