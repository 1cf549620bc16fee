#include "base/decode.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

/* Where we are, for errors only; the frames live on the stack. */
typedef struct place {
    const struct place *up;
    const char *name; /* NULL: an item */
    size_t index;
} place;

typedef struct decoder {
    enum decode_mode mode;
} decoder;

static void place_write(const place *p, buf *out)
{
    if (!p)
        return;
    place_write(p->up, out);
    if (!p->name)
        buf_printf(out, "[%zu]", p->index);
    else if (*p->name)
        buf_printf(out, "%s%.64s", out->len ? "." : "", p->name);
}

__attribute__((format(printf, 2, 3))) static err *wrong(const place *p, const char *fmt, ...)
{
    CLEANUP(buf_done) buf path = {0};
    va_list ap;

    place_write(p, &path);
    va_start(ap, fmt);
    CLEANUP(freep) char *what = str_vprintf(fmt, ap);
    va_end(ap);
    if (!path.len)
        return err_new(ERR_INVALID_REQUEST, "the body %s", what);
    return err_new(ERR_INVALID_REQUEST, "%s %s", buf_cstr(&path), what);
}

static const char *type_name(const json_t *j)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

static err *wrong_type(const place *p, const char *expected, const json_t *got)
{
    return wrong(p, "must be %s, not %s", expected, type_name(got));
}

/* ---- one value of each kind ---- */

/* Compiled where it is used: thread-safe, and cheap beside the parse of the body. The generator
 * takes only what cannot fail. */
static void compile(regex_t *r, const char *pattern)
{
    if (regcomp(r, pattern, REG_EXTENDED | REG_NOSUB))
        abort();
}

static bool matches(const char *pattern, const char *s)
{
    CLEANUP(regfree) regex_t r;

    compile(&r, pattern);
    return regexec(&r, s, 0, NULL, 0) == 0;
}

static err *check_text(const decode_field *f, const char *s, size_t n, const place *p)
{
    if (n < f->len_min)
        return wrong(p, "must have at least %zu byte%s", f->len_min, f->len_min > 1 ? "s" : "");
    if (n > f->len_max)
        return wrong(p, "has %zu bytes, at most %zu are allowed", n, f->len_max);
    if (f->pattern && !matches(f->pattern, s)) {
        if (f->secret)
            return wrong(p, "must match %s", f->pattern);
        return wrong(p, "must match %s, '%.64s' does not", f->pattern, s);
    }
    return NULL;
}

static err *put_string(const decode_field *f, const json_t *j, const place *p, char **ret)
{
    if (!json_is_string(j))
        return wrong_type(p, "a string", j);
    TRY(check_text(f, json_string_value(j), json_string_length(j), p));
    *ret = xstrdup(json_string_value(j));
    return NULL;
}

static err *put_text(const decode_field *f, const json_t *j, const place *p, char **ret)
{
    if (!json_is_integer(j))
        return json_is_string(j) ? put_string(f, j, p, ret)
                                 : wrong_type(p, "a string or an integer", j);
    *ret = str_printf("%lld", (long long)json_integer_value(j));
    return NULL;
}

/* proto3 also takes the URL-safe alphabet and missing padding. */
static char *standard_base64(const char *s, size_t n)
{
    size_t pad = (4 - n % 4) % 4;
    char *t = xmalloc(n + pad + 1);

    for (size_t i = 0; i < n; i++)
        t[i] = (char)(s[i] == '-' ? '+' : s[i] == '_' ? '/' : s[i]);
    memset(t + n, '=', pad);
    t[n + pad] = 0;
    return t;
}

static err *put_base64(const decoder *d, const json_t *j, const decode_field *f, const place *p,
                       decode_blob *ret)
{
    void *bytes = NULL;
    size_t n = 0;

    if (!json_is_string(j))
        return wrong_type(p, "a base64 string", j);
    const char *s = json_string_value(j);
    size_t len = json_string_length(j);
    CLEANUP(secret_freep)
    char *standard = d->mode == DECODE_PROTO3 ? standard_base64(s, len) : NULL;
    if (standard)
        s = standard, len = strlen(standard);
    if (!base64_decode(s, len, &bytes, &n))
        return wrong(p, "is not base64 (standard alphabet with padding)");
    *ret = (decode_blob){bytes, n};
    if (n > f->len_max)
        return wrong(p, "has %zu bytes, at most %zu are allowed", n, f->len_max);
    return NULL;
}

