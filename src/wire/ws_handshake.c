/* The handshake of RFC 6455, section 4: how a GET becomes a WebSocket. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/str.h"
#include "wire/ws.h"

#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

static char *accept_of(const char *key)
{
    CLEANUP(freep) char *both = str_printf("%s%s", key, GUID);
    unsigned char digest[SHA1_LEN];

    sha1(both, strlen(both), digest);
    return base64_encode(digest, sizeof digest);
}

/* Is word one of a list's members, "a, b,c"? */
static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);

    while (list && *list) {
        list += strspn(list, ", \t");
        size_t member = strcspn(list, ", \t");
        if (member == n && !strncasecmp(list, word, n))
            return true;
        list += member;
    }
    return false;
}

/* ---- the server ---- */

static bool key_valid(const char *key)
{
    CLEANUP(freep) void *bytes = NULL;
    size_t n = 0;

    return key && strlen(key) == WS_KEY_LEN && base64_decode(key, WS_KEY_LEN, &bytes, &n) &&
           n == 16;
}

err *ws_accept(const ws_offer *o, const char *protocol, buf *ret_lines)
{
    if (!str_eq(o->version, "13"))
        return err_remedy(err_new(ERR_INVALID_REQUEST, "Sec-WebSocket-Version: must be 13"),
                          "Use a client of RFC 6455.");
    if (!key_valid(o->key))
        return err_new(ERR_INVALID_REQUEST, "Sec-WebSocket-Key: must be 16 bytes in base64");
    CLEANUP(freep) char *accepted = accept_of(o->key);
    buf_printf(ret_lines,
               "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n",
               accepted);
    if (list_has(o->protocols, protocol))
        buf_printf(ret_lines, "Sec-WebSocket-Protocol: %s\r\n", protocol);
    return NULL;
}

/* ---- the client ---- */

void ws_key(const uint8_t random[16], char ret_key[WS_KEY_LEN + 1])
{
    CLEANUP(freep) char *text = base64_encode(random, 16);

    memcpy(ret_key, text, WS_KEY_LEN + 1);
}

void ws_ask(buf *out, const char *key, const char *protocol)
{
    buf_printf(out,
               "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
               "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n",
               key, protocol);
}

static err *no_answer(const char *why)
{
    return err_because(err_new(ERR_UNAVAILABLE, "the daemon's answer is not one of ours"), "%s",
                       why);
}

/* The value of the first line with this name, trimmed; a copy, or NULL. */
static char *line_value(const char *head, const char *name)
{
    size_t n = strlen(name);

    for (const char *line = strstr(head, "\r\n"); line && line[2];
         line = strstr(line + 2, "\r\n")) {
        const char *at = line + 2;
        if (strncasecmp(at, name, n) || at[n] != ':')
            continue;
        at += n + 1;
        at += strspn(at, " \t");
        size_t len = strcspn(at, "\r");
        while (len && (at[len - 1] == ' ' || at[len - 1] == '\t'))
            len--;
        return xstrndup(at, len);
    }
    return NULL;
}

static err *check_upgrade(const ws_answer *a, const char *head)
{
    CLEANUP(freep) char *upgrade = line_value(head, "Upgrade");
    CLEANUP(freep) char *connection = line_value(head, "Connection");
    CLEANUP(freep) char *accepted = line_value(head, "Sec-WebSocket-Accept");
    CLEANUP(freep) char *extensions = line_value(head, "Sec-WebSocket-Extensions");
    CLEANUP(freep) char *wanted = accept_of(a->key);

    if (!upgrade || strcasecmp(upgrade, "websocket") || !list_has(connection, "upgrade"))
        return no_answer("it is a 101 to something else");
    if (!str_eq(accepted, wanted))
        return no_answer("its Sec-WebSocket-Accept does not belong to our key");
    if (extensions)
        return no_answer("it has an extension that was not asked for");
    return NULL;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* a->in holds the whole head. */
static err *take_head(ws_answer *a)
{
    const char *head = buf_cstr(&a->in);

    if (a->in.len < 13 || strlen(head) != a->in.len || !str_starts(head, "HTTP/1.1 ") ||
        !digit(head[9]) || !digit(head[10]) || !digit(head[11]) || head[12] != ' ')
        return no_answer("it does not begin with a status");
    a->status = (head[9] - '0') * 100 + (head[10] - '0') * 10 + (head[11] - '0');
    if (a->status == 101) {
        TRY(check_upgrade(a, head));
        a->done = a->upgrade = true;
        return NULL;
    }
    CLEANUP(freep) char *length = line_value(head, "Content-Length");
    if (length && !str_to_u64(length, WS_ANSWER_MAX, &a->length))
        return no_answer("its length is no number, or too large");
    a->in_body = true;
    a->done = !a->length;
    buf_clear(&a->in);
    return NULL;
}

/* One byte a time: what follows the head belongs to somebody else, and heads are short. */
static err *feed_head(ws_answer *a, const char *p, size_t n, size_t *ret_used)
{
    size_t i = 0;

    while (i < n && !a->in_body && !a->done) {
        if (a->in.len >= WS_HEAD_MAX)
            return no_answer("its head does not end");
        buf_append(&a->in, p + i++, 1);
        if (a->in.len >= 4 && !memcmp(a->in.p + a->in.len - 4, "\r\n\r\n", 4))
            TRY(take_head(a));
    }
    *ret_used = i;
    return NULL;
}

err *ws_answer_feed(ws_answer *a, const char *p, size_t n, size_t *ret_used)
{
    size_t used = 0;

    if (!a->in_body)
        TRY(feed_head(a, p, n, &used));
    if (a->in_body && !a->done) {
        size_t left = (size_t)a->length - a->in.len;
        size_t take = n - used < left ? n - used : left;
        buf_append(&a->in, p + used, take);
        used += take;
        a->done = a->in.len == a->length;
    }
    *ret_used = used;
    return NULL;
}

void ws_answer_done(ws_answer *a)
{
    buf_done(&a->in);
}
