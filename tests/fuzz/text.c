/* Numbers, sizes, times and encodings: what every door, option and file is made of. */
#include "base/id.h"
#include "base/json.h"
#include "net/client.h"

#include "fuzz.h"

static void numbers(const char *s)
{
    char again[32];
    uint64_t v = 0, w = 1;

    if (str_to_u64(s, UINT64_MAX, &v)) {
        snprintf(again, sizeof again, "%llu", (unsigned long long)v);
        MUST(str_to_u64(again, UINT64_MAX, &w) && v == w);
        MUST(str_to_u64(s, 1000, &w) == (v <= 1000));
    }
    if (str_to_bytes(s, &v) && v <= UINT64_MAX / 10000) {
        snprintf(again, sizeof again, "%llub", (unsigned long long)v);
        MUST(str_to_bytes(again, &w) && v == w);
    }
    if (str_to_duration_ms(s, &v) && v <= UINT64_MAX / 10000) {
        snprintf(again, sizeof again, "%llums", (unsigned long long)v);
        MUST(str_to_duration_ms(again, &w) && v == w);
    }
}

static void base64(const char *s, size_t n)
{
    void *bytes = NULL;
    size_t len = 0;

    if (base64_decode(s, n, &bytes, &len)) {
        char *again = base64_encode(bytes, len);
        MUST(strlen(again) == n && !memcmp(again, s, n));
        free(again);
        free(bytes);
    }
    char *text = base64_encode(s, n);
    MUST(base64_decode(text, strlen(text), &bytes, &len) && len == n && !memcmp(bytes, s, n));
    free(text);
    free(bytes);
}

static void hex(const char *s)
{
    uint8_t bytes[32];
    char again[65];

    for (size_t n = 1; n <= 32; n += 31)
        if (hex_decode(s, bytes, n)) {
            hex_encode(bytes, n, again);
            MUST(!strcasecmp(again, s));
        }
}

/* What is decoded has no NUL, and escaped again it decodes to the same. */
static void percent(const char *s)
{
    char *text = xstrdup(s);
    size_t n = 0, m = 0;

    if (percent_decode(text, &n)) {
        MUST(strlen(text) == n && n <= strlen(s));
        char *again = client_escape(text);
        for (const char *c = again; *c; c++)
            MUST(*c > 0x20 && *c < 0x7f && !strchr("/?#&=+\"<>", *c));
        MUST(percent_decode(again, &m) && m == n && !strcmp(again, text));
        free(again);
    }
    free(text);
}

/* jansson has another opinion of its own about UTF-8. */
static void utf8(const char *s, size_t n)
{
    json_t *j = json_stringn(s, n);

    MUST(utf8_valid(s, n) == (j != NULL));
    json_decref(j);
    j = json_bytes(s, n);
    MUST(j);
    json_decref(j);
}

static void names(const char *s)
{
    static const char *const NAMES[] = {"memory", "cpu", "pids", "disk", "image", "tmpfs"};
    const char *near = str_nearest(s, NAMES, 6);

    MUST(!id_is_sandbox(s) || (strlen(s) == SANDBOX_ID_LEN && ascii_visible(s)));
    for (size_t i = 0; i < 6; i++)
        if (!strcmp(s, NAMES[i]))
            MUST(near == NAMES[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    size_t n;
    char *bytes = fuzz_bytes(&in, size, &n);
    char *s = xstrndup(bytes, n);

    numbers(s);
    base64(bytes, n);
    hex(s);
    percent(s);
    utf8(bytes, n);
    names(s);
    free(s);
    free(bytes);
    return 0;
}
