/* Frames and trailers of sessions. No text of a caller ends its frame early; whatever a sandbox
 * writes, a trailer needs a token, and what was given as output before one was whole is output. */
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "session/frame.h"

#include "fuzz.h"

#define SESSION "0123456789abcdef"
#define COMMAND "fedcba9876543210"

/* What a shell makes of the quoted word. */
static void unquote(const char *p, const char *end, buf *out)
{
    while (p < end) {
        if (*p == '\'') {
            const char *close = memchr(p + 1, '\'', (size_t)(end - p - 1));
            MUST(close);
            buf_append(out, p + 1, (size_t)(close - p - 1));
            p = close + 1;
        } else if (*p == '\\') {
            MUST(p + 1 < end && p[1] == '\'');
            buf_char(out, '\'');
            p += 2;
        } else {
            static const char NEWLINE[] = "\"$__by_n\"";
            MUST((size_t)(end - p) >= sizeof NEWLINE - 1 &&
                 !memcmp(p, NEWLINE, sizeof NEWLINE - 1));
            buf_char(out, '\n');
            p += sizeof NEWLINE - 1;
        }
    }
}

static void check_frame(const char *text, size_t n, unsigned how)
{
    CLEANUP(buf_done) buf line = {0};
    CLEANUP(buf_done) buf got = {0};
    frame f = {.text = text, .n = n, .token = COMMAND, .savepoint = how & 1, .merge = how & 2};
    CLEANUP(err_freep) err *e = frame_check(text, n);

    (void)frame_risks(text, n, (enum dialect)(how % 4));
    if (e)
        return;
    frame_write(&f, &line);
    MUST(memchr(line.p, '\n', line.len) == line.p + line.len - 1);
    const char *word = memmem(line.p, line.len, " __by_c=", 8);
    MUST(word && word - line.p < 100);
    unquote(word + 8, line.p + line.len - 1, &got);
    bool open = !n || text[n - 1] != '\n';
    MUST(got.len == n + open && !memcmp(got.p, text, n) && got.p[got.len - 1] == '\n');
    buf_clear(&line);
    f.bulk = true;
    frame_write(&f, &line);
    MUST(line.len > n + open && !memcmp(line.p + line.len - n - open, text, n));
}

static void check_trailer(const char *p, size_t n)
{
    trailer t = {0}, u = {0};
    size_t at = 0, before = 0;
    enum trailer_found whole = trailer_find(p, n, SESSION, COMMAND, &at, &t);

    MUST(at <= n);
    if (whole == TRAILER_HERE) {
        MUST(t.n <= n - at && t.n <= TRAILER_MAX && t.status >= 0 && t.status <= 255);
        MUST(!memcmp(p + at + 1, t.own ? COMMAND : SESSION, FRAME_TOKEN));
        MUST(t.cwd >= p && t.cwd + t.ncwd <= p + at + t.n);
    }
    for (size_t k = 0; k < n; k += k < 64 ? 1 : 37) {
        enum trailer_found part = trailer_find(p, k, SESSION, COMMAND, &before, &u);
        MUST(before <= k);
        if (part == TRAILER_HERE)
            MUST(whole == TRAILER_HERE && before == at && u.n == t.n);
        else if (whole == TRAILER_HERE && k > at)
            MUST(part == TRAILER_HALF && before <= at);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n)
        return 0;
    if (*data & 0x80)
        check_trailer((const char *)data + 1, n - 1);
    else
        check_frame((const char *)data + 1, n - 1, *data);
    return 0;
}
