#include "cli/opt.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define HELP_COLUMN 32

static const opt *find_long(const opt *table, const char *name, size_t n)
{
    for (; table->name; table++)
        if (strlen(table->name) == n && !memcmp(table->name, name, n))
            return table;
    return NULL;
}

static const opt *find_letter(const opt *table, char letter)
{
    for (; table->name; table++)
        if (table->letter == letter)
            return table;
    return NULL;
}

static err *unknown_option(const opt *table, const char *context, const char *word)
{
    const char *names[128];
    size_t n = 0, len = strcspn(word, "=");
    CLEANUP(freep) char *bare = xstrndup(word, len);

    for (; table->name && n < ARRAY_LEN(names); table++)
        if (table->help)
            names[n++] = table->name;
    const char *near = str_nearest(bare + strspn(bare, "-"), names, n);
    err *e = err_new(ERR_INVALID_REQUEST, "'%s' has no option %s", context, bare);
    return near ? err_remedy(e, "Did you mean --%s? '%s --help' lists all options.", near, context)
                : err_remedy(e, "'%s --help' lists all options.", context);
}

static err *bad_value(const opt *o, const char *value, const char *expected)
{
    err *e = err_new(ERR_INVALID_REQUEST, "--%s: '%s' is not %s", o->name, value, expected);

    return err_remedy(e, "Give --%s %s.", o->name, expected);
}

static bool is_choice(const char *choices, const char *value)
{
    size_t n = strlen(value);

    for (const char *at = choices; *at; at += strspn(at, "|")) {
        size_t len = strcspn(at, "|");
        if (len == n && !memcmp(at, value, n))
            return true;
        at += len;
    }
    return false;
}

static bool parse_cores(const char *s, uint64_t *ret_milli)
{
    char *end = NULL;

    if (*s < '0' || *s > '9')
        return false;
    double cores = strtod(s, &end);
    if (*end || !(cores >= 0.001) || cores > 4096)
        return false;
    *ret_milli = (uint64_t)(cores * 1000 + 0.5);
    return true;
}

static void set_flag(const opt *o, void *args)
{
    *(bool *)((char *)args + o->offset) = true;
}

static err *set_value(const opt *o, void *args, char *value)
{
    void *at = (char *)args + o->offset;

    switch (o->kind) {
    case OPT_FLAG: /* has no value */
        break;
    case OPT_TEXT:
        *(const char **)at = value;
        return NULL;
    case OPT_LIST:
        strv_push(at, xstrdup(value));
        return NULL;
    case OPT_BYTES:
        return str_to_bytes(value, at) ? NULL : bad_value(o, value, "a size such as 512m or 1g");
    case OPT_DURATION:
        return str_to_duration_ms(value, at) ? NULL
                                             : bad_value(o, value, "a time such as 30s, 5m or 1h");
    case OPT_COUNT:
        return str_to_u64(value, UINT32_MAX, at) && *(uint64_t *)at
                   ? NULL
                   : bad_value(o, value, "a whole number from 1");
    case OPT_CORES:
        return parse_cores(value, at) ? NULL
                                      : bad_value(o, value, "a number of cores such as 0.5 or 2");
    case OPT_CHOICE:
        if (!is_choice(o->arg, value))
            return bad_value(o, value, o->arg);
        *(const char **)at = value;
        return NULL;
    }
    return NULL;
}

typedef struct parser {
    const opt *table;
    const char *context;
    int argc, at;
    char **argv;
    void *args;
} parser;

/* Takes an option's argument: the text after "=", or the next word. */
static err *take_argument(parser *p, const opt *o, char *attached)
{
    if (attached)
        return set_value(o, p->args, attached);
    if (p->at + 1 >= p->argc)
        return err_remedy(
            err_new(ERR_INVALID_REQUEST, "--%s needs an argument: %s", o->name, o->arg),
            "'%s --help' shows how it is used.", p->context);
    return set_value(o, p->args, p->argv[++p->at]);
}

static err *parse_long(parser *p, char *word)
{
    char *name = word + 2, *equals = strchr(name, '=');
    const opt *o = find_long(p->table, name, equals ? (size_t)(equals - name) : strlen(name));

    if (!o)
        return unknown_option(p->table, p->context, word);
    if (o->arg)
        return take_argument(p, o, equals ? equals + 1 : NULL);
    if (equals)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "--%s takes no argument", o->name),
                          "Leave out '%s'.", equals);
    set_flag(o, p->args);
    return NULL;
}

/* Parses short options: "-it", "-eNAME=v", "-e NAME=v", "-m=1g". */
static err *parse_letters(parser *p, char *word)
{
    for (char *c = word + 1; *c; c++) {
        const opt *o = find_letter(p->table, *c);
        if (!o) {
            char spelled[] = {'-', *c, 0};
            return unknown_option(p->table, p->context, c == word + 1 && c[1] ? word : spelled);
        }
        if (!o->arg) {
            set_flag(o, p->args);
            continue;
        }
        return take_argument(p, o, !c[1] ? NULL : c[1] == '=' ? c + 2 : c + 1);
    }
    return NULL;
}

err *opt_parse(const opt *table, const char *context, bool stop_early, int argc, char **argv,
               void *args, opt_words *ret_words)
{
    parser p = {table, context, argc, 0, argv, args};
    int n = 0;

    for (; p.at < argc; p.at++) {
        char *word = argv[p.at];
        bool ends = !strcmp(word, "--");
        if (!ends && word[0] == '-' && word[1]) {
            TRY(word[1] == '-' ? parse_long(&p, word) : parse_letters(&p, word));
            continue;
        }
        if (!ends)
            argv[n++] = word;
        if (ends || stop_early) {
            p.at++;
            break;
        }
    }
    if (stop_early && n == 1 && p.at < argc && !strcmp(argv[p.at], "--"))
        p.at++;
    for (; p.at < argc; p.at++)
        argv[n++] = argv[p.at];
    argv[n] = NULL;
    *ret_words = (opt_words){argv, n};
    return NULL;
}

void opt_args_done(const opt *table, void *args)
{
    for (; args && table->name; table++)
        if (table->kind == OPT_LIST) {
            char ***at = (char ***)((char *)args + table->offset);
            strv_free(*at);
            *at = NULL;
        }
}

void opt_spell(const opt *o, buf *out)
{
    if (o->letter)
        buf_printf(out, "-%c, ", o->letter);
    else
        buf_str(out, "    ");
    buf_printf(out, "--%s", o->name);
    if (o->arg)
        buf_printf(out, " %s", o->arg);
}

void opt_help(const opt *table, buf *out)
{
    for (; table->name; table++) {
        size_t begin = out->len;
        if (!table->help)
            continue;
        buf_str(out, "  ");
        opt_spell(table, out);
        size_t width = out->len - begin;
        if (width + 2 > HELP_COLUMN) {
            buf_char(out, '\n');
            width = 0;
        }
        buf_printf(out, "%*s%s\n", (int)(HELP_COLUMN - width), "", table->help);
    }
}