static err *put_bytes(const decoder *d, const json_t *j, const decode_field *f, const place *p,
                      decode_blob *ret)
{
    if (!json_is_object(j))
        return wrong_type(p, "an object {\"text\": …} or {\"b64\": …}", j);
    const json_t *text = json_object_get(j, "text"), *b64 = json_object_get(j, "b64");
    if (json_object_size(j) != 1 || (!text && !b64))
        return wrong(p, "must have exactly one member, 'text' or 'b64'");
    place inner = {p, text ? "text" : "b64", 0};
    if (b64)
        return put_base64(d, b64, f, &inner, ret);
    if (!json_is_string(text))
        return wrong_type(&inner, "a string", text);
    size_t n = json_string_length(text);
    if (n > f->len_max)
        return wrong(&inner, "has %zu bytes, at most %zu are allowed", n, f->len_max);
    char *copy = xmalloc(n + 1);
    memcpy(copy, json_string_value(text), n + 1);
    *ret = (decode_blob){copy, n};
    return NULL;
}

static err *put_octal(const decode_field *f, const char *s, const place *p, uint32_t *ret)
{
    uint32_t v = 0;

    TRY(check_text(f, s, strlen(s), p));
    if (!*s || strlen(s) > 10)
        return wrong(p, "must be octal digits, like \"022\"");
    for (; *s; s++) {
        if (*s < '0' || *s > '7')
            return wrong(p, "must be octal digits, like \"022\"");
        v = v * 8 + (uint32_t)(*s - '0');
    }
    *ret = v;
    return NULL;
}

static err *wrong_integer(const decode_field *f, const place *p, const char *got)
{
    bool open = f->max >= INT64_MAX;

    if (open && f->min == INT64_MIN)
        return wrong(p, "must be an integer, not %s", got);
    if (open)
        return wrong(p, "must be an integer of at least %lld, not %s", (long long)f->min, got);
    return wrong(p, "must be an integer from %lld to %llu, not %s", (long long)f->min,
                 (unsigned long long)f->max, got);
}

static void store_integer(const decode_field *f, uint64_t bits, void *at)
{
    if (f->size == 4)
        *(uint32_t *)at = (uint32_t)bits;
    else
        *(uint64_t *)at = bits;
}

static err *put_signed(const decode_field *f, int64_t v, const place *p, void *at)
{
    if (v < f->min || (v > 0 && (uint64_t)v > f->max)) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)v);
        return wrong_integer(f, p, text);
    }
    store_integer(f, (uint64_t)v, at);
    return NULL;
}

static err *put_integer_text(const decode_field *f, const char *s, const place *p, void *at)
{
    uint64_t v;
    bool negative = *s == '-';

    if (!str_to_u64(s + negative, negative ? INT64_MAX : UINT64_MAX, &v))
        return wrong_integer(f, p, "such a text");
    if (negative || v <= INT64_MAX)
        return put_signed(f, negative ? -(int64_t)v : (int64_t)v, p, at);
    if (v > f->max)
        return wrong_integer(f, p, s);
    store_integer(f, v, at);
    return NULL;
}

static bool is_whole(double v)
{
    return v >= -9007199254740992.0 && v <= 9007199254740992.0 && trunc(v) == v;
}

static err *put_integer(const decoder *d, const json_t *j, const decode_field *f, const place *p,
                        void *at)
{
    if (json_is_integer(j))
        return put_signed(f, json_integer_value(j), p, at);
    if (d->mode != DECODE_STRICT && json_is_real(j) && is_whole(json_real_value(j)))
        return put_signed(f, (int64_t)json_real_value(j), p, at);
    if (d->mode == DECODE_PROTO3 && json_is_string(j))
        return put_integer_text(f, json_string_value(j), p, at);
    return wrong_integer(f, p, type_name(j));
}

static err *put_double(const decode_field *f, double v, const place *p, double *at)
{
    if (!(v >= f->low && v <= f->high) && !isnan(v))
        return wrong(p, "must be from %g to %g, not %g", f->low, f->high, v);
    if (isnan(v) && f->low > -HUGE_VAL)
        return wrong(p, "must be from %g to %g, not NaN", f->low, f->high);
    *at = v;
    return NULL;
}

static err *put_number_text(const decode_field *f, const char *s, const place *p, double *at)
{
    char *end = NULL;
    double v = strtod(s, &end);

    if (end == s || *end)
        return wrong(p, "must be a number");
    return put_double(f, v, p, at);
}

