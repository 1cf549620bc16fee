#include <string.h>

#include "base/str.h"
#include "cli/keys.h"
#include "cli/modes.h"

#include "unit.h"

static void keys_are_found_and_the_rest_is_passed_on(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *typed, *passed;
        bool found;
    } CASES[] = {
        {"ctrl-p,ctrl-q", "ls\r", "ls\r", false},
        {"ctrl-p,ctrl-q", "a\x10\x11zz", "a", true},
        {"ctrl-p,ctrl-q", "\x10x", "\x10x", false},
        {"ctrl-p,ctrl-q", "\x10\x10\x11", "\x10", true},
        {"ctrl-p,ctrl-q", "\x10", "", false}, /* held until the next key */
        {"a,b,a,c", "ababac", "ab", true},
        {"a,a,b", "aaab", "a", true},
        {"ctrl-]", "x\x1d", "x", true},
        {"q", "q", "", true},
        {"", "\x10\x11", "\x10\x11", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        for (size_t step = 1; step < 9; step++) {
            CLEANUP(buf_done) buf out = {0};
            size_t n = strlen(CASES[i].typed);
            bool found = false;
            keys k;
            assert_ok(keys_parse(CASES[i].keys, &k));
            for (size_t at = 0; at < n && !found; at += step)
                found = keys_feed(&k, CASES[i].typed + at, step < n - at ? step : n - at, &out);
            assert_int_equal(found, CASES[i].found);
            assert_string_equal(buf_cstr(&out), CASES[i].passed);
        }
    }
}

static void keys_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const BAD[] = {"ctrl-",    "ctrl-P", "ctrl-pp",
                                      "nonsense", "a,,b",   "a,b,c,d,e,f,g,h,i"};
    keys k;

    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_err(keys_parse(BAD[i], &k), ERR_INVALID_REQUEST);
}

static void what_was_switched_on_is_switched_off(void **state)
{
    (void)state;
    static const struct {
        const char *seen, *undone;
    } CASES[] = {
        {"plain \033[31mred", "\033[m"},
        {"\033[?1049h\033[?25l", "\033[?25h\033[?1049l\033[m"},
        {"\033[?1049h\033[?1049l", "\033[m"},
        {"\033[?1000;1006h\033[?2004h", "\033[?1000l\033[?1006l\033[?2004l\033[m"},
        {"\033[?25l\033[?25h", "\033[m"},
        {"\033[?9999h\033[1049h\033[?1049$h", "\033[m"},
        {"\033[?104", "\030\033[m"}, /* cut */
        {"\033\033[?7l", "\033[?7h\033[m"},
    };

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(buf_done) buf out = {0};
        modes m = {0};
        modes_see(&m, CASES[i].seen, strlen(CASES[i].seen));
        modes_undo(&m, &out);
        assert_string_equal(buf_cstr(&out), CASES[i].undone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_found_and_the_rest_is_passed_on),
        cmocka_unit_test(keys_that_are_none_are_refused),
        cmocka_unit_test(what_was_switched_on_is_switched_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
