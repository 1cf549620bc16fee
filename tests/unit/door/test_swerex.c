/* What the SWE-ReX door takes apart and puts together without I/O. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"
#include "door/swerex/body.h"
#include "door/swerex/expect.h"
#include "door/swerex/text.h"
#include "door/swerex/token.h"

#include "../unit.h"

#define ID "b000aaaabbbbccccdddd"

static void a_token_names_a_sandbox(void **state)
{
    rex_token t = {0};

    (void)state;
    assert_ok(rex_token_parse("e2b_00ff." ID, &t));
    assert_string_equal(t.key, "e2b_00ff");
    assert_string_equal(t.sandbox, ID);
    assert_null(t.image);
    rex_token_done(&t);
    assert_ok(rex_token_parse("e2b_00ff.hut", &t));
    assert_string_equal(t.sandbox, "hut");
    rex_token_done(&t);
}

static err *parse_new(const char *json, rex_token *ret)
{
    CLEANUP(freep) char *b64 = base64_encode(json, strlen(json));
    CLEANUP(freep) char *token = str_printf("e2b_00.new.%s", b64);

    for (char *p = token; *p; p++)
        *p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
    token[strcspn(token, "=")] = 0;
    return rex_token_parse(token, ret);
}

static void a_token_makes_a_sandbox(void **state)
{
    rex_token t = {0};

    (void)state;
    assert_ok(parse_new("{\"image\":\"debian:12\",\"ttl\":90,\"n\":7}", &t));
    assert_null(t.sandbox);
    assert_string_equal(t.image, "debian:12");
    assert_int_equal(t.ttl_ms, 90000);
    rex_token_done(&t);
    assert_ok(parse_new("{\"image\":\"\\u00ff\\u00fe?>\",\"n\":\"a\"}", &t));
    assert_int_equal(t.ttl_ms, 0);
    rex_token_done(&t);
    assert_err(parse_new("{\"ttl\":90}", &t), ERR_INVALID_REQUEST);
    assert_err(parse_new("{\"image\":\"x\",\"ttl\":0}", &t), ERR_INVALID_REQUEST);
    assert_err(parse_new("{\"image\":\"x\",\"ttl\":86401}", &t), ERR_INVALID_REQUEST);
    assert_ok(parse_new("{\"image\":\"x\",\"ttl\":86400}", &t));
    rex_token_done(&t);
    assert_err(parse_new("{\"image\":\"x\",\"ttl\":\"1h\"}", &t), ERR_INVALID_REQUEST);
    assert_err(parse_new("{\"image\":\"x\",\"n\":[]}", &t), ERR_INVALID_REQUEST);
    assert_err(parse_new("{\"image\":\"x\",\"user\":\"root\"}", &t), ERR_INVALID_REQUEST);
    assert_err(parse_new("[]", &t), ERR_INVALID_REQUEST);
    assert_err(rex_token_parse("e2b_00.new.*", &t), ERR_INVALID_REQUEST);
}

static void what_is_no_token_is_nobody(void **state)
{
    rex_token t = {0};

    (void)state;
    assert_err(rex_token_parse("", &t), ERR_UNAUTHENTICATED);
    assert_err(rex_token_parse("e2b_00", &t), ERR_UNAUTHENTICATED);
    assert_err(rex_token_parse("." ID, &t), ERR_UNAUTHENTICATED);
    assert_err(rex_token_parse("e2b_00.", &t), ERR_UNAUTHENTICATED);
    assert_err(rex_token_parse("e2b 00." ID, &t), ERR_UNAUTHENTICATED);
    assert_err(rex_token_parse("e2b_00.../etc", &t), ERR_UNAUTHENTICATED);
}

static void paths_are_verbs_or_have_a_prefix(void **state)
{
    rex_path p;

    (void)state;
    assert_true(rex_path_parse("/is_alive", &p));
    assert_string_equal(p.verb, "is_alive");
    assert_string_equal(p.sandbox, "");
    assert_true(rex_path_parse("/rex/" ID "/run_in_session", &p));
    assert_string_equal(p.verb, "run_in_session");
    assert_string_equal(p.sandbox, ID);
    assert_true(rex_path_parse("/rex/" ID, &p));
    assert_string_equal(p.verb, "");
    assert_false(rex_path_parse("/", &p));
    assert_false(rex_path_parse("/v1/sandboxes", &p));
    assert_false(rex_path_parse("/rex/", &p));
    assert_false(rex_path_parse("/rex/../v1", &p));
    assert_false(rex_path_parse("/sandboxes", &p));
}

static char *decoded(const char *p, size_t n)
{
    buf b = {0};

    rex_decode(&b, p, n);
    return buf_take(&b);
}

static void bytes_become_what_python_makes_of_them(void **state)
{
    static const struct {
        const char *in, *out;
    } CASES[] = {{"h\xc3\xa9llo", "h\xc3\xa9llo"},
                 {"\xff\xfe!", "\\xff\\xfe!"},
                 {"\xe2\x82", "\\xe2\\x82"},
                 {"\xe2\x82x", "\\xe2\\x82x"},
                 {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                 {"\xc0\xaf", "\\xc0\\xaf"},
                 {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
                 {"\xf0\x9f\x9a\x80", "\xf0\x9f\x9a\x80"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(freep) char *got = decoded(CASES[i].in, strlen(CASES[i].in));
        assert_string_equal(got, CASES[i].out);
    }
    assert_int_equal(rex_whole("a\xe2\x82", 3), 1);
    assert_int_equal(rex_whole("a\xe2\x82\xac", 4), 4);
    assert_int_equal(rex_whole("a\x80", 2), 2);
    assert_int_equal(rex_whole("", 0), 0);
}

static void a_terminals_output_is_stripped(void **state)
{
    buf b = {0};

    (void)state;
    buf_str(&b, "\033[1;31mred\033[0m\r\n\033[?2004hplain\r\033");
    rex_strip(&b);
    assert_string_equal(buf_cstr(&b), "red\nplain\r\033");
    buf_clear(&b);
    buf_str(&b, " \n a b\r\n");
    rex_trim(&b);
    assert_string_equal(buf_cstr(&b), "a b");
    buf_done(&b);
}

static void a_shells_state_is_made_readable(void **state)
{
    buf b = {0};

    (void)state;
    buf_str(
        &b,
        "declare -- A=\"x\"\ndeclare -ar BASH_VERSINFO=([0]=\"5\")\ndeclare -rx R=\"1\nmore\"\n"
        "declare -x B=\"two\nlines\"\ndeclare -- __by_k=\"1\"\nMARK\nf () \n{ \n}\ndeclare -r x\n");
    rex_settle(&b, "MARK");
    assert_string_equal(buf_cstr(&b),
                        "declare -- A=\"x\"\ndeclare -x B=\"two\nlines\"\nf () \n{ \n}\n"
                        "declare -r x\n");
    buf_clear(&b);
    rex_settle(&b, "MARK");
    assert_int_equal(b.len, 0);
    buf_done(&b);
}

static void reprs_are_pythons(void **state)
{
    static const struct {
        const char *in, *out;
    } CASES[] = {{"false", "'false'"},         {"it's", "\"it's\""},
                 {"'\"", "'\\'\"'"},           {"a\nb\t\\", "'a\\nb\\t\\\\'"},
                 {"\x1b\x7f", "'\\x1b\\x7f'"}, {"h\xc3\xa9", "'h\xc3\xa9'"},
                 {"\xc2\xa0", "'\\xa0'"}};
    static const struct {
        double in;
        const char *out;
    } FLOATS[] = {{1, "1.0"},     {0.1, "0.1"}, {15, "15.0"},
                  {100, "100.0"}, {0.5, "0.5"}, {1.25, "1.25"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(buf_done) buf b = {0};
        rex_repr(&b, CASES[i].in, strlen(CASES[i].in));
        assert_string_equal(buf_cstr(&b), CASES[i].out);
    }
    for (size_t i = 0; i < ARRAY_LEN(FLOATS); i++) {
        CLEANUP(buf_done) buf b = {0};
        rex_repr_float(&b, FLOATS[i].in);
        assert_string_equal(buf_cstr(&b), FLOATS[i].out);
    }
}

static void read_is(const char *bytes, const char *encoding, const char *errors, const char *text,
                    const char *class)
{
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(buf_done) buf why = {0};
    const char *got = NULL;
    bool ok = rex_read_text(bytes, strlen(bytes), encoding, errors, &out, &got, &why);

    assert_int_equal(ok, class == NULL);
    assert_string_equal(ok ? buf_cstr(&out) : buf_cstr(&why), text);
    if (class)
        assert_string_equal(got, class);
}

static void files_are_read_as_text(void **state)
{
    (void)state;
    read_is("a\r\nb\rc\n", NULL, NULL, "a\nb\nc\n", NULL);
    read_is("\xffx", "utf-8", "backslashreplace", "\\xffx", NULL);
    read_is("\xffx", NULL, "ignore", "x", NULL);
    read_is("\xe2\x82x", NULL, "replace", "\xef\xbf\xbdx", NULL);
    read_is("\xe9", "latin-1", NULL, "\xc3\xa9", NULL);
    read_is("\xffx", NULL, NULL,
            "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
            "UnicodeDecodeError");
    read_is("ab\xe2\x82", NULL, "strict",
            "'utf-8' codec can't decode bytes in position 2-3: unexpected end of data",
            "UnicodeDecodeError");
    read_is("\xe9", "ASCII", NULL,
            "'ascii' codec can't decode byte 0xe9 in position 0: ordinal not in range(128)",
            "UnicodeDecodeError");
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(buf_done) buf why = {0};
    const char *class = NULL;
    assert_false(rex_read_text("x", 1, "klingon", NULL, &out, &class, &why));
    assert_string_equal(class, "LookupError");
}

/* Reads the whole text, in pieces of this size that do not end in a character: the last has `all`. */
static bool find_from(rex_expect *e, const char *text, size_t n, size_t piece, rex_match *ret)
{
    enum rex_found found = REX_MORE;

    while (found != REX_FOUND) {
        size_t at = (size_t)rex_expect_at(e), len = n - at < piece ? n - at : piece;
        while (len < n - at && !rex_whole(text + at, len))
            len++;
        len = len < n - at ? rex_whole(text + at, len) : len;
        found = rex_expect_read(e, text + at, len, at + len == n, ret);
        if (found == REX_NOTHING && at + len == n)
            return false;
    }
    return true;
}

