#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "wire/multipart.h"

#include "unit.h"

#define TYPE "multipart/form-data; boundary=XyZ"

typedef struct told {
    buf text;
    int fail_at; /* of begin(); 0: never */
    int n;
} told;

static err *on_begin(void *arg, const multipart_part *p)
{
    told *t = arg;

    if (++t->n == t->fail_at)
        return err_new(ERR_DISK_FULL, "no room");
    buf_printf(&t->text, "(%s|%s|", p->name, str_or(p->filename, "-"));
    return NULL;
}

static err *on_data(void *arg, const void *p, size_t n)
{
    buf_append(&((told *)arg)->text, p, n);
    return NULL;
}

static err *on_end(void *arg)
{
    buf_char(&((told *)arg)->text, ')');
    return NULL;
}

static const multipart_ops OPS = {on_begin, on_data, on_end};

static err *run(const char *type, const char *in, size_t n, size_t step, told *t)
{
    CLEANUP(multipart_freep) multipart *m = NULL;

    TRY(multipart_new(type, &OPS, t, &m));
    for (size_t at = 0; at < n; at += step)
        TRY(multipart_feed(m, in + at, step < n - at ? step : n - at));
    return multipart_finish(m);
}

static void expect(const char *type, const char *in, size_t n, const char *want)
{
    for (size_t step = 1; step <= n; step = step < 80 ? step + 1 : step * 2) {
        told t = {0};
        assert_ok(run(type, in, n, step, &t));
        assert_string_equal(buf_cstr(&t.text), want);
        buf_done(&t.text);
    }
}

#define FILE_HEAD(filename) \
    "--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename" filename "\r\n\r\n"

static void parts_are_told_however_the_form_is_cut(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } CASES[] = {
        {"--XyZ--\r\n", ""},
        {FILE_HEAD("=\"/a b\"") "one\r\n--XyZ--", "(file|/a b|one)"},
        {FILE_HEAD("=\"a\"") "1\r\n" FILE_HEAD("=\"b\"") "2\r\n--XyZ--\r\n",
         "(file|a|1)(file|b|2)"},
        {FILE_HEAD("=\"empty\"") "\r\n--XyZ--\r\n", "(file|empty|)"},
        {FILE_HEAD("=\"none\"") "--XyZ--\r\n", "(file|none|)"},
        {FILE_HEAD("=\"e\"") FILE_HEAD("=\"f\"") "x\r\n--XyZ--", "(file|e|)(file|f|x)"},
        {"before\r\n\r\n" FILE_HEAD("=\"a\"") "x\r\n--XyZ--\r\nafter\r\n--XyZ\r\n", "(file|a|x)"},
        /* what only looks like a boundary */
        {FILE_HEAD("=\"a\"") "\r\n--XyZA\r\n--Xy\r\n-\r\r\n--XyZ-\r\n--XyZ--\r\n",
         "(file|a|\r\n--XyZA\r\n--Xy\r\n-\r\r\n--XyZ-)"},
        {FILE_HEAD("=\"a\"") "--XyZA\r\n--XyZ--\r\n", "(file|a|--XyZA)"},
        {FILE_HEAD("=\"a\"") "x\n--XyZ\n\r\n--XyZ \t\r\n\r\ny\r\n--XyZ--",
         "(file|a|x\n--XyZ\n)(|-|y)"},
        {"--XyZ\r\nContent-Type: text/plain\r\ncontent-disposition:form-data;name=target_path\r\n\r\n"
         "/tmp\r\n--XyZ--",
         "(target_path|-|/tmp)"},
        {"--XyZ\r\nContent-Disposition: attachment; name=\"file\"\r\n\r\nx\r\n--XyZ--", "(|-|x)"},
        {"--XyZ\r\n\r\nbare\r\n--XyZ--", "(|-|bare)"},
    };

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        expect(TYPE, CASES[i].in, strlen(CASES[i].in), CASES[i].want);
    static const char NUL[] = FILE_HEAD("=\"a\"") "1\0"
                                                  "2\r\n--XyZ--";
    told t = {0};
    assert_ok(run(TYPE, NUL, sizeof NUL - 1, 3, &t));
    assert_int_equal(t.text.len, strlen("(file|a|1_2)"));
    buf_done(&t.text);
}

