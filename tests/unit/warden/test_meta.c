#include <string.h>

#include "base/str.h"
#include "warden/meta.h"

#include "../unit.h"

#define HEX   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define FIRST "bothy-unpack=1\n"

static err *parse(const char *text, meta *m)
{
    CLEANUP(freep) char *copy = xstrdup(text);

    return meta_parse(copy, strlen(copy), m);
}

static void report_is_read(void **state)
{
    CLEANUP(meta_done) meta m = {0};

    (void)state;
    assert_ok(parse(FIRST "diff_id=" HEX "\nentries=3\nbytes=12\nlater_key=x\nopaque_root=1\n"
                          "implicit=a%20b\nimplicit=a%20b/c%25\nwhiteout_dir=\nend=1\n",
                    &m));
    assert_int_equal(m.diff_id[1], 0x23);
    assert_int_equal(m.entries, 3);
    assert_int_equal(m.bytes, 12);
    assert_true(m.opaque_root);
    assert_int_equal(strv_len(m.implicit), 2);
    assert_string_equal(m.implicit[1], "a b/c%");
    assert_string_equal(m.whiteout_dirs[0], "");
}

static void hostile_reports_are_refused(void **state)
{
    static const char *const BAD[] = {
        "",
        "end=1\n",
        FIRST,
        FIRST "entries=3\n",
        "other=1\nend=1\n",
        FIRST "end=1",
        FIRST "end=1\nentries=1\n",
        FIRST "entries=-1\nend=1\n",
        FIRST "entries=99999999999999999999\nend=1\n",
        FIRST "opaque_root=2\nend=1\n",
        FIRST "diff_id=12\nend=1\n",
        FIRST "no equals sign\nend=1\n",
        FIRST "implicit=\nend=1\n",
        FIRST "implicit=/etc\nend=1\n",
        FIRST "implicit=a/../b\nend=1\n",
        FIRST "implicit=..\nend=1\n",
        FIRST "implicit=a/%2e%2e\nend=1\n",
        FIRST "implicit=a//b\nend=1\n",
        FIRST "implicit=a/\nend=1\n",
        FIRST "implicit=a%00b\nend=1\n",
        FIRST "implicit=a%\nend=1\n",
        FIRST "whiteout_dir=.\nend=1\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        meta m = {0};
        err *e = parse(BAD[i], &m);
        if (!e)
            fail_msg("taken: %s", BAD[i]);
        assert_err(e, ERR_INTERNAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report_is_read),
        cmocka_unit_test(hostile_reports_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
