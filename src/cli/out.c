#include "cli/out.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"

bool out_colours(FILE *f)
{
    const char *term = cli_setting("TERM"), *no = cli_setting("NO_COLOR");

    return isatty(fileno(f)) && !no && !str_eq(term, "dumb");
}

/* Returns the length of the UTF-8 character at s, 0 if it is invalid. */
static size_t utf8_char(const char *s)
{
    unsigned char c = (unsigned char)*s;
    size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;

    return n && strnlen(s, n) == n && utf8_valid(s, n) ? n : 0;
}

void out_safe(buf *out, const char *text)
{
    if (!text)
        text = "-";
    while (*text) {
        size_t n = utf8_char(text);
        unsigned char c = (unsigned char)*text;
        bool control = n == 1 && (c < 0x20 || c == 0x7f);
        /* U+0080..U+009F are control characters, too, for example CSI. */
        bool c1 = n == 2 && c == 0xc2 && (unsigned char)text[1] < 0xa0;
        if (!n || control || c1) {
            for (size_t i = 0; i < (n ? n : 1); i++)
                buf_printf(out, "\\x%02x", (unsigned char)text[i]);
        } else {
            buf_append(out, text, n);
        }
        text += n ? n : 1;
    }
}

static void error_line(FILE *f, const char *label, const char *text, bool colours)
{
    CLEANUP(buf_done) buf b = {0};

    out_safe(&b, text);
    fprintf(f, "%s%s%s%s\n", colours ? "\x1b[2m" : "", label, colours ? "\x1b[0m" : "",
            buf_cstr(&b));
}

/* Returns the remedy. The table's speak of headers where a request needs one: people set a variable
 * and wait. */
static char *remedy_of(const err *e)
{
    const char *remedy = err_remedy_of(e);
    bool quota = e->code == ERR_QUOTA_EXCEEDED;

    if (!str_eq(remedy, err_info_of(e->code)->remedy))
        return xstrdup(remedy);
    if (e->code == ERR_UNAUTHENTICATED)
        return xstrdup("Put a valid key into $BOTHY_KEY; 'bothy key create' makes one.");
    if (!quota && e->code != ERR_POOL_EXHAUSTED)
        return xstrdup(remedy);
    CLEANUP(freep)
    char *wait = e->retry_after ? str_printf("Wait %d s", e->retry_after) : xstrdup("Wait");
    return str_printf("%s and try again, or %s.", wait,
                      quota ? "end something that is counted" : "raise the pool's size");
}

void out_error(FILE *f, const err *e, bool json, bool colours)
{
    if (json) {
        CLEANUP(json_decrefp) json_t *j = json_pack("{s:o}", "error", json_of_err(e, NULL));
        out_json(f, j);
        return;
    }
    CLEANUP(buf_done) buf b = {0};
    out_safe(&b, e->message);
    fprintf(f, "%sbothy:%s %s\n", colours ? "\x1b[1;31m" : "", colours ? "\x1b[0m" : "",
            buf_cstr(&b));
    if (e->cause)
        error_line(f, "  cause:  ", e->cause, colours);
    CLEANUP(freep) char *remedy = remedy_of(e);
    error_line(f, "  remedy: ", remedy, colours);
}

err *out_failed(int errnum, const char *what)
{
    err *e = errnum ? err_sys(ERR_INTERNAL, errnum, "cannot write %s", what)
                    : err_new(ERR_INTERNAL, "cannot write all of %s", what);

    return err_remedy(e, "Look at where it was sent: the disk may be full, or the file closed.");
}

void out_json(FILE *f, const json_t *j)
{
    CLEANUP(buf_done) buf b = {0};

    if (isatty(fileno(f)))
        json_write_indented(&b, j);
    else
        json_write(&b, j);
    fprintf(f, "%s\n", buf_cstr(&b));
}

bool out_is_empty(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_string(v) && !json_string_length(v)) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

static void list_text(const json_t *list, buf *out)
{
    size_t i;
    json_t *v;

    json_array_foreach(list, i, v)
    {
        if (i)
            buf_str(out, json_is_object(v) ? "; " : " ");
        out_value(v, out);
    }
}

static void members_text(const json_t *o, char between, buf *out)
{
    const char *member;
    size_t n = 0;
    json_t *v;

    json_object_foreach((json_t *)o, member, v)
    {
        if (out_is_empty(v))
            continue;
        buf_str(out, n++ ? ", " : "");
        out_safe(out, member);
        buf_char(out, between);
        if (json_is_object(v))
            buf_char(out, '(');
        out_value(v, out);
        if (json_is_object(v))
            buf_char(out, ')');
    }
}