static bool find(rex_expect *e, const char *text, size_t n, rex_match *ret)
{
    rex_expect_begin(e, 0);
    return find_from(e, text, n, SIZE_MAX, ret);
}

static rex_expect *expect_one(const char *pattern)
{
    char *patterns[] = {(char *)pattern, NULL};
    rex_expect *e = NULL;

    assert_ok(rex_expect_new(patterns, "PROMPT", &e));
    return e;
}

static void found_is(const char *pattern, const char *text, int from, int to)
{
    rex_expect *e = expect_one(pattern);
    rex_match m = {0};

    for (size_t piece = 1; piece < 9; piece++) {
        rex_expect_begin(e, 0);
        bool found = find_from(e, text, strlen(text), piece, &m);
        assert_int_equal(found, from >= 0);
        if (found) {
            assert_int_equal(m.from, from);
            assert_int_equal(m.to, to);
        }
    }
    rex_expect_free(e);
}

static void patterns_are_pythons(void **state)
{
    (void)state;
    found_is(">>> ", "hi\n>>> ", 3, 7);
    found_is("\\(gdb\\) ", "x (gdb) ", 2, 8);
    found_is("\\d+", "ab123c", 2, 5);
    found_is("[\\]\\-\\w]+$", "..a-]", 2, 5);
    found_is("(?:a|b)c", "xbc", 1, 3);
    found_is("(?P<n>x)y", "xy", 0, 2);
    found_is("a.b", "a\nb", 0, 3);
    found_is("\\x3e{3}", ">>>", 0, 3);
    found_is("{x}", "{x}", 0, 3);
    found_is("[^]a]", "]ab", 2, 3);
    found_is("nope", "text", -1, 0);
    found_is("later", "PROMPT later", 0, 6);
    found_is("PRO", "PROMPT", 0, 3);
}

