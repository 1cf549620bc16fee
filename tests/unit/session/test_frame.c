/* Frames, trailers, and the ladder with a clock that stands still. */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "session/frame.h"
#include "session/ladder.h"

#include "../unit.h"

#define SESSION "0123456789abcdef"
#define COMMAND "fedcba9876543210"

static void assert_frame(frame f, const char *text, const char *want)
{
    CLEANUP(buf_done) buf b = {0};

    f.text = text;
    f.n = strlen(text);
    memcpy(f.token, COMMAND, sizeof f.token);
    frame_write(&f, &b);
    assert_string_equal(buf_cstr(&b), want);
}

static void a_command_is_one_quoted_word(void **state)
{
    (void)state;
    assert_frame((frame){0}, "echo hi",
                 "__by_t=fedcba98 __by_u=76543210 __by_c='echo hi'\"$__by_n\"\n");
    assert_frame(
        (frame){.savepoint = true, .merge = true}, "it's\n",
        "__by_b=3 __by_r=7 __by_t=fedcba98 __by_u=76543210 __by_c='it'\\''s'\"$__by_n\"''\n");
    assert_frame(
        (frame){.bulk = true}, "a'b",
        "LC_ALL=C command read -r -N 4 __by_c <&3; __by_t=fedcba98 __by_u=76543210\na'b\n");
}

static void a_nul_and_too_much_are_refused(void **state)
{
    CLEANUP(freep) char *much = xcalloc(1, FRAME_TEXT + 1);

    (void)state;
    assert_err(frame_check("a\0b", 3), ERR_INVALID_REQUEST);
    memset(much, 'x', FRAME_TEXT + 1);
    assert_ok(frame_check(much, FRAME_TEXT));
    assert_err(frame_check(much, FRAME_TEXT + 1), ERR_TOO_LARGE);
}

static enum trailer_found find(const char *text, size_t *at, trailer *t)
{
    return trailer_find(text, strlen(text), SESSION, COMMAND, at, t);
}

static void a_trailer_needs_its_token(void **state)
{
    trailer t;
    size_t at;

    (void)state;
    assert_int_equal(find("out\036" COMMAND " E 7 12 /a b\036\nmore", &at, &t), TRAILER_HERE);
    assert_int_equal(at, 3);
    assert_true(t.own && t.kind == TRAILER_ENDED && t.status == 7 && t.pid == 12);
    assert_int_equal(t.ncwd, 4);
    assert_memory_equal(t.cwd, "/a b", 4);
    assert_int_equal(t.n, strlen("\036" COMMAND " E 7 12 /a b\036\n"));
    assert_int_equal(find("\036deadbeefdeadbeef E 0 1 /\036\n", &at, &t), TRAILER_NONE);
    assert_int_equal(find("\036" COMMAND " R 0 1 /\036\n", &at, &t), TRAILER_NONE);
    assert_int_equal(find("\036" SESSION " E 0 1 /\036\n", &at, &t), TRAILER_NONE);
    assert_int_equal(find("\036" COMMAND " E 256 1 /\036\n", &at, &t), TRAILER_NONE);
    assert_int_equal(find("\036" SESSION " P 0 99 \036\n", &at, &t), TRAILER_HERE);
    assert_true(!t.own && t.kind == TRAILER_PID && t.pid == 99 && !t.ncwd);
}

static void half_a_trailer_is_waited_for(void **state)
{
    const char *whole = "ab\036" COMMAND " X 1 2 /x\ny\036\n";
    trailer t;
    size_t at;

    (void)state;
    for (size_t n = 3; n < strlen(whole); n++) {
        assert_int_equal(trailer_find(whole, n, SESSION, COMMAND, &at, &t), TRAILER_HALF);
        assert_int_equal(at, 2);
    }
    assert_int_equal(find(whole, &at, &t), TRAILER_HERE);
}

static unsigned risks(const char *text, enum dialect d)
{
    return frame_risks(text, strlen(text), d);
}

static void words_tell_what_a_command_may_do(void **state)
{
    (void)state;
    assert_int_equal(risks("exec ls", DIALECT_BASH), RISK_REPLACE);
    assert_int_equal(risks("find . -exec ls \\;", DIALECT_BASH), 0);
    assert_int_equal(risks("executor trapped", DIALECT_ASH), 0);
    assert_int_equal(risks("a; kill -9 $$", DIALECT_DASH), RISK_KILL);
    assert_int_equal(risks("exit 3", DIALECT_BASH), 0);
    assert_int_equal(risks("exit 3", DIALECT_ASH), RISK_REPLACE);
    assert_int_equal(risks("echo ${x?}", DIALECT_ASH), RISK_REPLACE);
    assert_int_equal(risks(". ./env", DIALECT_ASH), RISK_REPLACE);
    assert_int_equal(risks("ls ./env a.b", DIALECT_ASH), 0);
    assert_int_equal(risks("readonly IFS", DIALECT_BASH), RISK_READONLY);
}

static void the_ladder_climbs_by_the_clock(void **state)
{
    ladder l = {0};
    uint64_t now = 100 * NS_PER_S;

    (void)state;
    assert_int_equal(ladder_step(&l, now, true), RUNG_NONE);
    ladder_start(&l, now, false);
    assert_int_equal(ladder_step(&l, now, true), RUNG_INT);
    assert_int_equal(ladder_step(&l, now, true), RUNG_NONE);
    ladder_start(&l, now + 1, true); /* it is on its way */
    assert_int_equal(ladder_step(&l, l.next_ns - 1, true), RUNG_NONE);
    assert_int_equal(ladder_step(&l, l.next_ns, true), RUNG_KILL_TREE);
    assert_int_equal(ladder_step(&l, l.next_ns, true), RUNG_KILL_SHELL);
    assert_int_equal(ladder_step(&l, l.next_ns, true), RUNG_RESTART);
    assert_int_equal(l.next_ns, 0);
    assert_int_equal(ladder_step(&l, now + 1000 * NS_PER_S, true), RUNG_NONE);
    assert_string_equal(rung_name(l.rung), "restart");
}

static void a_young_command_is_interrupted_twice_and_a_lost_shell_replaced(void **state)
{
    ladder l = {0};

    (void)state;
    ladder_start(&l, NS_PER_S, true);
    assert_int_equal(ladder_step(&l, NS_PER_S, false), RUNG_INT);
    assert_int_equal(ladder_step(&l, l.next_ns, false), RUNG_INT);
    assert_int_equal(ladder_step(&l, l.next_ns, false), RUNG_RESTART);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_is_one_quoted_word),
        cmocka_unit_test(a_nul_and_too_much_are_refused),
        cmocka_unit_test(a_trailer_needs_its_token),
        cmocka_unit_test(half_a_trailer_is_waited_for),
        cmocka_unit_test(words_tell_what_a_command_may_do),
        cmocka_unit_test(the_ladder_climbs_by_the_clock),
        cmocka_unit_test(a_young_command_is_interrupted_twice_and_a_lost_shell_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
