/* Sandboxes as JSON for E2B's clients. No member may be missing: Python's raise KeyError. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "door/e2b/control.h"

json_t *view_when(uint64_t real_ns)
{
    time_t s = (time_t)(real_ns / NS_PER_S);
    struct tm tm;
    char day[32], text[64];

    gmtime_r(&s, &tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof text, "%s.%03uZ", day, (unsigned)(real_ns / NS_PER_MS % 1000));
    return json_string(text);
}

static const char *template_of(const sandbox_view *v, const e2b_note *note)
{
    return str_or(note->template, v->image_name);
}

static json_t *token_json(const e2b *d, const sandbox_view *v, enum e2b_purpose purpose)
{
    char token[E2B_TOKEN_LEN + 1];

    e2b_token(d, v->id, engine_key_epoch(d->o.engine, v->owner), purpose, token);
    return json_string(token);
}

static void set_secrets(const e2b *d, json_t *o, const sandbox_view *v, const e2b_note *note)
{
    bool has = d->o.domain && *d->o.domain;

    json_object_set_new(o, "envdAccessToken",
                        note->secure ? token_json(d, v, E2B_FOR_ENVD) : json_null());
    json_object_set_new(o, "trafficAccessToken",
                        note->secure && !d->o.public_ports ? token_json(d, v, E2B_FOR_TRAFFIC)
                                                           : json_null());
    json_object_set_new(o, "domain", json_string(has ? d->o.domain : d->domain));
}

json_t *view_made(const e2b *d, sandbox *sb)
{
    CLEANUP(sandbox_view_done) sandbox_view v;
    CLEANUP(e2b_note_done) e2b_note note = {0};

    sandbox_get(sb, &v);
    e2b_note_read(sb, &note);
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:s}", "sandboxID", v.id, "templateID", template_of(&v, &note),
                  "clientID", CLIENT_ID, "envdVersion", ENVD_VERSION);
    set_secrets(d, o, &v, &note);
    return o;
}

json_t *view_metadata(const sandbox_view *v, const e2b_note *note)
{
    json_t *o = json_object();

    if (note->metadata)
        return json_decref(o), json_incref(note->metadata);
    for (size_t i = 0; v->labels && v->labels[i]; i++) {
        const char *eq = strchr(v->labels[i], '=');
        CLEANUP(freep) char *name = xstrndup(v->labels[i], (size_t)(eq - v->labels[i]));
        json_object_set_new(o, name, json_string(eq + 1));
    }
    return o;
}

bool view_is_paused(const sandbox_view *v)
{
    return v->paused_ns || str_eq(v->state, lifecycle_name(LIFE_HIBERNATED));
}

#define MIB (1u << 20)

json_t *view_listed(const sandbox_view *v, const e2b_note *note)
{
    uint32_t cores = (v->limits.cpu_milli + 999) / 1000;

    json_t *o = json_pack(
        "{s:s,s:s,s:s,s:o,s:o,s:i,s:I,s:I,s:s,s:s,s:o,s:[]}", "sandboxID", v->id, "templateID",
        template_of(v, note), "clientID", CLIENT_ID, "startedAt", view_when(v->created_ns), "endAt",
        view_when(v->ends_ns), "cpuCount", (int)(cores ? cores : 1), "memoryMB",
        (json_int_t)(v->limits.memory / MIB), "diskSizeMB", (json_int_t)(v->limits.disk / MIB),
        "state", view_is_paused(v) ? "paused" : "running", "envdVersion", ENVD_VERSION, "metadata",
        view_metadata(v, note), "volumeMounts");
    json_object_set_new(o, "alias", json_string(template_of(v, note)));
    return o;
}

json_t *view_detail(const e2b *d, const caller *c, sandbox *sb)
{
    CLEANUP(sandbox_view_done) sandbox_view v;
    CLEANUP(e2b_note_done) e2b_note note = {0};

    sandbox_get(sb, &v);
    e2b_note_read(sb, &note);
    json_t *o = view_listed(&v, &note);
    note.secure &= c->role >= CALLER_USER; /* readers get no tokens */
    set_secrets(d, o, &v, &note);
    json_object_set_new(o, "allowInternetAccess", json_boolean(v.network == NETWORK_OPEN));
    json_object_set_new(o, "lifecycle",
                        json_pack("{s:s,s:b}", "onTimeout", v.ttl_pauses ? "pause" : "kill",
                                  "autoResume", note.auto_resume));
    return o;
}