static void matches_are_as_long_as_pythons(void **state)
{
    (void)state;
    found_is("a|ab", "xab", 1, 2);
    found_is("ab|a", "xab", 1, 3);
    found_is("a.*?b", "aabab", 0, 3);
    found_is("a.*b", "aabab", 0, 5);
    found_is("a+?", "aaa", 0, 1);
    found_is("a??b", "aab", 1, 3);
    found_is("a{2,4}?", "aaaaa", 0, 2);
    found_is("a{2,4}", "aaaaa", 0, 4);
    found_is("(?:ab){2}", "ababab", 0, 4);
    found_is("(ab){,2}c", "abababc", 2, 7);
    found_is("xa{0}b", "xab xb", 4, 6);
    found_is("(a|b|)*c", "xabac", 1, 5);
    found_is("((a*)*)*b", "aaaaab", 0, 6);
    found_is("(|a)+b", "aab", 0, 3);
    found_is("a|b|c*d", "ccd", 0, 3);
    found_is("(a|b)|(c|d)e", "xde", 1, 3);
    found_is("\\bcat\\b", "concat cat.", 7, 10);
    found_is("\\Bcat", "cat concat", 7, 10);
    found_is("^b", "ab", -1, 0);
    found_is("\\Aab\\Z", "ab", 0, 2);
    found_is("a$", "aab", -1, 0);
    found_is("{,}", "x{,}", 1, 4);
    found_is("[a-c-]+", "xb-a", 1, 4);
    found_is("[^\\s\\d]+", " 1ab2", 2, 4);
    found_is("\\S\\W\\D", " a.b", 1, 4);
    found_is("^.$", "\xc3\xa9", 0, 2);
    found_is("[\xc3\xa8-\xc3\xaa]b",
             "\xc3\xa9"
             "b",
             0, 3);
    found_is("[^a]b",
             "\xe2\x82\xac"
             "b",
             0, 4);
}

