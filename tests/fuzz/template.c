/* Templates: as the store may hold one, and as callers send and change one. What is read is written
 * again as the same; what a caller's words become shows as one JSON object that can be sent again.
 * The first byte chooses: a row of the store, a request, or a change of one that is there. */
#include "../../src/engine/template.c" /* the store's form */

#include "../../src/door/rest/templates.c" /* from body to template, and back */
#include "fuzz.h"

static void must_read_again(const sandbox_spec *s)
{
    CLEANUP(freep) char *first = template_spec_text(s);
    CLEANUP(freep) char *second = NULL;
    CLEANUP(sandbox_spec_done) sandbox_spec again = {0};

    MUST(!template_spec_read("x", first, &again));
    second = template_spec_text(&again);
    MUST(!strcmp(first, second));
}

static void must_be_sent_again(const template_view *t)
{
    CLEANUP(json_decrefp) json_t *view = view_template(t);
    CLEANUP(json_decrefp) json_t *wish = template_request(t);
    CLEANUP(create_template_done) create_template in = {0};
    CLEANUP(template_view_done) template_view again = {0};
    CLEANUP(buf_done) buf text = {0};

    MUST(json_is_object(view) && json_object_get(view, "start"));
    json_write(&text, wish);
    MUST(!create_template_decode(text.p, text.len, &in));
    take_template(&in, &again);
    CLEANUP(freep) char *first = template_spec_text(&t->spec);
    CLEANUP(freep) char *second = template_spec_text(&again.spec);
    MUST(!strcmp(first, second));
}

static void check_request(const uint8_t *p, size_t n, const template_view *old)
{
    CLEANUP(create_template_done) create_template in = {0};
    CLEANUP(template_view_done) template_view t = {0};
    buf body = {.p = (char *)p, .len = n};
    err *e = old ? templates_patched(old, &body, &in) : create_template_decode(p, n, &in);

    if (!e) {
        t.owner = xstrdup("admin");
        take_template(&in, &t);
        must_read_again(&t.spec);
        must_be_sent_again(&t);
    }
    MUST(!e || e->message);
    err_free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = {0};
    static char busybox[] = "busybox", name[] = "old", owner[] = "admin";
    const template_view old = {
        .name = name, .owner = owner, .spec = {.image = busybox, .ttl_ms = 60000, .setuid = true}};

    if (!size)
        return 0;
    if (*data % 3) {
        check_request(data + 1, size - 1, *data % 3 == 2 ? &old : NULL);
        return 0;
    }
    CLEANUP(freep) char *text = xstrndup((const char *)data + 1, size - 1);
    err *e = template_spec_read("x", text, &s);
    if (!e)
        must_read_again(&s);
    err_free(e);
    return 0;
}
