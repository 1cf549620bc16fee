#include "wire/multipart.h"

#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

enum state {
    PREAMBLE, /* up to the first boundary */
    HEAD,
    CONTENT,
    EPILOGUE, /* bytes after the last boundary are ignored */
};

struct multipart {
    const multipart_ops *ops;
    void *arg;
    enum state state;
    buf in;
    size_t at;                                  /* bytes before it are done */
    size_t looked;                              /* bytes from `at` searched for a line end */
    char delimiter[4 + MULTIPART_BOUNDARY_MAX]; /* CRLF "--" boundary */
    size_t length, skipped; /* length: the delimiter's; skipped: of the preamble */
    bool fresh;             /* no content of this part was passed on yet */
};

/* ---- values with parameters ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* Returns true for characters that need a backslash within quotes. Before any other character a
 * backslash is itself: Windows clients send paths with unescaped backslashes. */
static bool is_special(char c)
{
    return c && strchr("()<>@,;:\\\"/[]?=", c);
}

/* Reads a quoted string at *at (after the first quote). Returns false if it has no end. */
static bool take_quoted(const char **at, buf *out)
{
    const char *p = *at;

    for (; *p && *p != '"'; p++) {
        if (*p == '\\' && is_special(p[1]))
            p++;
        buf_char(out, *p);
    }
    if (*p != '"')
        return false;
    *at = p + 1;
    return true;
}

static void take_token(const char **at, buf *out)
{
    const char *p = *at;
    size_t n = strcspn(p, ";");

    *at = p + n;
    while (n && is_space(p[n - 1]))
        n--;
    buf_append(out, p, n);
}

/* Reads the next parameter at *at, which points to a ';' or the end. Returns false at the end, or
 * with *ret_bad set. */
static bool next_param(const char **at, buf *name, buf *value, bool *ret_bad)
{
    const char *p = *at;

    while (*p == ';' || is_space(*p))
        p++;
    buf_clear(name);
    buf_clear(value);
    size_t n = strcspn(p, "=;");
    if (!*p || p[n] != '=') {
        *ret_bad = *p != 0;
        return false;
    }
    size_t len = n;
    while (len && is_space(p[len - 1]))
        len--;
    buf_append(name, p, len);
    for (p += n + 1; is_space(*p);)
        p++;
    if (*p != '"') {
        take_token(&p, value);
    } else {
        p++;
        if (!take_quoted(&p, value)) {
            *ret_bad = true;
            return false;
        }
        p += strcspn(p, ";");
    }
    *at = p;
    return true;
}

bool mime_is(const char *content_type, const char *type)
{
    size_t n = strlen(type), len = strcspn(content_type, ";");

    while (len && is_space(content_type[len - 1]))
        len--;
    return (type[n - 1] == '/' ? len > n : len == n) && !strncasecmp(content_type, type, n);
}

char *mime_param(const char *value, const char *name, bool *ret_bad)
{
    CLEANUP(buf_done) buf n = {0}, v = {0};
    const char *at = value + strcspn(value, ";");
    bool bad = false;
    char *found = NULL;

    while (next_param(&at, &n, &v, &bad))
        if (!found && !strcasecmp(buf_cstr(&n), name))
            found = xstrdup(buf_cstr(&v));
    if (ret_bad)
        *ret_bad = bad;
    return found;
}

/* ---- names ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* Decodes %22 and control characters in place. Returns false if there is a NUL. */
static bool multipart_unquote(char *s)
{
    char *to = s;

    for (; *s; s++, to++) {
        int high = *s == '%' ? hex_digit(s[1]) : -1, low = high >= 0 ? hex_digit(s[2]) : -1;
        int c = low >= 0 ? high * 16 + low : -1;
        *to = *s;
        if (!c)
            return false;
        if (c == '"' || (c > 0 && c < ' ')) {
            *to = (char)c;
            s += 2;
        }
    }
    *to = 0;
    return true;
}

