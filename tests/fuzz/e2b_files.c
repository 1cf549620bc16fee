/* Records of a kit, which a tenant may own, as E2B's clients see them: an entry is one JSON object
 * with a name and a path, an event too, no event is told of a name that only uploads have; and what
 * callers send as a path. */
#include "base/cleanup.h"
#include "door/e2b/entry.h"
#include "door/e2b/filesystem.h"

#include "fuzz.h"

static json_t *parsed(const buf *text)
{
    json_t *o = json_loadb(text->p, text->len, 0, NULL);

    MUST(json_is_object(o));
    return o;
}

static void check_entry(const fs_entry *x, const char *path, bool brief)
{
    CLEANUP(buf_done) buf text = {0};

    fs_entry_write(&text, x, path, brief);
    CLEANUP(json_decrefp) json_t *o = parsed(&text);
    MUST(json_is_string(json_object_get(o, "name")) && json_is_string(json_object_get(o, "path")));
    MUST(!brief || json_object_size(o) <= 3);
    MUST(brief || json_is_string(json_object_get(o, "permissions")));
}

static void check_event(const kit_record *r, const fs_entry *x)
{
    fs_event ev[2];
    size_t n = 0;

    if (fs_event_of(r, ev, &n) != FS_EVENTS)
        MUST(!n);
    MUST(n <= 2);
    for (size_t i = 0; i < n; i++) {
        CLEANUP(buf_done) buf text = {0};
        fs_event_write(&text, &ev[i], x, "/watched", false);
        CLEANUP(json_decrefp) json_t *o = parsed(&text);
        MUST(json_is_string(json_object_get(o, "name")) && *ev[i].name);
        free(ev[i].name);
    }
}

static void run_records(const uint8_t *data, size_t size)
{
    fs_entry x = {0};
    kit_record r;
    size_t used;

    for (size_t at = 0; at < size; at += used) {
        if (kit_decode(data + at, size - at, &r, &used) != KIT_OK)
            break;
        fs_entry_take(&x, &r);
        check_event(&r, &x);
        if (x.is) {
            CLEANUP(freep) char *path = fs_join("/a//", x.name, strlen(x.name));
            MUST(path[0] == '/');
            check_entry(&x, path, size & 1);
        }
    }
    fs_entry_done(&x);
}

static void run_message(const char *text, size_t n)
{
    CLEANUP(json_decrefp) json_t *in = NULL;
    const char *path = NULL;
    uint32_t number = 0;
    bool flag = false;

    err *e = json_parse(text, n, &in);
    if (!e)
        e = fs_text(in, "path", NULL, &path);
    if (!e)
        e = fs_check_path(path, &path);
    if (!e) {
        MUST(*path && strlen(path) <= KIT_PATH_MAX);
        e = fs_number(in, "depth", &number);
    }
    if (!e)
        e = fs_flag(in, "include_entry", "includeEntry", &flag);
    if (e)
        MUST(e->code == ERR_INVALID_REQUEST);
    err_free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] & 1)
        run_message((const char *)data + 1, size - 1);
    else
        run_records(data + 1, size - 1);
    return 0;
}
