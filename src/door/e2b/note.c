/* The note that the door stores with a sandbox. A sandbox of another door reads as a secured one,
 * with its image's name as the template. */
#include <string.h>

#include "door/e2b/internal.h"

static void note_parse(const char *text, e2b_note *ret_note)
{
    CLEANUP(json_decrefp) json_t *o = NULL;
    e2b_note n = {.secure = true};

    if (text)
        err_drop(json_parse(text, strlen(text), &o), "e2b");
    const json_t *kept = json_object_get(o, "e2b");
    if (kept) {
        const char *template = json_str(kept, "template");
        json_t *metadata = json_object_get(kept, "metadata");
        n = (e2b_note){.ours = true,
                       .secure = json_flag(kept, "secure"),
                       .auto_resume = json_flag(kept, "auto_resume"),
                       .ttl_ms = (uint64_t)json_int(kept, "ttl_ms", 0),
                       .template = template ? xstrdup(template) : NULL,
                       .metadata = json_is_object(metadata) ? json_incref(metadata) : NULL};
    }
    *ret_note = n;
}

void e2b_note_read(const sandbox *sb, e2b_note *ret_note)
{
    note_parse(sandbox_door(sb), ret_note);
}

void e2b_note_of_view(const sandbox_view *v, e2b_note *ret_note)
{
    note_parse(v->door, ret_note);
}

char *e2b_note_write(const e2b_note *n)
{
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(json_decrefp)
    json_t *o = json_pack("{s:{s:b,s:b,s:I,s:s?}}", "e2b", "secure", n->secure, "auto_resume",
                          n->auto_resume, "ttl_ms", (json_int_t)n->ttl_ms, "template", n->template);

    if (n->metadata)
        json_object_set(json_object_get(o, "e2b"), "metadata", n->metadata);
    json_write(&b, o);
    return buf_take(&b);
}

void e2b_note_done(e2b_note *n)
{
    free(n->template);
    json_decref(n->metadata);
    *n = (e2b_note){0};
}