/* Decodes "UTF-8'language'percent-encoded". Returns NULL if the value is not of this form. */
static char *multipart_extended(const char *value)
{
    const char *quote = strchr(value, '\''), *end = quote ? strchr(quote + 1, '\'') : NULL;
    size_t n;

    if (!end || (size_t)(quote - value) != 5 || strncasecmp(value, "utf-8", 5) != 0)
        return NULL;
    CLEANUP(freep) char *text = xstrdup(end + 1);
    return percent_decode(text, &n) ? TAKE_PTR(text) : NULL;
}

static err *bad_name(void)
{
    return err_new(ERR_INVALID_REQUEST, "a part of the form has a file name that cannot be read");
}

static err *file_name(const char *value, char **ret_name)
{
    CLEANUP(freep) char *plain = mime_param(value, "filename", NULL);
    CLEANUP(freep) char *star = mime_param(value, "filename*", NULL);

    if (star) {
        *ret_name = multipart_extended(star);
        return *ret_name ? NULL : bad_name();
    }
    if (plain && !multipart_unquote(plain))
        return bad_name();
    *ret_name = TAKE_PTR(plain);
    return NULL;
}

/* ---- a part's head ---- */

static err *check_encoding(const char *value)
{
    static const char *const PLAIN[] = {"binary", "8bit", "7bit", ""};

    for (size_t i = 0; i < ARRAY_LEN(PLAIN); i++)
        if (!strcasecmp(value, PLAIN[i]))
            return NULL;
    return err_remedy(
        err_new(ERR_INVALID_REQUEST, "a part of the form has the transfer encoding '%.40s'", value),
        "Send parts as they are: 'binary', or no Content-Transfer-Encoding.");
}

/* Reads one NUL-terminated line of a head. */
static err *head_line(char *line, char **disposition)
{
    char *colon = strchr(line, ':');

    if (!colon || colon == line)
        return err_new(ERR_INVALID_REQUEST, "a part of the form has a header line without a name");
    *colon++ = 0;
    while (is_space(*colon))
        colon++;
    size_t n = strlen(colon);
    while (n && is_space(colon[n - 1]))
        colon[--n] = 0;
    if (!strcasecmp(line, "Content-Transfer-Encoding"))
        return check_encoding(colon);
    if (!strcasecmp(line, "Content-Disposition") && !*disposition)
        *disposition = colon;
    return NULL;
}

static err *begin_part(multipart *m, const char *disposition)
{
    CLEANUP(freep) char *name = NULL;
    CLEANUP(freep) char *filename = NULL;
    bool bad = false;

    if (disposition && mime_is(disposition, "form-data")) {
        name = mime_param(disposition, "name", &bad);
        if (bad)
            return err_new(ERR_INVALID_REQUEST,
                           "a part of the form has a Content-Disposition that cannot be read");
        TRY(file_name(disposition, &filename));
    }
    return m->ops->begin(m->arg, &(multipart_part){str_or(name, ""), filename});
}

/* Reads a head, without the empty line after it. */
static err *read_head(multipart *m, char *head, size_t n)
{
    char *disposition = NULL;

    for (char *at = head; at < head + n;) {
        char *end = strstr(at, "\r\n"); /* the caller guarantees a CR LF at the end of every line */
        *end = 0;
        TRY(head_line(at, &disposition));
        at = end + 2;
    }
    return begin_part(m, disposition);
}

/* ---- states; each returns false when it needs more bytes ---- */

enum verdict {
    IS_NOT,
    IS,
    MAY_BE
};

/* Classifies the bytes after a boundary: white space and the end of its line, or "--". Otherwise
 * the boundary is content that only looked like one. */
static enum verdict ends_boundary(const char *p, size_t n, bool *ret_last, size_t *ret_used)
{
    size_t i = 0;

