/* Reads and writes the configuration file. The grammar is small on purpose: a mapping of sections,
 * each a mapping of keys to scalars; registries have a mapping for each host. All other YAML is
 * refused with its line number. */
#include <string.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "daemon/config_internal.h"

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; deleted before the next */
    const char *file;
    config *config;
    bool *seen; /* one for each row: a key may appear once */
} reader;

static size_t line_of(const reader *r)
{
    return r->event.start_mark.line + 1;
}

__attribute__((format(printf, 2, 3))) static err *config_yaml_refuse(const reader *r,
                                                                     const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    CLEANUP(freep) char *what = str_vprintf(fmt, ap);
    va_end(ap);
    return err_new(ERR_INVALID_REQUEST, "%s:%zu: %s", r->file, line_of(r), what);
}

/* Prefixes an error of another function with file and line. */
static err *at_line(const reader *r, err *e)
{
    return err_wrap(e, "%s:%zu", r->file, line_of(r));
}

static err *config_yaml_next(reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        memset(&r->event, 0, sizeof r->event);
        return err_new(ERR_INVALID_REQUEST, "%s:%zu: %s", r->file, r->parser.problem_mark.line + 1,
                       str_or(r->parser.problem, "not YAML"));
    }
    if (r->event.type == YAML_ALIAS_EVENT)
        return config_yaml_refuse(r, "aliases are not allowed");
    return NULL;
}

static err *check_plain(const reader *r, const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor)
        return config_yaml_refuse(r, "anchors are not allowed");
    if (tag)
        return config_yaml_refuse(r, "tags are not allowed");
    return NULL;
}

/* Reads the current event, which must be a scalar. The text belongs to the event. */
static err *config_yaml_scalar(const reader *r, const char *what, const char **ret_text)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return config_yaml_refuse(r, "%s must be a plain value, not a %s", what,
                                  r->event.type == YAML_SEQUENCE_START_EVENT ? "list" : "mapping");
    TRY(check_plain(r, r->event.data.scalar.anchor, r->event.data.scalar.tag));
    const char *text = (const char *)r->event.data.scalar.value;
    if (strlen(text) != r->event.data.scalar.length)
        return config_yaml_refuse(r, "%s has a NUL", what);
    *ret_text = text;
    return NULL;
}

static err *begin_mapping(const reader *r, const char *what)
{
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return config_yaml_refuse(r, "%s must be a mapping of keys to values", what);
    return check_plain(r, r->event.data.mapping_start.anchor, r->event.data.mapping_start.tag);
}

/* Returns true if the current event is an empty or null scalar. */
static bool is_null(const reader *r)
{
    const char *text = (const char *)r->event.data.scalar.value;

    return r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || !strcmp(text, "~") || !strcmp(text, "null"));
}

static err *read_key(reader *r, const char *section)
{
    const config_row *row = NULL;
    const char *text = NULL;

    TRY(config_yaml_scalar(r, "a key", &text));
    err *e = config_find(section, text, &row);
    if (e)
        return at_line(r, e);
    if (r->seen[row - CONFIG_ROWS])
        return config_yaml_refuse(r, "%s.%s is there twice", section, row->key);
    r->seen[row - CONFIG_ROWS] = true;
    CLEANUP(freep) char *what = str_printf("%s.%s", section, row->key);
    TRY(config_yaml_next(r));
    TRY(config_yaml_scalar(r, what, &text));
    if (is_null(r))
        return config_yaml_refuse(
            r, "%s has no value; write \"\" for an empty one, or leave the line out", what);
    e = config_set(row, text, r->config);
    return e ? at_line(r, e) : NULL;
}

/* ---- registries ---- */

