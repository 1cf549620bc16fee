#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sock.h"

#include "bench.h"

void conn_open(conn *c, const char *path)
{
    err *e = sock_connect_path(path, SOCK_STREAM, &c->fd);

    if (e)
        fail("%s: %s", path, e->message);
    c->got = 0;
}

void conn_send(conn *c, const char *method, const char *path, const char *body)
{
    char out[8192];
    int n = snprintf(out, sizeof out,
                     "%s %s HTTP/1.1\r\nHost: bothy\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     method, path, strlen(body), body);

    c->got = 0;
    if (n < 0 || (size_t)n >= sizeof out || write(c->fd, out, (size_t)n) != n)
        die("write");
}

size_t answer_head(const conn *c)
{
    const char *end = strstr(c->answer, "\r\n\r\n");

    return end ? (size_t)(end - c->answer) + 4 : 0;
}

size_t answer_length(const conn *c)
{
    size_t head = answer_head(c);
    const char *length = strcasestr(c->answer, "\r\nContent-Length:");

    if (!head)
        return 0;
    size_t whole =
        head + (length && length < c->answer + head ? strtoul(length + 17, NULL, 10) : 0);
    return c->got >= whole ? whole : 0;
}

bool answer_is_ok(const conn *c)
{
    return strncmp(c->answer, "HTTP/1.1 2", 10) == 0;
}

void ask(conn *c, const char *method, const char *path, const char *body)
{
    conn_send(c, method, path, body);
    do {
        ssize_t k = read(c->fd, c->answer + c->got, ANSWER_MAX - c->got);
        if (k <= 0)
            die("read");
        c->got += (size_t)k;
        c->answer[c->got] = 0;
    } while (!answer_length(c));
    if (!answer_is_ok(c))
        fail("%s %s: %s", method, path, c->answer);
}

static const char *value_of(const conn *c, const char *name)
{
    char quoted[64];

    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    const char *p = strstr(c->answer, quoted);
    p = p ? strchr(p + strlen(quoted), ':') : NULL;
    if (!p)
        fail("no member %s in %s", name, c->answer);
    return p + 1 + strspn(p + 1, " ");
}

void member(const conn *c, const char *name, char *ret, size_t size)
{
    const char *p = value_of(c, name);
    size_t n = *p == '"' ? strcspn(p + 1, "\"") : size;

    if (n >= size)
        fail("%s is no string of less than %zu bytes", name, size);
    memcpy(ret, p + 1, n);
    ret[n] = 0;
}

double member_number(const conn *c, const char *name)
{
    return strtod(value_of(c, name), NULL);
}

void check_exit(const conn *c)
{
    if (member_number(c, "exit_code") != 0)
        fail("the command failed: %s", c->answer);
}