    if (!n)
        return MAY_BE;
    if (p[0] == '-') {
        *ret_last = true;
        *ret_used = 2;
        return n < 2 ? MAY_BE : p[1] == '-' ? IS : IS_NOT;
    }
    while (i < n && is_space(p[i]))
        i++;
    if (i > MULTIPART_BOUNDARY_MAX)
        return IS_NOT;
    if (i < n && p[i] != '\r')
        return IS_NOT;
    if (n - i < 2)
        return MAY_BE;
    *ret_last = false;
    *ret_used = i + 2;
    return p[i + 1] == '\n' ? IS : IS_NOT;
}

static const char *multipart_rest(const multipart *m)
{
    return m->in.p + m->at;
}

static size_t multipart_left(const multipart *m)
{
    return m->in.len - m->at;
}

static void multipart_drop(multipart *m, size_t n)
{
    m->at += n;
    m->looked = 0;
}

/* Finds `text` in the unread bytes, or returns NULL; the next search continues where this one
 * ended. */
static const char *look_for(multipart *m, const char *text, size_t n)
{
    const char *found =
        multipart_left(m) > m->looked
            ? memmem(multipart_rest(m) + m->looked, multipart_left(m) - m->looked, text, n)
            : NULL;

    if (!found && multipart_left(m) >= n)
        m->looked = multipart_left(m) - n + 1;
    return found;
}

/* Checks for a boundary at the front, without the first `lead` bytes of the delimiter. */
static enum verdict at_front(const multipart *m, size_t lead, bool *ret_last, size_t *ret_used)
{
    size_t n = m->length - lead, have = multipart_left(m) < n ? multipart_left(m) : n, more = 0;

    if (memcmp(multipart_rest(m), m->delimiter + lead, have) != 0)
        return IS_NOT;
    if (have < n)
        return MAY_BE;
    enum verdict v = ends_boundary(multipart_rest(m) + n, multipart_left(m) - n, ret_last, &more);
    *ret_used = n + more;
    return v;
}

static void pass_boundary(multipart *m, bool last, size_t used)
{
    multipart_drop(m, used);
    m->state = last ? EPILOGUE : HEAD;
}

/* Drops whole lines until one is a boundary. */
static err *multipart_preamble(multipart *m, bool *ret_more)
{
    bool last = false;
    size_t used = 0;
    enum verdict v = multipart_left(m) ? at_front(m, 2, &last, &used) : MAY_BE;

    if (v == MAY_BE)
        return NULL;
    if (v == IS) {
        pass_boundary(m, last, used);
        *ret_more = true;
        return NULL;
    }
    const char *end = look_for(m, "\r\n", 2);
    size_t n = end ? (size_t)(end - multipart_rest(m)) + 2 : 0;
    m->skipped += n;
    if (m->skipped > MULTIPART_SKIP_MAX || (!end && multipart_left(m) > MULTIPART_SKIP_MAX))
        return err_new(ERR_INVALID_REQUEST, "the form does not begin with its boundary");
    multipart_drop(m, n);
    *ret_more = end;
    return NULL;
}

/* Returns the beginning of the empty line after a head, or NULL if it has not come yet. */
static const char *head_end(multipart *m)
{
    if (multipart_left(m) >= 2 && !memcmp(multipart_rest(m), "\r\n", 2))
        return multipart_rest(m);
    const char *end = look_for(m, "\r\n\r\n", 4);
    return end ? end + 2 : NULL;
}

static err *multipart_head(multipart *m, bool *ret_more)
{
    const char *end = head_end(m);
    size_t n = end ? (size_t)(end - multipart_rest(m)) : multipart_left(m);

    if (n > MULTIPART_HEAD_MAX + (end ? 0 : 2)) /* 2: part of an incomplete line end */
        return err_remedy(err_new(ERR_TOO_LARGE,
                                  "the head of a part of the form has more than %u bytes",
                                  MULTIPART_HEAD_MAX),
                          "Send a shorter file name.");
    if (!end)
        return NULL;
    if (memchr(multipart_rest(m), 0, n))
        return err_new(ERR_INVALID_REQUEST, "a part of the form has a NUL in its head");
    CLEANUP(freep) char *text = xstrndup(multipart_rest(m), n);
    TRY(read_head(m, text, n));
    multipart_drop(m, n + 2);
    m->state = CONTENT;
    m->fresh = true;
    *ret_more = true;
    return NULL;
}

