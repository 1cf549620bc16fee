/* Forms of callers. What is understood does not depend on how the bytes are cut; a form that is
 * written from any names and contents, as clients write them, is read back as it was. */
#include "wire/multipart.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include "fuzz.h"

static err *on_begin(void *arg, const multipart_part *p)
{
    MUST(strlen(p->name) <= MULTIPART_HEAD_MAX);
    MUST(!p->filename || strlen(p->filename) <= MULTIPART_HEAD_MAX);
    buf_printf(arg, "(%s|%s|", p->name, str_or(p->filename, "-"));
    return NULL;
}

static err *on_data(void *arg, const void *p, size_t n)
{
    MUST(n);
    buf_append(arg, p, n);
    return NULL;
}

static err *on_end(void *arg)
{
    buf_char(arg, ')');
    return NULL;
}

static const multipart_ops OPS = {on_begin, on_data, on_end};

static err *feed(multipart *m, const char *p, size_t n, size_t step)
{
    for (size_t at = 0; at < n; at += step) {
        size_t have = step < n - at ? step : n - at;
        char *piece = memcpy(xmalloc(have), p + at, have);
        err *e = multipart_feed(m, piece, have);
        free(piece);
        if (e)
            return e;
    }
    return multipart_finish(m);
}

static void run(const char *type, const char *p, size_t n, size_t step, buf *told)
{
    CLEANUP(multipart_freep) multipart *m = NULL;
    CLEANUP(err_freep) err *e = multipart_new(type, &OPS, told, &m);

    if (!e)
        e = feed(m, p, n, step);
    if (!e)
        return;
    MUST(e->code == ERR_INVALID_REQUEST || e->code == ERR_TOO_LARGE);
    buf_printf(told, "!%s", e->message);
}

static void same(const buf *a, const buf *b)
{
    MUST(a->len == b->len && (!a->len || !memcmp(a->p, b->p, a->len)));
}

static void any_form(fuzz_in *in)
{
    CLEANUP(freep) char *type = fuzz_word(in, '\n');
    size_t n = 0, step = 1 + fuzz_byte(in) % 64;
    CLEANUP(freep) char *p = fuzz_bytes(in, in->n, &n);
    CLEANUP(buf_done) buf whole = {0}, bytes = {0}, pieces = {0};

    run(type, p, n, n ? n : 1, &whole);
    run(type, p, n, 1, &bytes);
    run(type, p, n, step, &pieces);
    same(&whole, &bytes);
    same(&whole, &pieces);
}

/* As undici and httpx write a name. A backslash is doubled, which both readings take for one. */
static void put_name(buf *out, const char *name)
{
    for (; *name; name++)
        if (*name == '"' || (*name > 0 && *name < ' '))
            buf_printf(out, "%%%02X", *name);
        else if (*name == '\\')
            buf_str(out, "\\\\");
        else
            buf_char(out, *name);
}

/* A name that itself holds what is an escape cannot be told from one. */
static bool is_plain(const char *name)
{
    return !strchr(name, '%') && strlen(name) < 1000;
}

static void our_form(fuzz_in *in)
{
    CLEANUP(buf_done) buf form = {0}, want = {0}, got = {0};
    size_t step = 1 + fuzz_byte(in);

    while (in->n && form.len < 20000) {
        CLEANUP(freep) char *name = fuzz_word(in, 0);
        size_t n = 0;
        CLEANUP(freep) char *p = fuzz_bytes(in, fuzz_byte(in), &n);
        if (!is_plain(name) || memmem(p, n, "XyZ", 3))
            return;
        buf_str(&form, "--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"");
        put_name(&form, name);
        buf_str(&form, "\"\r\nContent-Type: application/octet-stream\r\n\r\n");
        buf_append(&form, p, n);
        buf_str(&form, "\r\n");
        buf_printf(&want, "(file|%s|", name);
        buf_append(&want, p, n);
        buf_char(&want, ')');
    }
    buf_str(&form, "--XyZ--\r\n");
    run("multipart/form-data; boundary=XyZ", form.p, form.len, step, &got);
    same(&want, &got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};

    if (fuzz_byte(&in) & 1)
        our_form(&in);
    else
        any_form(&in);
    return 0;
}
