/* Decodes one value of each kind, from JSON and from text. */
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/decode_internal.h"
#include "base/str.h"

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

err *decode_wrong(const place *p, const char *fmt, ...)
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

err *decode_wrong_type(const place *p, const char *expected, const json_t *got)
{
    return decode_wrong(p, "must be %s, not %s", expected, type_name(got));
}

/* Compiles a pattern at each use: thread-safe, and cheap compared with parsing the body. The
 * generator accepts only patterns that compile. */
static void decode_value_compile(regex_t *r, const char *pattern)
{
    if (regcomp(r, pattern, REG_EXTENDED | REG_NOSUB))
        abort();
}

static bool decode_value_matches(const char *pattern, const char *s)
{
    CLEANUP(regfree) regex_t r;

    decode_value_compile(&r, pattern);
    return regexec(&r, s, 0, NULL, 0) == 0;
}

static err *check_text(const decode_field *f, const char *s, size_t n, const place *p)
{
    if (n < f->len_min)
        return decode_wrong(p, "must have at least %zu byte%s", f->len_min,
                            f->len_min > 1 ? "s" : "");
    if (n > f->len_max)
        return decode_wrong(p, "has %zu bytes, at most %zu are allowed", n, f->len_max);
    if (f->pattern && !decode_value_matches(f->pattern, s)) {
        if (f->secret)
            return decode_wrong(p, "must match %s", f->pattern);
        return decode_wrong(p, "must match %s, '%.64s' does not", f->pattern, s);
    }
    return NULL;
}

static err *put_string(const decode_field *f, const json_t *j, const place *p, char **ret)
{
    if (!json_is_string(j))
        return decode_wrong_type(p, "a string", j);
    TRY(check_text(f, json_string_value(j), json_string_length(j), p));
    *ret = xstrdup(json_string_value(j));
    return NULL;
}

static err *put_text(const decode_field *f, const json_t *j, const place *p, char **ret)
{
    if (!json_is_integer(j))
        return json_is_string(j) ? put_string(f, j, p, ret)
                                 : decode_wrong_type(p, "a string or an integer", j);
    *ret = str_printf("%lld", (long long)json_integer_value(j));
    return NULL;
}

/* Converts to the standard alphabet with padding: proto3 also allows URL-safe text without
 * padding. */
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

static err *put_base64(enum decode_mode mode, const json_t *j, const decode_field *f,
                       const place *p, decode_blob *ret)
{
    void *bytes = NULL;
    size_t n = 0;

    if (!json_is_string(j))
        return decode_wrong_type(p, "a base64 string", j);
    const char *s = json_string_value(j);
    size_t len = json_string_length(j);
    CLEANUP(secret_freep)
    char *standard = mode == DECODE_PROTO3 ? standard_base64(s, len) : NULL;
    if (standard)
        s = standard, len = strlen(standard);
    if (!base64_decode(s, len, &bytes, &n))
        return decode_wrong(p, "is not base64 (standard alphabet with padding)");
    *ret = (decode_blob){bytes, n};
    if (n > f->len_max)
        return decode_wrong(p, "has %zu bytes, at most %zu are allowed", n, f->len_max);
    return NULL;
}

static err *put_bytes(enum decode_mode mode, const json_t *j, const decode_field *f, const place *p,
                      decode_blob *ret)
{
    if (!json_is_object(j) && !json_is_string(j))
        return decode_wrong_type(p, "a string or an object {\"text\": …} or {\"b64\": …}", j);
    const json_t *text = json_is_string(j) ? j : json_object_get(j, "text"),
                 *b64 = json_object_get(j, "b64");
    if (text != j && (json_object_size(j) != 1 || (!text && !b64)))
        return decode_wrong(p, "must have exactly one member, 'text' or 'b64'");
    place inner = {p, text ? "text" : "b64", 0};
    if (b64)
        return put_base64(mode, b64, f, &inner, ret);
    if (!json_is_string(text))
        return decode_wrong_type(&inner, "a string", text);
    size_t n = json_string_length(text);
    if (n > f->len_max)
        return decode_wrong(&inner, "has %zu bytes, at most %zu are allowed", n, f->len_max);
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
        return decode_wrong(p, "must be octal digits, like \"022\"");
    for (; *s; s++) {
        if (*s < '0' || *s > '7')
            return decode_wrong(p, "must be octal digits, like \"022\"");
        v = v * 8 + (uint32_t)(*s - '0');
    }
    *ret = v;
    return NULL;
}

static err *wrong_integer(const decode_field *f, const place *p, const char *got)
{
    bool open = f->max >= INT64_MAX;

    if (open && f->min == INT64_MIN)
        return decode_wrong(p, "must be an integer, not %s", got);
    if (open)
        return decode_wrong(p, "must be an integer of at least %lld, not %s", (long long)f->min,
                            got);
    return decode_wrong(p, "must be an integer from %lld to %llu, not %s", (long long)f->min,
                        (unsigned long long)f->max, got);
}

void decode_store_integer(const decode_field *f, uint64_t bits, void *at)
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
    decode_store_integer(f, (uint64_t)v, at);
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
    decode_store_integer(f, v, at);
    return NULL;
}

static bool is_whole(double v)
{
    return v >= -9007199254740992.0 && v <= 9007199254740992.0 && trunc(v) == v;
}

