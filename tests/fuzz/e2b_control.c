/* Bodies and filters of E2B's control plane: a create becomes a spec within its limits, metadata
 * comes back as it was given, and a filter that was written the SDKs' way finds it; what is to be
 * built lies within its limits, and what it copies stays below the root. */
#include "door/e2b/templates.h"
#include "engine/build_internal.h"

#include "../../src/door/e2b/control_create.c" /* the door's own step from body to spec */
#include "fuzz.h"

/* As encodeURIComponent does. */
static void escape(buf *out, const char *s)
{
    for (; *s; s++)
        if ((*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9'))
            buf_char(out, *s);
        else
            buf_printf(out, "%%%02X", (unsigned char)*s);
}

static char *filter_for(const json_t *metadata)
{
    CLEANUP(buf_done) buf pairs = {0}, whole = {0};
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)metadata, name, value)
    {
        if (pairs.len)
            buf_char(&pairs, '&');
        escape(&pairs, name);
        buf_char(&pairs, '=');
        escape(&pairs, json_string_value(value));
    }
    escape(&whole, buf_cstr(&pairs));
    buf_cstr(&whole);
    return buf_take(&whole);
}

static void check_metadata(const asked *a, json_t *given)
{
    sandbox_view v = {.labels = a->spec.labels};
    CLEANUP(json_decrefp) json_t *back = view_metadata(&v, &a->note);

    if (!given || !json_is_object(given))
        return;
    MUST(json_equal(back, given));
    CLEANUP(freep) char *text = filter_for(given);
    CLEANUP(json_decrefp) json_t *pairs = NULL;
    err *e = metadata_filter(text, &pairs);
    MUST(!e || json_object_size(given) > 64);
    if (!e)
        MUST(metadata_matches(back, pairs) && json_object_size(pairs) == json_object_size(given));
    err_free(e);
}

static void check_note(const asked *a)
{
    sandbox_view v = {.door = a->spec.door};
    CLEANUP(e2b_note_done) e2b_note back = {0};

    e2b_note_of_view(&v, &back);
    MUST(back.ours && back.secure == a->note.secure && back.auto_resume == a->note.auto_resume);
    MUST(back.ttl_ms == a->note.ttl_ms && str_eq(back.template, a->note.template));
}

static void run_create(json_t *body, bool v2)
{
    static const e2b DOOR = {.o = {.base_image = "base:1",
                                   .code_interpreter_image = "ci:1",
                                   .default_ttl_ms = 300000,
                                   .sudo = true}};
    CLEANUP(asked_done) asked a = {0};

    /* Whether the network may be had is the engine's to say. */
    json_object_set_new(body, "allow_internet_access", json_false());
    err *e = control_create_take(&DOOR, NULL, body, v2, &a);
    if (!e) {
        MUST(a.spec.image && *a.spec.image && a.spec.ttl_ms && a.spec.ttl_ms <= SPEC_TTL_MAX_MS);
        MUST(a.spec.network == NETWORK_NONE && (!v2 || a.note.secure));
        check_metadata(&a, json_object_get(body, "metadata"));
        check_note(&a);
    }
    err_free(e);
}

/* Names of entries, as kit_decode() takes them, or nothing: the root. */
static void check_path(const char *path)
{
    MUST(path[0] != '/' && !strstr(path, "//") && !str_ends(path, "/"));
    for (const char *p = path; p && *p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
        size_t n = strcspn(p, "/");
        MUST(n && !(n == 1 && p[0] == '.') && !(n == 2 && p[0] == '.' && p[1] == '.'));
    }
}

static void check_step(const build_step *s)
{
    MUST(s->verb < BUILD_VERBS && (s->verb == BUILD_COPY) == (s->files != NULL));
    MUST(!s->files || build_hash_valid(s->files));
    if (strv_len(s->args) < 2)
        return;
    CLEANUP(freep) char *source = build_copy_source(s->args[0]);
    CLEANUP(freep) char *target = build_copy_target("/home/user", s->args[1]);
    check_path(source);
    check_path(target);
    MUST(!source[strcspn(source, "*?[{")]);
}

static void run_build(const json_t *body)
{
    CLEANUP(template_asked_done) template_asked new = {0};
    CLEANUP(build_recipe_done) build_recipe r = {0};
    err *e = template_asked_parse(body, &new);

    if (!e)
        MUST(new.name &&strv_len(new.tags) <= BUILD_TAGS_MAX + 1);
    err_free(e);
    e = build_recipe_parse(body, &r);
    if (!e) {
        MUST(!r.base.image != !r.base.template && r.as_user == (r.base.image != NULL));
        MUST(r.nsteps <= BUILD_STEPS_MAX);
        for (size_t i = 0; i < r.nsteps; i++)
            check_step(&r.steps[i]);
        MUST(!r.start || *r.start);
    }
    err_free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    uint8_t how = fuzz_byte(&in);
    CLEANUP(freep) char *filter = fuzz_word(&in, '\n');
    CLEANUP(json_decrefp) json_t *body = NULL, *pairs = NULL;

    forms_init();
    err *e = metadata_filter(filter, &pairs);
    MUST(e || json_object_size(pairs) <= 64);
    err_free(e);
    e = json_parse(in.p, in.n, &body);
    if (!e && json_is_object(body) && how & 2)
        run_build(body);
    else if (!e && json_is_object(body))
        run_create(body, how & 1);
    err_free(e);
    return 0;
}
