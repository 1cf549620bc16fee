#include "base/decode.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/decode_internal.h"
#include "base/str.h"

/* ---- members, arrays, objects ---- */

static err *put_object(enum decode_mode mode, const decode_type *t, const json_t *j, const place *p,
                       void *value);

static err *put_one(enum decode_mode mode, const decode_field *f, const json_t *j, const place *p,
                    void *at)
{
    if (f->kind == DECODE_OBJECT)
        return put_object(mode, f->type, j, p, at);
    return decode_value(mode, f, j, p, at);
}

static bool is_strings(const decode_field *f)
{
    return f->kind == DECODE_STRING || f->kind == DECODE_TEXT;
}

static err *put_array(enum decode_mode mode, const decode_field *f, const json_t *j, const place *p,
                      char *value)
{
    if (!json_is_array(j))
        return decode_wrong_type(p, "an array", j);
    size_t n = json_array_size(j);
    if (n < f->count_min)
        return decode_wrong(p, "must have at least %zu item%s", f->count_min,
                            f->count_min > 1 ? "s" : "");
    if (n > f->count_max)
        return decode_wrong(p, "has %zu items, at most %zu are allowed", n, f->count_max);
    /* One extra zeroed item: it ends vectors of strings, and decode_done() may run on a partial
     * array. */
    char *items = xcalloc(n + 1, f->size);
    *(char **)(value + f->at) = items;
    if (!is_strings(f))
        *(size_t *)(value + f->count_at) = n;
    for (size_t i = 0; i < n; i++) {
        place inner = {p, NULL, i};
        TRY(put_one(mode, f, json_array_get(j, i), &inner, items + i * f->size));
    }
    return NULL;
}

static err *put_member(enum decode_mode mode, const decode_field *f, const json_t *j,
                       const place *p, char *value)
{
    place inner = {p, f->name, 0};

    if (f->array)
        TRY(put_array(mode, f, j, &inner, value));
    else
        TRY(put_one(mode, f, j, &inner, value + f->at));
    if (f->has_at != DECODE_NOWHERE)
        *(bool *)(value + f->has_at) = true;
    return NULL;
}

static void put_presets(const decode_type *t, char *value);

/* Writes the default of an absent member. Its memory is zeroed before. */
static void put_preset(const decode_field *f, char *at)
{
    if (f->array)
        return;
    switch (f->kind) {
    case DECODE_INTEGER:
        decode_store_integer(f, (uint64_t)f->preset, at);
        break;
    case DECODE_BOOL:
        *(bool *)at = f->preset != 0;
        break;
    case DECODE_ENUM:
    case DECODE_OCTAL:
        *(uint32_t *)at = (uint32_t)f->preset;
        break;
    case DECODE_NUMBER:
        *(double *)at = f->preset_number;
        break;
    case DECODE_STRING:
    case DECODE_TEXT:
        if (f->preset_text)
            *(char **)at = xstrdup(f->preset_text);
        break;
    case DECODE_OBJECT:
        put_presets(f->type, at);
        break;
    default:
        break;
    }
}

static void put_presets(const decode_type *t, char *value)
{
    for (size_t i = 0; i < t->nfields; i++)
        put_preset(&t->fields[i], value + t->fields[i].at);
}

/* The members that were present, one bit each. The generator rejects types with more fields. */
#define FIELDS_MAX 256
typedef struct seen_set {
    uint64_t bits[FIELDS_MAX / 64];
} seen_set;

static bool seen_get(const seen_set *s, size_t i)
{
    return s->bits[i / 64] >> i % 64 & 1;
}

static void seen_add(seen_set *s, size_t i)
{
    s->bits[i / 64] |= UINT64_C(1) << i % 64;
}

static err *finish_fields(const decode_type *t, const seen_set *seen, const place *p, char *value)
{
    for (size_t i = 0; i < t->nfields; i++) {
        const decode_field *f = &t->fields[i];
        place inner = {p, f->name, 0};
        if (seen_get(seen, i))
            continue;
        if (f->required)
            return decode_wrong(&inner, "is missing");
        put_preset(f, value + f->at);
    }
    return NULL;
}

static size_t find_field(const decode_type *t, const char *name)
{
    size_t i = 0;

    for (; i < t->nfields; i++)
        if (!strcmp(t->fields[i].name, name) || str_eq(t->fields[i].alias, name))
            break;
    return i;
}