/* What others have of the processor meanwhile does not count. */
static uint64_t own_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t search_ns(const char *pattern, const char *text, size_t n)
{
    uint64_t best = UINT64_MAX;
    rex_expect *e = expect_one(pattern);
    rex_match m;

    for (int i = 0; i < 3; i++) {
        uint64_t began = own_ns();
        assert_false(find(e, text, n, &m));
        uint64_t took = own_ns() - began;
        best = took < best ? took : best;
    }
    rex_expect_free(e);
    return best;
}

/* Eight times the text: in proportion that is 8, by its square 64. */
static void a_search_takes_time_in_proportion_to_the_text(void **state)
{
    static const char *const PATTERNS[] = {"a.*b", "a[^x]*b", "(a|aa)+b", "(a|b)*a(a|b){60}c",
                                           "((((a)*)*)*)*b"};
    static char text[(256u << 10) + 1];

    (void)state;
    memset(text, 'a', sizeof text - 1);
    for (size_t i = 0; i < ARRAY_LEN(PATTERNS); i++) {
        uint64_t whole = search_ns(PATTERNS[i], text, sizeof text - 1);
        uint64_t part = search_ns(PATTERNS[i], text, 32u << 10);
        assert_true(whole < 24 * part);
    }
}

/* A relay lane belongs to everyone: what a pattern costs comes in portions. */
static void a_call_reads_no_more_than_its_share(void **state)
{
    static char text[64u << 10];
    rex_expect *e = expect_one("(a|b)*a(a|b){60}c");
    rex_match m;
    unsigned calls = 0;

    (void)state;
    memset(text, 'a', sizeof text);
    for (enum rex_found found = REX_MORE; found == REX_MORE; calls++) {
        uint64_t at = rex_expect_at(e);
        found = rex_expect_read(e, text + at, sizeof text - at, true, &m);
        assert_true(found == REX_NOTHING || rex_expect_at(e) > at);
        assert_true((rex_expect_at(e) - at) * 60 <= REX_WORK_MAX + 500);
    }
    assert_true(calls > 50);
    assert_true(rex_expect_size(e) < 64u << 10);
    rex_expect_free(e);
}

static void a_search_goes_on_where_one_has_ended(void **state)
{
    char *patterns[] = {"^x", "ready\\b.*now", "end$", NULL};
    static char text[40001];
    rex_expect *e = NULL;
    rex_match m;

    (void)state;
    memset(text, '.', sizeof text - 1);
    assert_ok(rex_expect_new(patterns, "PROMPT", &e));
    memcpy(text + 29990, "ready, and now", 14);
    assert_false(find(e, text, 30000, &m));
    assert_true(find_from(e, text, sizeof text - 1, SIZE_MAX, &m));
    assert_int_equal(m.from, 29990);
    assert_int_equal(m.to, 30004);
    memset(text + 29990, '.', 14);
    memcpy(text + 2 * REX_WINDOW - 3, "end", 3); /* of a piece, not of the text */
    text[REX_WINDOW] = 'x';
    rex_expect_begin(e, 0);
    assert_false(find_from(e, text, sizeof text - 1, REX_WINDOW, &m));
    memcpy(text + 39994, "PROMPT", 6);
    assert_true(find(e, text, sizeof text - 1, &m));
    assert_true(m.last && m.from == 39994);
    rex_expect_free(e);
}

