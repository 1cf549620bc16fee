#include <string.h>

#include "base/str.h"
#include "cli/opt.h"
#include "cli/verbs.h"

#include "../unit.h"

typedef struct args {
    bool flag, other;
    const char *text, *choice;
    char **list;
    uint64_t bytes, ms, count, milli;
} args;

static const opt OPTS[] = {
    OPT('f', "flag", NULL, OPT_FLAG, args, flag, "a flag"),
    OPT('o', "other", NULL, OPT_FLAG, args, other, "another"),
    OPT('t', "text", "TEXT", OPT_TEXT, args, text, "a text"),
    OPT('l', "list", "WORD", OPT_LIST, args, list, "a list"),
    OPT('m', "memory", "SIZE", OPT_BYTES, args, bytes, "a size"),
    OPT(0, "time", "TIME", OPT_DURATION, args, ms, "a time"),
    OPT(0, "count", "N", OPT_COUNT, args, count, "a number"),
    OPT(0, "cpus", "N", OPT_CORES, args, milli, "cores"),
    OPT(0, "net", "none|open", OPT_CHOICE, args, choice, "a choice"),
    OPT(0, "hidden", NULL, OPT_FLAG, args, flag, NULL),
    OPT_END,
};

static args got;
static opt_words words;
static char *argv[16];

/* Parses the words of a line separated by spaces. */
static err *parse(const char *line, bool stop_early)
{
    static char text[256];
    int argc = 0;
    char *rest = text, *word;

    opt_args_done(OPTS, &got);
    got = (args){0};
    snprintf(text, sizeof text, "%s", line);
    while ((word = strsep(&rest, " ")))
        argv[argc++] = word;
    argv[argc] = NULL;
    return opt_parse(OPTS, "bothy test", stop_early, argc, argv, &got, &words);
}

static void parse_fails(const char *line, const char *message, const char *remedy)
{
    CLEANUP(err_freep) err *e = parse(line, false);

    assert_non_null(e);
    assert_int_equal(e->code, ERR_INVALID_REQUEST);
    assert_non_null(strstr(e->message, message));
    assert_non_null(strstr(err_remedy_of(e), remedy));
}

static void every_way_to_write_an_argument(void **state)
{
    static const char *const LINES[] = {"-t x", "-tx", "-t=x", "--text x", "--text=x", "-ft x"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(LINES); i++) {
        assert_ok(parse(LINES[i], false));
        assert_string_equal(got.text, "x");
        assert_int_equal(words.n, 0);
    }
    assert_true(got.flag);
    assert_ok(parse("-fo a -l 1 --list=2 b", false));
    assert_true(got.flag && got.other);
    assert_int_equal(strv_len(got.list), 2);
    assert_string_equal(got.list[1], "2");
    assert_int_equal(words.n, 2);
    assert_string_equal(words.v[1], "b");
    assert_null(words.v[2]);
}

static void values_are_checked(void **state)
{
    (void)state;
    assert_ok(parse("-m 512m --time 90s --count 7 --cpus 0.5 --net open", false));
    assert_int_equal(got.bytes, 512 << 20);
    assert_int_equal(got.ms, 90000);
    assert_int_equal(got.count, 7);
    assert_int_equal(got.milli, 500);
    assert_string_equal(got.choice, "open");
    parse_fails("-m much", "'much' is not a size", "--memory");
    parse_fails("--time never", "is not a time", "30s");
    parse_fails("--count 0", "is not a whole number", "--count");
    parse_fails("--cpus -1", "is not a number of cores", "0.5");
    parse_fails("--cpus nan", "is not a number of cores", "0.5");
    parse_fails("--net ope", "is not none|open", "none|open");
    parse_fails("--net open|none", "is not none|open", "none|open");
    parse_fails("--text", "needs an argument: TEXT", "bothy test --help");
    parse_fails("--flag=1", "takes no argument", "=1");
}

static void unknown_options_name_the_nearest(void **state)
{
    (void)state;
    parse_fails("--memroy=1g", "no option --memroy", "--memory");
    parse_fails("--fla", "no option --fla", "--flag");
    parse_fails("-fx", "no option -x", "--help");
    parse_fails("--hiden", "no option --hiden", "--help");
}

static void options_end_where_the_command_begins(void **state)
{
    (void)state;
    assert_ok(parse("-f image -o -- x", true));
    assert_true(got.flag && !got.other);
    assert_int_equal(words.n, 4);
    assert_string_equal(words.v[1], "-o");
    assert_string_equal(words.v[2], "--");
    assert_ok(parse("image -- -o", true));
    assert_int_equal(words.n, 2);
    assert_string_equal(words.v[1], "-o");
    assert_ok(parse("-f -- image -o", true));
    assert_int_equal(words.n, 2);
    assert_string_equal(words.v[0], "image");
    assert_ok(parse("a -- --flag -", false));
    assert_false(got.flag);
    assert_int_equal(words.n, 3);
    assert_ok(parse("-", false));
    assert_string_equal(words.v[0], "-");
}

static void check_table(const verb *v)
{
    if (v->of) {
        for (const verb *const *s = v->of; *s; s++)
            check_table(*s);
        return;
    }
    assert_non_null(v->run);
    assert_true(v->args_size >= sizeof(common_args));
    for (const opt *o = v->opts; o->name; o++) {
        assert_true((o->kind == OPT_FLAG) == !o->arg);
        assert_true(o->offset < v->args_size);
        for (const opt *other = o + 1; other->name; other++) {
            assert_string_not_equal(o->name, other->name);
            assert_false(o->letter && o->letter == other->letter);
        }
        if (o->help)
            assert_true(o->help[strlen(o->help) - 1] != '.');
    }
}

static void every_table_is_sound(void **state)
{
    (void)state;
    for (const verb *const *v = CLI_VERBS; *v; v++)
        check_table(*v);
}

static void help_lists_what_is_not_hidden(void **state)
{
    CLEANUP(buf_done) buf b = {0};

    (void)state;
    opt_help(OPTS, &b);
    assert_non_null(strstr(buf_cstr(&b), "  -m, --memory SIZE             a size\n"));
    assert_non_null(strstr(buf_cstr(&b), "      --time TIME               a time\n"));
    assert_null(strstr(buf_cstr(&b), "hidden"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_to_write_an_argument),
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test(unknown_options_name_the_nearest),
        cmocka_unit_test(options_end_where_the_command_begins),
        cmocka_unit_test(every_table_is_sound),
        cmocka_unit_test(help_lists_what_is_not_hidden),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);

    opt_args_done(OPTS, &got);
    return rc;
}
