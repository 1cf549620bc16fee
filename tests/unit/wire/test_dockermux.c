#include <string.h>

#include "base/buf.h"
#include "wire/dockermux.h"

#include "unit.h"

static const char STREAM[] = "\1\0\0\0\0\0\0\3out"
                             "\2\0\0\0\0\0\0\3err"
                             "\1\0\0\0\0\0\0\0" /* nothing */
                             "\1\0\0\0\0\0\0\4more"
                             "\3\0\0\0\0\0\0\4oops";

static enum dockermux_result hear(const char *p, size_t n, size_t step, buf got[4], bool *ret_whole)
{
    dockermux m = {0};
    enum dockermux_result r = DOCKERMUX_MORE;

    for (size_t at = 0; at < n && r != DOCKERMUX_BAD;) {
        size_t some = n - at < step ? n - at : step, used = 0;
        dockermux_piece piece;
        r = dockermux_feed(&m, p + at, some, &used, &piece);
        if (r == DOCKERMUX_PIECE)
            buf_append(&got[piece.stream], piece.p, piece.n);
        at += used;
    }
    *ret_whole = dockermux_is_whole(&m);
    return r;
}

static void streams_are_told_apart_however_they_are_cut(void **state)
{
    (void)state;
    for (size_t step = 1; step <= sizeof STREAM - 1; step++) {
        buf got[4] = {0};
        bool whole;
        assert_int_not_equal(hear(STREAM, sizeof STREAM - 1, step, got, &whole), DOCKERMUX_BAD);
        assert_true(whole);
        assert_string_equal(buf_cstr(&got[DOCKERMUX_OUT]), "outmore");
        assert_string_equal(buf_cstr(&got[DOCKERMUX_ERR]), "err");
        assert_string_equal(buf_cstr(&got[DOCKERMUX_ENGINE]), "oops");
        for (int i = 0; i < 4; i++)
            buf_done(&got[i]);
    }
}

static void what_ends_within_a_piece_is_not_whole(void **state)
{
    (void)state;
    for (size_t n = 1; n < 11; n++) {
        buf got[4] = {0};
        bool whole;
        hear(STREAM, n, 64, got, &whole);
        assert_false(whole);
        buf_done(&got[DOCKERMUX_OUT]);
    }
}

static void what_is_no_head_ends_it(void **state)
{
    (void)state;
    static const char *const BAD[] = {"\4\0\0\0\0\0\0\1x", "\1\1\0\0\0\0\0\1x", "HTTP/1.1 500"};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        buf got[4] = {0};
        bool whole;
        assert_int_equal(hear(BAD[i], 9, 64, got, &whole), DOCKERMUX_BAD);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_told_apart_however_they_are_cut),
        cmocka_unit_test(what_ends_within_a_piece_is_not_whole),
        cmocka_unit_test(what_is_no_head_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