static err *put_number(const decoder *d, const json_t *j, const decode_field *f, const place *p,
                       double *at)
{
    if (d->mode == DECODE_PROTO3 && json_is_string(j))
        return put_number_text(f, json_string_value(j), p, at);
    if (!json_is_number(j))
        return wrong_type(p, "a number", j);
    return put_double(f, json_number_value(j), p, at);
}

static err *wrong_enum(const decode_field *f, const char *got, const place *p)
{
    CLEANUP(buf_done) buf all = {0};

    for (size_t i = 0; i < f->nnames; i++)
        buf_printf(&all, "%s'%s'", i ? (i + 1 == f->nnames ? " or " : ", ") : "", f->names[i].name);
    return wrong(p, "must be %s, not '%.64s'", buf_cstr(&all), got);
}

static err *put_enum_text(const decode_field *f, const char *s, const place *p, int *at)
{
    for (size_t i = 0; i < f->nnames; i++)
        if (!strcmp(f->names[i].name, s)) {
            *at = f->names[i].value;
            return NULL;
        }
    return wrong_enum(f, s, p);
}

static err *put_enum(const decoder *d, const json_t *j, const decode_field *f, const place *p,
                     int *at)
{
    if (json_is_string(j))
        return put_enum_text(f, json_string_value(j), p, at);
    /* proto3's enums are open: a number this version has no name for is kept. */
    if (d->mode == DECODE_PROTO3 && json_is_integer(j)) {
        json_int_t v = json_integer_value(j);
        if (v < INT32_MIN || v > INT32_MAX)
            return wrong(p, "is not a number of an enum");
        *at = (int)v;
        return NULL;
    }
    return wrong_type(p, "a string", j);
}

#define MAP_NAME "^[^=]+$" /* always; a key_pattern says more */

static err *put_map(const decode_field *f, const json_t *j, const place *p, char ***ret)
{
    CLEANUP(regfree) regex_t names;
    const char *name;
    json_t *v;
    size_t n = 0;

    compile(&names, str_or(f->key_pattern, MAP_NAME));
    if (!json_is_object(j))
        return wrong_type(p, "an object", j);
    if (json_object_size(j) > f->count_max)
        return wrong(p, "has %zu members, at most %zu are allowed", json_object_size(j),
                     f->count_max);
    *ret = xcalloc(json_object_size(j) + 1, sizeof **ret);
    json_object_foreach((json_t *)j, name, v)
    {
        place inner = {p, name, 0};
        if (!*name || strchr(name, '=') || regexec(&names, name, 0, NULL, 0))
            return wrong(p, "has a member '%.64s', names must match %s", name,
                         str_or(f->key_pattern, MAP_NAME));
        if (!json_is_string(v))
            return wrong_type(&inner, "a string", v);
        TRY(check_text(f, json_string_value(v), json_string_length(v), &inner));
        (*ret)[n++] = str_printf("%s=%s", name, json_string_value(v));
    }
    return NULL;
}

/* ---- members, arrays, objects ---- */

static err *put_object(const decoder *d, const decode_type *t, const json_t *j, const place *p,
                       void *value);

static err *put_one(const decoder *d, const decode_field *f, const json_t *j, const place *p,
                    void *at)
{
    switch (f->kind) {
    case DECODE_STRING:
        return put_string(f, j, p, at);
    case DECODE_TEXT:
        return put_text(f, j, p, at);
    case DECODE_BASE64:
        return put_base64(d, j, f, p, at);
    case DECODE_BYTES:
        return put_bytes(d, j, f, p, at);
    case DECODE_OCTAL:
        return json_is_string(j) ? put_octal(f, json_string_value(j), p, at)
                                 : wrong_type(p, "a string of octal digits", j);
    case DECODE_BOOL:
        if (!json_is_boolean(j))
            return wrong_type(p, "true or false", j);
        *(bool *)at = json_is_true(j);
        return NULL;
    case DECODE_INTEGER:
        return put_integer(d, j, f, p, at);
    case DECODE_NUMBER:
        return put_number(d, j, f, p, at);
    case DECODE_ENUM:
        return put_enum(d, j, f, p, at);
    case DECODE_MAP:
        return put_map(f, j, p, at);
    case DECODE_OBJECT:
        return put_object(d, f->type, j, p, at);
    case DECODE_ANY:
        *(json_t **)at = json_deep_copy(j);
        return NULL;
    }
    abort();
}

static bool is_strings(const decode_field *f)
{
    return f->kind == DECODE_STRING || f->kind == DECODE_TEXT;
}