static err *multipart_tell(multipart *m, size_t n)
{
    const char *p = multipart_rest(m);

    multipart_drop(m, n);
    m->fresh = m->fresh && !n;
    return n ? m->ops->data(m->arg, p, n) : NULL;
}

/* Returns the first offset, at least `from`, where a boundary begins or could begin; the length of
 * the unread bytes if there is none. */
static size_t find_delimiter(const multipart *m, size_t from)
{
    const char *p = multipart_rest(m) + from, *end = multipart_rest(m) + multipart_left(m);

    for (; (p = memchr(p, '\r', (size_t)(end - p))); p++) {
        size_t n = (size_t)(end - p) < m->length ? (size_t)(end - p) : m->length;
        if (!memcmp(p, m->delimiter, n))
            return (size_t)(p - multipart_rest(m));
    }
    return multipart_left(m);
}

static err *finish_part(multipart *m, bool last, size_t used)
{
    pass_boundary(m, last, used);
    return m->ops->end(m->arg);
}

static err *multipart_content(multipart *m, bool *ret_more)
{
    bool last = false;
    size_t used = 0, from = 0;
    /* An empty part may have no line end before the boundary. */
    enum verdict v = m->fresh && multipart_left(m) ? at_front(m, 2, &last, &used) : IS_NOT;

    while (v == IS_NOT) {
        if (!multipart_left(m))
            return NULL;
        TRY(multipart_tell(m, find_delimiter(m, from)));
        v = multipart_left(m) ? at_front(m, 0, &last, &used) : MAY_BE;
        from = 1; /* the first byte of a false boundary is content */
    }
    if (v == MAY_BE)
        return NULL;
    *ret_more = true;
    return finish_part(m, last, used);
}

/* ---- the outside ---- */

static err *multipart_step(multipart *m, bool *ret_more)
{
    switch (m->state) {
    case PREAMBLE:
        return multipart_preamble(m, ret_more);
    case HEAD:
        return multipart_head(m, ret_more);
    case CONTENT:
        return multipart_content(m, ret_more);
    default:
        multipart_drop(m, multipart_left(m));
        return NULL;
    }
}

err *multipart_feed(multipart *m, const void *p, size_t n)
{
    bool more = true;

    buf_consume(&m->in, m->at);
    m->at = 0;
    buf_append(&m->in, p, n);
    while (more) {
        more = false;
        TRY(multipart_step(m, &more));
    }
    return NULL;
}

err *multipart_finish(const multipart *m)
{
    if (m->state == EPILOGUE)
        return NULL;
    return err_remedy(err_new(ERR_INVALID_REQUEST, "the form ends before its last boundary"),
                      "Send the whole body; what came of the last part was not kept.");
}

err *multipart_new(const char *content_type, const multipart_ops *ops, void *arg,
                   multipart **ret_multipart)
{
    CLEANUP(freep) char *boundary = mime_param(content_type, "boundary", NULL);
    size_t n = boundary ? strlen(boundary) : 0;

    if (!mime_is(content_type, "multipart/"))
        return err_new(ERR_INVALID_REQUEST, "Content-Type: '%.80s' is no form", content_type);
    if (!n || n > MULTIPART_BOUNDARY_MAX || strpbrk(boundary, "\r\n"))
        return err_new(ERR_INVALID_REQUEST, "Content-Type: the form has no usable boundary");
    multipart *m = xcalloc(1, sizeof *m);
    m->ops = ops;
    m->arg = arg;
    m->length = n + 4;
    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary, n);
    *ret_multipart = m;
    return NULL;
}

void multipart_free(multipart *m)
{
    if (!m)
        return;
    buf_done(&m->in);
    free(m);
}
