/* The handshake of RFC 6455, section 4: upgrades a GET to a WebSocket. */
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

/* Returns true if word is a member of a list such as "a, b,c". */
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
               "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n"
               "Sec-WebSocket-Protocol: %s\r\n",
               key, protocol);
}

bool ws_accepted(const char *key, const char *value)
{
    CLEANUP(freep) char *wanted = accept_of(key);

    return str_eq(value, wanted);
}