static err *put_array(const decoder *d, const decode_field *f, const json_t *j, const place *p,
                      char *value)
{
    if (!json_is_array(j))
        return wrong_type(p, "an array", j);
    size_t n = json_array_size(j);
    if (n < f->count_min)
        return wrong(p, "must have at least %zu item%s", f->count_min, f->count_min > 1 ? "s" : "");
    if (n > f->count_max)
        return wrong(p, "has %zu items, at most %zu are allowed", n, f->count_max);
    /* One zeroed item more: strings end with NULL, and decode_done() may stop half way. */
    char *items = xcalloc(n + 1, f->size);
    *(char **)(value + f->at) = items;
    if (!is_strings(f))
        *(size_t *)(value + f->count_at) = n;
    for (size_t i = 0; i < n; i++) {
        place inner = {p, NULL, i};
        TRY(put_one(d, f, json_array_get(j, i), &inner, items + i * f->size));
    }
    return NULL;
}

static err *put_member(const decoder *d, const decode_field *f, const json_t *j, const place *p,
                       char *value)
{
    place inner = {p, f->name, 0};

    if (f->array)
        TRY(put_array(d, f, j, &inner, value));
    else
        TRY(put_one(d, f, j, &inner, value + f->at));
    if (f->has_at != DECODE_NOWHERE)
        *(bool *)(value + f->has_at) = true;
    return NULL;
}

static void put_presets(const decode_type *t, char *value);

/* What an absent member reads as. Its memory is zeroed before. */
static void put_preset(const decode_field *f, char *at)
{
    if (f->array)
        return;
    switch (f->kind) {
    case DECODE_INTEGER:
        store_integer(f, (uint64_t)f->preset, at);
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

/* Which members were there: one bit each; the generator refuses types with more fields. */
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
            return wrong(&inner, "is missing");
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
    err *e = near ? wrong(&inner, "is not known, did you mean '%s'?", near)
                  : wrong(&inner, "is not known");
    return err_remedy(e, "Use the members of %s: %s.", t->name, buf_cstr(&all));
}

static bool is_absent(const decoder *d, const decode_field *f, const json_t *j)
{
    return json_is_null(j) && f->kind != DECODE_ANY && (d->mode != DECODE_STRICT || f->nullable);
}

static err *put_object(const decoder *d, const decode_type *t, const json_t *j, const place *p,
                       void *value)
{
    seen_set seen = {0};
    const char *name;
    json_t *v;

    if (!json_is_object(j))
        return wrong_type(p, "an object", j);
    json_object_foreach((json_t *)j, name, v)
    {
        size_t i = find_field(t, name);
        if (i == t->nfields) {
            if (d->mode == DECODE_STRICT)
                return unknown_member(t, name, p);
            continue;
        }
        const decode_field *f = &t->fields[i];
        place inner = {p, f->name, 0};
        if (is_absent(d, f, v))
            continue;
        if (seen_get(&seen, i))
            return wrong(&inner, "is there twice, also as '%s'", f->alias);
        seen_add(&seen, i);
        TRY(put_member(d, f, v, p, value));
    }
    return finish_fields(t, &seen, p, value);
}

/* ---- documents ---- */

/* The tree is ours alone and about to go: overwriting jansson's own copies is the only way to keep
 * a secret from staying behind in freed memory. */
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
    decoder d = {t->mode};
    place root = {NULL, path, 0};

    memset(ret_value, 0, t->size);
    err *e = put_object(&d, t, j, &root, ret_value);
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

static err *put_text_value(const decode_field *f, const char *s, const place *p, void *at)
{
    switch (f->kind) {
    case DECODE_STRING:
    case DECODE_TEXT:
        TRY(check_text(f, s, strlen(s), p));
        *(char **)at = xstrdup(s);
        return NULL;
    case DECODE_OCTAL:
        return put_octal(f, s, p, at);
    case DECODE_INTEGER:
        return put_integer_text(f, s, p, at);
    case DECODE_NUMBER:
        return put_number_text(f, s, p, at);
    case DECODE_ENUM:
        return put_enum_text(f, s, p, at);
    case DECODE_BOOL:
        /* "?eof" and "?eof=1" are habits of the command line and of curl. */
        *(bool *)at = !*s || !strcmp(s, "true") || !strcmp(s, "1");
        if (!*(bool *)at && strcmp(s, "false") != 0 && strcmp(s, "0") != 0)
            return wrong(p, "must be 'true' or 'false', not '%.64s'", s);
        return NULL;
    default:
        abort(); /* the generator makes no such parameter */
    }
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
        e = put_text_value(f, s, &at, value + f->at);
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
