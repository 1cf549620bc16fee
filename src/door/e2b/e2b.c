/* The door's entry points: decides the plane of a request and dispatches it. */
#include "door/e2b/e2b.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "door/e2b/internal.h"

const char *const E2B_OPERATIONS[] = {
    "e2b_none",      "e2b_process",   "e2b_filesystem", "e2b_files",   "e2b_envd",    "e2b_port",
    "e2b_create",    "e2b_list",      "e2b_info",       "e2b_kill",    "e2b_connect", "e2b_resume",
    "e2b_timeout",   "e2b_pause",     "e2b_metrics",    "e2b_logs",    "e2b_network", "e2b_fork",
    "e2b_snapshots", "e2b_templates", "e2b_volumes",    "e2b_secrets", NULL};

void e2b_set_operation(request *rq, const char *name)
{
    const e2b *d = e2b_of(rq);
    size_t i = 0;

    while (E2B_OPERATIONS[i] && strcmp(E2B_OPERATIONS[i], name) != 0)
        i++;
    assert(E2B_OPERATIONS[i]);
    request_set_operation(rq, d->o.door, d->o.operation + i);
}

/* Sets the domain for port host names. Without one, SDKs append e2b.app to them, and a program
 * would send its requests there. Names below localhost lead to the client's own machine, or
 * nowhere. */
static void e2b_set_domain(e2b *d)
{
    const char *port = d->o.tcp ? strrchr(d->o.tcp, ':') : NULL;

    snprintf(d->domain, sizeof d->domain, "localhost%s", str_or(port, ""));
}

e2b *e2b_new(const e2b_options *o)
{
    e2b *d = xcalloc(1, sizeof *d);

    d->o = *o;
    d->o.secret = NULL;
    e2b_set_domain(d);
    memcpy(d->secret, o->secret, sizeof d->secret);
    d->users = e2b_users_new();
    d->watchers = e2b_watchers_new(o->watcher_idle_ms);
    engine_on_look(o->engine, e2b_watchers_look, d->watchers);
    forms_init();
    return d;
}

void e2b_free(e2b *d)
{
    if (!d)
        return;
    engine_on_look(d->o.engine, NULL, NULL);
    e2b_watchers_free(d->watchers);
    e2b_users_free(d->users);
    secret_wipe(d->secret, sizeof d->secret);
    free(d);
}

static e2b_way way_of(const e2b *d, const request *rq)
{
    return e2b_route(&(e2b_asked){.path = request_path(rq),
                                  .host = request_header(rq, "Host"),
                                  .api_key = request_header(rq, "X-API-Key"),
                                  .sandbox = request_header(rq, "E2b-Sandbox-Id"),
                                  .port = request_header(rq, "E2b-Sandbox-Port"),
                                  .token = request_header(rq, "X-Access-Token"),
                                  .traffic = request_header(rq, "E2B-Traffic-Access-Token"),
                                  .has_signature = request_query(rq, "signature") != NULL,
                                  .domain = d->o.domain});
}

/* Returns true if ports of this sandbox need no token. A host that both doors could serve goes to
 * this door only then. */
static bool is_public(const e2b *d, const char *id)
{
    CLEANUP(sandbox_unrefp)
    sandbox *sb = d->o.public_ports ? engine_find_live(d->o.engine, id) : NULL;
    CLEANUP(e2b_note_done) e2b_note note = {0};

    if (sb)
        e2b_note_read(sb, &note);
    return note.ours;
}

bool e2b_claims(e2b *d, request *rq)
{
    e2b_way way = way_of(d, rq);

    return way.plane != PLANE_OTHER && (!way.native || is_public(d, way.id));
}

static void set_form(const e2b_way *way, const request *rq, response *rs)
{
    if (way->plane == PLANE_CONTROL)
        response_set_form(rs, &E2B_FORM_HTTP);
    else
        envd_set_form(way, rq, rs);
}

void e2b_form(e2b *d, request *rq, response *rs)
{
    e2b_way way = way_of(d, rq);

    set_form(&way, rq, rs);
}

err *e2b_dispatch(e2b *d, request *rq, response *rs)
{
    e2b_way way = way_of(d, rq);

    request_set_door(rq, d);
    set_form(&way, rq, rs);
    TRY(request_query_as_form(rq));
    e2b_set_operation(rq, "e2b_none");
    if (way.plane == PLANE_CONTROL)
        return control_dispatch(d, rq, rs);
    return envd_dispatch(d, &way, rq, rs);
}