void out_value(const json_t *v, buf *out)
{
    if (json_is_string(v))
        out_safe(out, json_string_value(v));
    else if (json_is_null(v))
        buf_char(out, '-');
    else if (json_is_real(v))
        buf_printf(out, json_real_value(v) < 1000 ? "%.3g" : "%.0f", json_real_value(v));
    else if (json_is_array(v))
        list_text(v, out);
    else if (json_is_object(v))
        members_text(v, ' ', out);
    else
        json_write(out, v);
}

void out_field(const char *name, const json_t *v)
{
    CLEANUP(buf_done) buf b = {0}, safe = {0};

    if (json_is_object(v) && str_eq(name, "labels"))
        members_text(v, '=', &b);
    else
        out_value(v, &b);
    if (json_is_object(v) && !b.len)
        return;
    out_safe(&safe, name);
    printf("%-10s  %s\n", buf_cstr(&safe), buf_cstr(&b));
}

void out_line(FILE *f, const char *text)
{
    CLEANUP(buf_done) buf b = {0};

    out_safe(&b, text);
    fprintf(f, "%s\n", buf_cstr(&b));
}

void out_size(buf *out, uint64_t bytes)
{
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    size_t unit = 0;

    for (; v >= 1024 && unit + 1 < ARRAY_LEN(UNITS); unit++)
        v /= 1024;
    buf_printf(out, unit ? "%.1f %s" : "%.0f %s", v, UNITS[unit]);
}

void out_age(buf *out, uint64_t seconds)
{
    static const struct {
        uint64_t below, unit;
        char letter;
    } STEPS[] = {
        {120, 1, 's'}, {120 * 60, 60, 'm'}, {48 * 3600, 3600, 'h'}, {UINT64_MAX, 86400, 'd'}};

    for (size_t i = 0; i < ARRAY_LEN(STEPS); i++)
        if (seconds < STEPS[i].below) {
            buf_printf(out, "%llu%c", (unsigned long long)(seconds / STEPS[i].unit),
                       STEPS[i].letter);
            return;
        }
}

uint64_t out_parse_time(const char *text)
{
    struct tm tm = {0};
    const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;

    if (!rest)
        return 0;
    uint64_t ns = (uint64_t)timegm(&tm) * NS_PER_S, digit = NS_PER_S / 10;
    if (*rest == '.')
        for (rest++; isdigit((unsigned char)*rest); rest++, digit /= 10)
            ns += (uint64_t)(*rest - '0') * digit;
    return ns;
}

/* ---- tables ---- */

static void add_cell(out_table *t, char *owned)
{
    t->cells = xrealloc(t->cells, (t->n + 1) * sizeof *t->cells);
    t->cells[t->n++] = owned;
}

void out_table_init(out_table *t, const char *heads)
{
    *t = (out_table){0};
    while (*heads) {
        size_t n = strcspn(heads, " ");
        add_cell(t, xstrndup(heads, n));
        heads += n + (heads[n] == ' ');
    }
    t->columns = t->n;
}

void out_table_cell(out_table *t, const char *text)
{
    CLEANUP(buf_done) buf b = {0};

    out_safe(&b, text && *text ? text : "-");
    add_cell(t, buf_take(&b));
}

void out_table_done(out_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (out_table){0};
}

/* Counts characters, not bytes; good enough for the names people give. */
static size_t width_of(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static size_t column_width(const out_table *t, size_t column)
{
    size_t width = 0;

    for (size_t i = column; i < t->n; i += t->columns) {
        size_t w = width_of(t->cells[i]);
        width = w > width ? w : width;
    }
    return width;
}

void out_table_print(const out_table *t, FILE *f, bool colours)
{
    for (size_t i = 0; i < t->n; i++) {
        size_t column = i % t->columns;
        bool last = column + 1 == t->columns, head = i < t->columns;
        fprintf(f, "%s%s%s", head && colours ? "\x1b[1m" : "", t->cells[i],
                head && colours ? "\x1b[0m" : "");
        if (last)
            fputc('\n', f);
        else
            fprintf(f, "%*s", (int)(column_width(t, column) - width_of(t->cells[i]) + 2), "");
    }
}