/* A text without an end: a match comes out although one with more right could still become one. */
static void a_better_match_is_not_waited_for_for_ever(void **state)
{
    char *patterns[] = {"P.*END", NULL};
    static char text[3 * REX_WINDOW];
    rex_expect *e = NULL;
    rex_match m;

    (void)state;
    memset(text, '.', sizeof text);
    memcpy(text, "PROMPT", 6);
    assert_ok(rex_expect_new(patterns, "PROMPT", &e));
    assert_int_equal(rex_expect_read(e, text, REX_WINDOW, false, &m), REX_NOTHING);
    assert_int_equal(rex_expect_read(e, text + REX_WINDOW, REX_WINDOW, false, &m), REX_FOUND);
    assert_true(m.last && m.from == 0 && m.to == 6);
    memcpy(text + 1000, "END", 3);
    assert_true(find(e, text, sizeof text, &m));
    assert_true(!m.last && m.to == 1003);
    rex_expect_free(e);
}

static void patterns_that_cannot_be_had_are_refused(void **state)
{
    static const char *const BAD[] = {"(?=x)",       "(?i)x",       "a\\1",    "",        "[a",
                                      "(a",          "(a{99}){99}", "a{2000}", "\\q",     "x\\",
                                      "[[:alpha:]]", "a)",          "*a",      "a**",     "a{3,2}",
                                      "a|+",         "^*",          "[b-a]",   "[\\w-z]", "[\\"};
    rex_expect *e = NULL;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        char *patterns[] = {(char *)BAD[i], NULL};
        assert_err(rex_expect_new(patterns, "P", &e), ERR_INVALID_REQUEST);
    }
}

/* The size of all of them is bounded, also where each is small enough. */
static void large_patterns_are_refused_together(void **state)
{
    char *patterns[REX_EXPECT_MAX + 1];
    rex_expect *e = NULL;

    (void)state;
    for (size_t i = 0; i < REX_EXPECT_MAX; i++)
        patterns[i] = "[a-z]{1000}";
    patterns[REX_EXPECT_MAX] = NULL;
    assert_err(rex_expect_new(patterns, "P", &e), ERR_INVALID_REQUEST);
    patterns[8] = NULL;
    assert_ok(rex_expect_new(patterns, "P", &e));
    assert_true(rex_expect_size(e) < 2u << 20);
    rex_expect_free(e);
}

/* n times `open`, an a, n times `close`. */
static char *nested(unsigned n, const char *open, const char *close)
{
    buf b = {0};

    for (unsigned i = 0; i < n; i++)
        buf_str(&b, open);
    buf_char(&b, 'a');
    for (unsigned i = 0; i < n; i++)
        buf_str(&b, close);
    return buf_take(&b);
}

static const struct {
    unsigned n;
    const char *open, *close;
    bool taken;
} DEEP[] = {{511, "(", ")", false},   {340, "(", ")*", false},  {200, "(|", ")+?", false},
            {33, "(?:", ")", false},  {32, "(", ")*", true},    {32, "(?:", ")?", true},
            {9, "(", "){2}", true},   {13, "(", "){2}", false}, {32, "(|", ")*", true},
            {32, "(", "){1,1}", true}};

/* As a request does: on a thread's stack. */
static void *search_deep_patterns(void *unused)
{
    for (size_t i = 0; i < ARRAY_LEN(DEEP); i++) {
        CLEANUP(freep) char *pattern = nested(DEEP[i].n, DEEP[i].open, DEEP[i].close);
        char *patterns[] = {pattern, NULL};
        rex_expect *e = NULL;
        rex_match m;
        err *refused = rex_expect_new(patterns, "P", &e);
        assert_int_equal(refused == NULL, DEEP[i].taken);
        err_free(refused);
        if (e)
            assert_true(find(e, "aaaaaaaa", 8, &m) || DEEP[i].n == 9);
        rex_expect_free(e);
    }
    return unused;
}

