/* bench-client output SOCKET SANDBOX BYTES N [-- NAME plain COMMAND...]...
 *
 * bothy: a command that writes BYTES zeros is started over HTTP and its output followed as raw
 * bytes, through the spool, to the end; every byte must arrive. Against each NAME, spawned with its
 * stdout on /dev/null and waited for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define READ_BYTES (256u << 10)

/* Chunked transfer coding, as far as a peer that speaks it correctly needs it. */
typedef struct chunks {
    uint64_t left; /* of the present chunk */
    uint64_t body; /* bytes of all of them */
    unsigned skip; /* line ends to pass over */
    char size[20]; /* of the next, as it comes */
    size_t nsize;
    bool ended;
} chunks;

static void take_size(chunks *k, char c)
{
    if (k->skip) {
        k->skip--;
        return;
    }
    if (c != '\n') {
        if (k->nsize + 1 >= sizeof k->size)
            fail("a chunk's head is too long");
        k->size[k->nsize++] = c;
        return;
    }
    k->size[k->nsize] = 0;
    k->nsize = 0;
    k->left = strtoull(k->size, NULL, 16);
    k->ended = !k->left;
    k->skip = 2;
}

static void take(chunks *k, const char *p, size_t n)
{
    while (n && !k->ended) {
        if (!k->left) {
            take_size(k, *p++);
            n--;
            continue;
        }
        size_t m = n < k->left ? n : (size_t)k->left;
        k->left -= m;
        k->body += m;
        p += m;
        n -= m;
    }
}

static void read_head(conn *c)
{
    c->got = 0;
    do {
        ssize_t n = read(c->fd, c->answer + c->got, ANSWER_MAX - c->got);
        if (n <= 0)
            die("read");
        c->got += (size_t)n;
        c->answer[c->got] = 0;
    } while (!answer_head(c));
    if (!answer_is_ok(c) || !strstr(c->answer, "\r\nBothy-Offset: 0\r\n"))
        fail("no output from offset 0: %s", c->answer);
}

/* Everything up to the last chunk; a stream with a gap ends without it. */
static uint64_t read_output(conn *c)
{
    static char bytes[READ_BYTES];
    chunks k = {0};

    read_head(c);
    size_t head = answer_head(c);
    take(&k, c->answer + head, c->got - head);
    while (!k.ended) {
        ssize_t n = read(c->fd, bytes, sizeof bytes);
        if (n <= 0)
            fail("the output broke off after %lu bytes", k.body);
        take(&k, bytes, (size_t)n);
    }
    return k.body;
}

static void sample_bothy(const char *socket, const char *sandbox, const char *count)
{
    static conn c;
    char path[256], body[128], exec[32];

    conn_open(&c, socket);
    snprintf(path, sizeof path, "/v1/sandboxes/%s/processes", sandbox);
    snprintf(body, sizeof body, "{\"argv\":[\"head\",\"-c\",\"%s\",\"/dev/zero\"]}", count);
    uint64_t begun = now_mono_ns();
    ask(&c, "POST", path, body);
    member(&c, "exec", exec, sizeof exec);
    snprintf(path, sizeof path, "/v1/sandboxes/%s/processes/%s/output?stream=out&follow=end",
             sandbox, exec);
    conn_send(&c, "GET", path, "");
    uint64_t got = read_output(&c);
    note("bothy", now_mono_ns() - begun);
    if (got != strtoull(count, NULL, 10))
        fail("%lu bytes of output arrived, not %s", got, count);
    close(c.fd);
}

int bench_output(int argc, char **argv)
{
    rival rivals[RIVALS_MAX];

    if (argc < 5)
        return 2;
    unsigned rounds = number(argv[4]);
    size_t n = rivals_read(argv + 5, rivals);
    for (unsigned i = 0; i < rounds; i++) {
        settle(false);
        sample_bothy(argv[1], argv[2], argv[3]);
        for (size_t k = 0; k < n; k++) {
            settle(false);
            rival_sample(&rivals[k], i);
        }
    }
    settle_report();
    return 0;
}
