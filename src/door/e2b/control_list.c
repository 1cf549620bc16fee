/* Lists of sandboxes: filters, order, pages. A node has at most some thousand live sandboxes, so
 * every request reads all of the caller's and sorts them, the newest first. A page ends where the
 * next token begins. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "door/e2b/control.h"

#define PAGE      100
#define LOOKED_AT 100000

typedef struct entry {
    sandbox_view view;
    e2b_note note;
} entry;

typedef struct listing {
    entry *v;
    size_t n;
} listing;

static void entry_done(entry *e)
{
    sandbox_view_done(&e->view);
    e2b_note_done(&e->note);
}

static void listing_done(listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        entry_done(&l->v[i]);
    free(l->v);
}

/* ---- filters ---- */

typedef struct filter {
    json_t *metadata; /* or NULL */
    bool running, paused;
    const char *template; /* or NULL */
    uint64_t after_ns;    /* started */
    bool ascending;
    size_t limit;
    uint64_t from_ns; /* the page token: begin after this sandbox */
    char from_id[SANDBOX_ID_LEN + 1];
} filter;

static void filter_done(filter *f)
{
    json_decref(f->metadata);
}

static err *parse_states(const char *text, filter *f)
{
    if (!text || !*text) {
        f->running = f->paused = true;
        return NULL;
    }
    for (const char *p = text; p;) {
        size_t n = strcspn(p, ",");
        if (n == 7 && !memcmp(p, "running", n))
            f->running = true;
        else if (n == 6 && !memcmp(p, "paused", n))
            f->paused = true;
        else
            return err_new(ERR_INVALID_REQUEST, "state: '%.*s' is neither running nor paused",
                           (int)(n > 32 ? 32 : n), p);
        p = p[n] ? p + n + 1 : NULL;
    }
    return NULL;
}

/* Parses a page token: "<created, ns>-<id>". */
static err *parse_token(const char *text, filter *f)
{
    const char *dash = text ? strchr(text, '-') : NULL;

    if (!text || !*text)
        return NULL;
    CLEANUP(freep) char *number = xstrndup(text, dash ? (size_t)(dash - text) : 0);
    if (!dash || !str_to_u64(number, UINT64_MAX, &f->from_ns) || !id_is_sandbox(dash + 1))
        return err_new(ERR_INVALID_REQUEST, "nextToken: not one of this server");
    str_copy(f->from_id, sizeof f->from_id, dash + 1);
    return NULL;
}

/* Parses a time zone: "Z", nothing, or an offset from UTC such as "+02:00", whose '+' may have been
 * decoded to a space. *ret_offset is in seconds. */
static bool parse_zone(const char *text, long *ret_offset)
{
    struct tm tm = {0};

    *ret_offset = 0;
    if (!*text || str_eq(text, "Z"))
        return true;
    const char *rest = strlen(text) == strlen("+00:00") ? strptime(text + 1, "%H:%M", &tm) : NULL;
    *ret_offset = (*text == '-' ? -1 : 1) * (tm.tm_hour * 3600L + tm.tm_min * 60L);
    return strchr("+- ", *text) && rest && !*rest;
}