static err *unknown_member(const decode_type *t, const char *name, const place *p)
{
    CLEANUP(freep) const char **names = xcalloc(t->nfields, sizeof *names);
    CLEANUP(buf_done) buf all = {0};
    place inner = {p, name, 0};

    for (size_t i = 0; i < t->nfields; i++) {
        names[i] = t->fields[i].name;
        buf_printf(&all, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = str_nearest(name, names, t->nfields);
    err *e = near ? decode_wrong(&inner, "is not known, did you mean '%s'?", near)
                  : decode_wrong(&inner, "is not known");
    return err_remedy(e, "Use the members of %s: %s.", t->name, buf_cstr(&all));
}

static bool is_absent(enum decode_mode mode, const decode_field *f, const json_t *j)
{
    return json_is_null(j) && f->kind != DECODE_ANY && (mode != DECODE_STRICT || f->nullable);
}

static err *put_object(enum decode_mode mode, const decode_type *t, const json_t *j, const place *p,
                       void *value)
{
    seen_set seen = {0};
    const char *name;
    json_t *v;

    if (!json_is_object(j))
        return decode_wrong_type(p, "an object", j);
    json_object_foreach((json_t *)j, name, v)
    {
        size_t i = find_field(t, name);
        if (i == t->nfields) {
            if (mode == DECODE_STRICT)
                return unknown_member(t, name, p);
            continue;
        }
        const decode_field *f = &t->fields[i];
        place inner = {p, f->name, 0};
        if (is_absent(mode, f, v))
            continue;
        if (seen_get(&seen, i))
            return decode_wrong(&inner, "is there twice, also as '%s'", f->alias);
        seen_add(&seen, i);
        TRY(put_member(mode, f, v, p, value));
    }
    return finish_fields(t, &seen, p, value);
}

/* ---- documents ---- */

/* Overwrites every string of a parsed document that is about to be freed. The tree belongs to this
 * module alone; overwriting jansson's copies is the only way to keep secrets out of freed
 * memory. */
static void wipe_strings(json_t *j)
{
    const char *name;
    json_t *v;
    size_t i;

    if (json_is_string(j))
        secret_wipe((char *)json_string_value(j), json_string_length(j));
    json_object_foreach(j, name, v) wipe_strings(v);
    json_array_foreach(j, i, v) wipe_strings(v);
}

err *decode_json(const decode_type *t, const json_t *j, const char *path, void *ret_value)
{
    place root = {NULL, path, 0};

    memset(ret_value, 0, t->size);
    err *e = put_object(t->mode, t, j, &root, ret_value);
    if (e)
        decode_done(t, ret_value);
    return e;
}

err *decode_document(const decode_type *t, const void *p, size_t n, void *ret_value)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    memset(ret_value, 0, t->size);
    if (!n && t->empty_ok)
        p = "{}", n = 2;
    TRY(json_parse(p, n, &root));
    err *e = decode_json(t, root, "", ret_value);
    if (t->secret)
        wipe_strings(root);
    return e;
}

err *decode_texts(const decode_type *t, const char *(*find)(void *arg, const char *name), void *arg,
                  void *ret_value)
{
    char *value = ret_value;
    seen_set seen = {0};
    err *e = NULL;

    memset(ret_value, 0, t->size);
    for (size_t i = 0; i < t->nfields && !e; i++) {
        const decode_field *f = &t->fields[i];
        place at = {NULL, f->name, 0};
        const char *s = find(arg, f->name);
        if (!s)
            continue;
        seen_add(&seen, i);
        if (f->has_at != DECODE_NOWHERE)
            *(bool *)(value + f->has_at) = true;
        e = decode_value_text(f, s, &at, value + f->at);
    }
    if (!e)
        e = finish_fields(t, &seen, NULL, value);
    if (e)
        decode_done(t, ret_value);
    return e;
}

/* ---- freeing ---- */

static void free_string(char *s, bool secret)
{
    if (s && secret)
        secret_wipe(s, strlen(s));
    free(s);
}

static void free_strings(char **v, bool secret)
{
    for (size_t i = 0; v && v[i]; i++)
        free_string(v[i], secret);
    free(v);
}

static void free_one(const decode_field *f, void *at)
{
    decode_blob *blob = at;

    switch (f->kind) {
    case DECODE_STRING:
    case DECODE_TEXT:
        free_string(*(char **)at, f->secret);
        break;
    case DECODE_BASE64:
    case DECODE_BYTES:
        if (f->secret)
            secret_wipe(blob->p, blob->n);
        free(blob->p);
        break;
    case DECODE_MAP:
        free_strings(*(char ***)at, f->secret);
        break;
    case DECODE_OBJECT:
        decode_done(f->type, at);
        break;
    case DECODE_ANY:
        if (f->secret && *(json_t **)at)
            wipe_strings(*(json_t **)at);
        json_decref(*(json_t **)at);
        break;
    default:
        break;
    }
}

static void free_array(const decode_field *f, char *value)
{
    char *items = *(char **)(value + f->at);

    if (is_strings(f)) {
        free_strings((char **)items, f->secret);
        return;
    }
    size_t n = items ? *(size_t *)(value + f->count_at) : 0;
    for (size_t i = 0; i < n; i++)
        free_one(f, items + i * f->size);
    free(items);
}

void decode_done(const decode_type *t, void *value)
{
    for (size_t i = 0; i < t->nfields; i++) {
        const decode_field *f = &t->fields[i];
        if (f->array)
            free_array(f, value);
        else
            free_one(f, (char *)value + f->at);
    }
    memset(value, 0, t->size);
}