static void deep_patterns_fit_a_threads_stack(void **state)
{
    (void)state;
    pthread_join(thread_start("deep", search_deep_patterns, NULL), NULL);
}

static err *action(const char *text, rex_action *ret)
{
    return rex_action_decode(text, strlen(text), ret);
}

static void bodies_have_the_defaults_of_the_models(void **state)
{
    rex_action a = {0};
    rex_opening o = {0};
    rex_command c = {0};

    (void)state;
    assert_ok(action("{\"action_type\":\"bash\",\"command\":\"true\"}", &a));
    assert_string_equal(a.session, "default");
    assert_true(a.timeout < 0 && a.check == REX_CHECK_RAISE && !a.expect && !a.interactive);
    rex_action_done(&a);
    assert_ok(action("{\"action_type\":\"bash_interrupt\"}", &a));
    assert_true(a.interrupt && a.retries == 3 && a.timeout == 0.2);
    rex_action_done(&a);
    assert_ok(rex_opening_decode("{}", 2, &o));
    assert_true(o.timeout == 1.0 && !o.sources);
    rex_opening_done(&o);
    static const char SHELL[] = "{\"command\":\"a b\",\"shell\":true,\"env\":{\"V\":\"v\"}}";
    assert_ok(rex_command_decode(SHELL, strlen(SHELL), &c));
    assert_string_equal(c.argv[0], "/bin/sh");
    assert_string_equal(c.argv[2], "a b");
    assert_string_equal(c.shown, "'a b'");
    assert_string_equal(c.env[0], "V=v");
    rex_command_done(&c);
    static const char LIST[] = "{\"command\":[\"echo\",\"it's\"]}";
    assert_ok(rex_command_decode(LIST, strlen(LIST), &c));
    assert_string_equal(c.shown, "['echo', \"it's\"]");
    rex_command_done(&c);
}

static void bodies_of_another_form_are_refused(void **state)
{
    static const char *const BAD[] = {
        "",
        "[]",
        "{}",
        "{\"action_type\":\"bash\"}",
        "{\"action_type\":\"bash\",\"command\":7}",
        "{\"action_type\":\"bash\",\"command\":\"x\",\"check\":\"loud\"}",
        "{\"action_type\":\"bash\",\"command\":\"x\",\"expect\":\"y\"}",
        "{\"action_type\":\"bash\",\"command\":\"a\\u0000b\"}",
        "{\"action_type\":\"bash\",\"command\":\"x\",\"timeout\":\"1\"}"};
    rex_action a = {0};
    rex_file f = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_err(action(BAD[i], &a), ERR_INVALID_REQUEST);
    static const char NUL[] = "{\"path\":\"/x\",\"content\":\"a\\u0000b\"}";
    assert_ok(rex_file_decode(NUL, strlen(NUL), true, &f));
    assert_int_equal(f.n, 3);
    rex_file_done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_names_a_sandbox),
        cmocka_unit_test(a_token_makes_a_sandbox),
        cmocka_unit_test(what_is_no_token_is_nobody),
        cmocka_unit_test(paths_are_verbs_or_have_a_prefix),
        cmocka_unit_test(bytes_become_what_python_makes_of_them),
        cmocka_unit_test(a_terminals_output_is_stripped),
        cmocka_unit_test(a_shells_state_is_made_readable),
        cmocka_unit_test(reprs_are_pythons),
        cmocka_unit_test(files_are_read_as_text),
        cmocka_unit_test(patterns_are_pythons),
        cmocka_unit_test(matches_are_as_long_as_pythons),
        cmocka_unit_test(a_search_takes_time_in_proportion_to_the_text),
        cmocka_unit_test(a_call_reads_no_more_than_its_share),
        cmocka_unit_test(a_search_goes_on_where_one_has_ended),
        cmocka_unit_test(a_better_match_is_not_waited_for_for_ever),
        cmocka_unit_test(patterns_that_cannot_be_had_are_refused),
        cmocka_unit_test(large_patterns_are_refused_together),
        cmocka_unit_test(deep_patterns_fit_a_threads_stack),
        cmocka_unit_test(bodies_have_the_defaults_of_the_models),
        cmocka_unit_test(bodies_of_another_form_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