static void file_names_are_what_clients_mean(void **state)
{
    (void)state;
    static const struct {
        const char *sent, *want;
    } CASES[] = {
        {"=\"/home/user/a.txt\"", "/home/user/a.txt"},
        {"=plain.txt", "plain.txt"},
        {"=\"\xc5\xbe \xe6\x97\xa5\"", "\xc5\xbe \xe6\x97\xa5"}, /* UTF-8 as it is */
        {"=\"say %22hi%22%0D%0a\"", "say \"hi\"\r\n"},           /* browsers, undici, httpx */
        {"=\"100%25 %20 %2\"", "100%25 %20 %2"},                 /* theirs: not escapes */
        {"=\"a\\\"b\"", "a\"b"},
        {"=\"a\\\\b\"", "a\\b"}, /* httpx */
        {"=\"a\\b\"", "a\\b"},   /* undici */
        {"=\"a;b=c\"", "a;b=c"},
        {"=\"x\"; filename*=UTF-8''%C5%BE%20a", "\xc5\xbe a"}, /* urllib3 */
        {"*=utf-8'en'a%2Fb", "a/b"},
        {"=\"\"", ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(freep)
        char *in =
            str_printf("--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename%s\r\n"
                       "\r\nx\r\n--XyZ--",
                       CASES[i].sent);
        CLEANUP(freep) char *want = str_printf("(file|%s|x)", CASES[i].want);
        expect(TYPE, in, strlen(in), want);
    }
}

static void what_is_no_form_is_refused(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "",
        "--XyZ",
        "--XyZ\r\n",
        FILE_HEAD("=\"a\"") "cut",
        FILE_HEAD("=\"a\"") "x\r\n--XyZ",
        FILE_HEAD("=\"a") "x\r\n--XyZ--",
        FILE_HEAD("=\"%00\"") "x\r\n--XyZ--",
        FILE_HEAD("*=latin1''a") "x\r\n--XyZ--",
        FILE_HEAD("*=UTF-8''%zz") "x\r\n--XyZ--",
        "--XyZ\r\nno colon\r\n\r\nx\r\n--XyZ--",
        "--XyZ\r\n: x\r\n\r\nx\r\n--XyZ--",
        "--XyZ\r\nContent-Transfer-Encoding: base64\r\n\r\neA==\r\n--XyZ--",
    };
    static const char *const TYPES[] = {"text/plain; boundary=a", "multipart/form-data",
                                        "multipart/form-data; boundary=\"\"",
                                        "multipart/form-data; boundary=\"a"};

    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        for (size_t step = 1; step < 50; step++) {
            told t = {0};
            assert_err(run(TYPE, BAD[i], strlen(BAD[i]), step, &t), ERR_INVALID_REQUEST);
            buf_done(&t.text);
        }
    for (size_t i = 0; i < ARRAY_LEN(TYPES); i++) {
        told t = {0};
        assert_err(run(TYPES[i], "", 0, 1, &t), ERR_INVALID_REQUEST);
    }
}

static void everything_has_a_ceiling(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf head = {0}, before = {0};
    told t = {0};

    buf_str(&head, "--XyZ\r\nX: ");
    for (unsigned i = 0; i < MULTIPART_HEAD_MAX; i++)
        buf_char(&head, 'x');
    assert_err(run(TYPE, head.p, head.len, 1000, &t), ERR_TOO_LARGE);
    buf_str(&head, "\r\n\r\nx\r\n--XyZ--");
    assert_err(run(TYPE, head.p, head.len, head.len, &t), ERR_TOO_LARGE);
    for (unsigned i = 0; i <= MULTIPART_SKIP_MAX / 2; i++)
        buf_str(&before, "\r\n");
    buf_str(&before, FILE_HEAD("=\"late\"") "x\r\n--XyZ--");
    assert_err(run(TYPE, before.p, before.len, 512, &t), ERR_INVALID_REQUEST);
    assert_err(run(TYPE, before.p, before.len, before.len, &t), ERR_INVALID_REQUEST);
    buf_done(&t.text);
}

static void an_error_of_a_callback_ends_it(void **state)
{
    (void)state;
    told t = {.fail_at = 2};
    static const char TWO[] = FILE_HEAD("=\"a\"") "1\r\n" FILE_HEAD("=\"b\"") "2\r\n--XyZ--\r\n";

    assert_err(run(TYPE, TWO, sizeof TWO - 1, sizeof TWO, &t), ERR_DISK_FULL);
    assert_string_equal(buf_cstr(&t.text), "(file|a|1)");
    buf_done(&t.text);
}

static void types_and_parameters_are_read(void **state)
{
    (void)state;
    assert_true(mime_is("multipart/Form-Data ; boundary=x", "multipart/"));
    assert_true(mime_is("Application/Octet-Stream", "application/octet-stream"));
    assert_false(mime_is("application/octet-streams", "application/octet-stream"));
    assert_false(mime_is("multipart/", "multipart/"));
    CLEANUP(freep)
    char *b = mime_param("multipart/form-data;x=y; Boundary = \"a b\" ; z", "boundary", NULL);
    assert_string_equal(b, "a b");
    assert_null(mime_param("a; b=c", "d", NULL));
    static const char FORM[] = "--=_q:1\r\n\r\nx\r\n--=_q:1--";
    expect("multipart/form-data; charset=utf-8; boundary=\"=_q:1\"", FORM, sizeof FORM - 1,
           "(|-|x)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_told_however_the_form_is_cut),
        cmocka_unit_test(file_names_are_what_clients_mean),
        cmocka_unit_test(what_is_no_form_is_refused),
        cmocka_unit_test(everything_has_a_ceiling),
        cmocka_unit_test(an_error_of_a_callback_ends_it),
        cmocka_unit_test(types_and_parameters_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
