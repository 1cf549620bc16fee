/* search: by name, by content, or both. A line counts once. */
#include "kit/kit.h"

#define WINDOW (256u * 1024)

static char window[WINDOW];

static char search_lower(char c, bool caseless)
{
    return caseless && c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

/* Returns the first position of text in [p, p + n), or n. */
static size_t search_find(const char *p, size_t n, const char *text, size_t len, bool caseless)
{
    char first = search_lower(text[0], caseless);

    for (size_t i = 0; i + len <= n; i++) {
        size_t k = 1;
        if (search_lower(p[i], caseless) != first)
            continue;
        while (k < len && search_lower(p[i + k], caseless) == search_lower(text[k], caseless))
            k++;
        if (k == len)
            return i;
    }
    return n;
}

static size_t line_end(const char *p, size_t n)
{
    size_t i = 0;

    while (i < n && p[i] != '\n')
        i++;
    return i;
}

struct scan {
    const kit_request *rq;
    size_t len;       /* of the text */
    u64 line, offset; /* of the window's start */
    bool found;       /* a match in this line was sent */
    bool told;        /* its ENTRY was sent */
};

static void search_tell(walk *w, struct scan *s, const struct statx *st, const char *p, size_t n,
                        size_t at)
{
    size_t from = at > KIT_TEXT_MAX / 2 && n > KIT_TEXT_MAX ? at - KIT_TEXT_MAX / 2 : 0;
    size_t len = n - from < KIT_TEXT_MAX ? n - from : KIT_TEXT_MAX;
    kit_record r = {.type = KIT_MATCH, .bytes = p + from, .bytes_len = len};

    if (!s->told)
        out_entry(w->name, w->len, st, "", 0, 0);
    s->told = s->found = true;
    r.match = (struct kit_match){.line = s->line, .offset = s->offset + at};
    out_record(&r);
    tally.bytes++;
}

/* Returns true at the limit. A search by content counts lines, not files. */
static bool at_limit(const kit_request *rq)
{
    if ((*rq->text ? tally.bytes : tally.entries) < rq->max)
        return false;
    tally.flags |= KIT_E_MORE;
    return true;
}

/* Searches a line, or a piece of a long one. */
static void search_look(walk *w, struct scan *s, const struct statx *st, const char *p, size_t n)
{
    if (s->found)
        return;
    size_t at = search_find(p, n, s->rq->text, s->len, s->rq->flags & KIT_F_CASELESS);
    if (at < n)
        search_tell(w, s, st, p, n, at);
}

/* Searches the bytes of the window; returns how many are finished. */
static size_t scan_window(walk *w, struct scan *s, const struct statx *st, size_t have, bool eof)
{
    size_t at = 0;
    u64 start = s->offset;

    while (at < have && !at_limit(s->rq)) {
        size_t n = line_end(window + at, have - at);
        bool whole = at + n < have || eof;
        if (!whole && at)
            break; /* the rest of the line comes with the next bytes */
        s->offset = start + at;
        search_look(w, s, st, window + at, n);
        if (!whole) { /* longer than the window: keep what may begin a match */
            at += n - (s->len - 1);
            break;
        }
        at += n + 1;
        s->line++;
        s->found = false;
    }
    s->offset = start + at;
    return at < have ? at : have;
}

static void scan_file(walk *w, int fd, const struct statx *st)
{
    struct scan s = {.rq = w->rq, .len = text_len(w->rq->text), .line = 1};
    size_t have = 0;
    u64 at = 0;

    for (;;) {
        long n = SYS(pread64, fd, window + have, WINDOW - have, at);
        if (n == -EINTR)
            continue;
        if (n < 0) {
            out_error(n, w->name, w->len);
            return;
        }
        out_alive();
        at += (u64)n;
        have += (size_t)n;
        if (n && have < WINDOW)
            continue;
        size_t done = scan_window(w, &s, st, have, !n);
        if (!n || tally.flags & KIT_E_MORE)
            return;
        for (size_t i = done; i < have; i++)
            window[i - done] = window[i];
        have -= done;
    }
}

static void search_scan(walk *w, int dir, const char *base, const struct statx *st)
{
    struct statx now;

    if (!is_file(st))
        return;
    long fd = SYS(openat, dir, base, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY, 0);
    if (fd >= 0 && SYS(statx, fd, "", K_AT_EMPTY_PATH, STATX_BASIC_STATS, &now) >= 0 &&
        is_file(&now))
        scan_file(w, (int)fd, &now);
    else if (fd < 0 && fd != -ENOENT && fd != -ELOOP)
        out_error(fd, w->name, w->len);
    if (fd >= 0)
        SYS(close, fd);
}

static bool has_slash(const char *s)
{
    while (*s && *s != '/')
        s++;
    return *s;
}

static bool search_visit(walk *w, int dir, const char *base, const struct statx *st)
{
    const kit_request *rq = w->rq;

    if (at_limit(rq))
        return false;
    if (*rq->to && !glob_match(rq->to, has_slash(rq->to) ? w->name : base))
        return true;
    if (*rq->text)
        search_scan(w, dir, base, st);
    else
        entry_of(dir, base, st, w->name, w->len);
    return !(tally.flags & KIT_E_MORE);
}

void verb_search(const kit_request *rq)
{
    static walk w;
    long dir = SYS(openat, K_AT_FDCWD, rq->path, DIR_FLAGS, 0);

    if (dir < 0)
        out_fail(dir);
    w.depth = rq->depth;
    w.visit = search_visit;
    w.rq = rq;
    walk_below(&w, (int)dir);
}
