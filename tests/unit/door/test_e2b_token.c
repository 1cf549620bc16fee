/* Access tokens and signatures of file URLs. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "door/e2b/internal.h"

#include "../unit.h"

#define ID    "b000aaaabbbbccccdddd"
#define OTHER "b000aaaabbbbccccddde"

static e2b DOOR = {.secret = "0123456789abcdef0123456789abcde"};

static void a_token_is_of_one_sandbox_and_one_secret(void **state)
{
    e2b other = {.secret = "1123456789abcdef0123456789abcde"};
    char a[E2B_TOKEN_LEN + 1], b[E2B_TOKEN_LEN + 1];

    (void)state;
    e2b_token(&DOOR, ID, 0, E2B_FOR_ENVD, a);
    assert_int_equal(strlen(a), E2B_TOKEN_LEN);
    assert_memory_equal(a, ID, SANDBOX_ID_LEN);
    assert_true(e2b_token_is(&DOOR, ID, 0, E2B_FOR_ENVD, a));
    assert_false(e2b_token_is(&DOOR, OTHER, 0, E2B_FOR_ENVD, a));
    assert_false(e2b_token_is(&other, ID, 0, E2B_FOR_ENVD, a));
    e2b_token(&DOOR, OTHER, 0, E2B_FOR_ENVD, b);
    assert_string_not_equal(a + SANDBOX_ID_LEN, b + SANDBOX_ID_LEN);
    memcpy(b, ID, SANDBOX_ID_LEN);
    assert_false(e2b_token_is(&DOOR, ID, 0, E2B_FOR_ENVD, b));
    e2b_token(&DOOR, ID, 0, E2B_FOR_TRAFFIC, b);
    assert_false(e2b_token_is(&DOOR, ID, 0, E2B_FOR_ENVD, b));
    assert_true(e2b_token_is(&DOOR, ID, 0, E2B_FOR_TRAFFIC, b));
    a[E2B_TOKEN_LEN - 1] ^= 1;
    assert_false(e2b_token_is(&DOOR, ID, 0, E2B_FOR_ENVD, a));
    a[E2B_TOKEN_LEN - 1] = 0;
    assert_false(e2b_token_is(&DOOR, ID, 0, E2B_FOR_ENVD, a));
    assert_false(e2b_token_is(&DOOR, ID, 0, E2B_FOR_ENVD, ""));
}

static void a_token_is_of_one_epoch(void **state)
{
    char a[E2B_TOKEN_LEN + 1];

    (void)state;
    e2b_token(&DOOR, ID, 1, E2B_FOR_ENVD, a);
    assert_true(e2b_token_is(&DOOR, ID, 1, E2B_FOR_ENVD, a));
    assert_false(e2b_token_is(&DOOR, ID, 0, E2B_FOR_ENVD, a));
    assert_false(e2b_token_is(&DOOR, ID, 2, E2B_FOR_ENVD, a));
    assert_false(e2b_token_is(&DOOR, ID, 1, E2B_FOR_TRAFFIC, a));
}

/* Of epoch 0 it is what it was before there were epochs. echo -n … | openssl dgst -sha256 -hmac … */
static void a_token_is_the_known_mac(void **state)
{
    static const uint8_t SECRET[E2B_SECRET_LEN] = "0123456789abcdef0123456789abcdef";
    e2b d = {0};
    char t[E2B_TOKEN_LEN + 1];

    (void)state;
    memcpy(d.secret, SECRET, sizeof d.secret);
    e2b_token(&d, ID, 0, E2B_FOR_ENVD, t);
    assert_string_equal(t + SANDBOX_ID_LEN, "a48cfb20211ee5ec61edecd25cb4582ed4ba198e");
}

/* As hashlib and base64 of Python have it, the way the SDKs do it. */
static void signatures_are_those_of_the_sdks(void **state)
{
    e2b_signed s = {.path = "/home/user/a b.txt",
                    .operation = "read",
                    .user = "user",
                    .signature = "v1_8rGUb+9hyeZdt4AqnXQbDTq40oi9lJNYLxjHxc/vPFM"};

    (void)state;
    assert_true(e2b_signature_is(&s, "token"));
    assert_false(e2b_signature_is(&s, "tokem"));
    s.operation = "write";
    assert_false(e2b_signature_is(&s, "token"));
    s = (e2b_signed){.path = "",
                     .operation = "write",
                     .user = "",
                     .expiry = "1700000000",
                     .signature = "v1_Y5owzwrXjVx9EN1KwfGa8ZmAifVbqagbmQ+NMLTVLZY"};
    assert_true(e2b_signature_is(&s, "token"));
    s.expiry = "1700000001";
    assert_false(e2b_signature_is(&s, "token"));
    assert_true(e2b_signature_formed(s.signature));
    assert_false(e2b_signature_formed(s.signature + 1));
    assert_false(e2b_signature_formed("v1_"));
    s.signature = "";
    assert_false(e2b_signature_is(&s, "token"));
    assert_false(e2b_signature_formed(s.signature));
}

static void signatures_expire(void **state)
{
    (void)state;
    assert_false(e2b_signature_expired(&(e2b_signed){0}, 5));
    assert_false(e2b_signature_expired(&(e2b_signed){.expiry = "5"}, 5));
    assert_true(e2b_signature_expired(&(e2b_signed){.expiry = "4"}, 5));
    assert_true(e2b_signature_expired(&(e2b_signed){.expiry = "soon"}, 5));
    assert_true(e2b_signature_expired(&(e2b_signed){.expiry = ""}, 5));
}

static void the_secret_is_made_once_and_for_us_alone(void **state)
{
    char dir[] = "/tmp/bothy-e2b-XXXXXX";
    uint8_t a[E2B_SECRET_LEN], b[E2B_SECRET_LEN];
    struct stat st;

    (void)state;
    assert_non_null(mkdtemp(dir));
    CLEANUP(closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(e2b_secret_load(fd, a));
    assert_ok(e2b_secret_load(fd, b));
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(fstatat(fd, "secret", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_ok(fs_write(fd, "secret", "short", 5, 0600, false));
    assert_err(e2b_secret_load(fd, b), ERR_INTERNAL);
    assert_ok(fs_remove(fd, "secret"));
    assert_ok(e2b_secret_load(fd, b));
    assert_memory_not_equal(a, b, sizeof a);
    assert_ok(fs_empty(fd));
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_of_one_sandbox_and_one_secret),
        cmocka_unit_test(a_token_is_the_known_mac),
        cmocka_unit_test(a_token_is_of_one_epoch),
        cmocka_unit_test(signatures_are_those_of_the_sdks),
        cmocka_unit_test(signatures_expire),
        cmocka_unit_test(the_secret_is_made_once_and_for_us_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
