/* Bodies that were compressed: one layer, and what they may cost. */
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "wire/gunzip.h"

#include "unit.h"

/* "hello\n", compressed once and twice; nothing, compressed. */
static const unsigned char ONCE[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02,
                                     0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0xe7, 0x02, 0x00,
                                     0x20, 0x30, 0x3a, 0x36, 0x06, 0x00, 0x00, 0x00};
static const unsigned char TWICE[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x93, 0xef, 0xe6, 0x60, 0x00,
    0x01, 0x26, 0xe6, 0xd3, 0x1e, 0x67, 0x4f, 0x9e, 0x7c, 0xce, 0xc4, 0xa0, 0x60, 0x60, 0x65,
    0xc6, 0x06, 0x14, 0x01, 0x00, 0xc6, 0x8f, 0xbb, 0x42, 0x1a, 0x00, 0x00, 0x00};
static const unsigned char EMPTY[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
                                      0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};

typedef struct sent {
    const unsigned char *p;
    size_t n;
    size_t times; /* all of it, so often */
    size_t at;
    uint64_t taken;
    bool breaks; /* instead of ending */
} sent;

static err *on_read(void *arg, void *p, size_t max, size_t *ret_n)
{
    sent *s = arg;

    *ret_n = 0;
    while (s->times && *ret_n < max) {
        size_t n = s->n - s->at < max - *ret_n ? s->n - s->at : max - *ret_n;
        memcpy((char *)p + *ret_n, s->p + s->at, n);
        *ret_n += n;
        s->at += n;
        if (s->at < s->n)
            continue;
        s->at = 0;
        s->times--;
    }
    s->taken += *ret_n;
    return *ret_n || !s->breaks ? NULL : err_new(ERR_TIMEOUT, "it broke");
}

static err *unpack(sent *s, buf *out)
{
    CLEANUP(gunzip_freep) gunzip *g = gunzip_new(on_read, s);
    char piece[1000];
    size_t n = 1;

    while (n) {
        TRY(gunzip_read(g, piece, sizeof piece, &n));
        buf_append(out, piece, n);
    }
    return NULL;
}

static void comes_out(const unsigned char *p, size_t n, size_t times, const void *want, size_t len)
{
    CLEANUP(buf_done) buf out = {0};

    assert_ok(unpack(&(sent){.p = p, .n = n, .times = times}, &out));
    assert_int_equal(out.len, len);
    assert_true(!len || !memcmp(out.p, want, len));
}

static void one_layer_is_taken_off(void **state)
{
    (void)state;
    comes_out(ONCE, sizeof ONCE, 1, "hello\n", 6);
    comes_out(TWICE, sizeof TWICE, 1, ONCE, sizeof ONCE);
    comes_out(EMPTY, sizeof EMPTY, 1, "", 0);
    comes_out(ONCE, sizeof ONCE, 3, "hello\nhello\nhello\n", 18);
}

static void refused(sent s, err_code code)
{
    CLEANUP(buf_done) buf out = {0};

    assert_err(unpack(&s, &out), code);
}

static void what_is_no_gzip_is_refused(void **state)
{
    (void)state;
    refused((sent){.p = (const unsigned char *)"hello, not compressed", .n = 21, .times = 1},
            ERR_INVALID_REQUEST);
    refused((sent){0}, ERR_INVALID_REQUEST);
    for (size_t n = 1; n < sizeof ONCE; n++)
        refused((sent){.p = ONCE, .n = n, .times = 1}, ERR_INVALID_REQUEST);
    for (size_t n = 1; n < sizeof TWICE; n++)
        refused((sent){.p = TWICE, .n = n, .times = 1}, ERR_INVALID_REQUEST);
}

static void what_breaks_off_between_members_is_not_whole(void **state)
{
    (void)state;
    refused((sent){.p = ONCE, .n = sizeof ONCE, .times = 1, .breaks = true}, ERR_TIMEOUT);
}

static void what_nothing_comes_of_is_not_read_for_ever(void **state)
{
    CLEANUP(buf_done) buf out = {0};
    sent s = {.p = EMPTY, .n = sizeof EMPTY, .times = 1000000};

    (void)state;
    assert_err(unpack(&s, &out), ERR_INVALID_REQUEST);
    assert_true(s.taken < UINT64_C(2) << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_layer_is_taken_off),
        cmocka_unit_test(what_is_no_gzip_is_refused),
        cmocka_unit_test(what_breaks_off_between_members_is_not_whole),
        cmocka_unit_test(what_nothing_comes_of_is_not_read_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
