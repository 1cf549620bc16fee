#include "base/json.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

/* Returns true beyond JSON_DEPTH_MAX levels. jansson recurses for each of up to 2,048 levels, which
 * would take nearly all of a thread's stack. */
static bool too_deep(const char *p, size_t n)
{
    unsigned depth = 0;
    bool quoted = false;

    for (size_t i = 0; i < n; i++) {
        if (quoted && p[i] == '\\')
            i++;
        else if (p[i] == '"')
            quoted = !quoted;
        else if (!quoted && (p[i] == '[' || p[i] == '{') && ++depth > JSON_DEPTH_MAX)
            return true;
        else if (!quoted && (p[i] == ']' || p[i] == '}') && depth)
            depth--;
    }
    return false;
}

static err *deep_error(void)
{
    return err_because(err_new(ERR_INVALID_REQUEST, "the body is not valid JSON"),
                       "more than %d levels", JSON_DEPTH_MAX);
}

static err *syntax_error(const json_error_t *at)
{
    return err_because(err_new(ERR_INVALID_REQUEST, "the body is not valid JSON"),
                       "%s at line %d, column %d", at->text, at->line, at->column);
}

static err *base_json_parse(const void *p, size_t n, size_t flags, json_t **ret_root)
{
    json_error_t at;

    if (too_deep(p, n))
        return deep_error();
    json_t *root = json_loadb(p, n, JSON_REJECT_DUPLICATES | flags, &at);

    if (!root)
        return syntax_error(&at);
    *ret_root = root;
    return NULL;
}

err *json_parse(const void *p, size_t n, json_t **ret_root)
{
    return base_json_parse(p, n, 0, ret_root);
}

err *json_parse_nul(const void *p, size_t n, json_t **ret_root)
{
    return base_json_parse(p, n, JSON_ALLOW_NUL, ret_root);
}

err *json_parse_foreign(const void *p, size_t n, json_t **ret_root)
{
    json_error_t at;

    if (too_deep(p, n))
        return deep_error();
    json_t *root = json_loadb(p, n, 0, &at);

    if (!root && json_error_code(&at) == json_error_numeric_overflow)
        root = json_loadb(p, n, JSON_DECODE_INT_AS_REAL, &at);
    if (!root)
        return syntax_error(&at);
    *ret_root = root;
    return NULL;
}

/* Returns the distance to the next DEL or C1 control (U+0080 to U+009F). jansson leaves these as
 * they are, but terminals act on them. It passes whole characters, never a part of one. */
static size_t plain_len(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == 0x7f || (c == 0xc2 && i + 1 < n && (unsigned char)p[i + 1] < 0xa0))
            return i;
    }
    return n;
}

static int json_append(const char *p, size_t n, void *arg)
{
    while (n) {
        size_t plain = plain_len(p, n), odd = 0;
        buf_append(arg, p, plain);
        if (plain < n) {
            odd = (unsigned char)p[plain] == 0x7f ? 1 : 2;
            buf_printf(arg, "\\u%04x", (unsigned char)p[plain + odd - 1]);
        }
        p += plain + odd;
        n -= plain + odd;
    }
    return 0;
}

void json_write(buf *out, const json_t *j)
{
    json_dump_callback(j, json_append, out,
                       JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
}

void json_write_indented(buf *out, const json_t *j)
{
    json_dump_callback(j, json_append, out,
                       JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
}

json_t *json_bytes(const void *p, size_t n)
{
    if (utf8_valid(p, n) && !memchr(p, 0, n))
        return json_pack("{s:o}", "text", json_stringn_nocheck(p, n));
    CLEANUP(freep) char *b64 = base64_encode(p, n);
    return json_pack("{s:s}", "b64", b64);
}

/* Returns a JSON string. Messages may quote bytes of a peer: if they are not UTF-8, every non-ASCII
 * byte becomes '?', so that the answer keeps its message. */
static json_t *json_text(const char *s)
{
    json_t *j = json_string(s);

    if (j)
        return j;
    CLEANUP(buf_done) buf b = {0};
    for (; *s; s++)
        buf_char(&b, *s & 0x80 ? '?' : *s);
    return json_stringn_nocheck(b.p ? b.p : "", b.len);
}

json_t *json_of_err(const err *e, const char *request_id)
{
    json_t *o = json_object();

    json_object_set_new(o, "code", json_string(err_info_of(e->code)->name));
    json_object_set_new(o, "message", json_text(e->message));
    json_object_set_new(o, "cause", e->cause ? json_text(e->cause) : json_null());
    json_object_set_new(o, "remedy", json_text(err_remedy_of(e)));
    json_object_set_new(o, "retryable", json_boolean(e->retryable));
    if (e->kind)
        json_object_set_new(o, "kind", json_text(e->kind));
    if (e->retry_after)
        json_object_set_new(o, "retry_after", json_integer(e->retry_after));
    if (request_id)
        json_object_set_new(o, "request_id", json_text(request_id));
    return o;
}

err *json_to_err(const json_t *root)
{
    const json_t *o = json_object_get(root, "error");
    const char *code = json_str(o, "code"), *message = json_str(o, "message");

    if (!code || !message)
        return NULL;
    err_code c = err_code_by_name(code);
    err *e = err_new(c < ERR_CODES ? c : ERR_INTERNAL, "%s", message);
    if (json_str(o, "cause"))
        e = err_because(e, "%s", json_str(o, "cause"));
    if (json_str(o, "remedy"))
        e = err_remedy(e, "%s", json_str(o, "remedy"));
    if (json_str(o, "kind"))
        e = err_kind(e, json_str(o, "kind"));
    e->retryable = json_flag(o, "retryable");
    e->retry_after = (int)json_int(o, "retry_after", 0);
    return e;
}

const char *json_str(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

int64_t json_int(const json_t *o, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(o, key);

    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

uint64_t json_count(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_integer(v))
        return json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v) : 0;
    double d = json_number_value(v); /* 0 if v is not a number */
    return d <= 0 ? 0 : d >= 0x1p64 ? UINT64_MAX : (uint64_t)d;
}

bool json_flag(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}