static err *put_integer(enum decode_mode mode, const json_t *j, const decode_field *f,
                        const place *p, void *at)
{
    if (json_is_integer(j))
        return put_signed(f, json_integer_value(j), p, at);
    if (mode != DECODE_STRICT && json_is_real(j) && is_whole(json_real_value(j)))
        return put_signed(f, (int64_t)json_real_value(j), p, at);
    if (mode == DECODE_PROTO3 && json_is_string(j))
        return put_integer_text(f, json_string_value(j), p, at);
    return wrong_integer(f, p, type_name(j));
}

static err *put_double(const decode_field *f, double v, const place *p, double *at)
{
    if (!(v >= f->low && v <= f->high) && !isnan(v))
        return decode_wrong(p, "must be from %g to %g, not %g", f->low, f->high, v);
    if (isnan(v) && f->low > -HUGE_VAL)
        return decode_wrong(p, "must be from %g to %g, not NaN", f->low, f->high);
    *at = v;
    return NULL;
}

static err *put_number_text(const decode_field *f, const char *s, const place *p, double *at)
{
    char *end = NULL;
    double v = strtod(s, &end);

    if (end == s || *end)
        return decode_wrong(p, "must be a number");
    return put_double(f, v, p, at);
}

static err *put_number(enum decode_mode mode, const json_t *j, const decode_field *f,
                       const place *p, double *at)
{
    if (mode == DECODE_PROTO3 && json_is_string(j))
        return put_number_text(f, json_string_value(j), p, at);
    if (!json_is_number(j))
        return decode_wrong_type(p, "a number", j);
    return put_double(f, json_number_value(j), p, at);
}

static err *wrong_enum(const decode_field *f, const char *got, const place *p)
{
    CLEANUP(buf_done) buf all = {0};

    for (size_t i = 0; i < f->nnames; i++)
        buf_printf(&all, "%s'%s'", i ? (i + 1 == f->nnames ? " or " : ", ") : "", f->names[i].name);
    return decode_wrong(p, "must be %s, not '%.64s'", buf_cstr(&all), got);
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

static err *put_enum(enum decode_mode mode, const json_t *j, const decode_field *f, const place *p,
                     int *at)
{
    if (json_is_string(j))
        return put_enum_text(f, json_string_value(j), p, at);
    /* proto3's enums are open: a number without a name in this version is kept. */
    if (mode == DECODE_PROTO3 && json_is_integer(j)) {
        json_int_t v = json_integer_value(j);
        if (v < INT32_MIN || v > INT32_MAX)
            return decode_wrong(p, "is not a number of an enum");
        *at = (int)v;
        return NULL;
    }
    return decode_wrong_type(p, "a string", j);
}

#define MAP_NAME "^[^=]+$" /* holds for every map; a key_pattern restricts names further */

static err *put_map(const decode_field *f, const json_t *j, const place *p, char ***ret)
{
    CLEANUP(regfree) regex_t names;
    const char *name;
    json_t *v;
    size_t n = 0;

    decode_value_compile(&names, str_or(f->key_pattern, MAP_NAME));
    if (!json_is_object(j))
        return decode_wrong_type(p, "an object", j);
    if (json_object_size(j) > f->count_max)
        return decode_wrong(p, "has %zu members, at most %zu are allowed", json_object_size(j),
                            f->count_max);
    *ret = xcalloc(json_object_size(j) + 1, sizeof **ret);
    json_object_foreach((json_t *)j, name, v)
    {
        place inner = {p, name, 0};
        if (!*name || strchr(name, '=') || regexec(&names, name, 0, NULL, 0))
            return decode_wrong(p, "has a member '%.64s', names must match %s", name,
                                str_or(f->key_pattern, MAP_NAME));
        if (!json_is_string(v))
            return decode_wrong_type(&inner, "a string", v);
        TRY(check_text(f, json_string_value(v), json_string_length(v), &inner));
        (*ret)[n++] = str_printf("%s=%s", name, json_string_value(v));
    }
    return NULL;
}

err *decode_value(enum decode_mode mode, const decode_field *f, const json_t *j, const place *p,
                  void *at)
{
    switch (f->kind) {
    case DECODE_STRING:
        return put_string(f, j, p, at);
    case DECODE_TEXT:
        return put_text(f, j, p, at);
    case DECODE_BASE64:
        return put_base64(mode, j, f, p, at);
    case DECODE_BYTES:
        return put_bytes(mode, j, f, p, at);
    case DECODE_OCTAL:
        return json_is_string(j) ? put_octal(f, json_string_value(j), p, at)
                                 : decode_wrong_type(p, "a string of octal digits", j);
    case DECODE_BOOL:
        if (!json_is_boolean(j))
            return decode_wrong_type(p, "true or false", j);
        *(bool *)at = json_is_true(j);
        return NULL;
    case DECODE_INTEGER:
        return put_integer(mode, j, f, p, at);
    case DECODE_NUMBER:
        return put_number(mode, j, f, p, at);
    case DECODE_ENUM:
        return put_enum(mode, j, f, p, at);
    case DECODE_MAP:
        return put_map(f, j, p, at);
    case DECODE_OBJECT: /* handled in decode.c */
        break;
    case DECODE_ANY:
        *(json_t **)at = json_deep_copy(j);
        return NULL;
    }
    abort();
}

err *decode_value_text(const decode_field *f, const char *s, const place *p, void *at)
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
        /* "?eof" and "?eof=1" are common on the command line and with curl. */
        *(bool *)at = !*s || !strcmp(s, "true") || !strcmp(s, "1");
        if (!*(bool *)at && strcmp(s, "false") != 0 && strcmp(s, "0") != 0)
            return decode_wrong(p, "must be 'true' or 'false', not '%.64s'", s);
        return NULL;
    default:
        abort(); /* the generator emits no parameter of another kind */
    }
}
