#include "cli/mcp_line.h"

#include <ctype.h>
#include <string.h>

#include "base/str.h"

static size_t past_space(const char *p, size_t n, size_t at)
{
    while (at < n && isspace((unsigned char)p[at]))
        at++;
    return at;
}

/* at: the string's first quote. */
static size_t past_string(const char *p, size_t n, size_t at)
{
    for (at++; at < n && p[at] != '"'; at++)
        at += p[at] == '\\';
    return at < n ? at + 1 : n;
}

static bool is_of_number(char c)
{
    return isdigit((unsigned char)c) || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

static json_t *value_at(const char *p, size_t n, size_t at)
{
    json_error_t error;
    size_t end = at;

    if (at < n && p[at] == '"')
        end = past_string(p, n, at);
    while (end < n && is_of_number(p[end]))
        end++;
    if (end == at || end - at > MCP_ID_MAX)
        return NULL;
    return json_loadb(p + at, end - at, JSON_DECODE_ANY, &error);
}

/* Returns where the value of "id" begins, if the string from `at` to `end` is that member's name; 0
 * if not. */
static size_t value_of_id(const char *p, size_t n, size_t at, size_t end)
{
    size_t colon = past_space(p, n, end);

    if (end - at != 4 || memcmp(p + at, "\"id\"", 4) != 0 || colon == n || p[colon] != ':')
        return 0;
    return past_space(p, n, colon + 1);
}

json_t *mcp_line_id(const char *p, size_t n)
{
    size_t i = past_space(p, n, 0), depth = 0;

    if (i == n || p[i] != '{')
        return NULL;
    while (i < n) {
        if (p[i] == '"') {
            size_t end = past_string(p, n, i);
            size_t value = depth == 1 ? value_of_id(p, n, i, end) : 0;
            if (value)
                return value_at(p, n, value);
            i = end;
            continue;
        }
        if (p[i] == '{' || p[i] == '[')
            depth++;
        else if ((p[i] == '}' || p[i] == ']') && !--depth)
            return NULL;
        i++;
    }
    return NULL;
}

char *mcp_line_refusal(const err *e)
{
    const char *cause = str_or(e->cause, "");

    return str_printf("the message is not valid JSON: %s%s", cause,
                      str_starts(cause, "\\u0000")
                          ? ". A file with NUL goes with encoding=base64 of "
                            "write; no other argument can have one"
                          : "");
}