static err *read_mirrors(reader *r, registry *of)
{
    const char *text = NULL;

    if (of->mirrors)
        return config_yaml_refuse(r, "registries.%s.mirrors is there twice", of->host);
    TRY(config_yaml_next(r));
    if (r->event.type != YAML_SEQUENCE_START_EVENT)
        return config_yaml_refuse(r, "registries.%s.mirrors must be a list", of->host);
    TRY(check_plain(r, r->event.data.sequence_start.anchor, r->event.data.sequence_start.tag));
    for (;;) {
        TRY(config_yaml_next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return NULL;
        TRY(config_yaml_scalar(r, "a mirror", &text));
        if (!registry_mirror_ok(text))
            return config_yaml_refuse(
                r, "a mirror must be host[:port][/path] in lower case, not '%.100s'", text);
        if (strv_len(of->mirrors) >= REGISTRY_MIRRORS_MAX)
            return config_yaml_refuse(r, "more than %d mirrors", REGISTRY_MIRRORS_MAX);
        strv_push(&of->mirrors, xstrdup(text));
    }
}

static err *read_insecure(reader *r, registry *of)
{
    const char *text = NULL;

    TRY(config_yaml_next(r));
    TRY(config_yaml_scalar(r, "insecure", &text));
    of->insecure = str_eq(text, "true");
    return of->insecure || str_eq(text, "false")
               ? NULL
               : config_yaml_refuse(r, "insecure must be true or false, not '%.64s'", text);
}

static err *read_ca(reader *r, registry *of)
{
    const char *text = NULL;

    if (of->ca)
        return config_yaml_refuse(r, "registries.%s.ca is there twice", of->host);
    TRY(config_yaml_next(r));
    TRY(config_yaml_scalar(r, "ca", &text));
    if (*text != '/' || strlen(text) > 4096)
        return config_yaml_refuse(r, "ca must be an absolute path");
    of->ca = xstrdup(text);
    return NULL;
}

static const struct {
    const char *key;
    err *(*read)(reader *r, registry *of);
} REGISTRY_KEYS[] = {{"mirrors", read_mirrors}, {"insecure", read_insecure}, {"ca", read_ca}};

static err *read_registry_key(reader *r, registry *of)
{
    const char *text = NULL, *known[ARRAY_LEN(REGISTRY_KEYS)];

    TRY(config_yaml_scalar(r, "a key", &text));
    for (size_t i = 0; i < ARRAY_LEN(REGISTRY_KEYS); i++) {
        if (str_eq(text, REGISTRY_KEYS[i].key))
            return REGISTRY_KEYS[i].read(r, of);
        known[i] = REGISTRY_KEYS[i].key;
    }
    const char *near = str_nearest(text, known, ARRAY_LEN(known));
    return near ? config_yaml_refuse(r, "registries.%s: unknown key '%.64s'; did you mean '%s'?",
                                     of->host, text, near)
                : config_yaml_refuse(r, "registries.%s: unknown key '%.64s'", of->host, text);
}

static err *read_registry(reader *r)
{
    registries *all = &r->config->registries;
    const char *text = NULL;

    TRY(config_yaml_scalar(r, "a host", &text));
    if (!registry_host_ok(text))
        return config_yaml_refuse(
            r, "'%.100s' is no host; write it as in image names, host or host:port", text);
    if (registries_find(all, text) || all->n >= REGISTRIES_MAX)
        return config_yaml_refuse(r, "registries.%s is there twice, or one of more than %d", text,
                                  REGISTRIES_MAX);
    registry *of = registries_put(all, text);
    TRY(config_yaml_next(r));
    if (r->event.type == YAML_SCALAR_EVENT) {
        TRY(config_yaml_scalar(r, of->host, &text));
        if (is_null(r))
            return NULL;
    }
    TRY(begin_mapping(r, of->host));
    for (;;) {
        TRY(config_yaml_next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return NULL;
        TRY(read_registry_key(r, of));
    }
}

/* ---- sections ---- */

static err *read_entries(reader *r, const char *section)
{
    bool hosts = str_eq(section, "registries");

    for (;;) {
        TRY(config_yaml_next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return NULL;
        TRY(hosts ? read_registry(r) : read_key(r, section));
    }
}

static err *read_section(reader *r)
{
    const char *name = NULL, *section = NULL, *text = NULL;

    TRY(config_yaml_scalar(r, "a section", &name));
    err *e = config_find_section(name, &section);
    if (e)
        return at_line(r, e);
    const config_row *row = CONFIG_ROWS;
    while (row->key || strcmp(row->section, section) != 0)
        row++;
    if (r->seen[row - CONFIG_ROWS])
        return config_yaml_refuse(r, "section '%s' is there twice", section);
    r->seen[row - CONFIG_ROWS] = true;
    TRY(config_yaml_next(r));
    /* all keys of the section are commented out */
    if (r->event.type == YAML_SCALAR_EVENT) {
        TRY(config_yaml_scalar(r, section, &text));
        if (is_null(r))
            return NULL;
    }
    TRY(begin_mapping(r, section));
    return read_entries(r, section);
}

static err *read_stream(reader *r)
{
    const char *text = NULL;

    TRY(config_yaml_next(r)); /* the stream */
    TRY(config_yaml_next(r));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return NULL;
    TRY(config_yaml_next(r)); /* the document */
    if (r->event.type == YAML_SCALAR_EVENT && !*(const char *)r->event.data.scalar.value)
        return config_yaml_scalar(r, "the file", &text); /* the file has only comments */
    TRY(begin_mapping(r, "the file"));
    for (;;) {
        TRY(config_yaml_next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            break;
        TRY(read_section(r));
    }
    TRY(config_yaml_next(r)); /* the document's end */
    TRY(config_yaml_next(r));
    return r->event.type == YAML_STREAM_END_EVENT
               ? NULL
               : config_yaml_refuse(r, "only one document is allowed");
}

err *config_parse(const char *name, const void *p, size_t n, config *c)
{
    reader r = {.file = name, .config = c};

    if (!yaml_parser_initialize(&r.parser))
        abort();
    r.seen = xcalloc(CONFIG_NROWS, sizeof *r.seen);
    yaml_parser_set_input_string(&r.parser, n ? p : (const void *)"", n);
    err *e = read_stream(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    free(r.seen);
    return e;
}

/* ---- writing ---- */

typedef struct unit {
    const char *suffix;
    uint64_t factor;
} unit;
static const unit SIZES[] = {
    {"t", UINT64_C(1) << 40}, {"g", 1u << 30}, {"m", 1u << 20}, {"k", 1u << 10}, {"", 1}};
static const unit TIMES[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

/* Uses the largest unit that divides the value. */
static char *in_units(uint64_t v, const unit *units)
{
    while (units->factor > 1 && (!v || v % units->factor))
        units++;
    return str_printf("%llu%s", (unsigned long long)(v / units->factor), units->suffix);
}

char *config_number_text(enum config_type type, uint64_t v)
{
    switch (type) {
    case CONFIG_IS_SIZE:
        return in_units(v, SIZES);
    case CONFIG_IS_TIME:
        return in_units(v, TIMES);
    case CONFIG_IS_MILLI:
        return v % 1000 ? str_printf("%llu.%03llu", (unsigned long long)(v / 1000),
                                     (unsigned long long)(v % 1000))
                        : str_printf("%llu", (unsigned long long)(v / 1000));
    default:
        return str_printf("%llu", (unsigned long long)v);
    }
}

/* Wraps at 96 columns; each line has the prefix. */
static void config_yaml_comment(buf *out, const char *prefix, const char *text)
{
    while (*text) {
        size_t n = strlen(text), most = 96 - strlen(prefix);
        if (n > most)
            for (n = most; n && text[n] != ' ';)
                n--;
        buf_printf(out, "%s%.*s\n", prefix, (int)n, text);
        text += n + strspn(text + n, " ");
    }
}

/* Writes a JSON string. YAML accepts it except for characters that YAML treats as line ends or as
 * invalid: NEL, the line separators, DEL and similar, the byte order mark. They are escaped, too. */
static void print_text(buf *out, const char *text)
{
    CLEANUP(buf_done) buf json = {0};

    buf_json_string(&json, text, strlen(text));
    for (size_t i = 0; i < json.len; i++) {
        const unsigned char *p = (const unsigned char *)json.p + i;
        size_t left = json.len - i;
        if (*p == 0x7f) {
            buf_str(out, "\\x7f");
        } else if (left > 1 && p[0] == 0xc2 && p[1] < 0xa0) {
            buf_printf(out, "\\x%02x", p[1]);
            i += 1;
        } else if (left > 2 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9)) {
            buf_printf(out, "\\u20%02x", p[2] - 0x80);
            i += 2;
        } else if (left > 2 && p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf) {
            buf_str(out, "\\ufeff");
            i += 2;
        } else if (left > 2 && p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe) {
            buf_printf(out, "\\uff%02x", p[2] + 0x40);
            i += 2;
        } else {
            buf_char(out, (char)*p);
        }
    }
}

static void print_row(const config_row *r, const config *c, buf *out)
{
    const char *at = (const char *)c + r->at;

    config_yaml_comment(out, "  # ", r->help);
    if (r->choices)
        buf_printf(out, "  # One of %s.\n", r->choices);
    buf_printf(out, "  %s: ", r->key);
    if (r->type == CONFIG_IS_TEXT) {
        const char *text = *(char *const *)at;
        print_text(out, text);
    } else if (r->type == CONFIG_IS_BOOL) {
        buf_str(out, *(const bool *)at ? "true" : "false");
    } else {
        CLEANUP(freep) char *text = config_number_text(r->type, *(const uint64_t *)at);
        buf_str(out, text);
    }
    buf_printf(out, "%s%s\n", *r->preset ? "  # default " : "", r->preset);
}

static void print_registries(const registries *all, buf *out)
{
    for (size_t i = 0; i < all->n; i++) {
        const registry *r = &all->v[i];
        buf_printf(out, "  \"%s\":\n    insecure: %s\n", r->host, r->insecure ? "true" : "false");
        for (char **m = r->mirrors; m && *m; m++)
            buf_printf(out, "%s\"%s\"%s", m == r->mirrors ? "    mirrors: [" : ", ", *m,
                       m[1] ? "" : "]\n");
        if (r->ca) {
            buf_str(out, "    ca: ");
            print_text(out, r->ca);
            buf_char(out, '\n');
        }
    }
}

void config_print(const config *c, buf *out)
{
    for (size_t i = 0; i < CONFIG_NROWS; i++) {
        const config_row *r = &CONFIG_ROWS[i];
        if (r->type != CONFIG_IS_SECTION) {
            print_row(r, c, out);
            continue;
        }
        if (i)
            buf_char(out, '\n');
        config_yaml_comment(out, "# ", r->help);
        buf_printf(out, "%s:\n", r->section);
        if (str_eq(r->section, "registries"))
            print_registries(&c->registries, out);
    }
}