/* Parses "2026-01-02T03:04:05Z". A fraction of a second is ignored. */
static err *parse_after(const char *text, filter *f)
{
    struct tm tm = {0};
    long offset = 0;

    if (!text || !*text)
        return NULL;
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (rest && *rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (!rest || !parse_zone(rest, &offset))
        return err_new(ERR_INVALID_REQUEST, "startedAfter: must be a time as in RFC 3339");
    time_t s = timegm(&tm) - offset;
    f->after_ns = s > 0 ? (uint64_t)s * NS_PER_S : 0;
    return NULL;
}

static err *parse_limit(const char *text, filter *f)
{
    uint64_t n = PAGE;

    if (text && *text && (!str_to_u64(text, UINT32_MAX, &n) || !n))
        return err_new(ERR_INVALID_REQUEST, "limit: must be 1 or more");
    f->limit = n > PAGE ? PAGE : n;
    return NULL;
}

static err *parse_filter(const request *rq, filter *f)
{
    const char *metadata = request_query(rq, "metadata"), *order = request_query(rq, "order");

    f->template = request_query(rq, "template");
    f->ascending = str_eq(order, "asc");
    TRY(parse_after(request_query(rq, "startedAfter"), f));
    TRY(parse_states(request_query(rq, "state"), f));
    return metadata && *metadata ? metadata_filter(metadata, &f->metadata) : NULL;
}

static bool control_list_passes(const filter *f, const entry *e)
{
    bool paused = view_is_paused(&e->view);

    if (paused ? !f->paused : !f->running)
        return false;
    if (e->view.created_ns < f->after_ns)
        return false;
    if (f->template && *f->template &&
        !str_eq(f->template, str_or(e->note.template, e->view.image_name)))
        return false;
    if (!f->metadata)
        return true;
    CLEANUP(json_decrefp) json_t *has = view_metadata(&e->view, &e->note);
    return metadata_matches(has, f->metadata);
}

/* ---- order ---- */

static int later_first(const void *a, const void *b)
{
    const sandbox_view *x = &((const entry *)a)->view, *y = &((const entry *)b)->view;

    if (x->created_ns != y->created_ns)
        return x->created_ns < y->created_ns ? 1 : -1;
    return strcmp(y->id, x->id);
}

static int earlier_first(const void *a, const void *b)
{
    return later_first(b, a);
}

static bool is_behind(const filter *f, const entry *e)
{
    entry from = {.view = {.created_ns = f->from_ns}};

    if (!f->from_id[0])
        return true;
    memcpy(from.view.id, f->from_id, sizeof from.view.id);
    return (f->ascending ? earlier_first : later_first)(&from, e) < 0;
}

/* ---- lists ---- */

static err *control_list_collect(request *rq, const filter *f, listing *l)
{
    CLEANUP(freep) sandbox_view *views = NULL;
    CLEANUP(freep) char *next = NULL;
    sandbox_filter all = {.states = 1u << LIFE_RUNNING | 1u << LIFE_PAUSED | 1u << LIFE_HIBERNATED,
                          .max = LOOKED_AT};
    size_t n = 0;

    TRY(engine_list(e2b_engine(rq), e2b_caller(rq), &all, &views, &n, &next));
    l->v = xcalloc(n + 1, sizeof *l->v);
    for (size_t i = 0; i < n; i++) {
        entry e = {.view = views[i]};
        e2b_note_of_view(&e.view, &e.note);
        if (control_list_passes(f, &e))
            l->v[l->n++] = e;
        else
            entry_done(&e);
    }
    qsort(l->v, l->n, sizeof *l->v, f->ascending ? earlier_first : later_first);
    return NULL;
}

static err *control_list_answer(request *rq, response *rs, const filter *f)
{
    CLEANUP(listing_done) listing l = {0};
    const entry *last = NULL;

    TRY(control_list_collect(rq, f, &l));
    json_t *list = json_array();
    for (size_t i = 0; i < l.n; i++) {
        const entry *e = &l.v[i];
        if (!is_behind(f, e))
            continue;
        if (last && f->limit && json_array_size(list) == f->limit) {
            response_header(rs, "X-Next-Token", "%llu-%s",
                            (unsigned long long)last->view.created_ns, last->view.id);
            break;
        }
        json_array_append_new(list, view_listed(&e->view, &e->note));
        last = e;
    }
    response_json(rs, 200, list);
    return NULL;
}

err *control_list(request *rq, response *rs)
{
    CLEANUP(filter_done) filter f = {0};

    TRY(parse_filter(rq, &f));
    if (!request_query(rq, "state"))
        f.paused = false; /* the first generation of the API had no pause */
    return control_list_answer(rq, rs, &f);
}

err *control_list_v2(request *rq, response *rs)
{
    CLEANUP(filter_done) filter f = {0};

    TRY(parse_filter(rq, &f));
    TRY(parse_limit(request_query(rq, "limit"), &f));
    TRY(parse_token(request_query(rq, "nextToken"), &f));
    return control_list_answer(rq, rs, &f);
}
