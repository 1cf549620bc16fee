#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "warden/layers_priv.h"

#include "../unit.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"

static err *read_text(const char *text, size_t n, image_def *ret_def)
{
    char place[] = "/tmp/bothy-images-XXXXXX";
    CLEANUP(closep) int dir = open(mkdtemp(place), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_ok(fs_write(dir, "def", text, n, 0600, false));
    err *e = image_def_read(dir, "def", ret_def);
    unlinkat(dir, "def", 0);
    rmdir(place);
    return e;
}

static void a_definition_is_read(void **state)
{
    static const char TEXT[] = "bothy-image 1\nfix\n" HEX HEX;
    CLEANUP(image_def_done) image_def d = {0};

    (void)state;
    assert_ok(read_text(TEXT, strlen(TEXT), &d));
    assert_int_equal(d.n, 2);
    assert_true(d.fix);
}

/* An image that lost layers would be another image. */
static void less_than_a_whole_definition_is_none(void **state)
{
    static const char *const BAD[] = {
        "",
        "bothy-image 1",
        "bothy-image 2\n" HEX,
        "bothy-image 1\n" HEX "0123",
        "bothy-image 1\n" HEX "fix\n",
        "bothy-image 1\n\n" HEX,
    };
    static const char NUL[] = "bothy-image 1\n\0\n" HEX;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        CLEANUP(image_def_done) image_def d = {0};
        assert_err(read_text(BAD[i], strlen(BAD[i]), &d), ERR_INTERNAL);
    }
    CLEANUP(image_def_done) image_def d = {0};
    assert_err(read_text(NUL, sizeof NUL - 1, &d), ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_definition_is_read),
        cmocka_unit_test(less_than_a_whole_definition_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
