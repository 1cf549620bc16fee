/* What clients of SWE-ReX say: tokens, paths, bodies, patterns; and what sandboxes write, as text.
 */
#include "base/cleanup.h"
#include "base/id.h"
#include "core/spec.h"
#include "door/swerex/body.h"
#include "door/swerex/expect.h"
#include "door/swerex/text.h"
#include "door/swerex/token.h"

#include "fuzz.h"

static void refused(err *e)
{
    MUST(e->message && *e->message);
    MUST(e->code == ERR_INVALID_REQUEST || e->code == ERR_UNAUTHENTICATED);
    err_free(e);
}

static void token(const char *text)
{
    CLEANUP(rex_token_done) rex_token t = {0};
    rex_path p;
    err *e = rex_token_parse(text, &t);

    if (e)
        refused(e);
    else {
        MUST(*t.key && strlen(t.key) <= REX_KEY_MAX && str_starts(text, t.key));
        MUST(!t.sandbox != !t.image);
        MUST(!t.sandbox || id_is_sandbox(t.sandbox) || spec_name_valid(t.sandbox));
        MUST(t.ttl_ms <= SPEC_TTL_MAX_MS);
    }
    if (rex_path_parse(text, &p))
        MUST(!str_starts(text, "/v1/") && !strstr(p.sandbox, "/"));
}

static void bodies(const char *p, size_t n)
{
    CLEANUP(rex_action_done) rex_action a = {0};
    CLEANUP(rex_opening_done) rex_opening o = {0};
    CLEANUP(rex_command_done) rex_command c = {0};
    CLEANUP(rex_file_done) rex_file f = {0};
    CLEANUP(freep) char *session = NULL;
    err *e = rex_action_decode(p, n, &a);

    if (e)
        refused(e);
    else
        MUST(a.session && (a.interrupt || a.command) && a.timeout <= REX_SECONDS_MAX);
    if ((e = rex_opening_decode(p, n, &o)))
        refused(e);
    if ((e = rex_session_decode(p, n, &session)))
        refused(e);
    if ((e = rex_file_decode(p, n, true, &f)))
        refused(e);
    if ((e = rex_command_decode(p, n, &c)))
        refused(e);
    else
        MUST(c.argv && c.argv[0] && c.shown);
}

/* The same is found, however the text is cut, and no call reads for long. */
static bool search(rex_expect *e, const char *in, size_t n, size_t piece, rex_match *ret)
{
    enum rex_found found = REX_MORE;

    rex_expect_begin(e, 0);
    while (found != REX_FOUND) {
        size_t at = (size_t)rex_expect_at(e), len = n - at < piece ? n - at : piece;
        len = at + len < n && rex_whole(in + at, len) ? rex_whole(in + at, len) : n - at;
        found = rex_expect_read(e, in + at, len, at + len == n, ret);
        MUST(found != REX_MORE || rex_expect_at(e) > at);
        if (found == REX_NOTHING && at + len == n)
            return false;
    }
    MUST(ret->from <= ret->to && ret->to <= n);
    return true;
}

static void pattern(const char *text, const char *in, size_t n)
{
    char *patterns[] = {(char *)text, NULL};
    rex_expect *e = NULL;
    rex_match whole = {0}, cut = {0};
    err *failure = rex_expect_new(patterns, "PROMPT", &e);

    if (failure) {
        refused(failure);
        return;
    }
    MUST(rex_expect_size(e) < 1u << 20);
    bool found = search(e, in, n, n, &whole);
    if (utf8_valid(in, n)) {
        MUST(search(e, in, n, 7, &cut) == found);
        MUST(whole.from == cut.from && whole.to == cut.to && whole.last == cut.last);
    }
    rex_expect_free(e);
}

static void output(const char *p, size_t n)
{
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(buf_done) buf read = {0};
    CLEANUP(buf_done) buf why = {0};
    const char *class = NULL;

    rex_decode(&text, p, n);
    MUST(utf8_valid(text.p ? text.p : "", text.len));
    MUST(text.len >= n);
    MUST(rex_whole(p, n) <= n);
    size_t before = text.len;
    rex_strip(&text);
    MUST(text.len <= before && utf8_valid(text.p ? text.p : "", text.len));
    rex_trim(&text);
    if (rex_read_text(p, n, "utf-8", NULL, &read, &class, &why))
        MUST(utf8_valid(read.p ? read.p : "", read.len) && utf8_valid(p, n));
    else
        MUST(why.len && class && !utf8_valid(p, n));
    rex_repr(&why, p, n);
    buf_clear(&read);
    buf_append(&read, p, n);
    rex_settle(&read, "MARK");
    MUST(read.len <= n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    uint8_t kind = fuzz_byte(&in);
    size_t n = 0;

    if (kind == 'T') {
        CLEANUP(freep) char *text = fuzz_word(&in, 0);
        token(text);
    } else if (kind == 'E') {
        CLEANUP(freep) char *text = fuzz_word(&in, '\n');
        CLEANUP(freep) char *rest = fuzz_bytes(&in, 4096, &n);
        pattern(text, rest, n);
    } else if (kind == 'O') {
        CLEANUP(freep) char *rest = fuzz_bytes(&in, size, &n);
        output(rest, n);
    } else {
        CLEANUP(freep) char *rest = fuzz_bytes(&in, size, &n);
        bodies(rest, n);
    }
    return 0;
}
