/* A command inside a container as a stream, on the connection that started it. */
#include <errno.h>
#include <string.h>

#include "backend/docker_internal.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "wire/dockermux.h"

#define READ_AHEAD (32 * 1024)
#define WHY_MAX    DOCKER_TEXT_MAX

struct docker_exec {
    client_stream *stream;
    dockermux mux;
    uint8_t in[READ_AHEAD]; /* received bytes; in[at..n) is not parsed yet */
    size_t at, n;
    const uint8_t *piece; /* of stdout, within `in` */
    size_t npiece;
    bool ended;
    buf why; /* stderr, and the engine's message */
};

void docker_exec_close(docker_exec *x)
{
    if (!x)
        return;
    client_stream_free(x->stream);
    buf_done(&x->why);
    free(x);
}

int docker_exec_fd(const docker_exec *x)
{
    return client_stream_fd(x->stream);
}

char *docker_exec_why(docker_exec *x)
{
    while (x->why.len && (x->why.p[x->why.len - 1] == '\n' || x->why.p[x->why.len - 1] == '\r'))
        x->why.len--;
    return x->why.len ? xstrndup(x->why.p, x->why.len) : NULL;
}

/* ---- beginning ---- */

static err *make_exec(docker_api *a, const char *id, const char *const *argv, uint64_t timeout_ms,
                      char ret_exec[DOCKER_ID_LEN + 1])
{
    CLEANUP(client_answer_done) client_answer answer = {0};
    CLEANUP(freep) char *path = str_printf("%s/containers/%s/exec", a->prefix, id);
    CLEANUP(json_decrefp)
    json_t *body = json_pack("{s:b,s:b,s:b,s:b,s:s}", "AttachStdin", 1, "AttachStdout", 1,
                             "AttachStderr", 1, "Tty", 0, "User", "0");
    json_t *words = json_array();

    for (; *argv; argv++)
        json_array_append_new(words, json_string(*argv));
    json_object_set_new(body, "Cmd", words);
    client_call call = {
        .method = "POST", .path = path, .json = body, .timeout_ms = timeout_ms, .any_status = true};
    TRY(client_do(a->client, &call, &answer));
    if (answer.status >= 200 && answer.status < 300)
        return docker_parse_made(answer.body.p, answer.body.len, ret_exec);
    return docker_error("run a command in the container", answer.status, &answer.body);
}

err *docker_exec_open(docker_api *a, const char *id, const char *const *argv, uint64_t timeout_ms,
                      docker_exec **ret_exec)
{
    char exec[DOCKER_ID_LEN + 1];
    CLEANUP(docker_exec_closep) docker_exec *x = xcalloc(1, sizeof *x);
    CLEANUP(json_decrefp) json_t *body = json_pack("{s:b,s:b}", "Detach", 0, "Tty", 0);

    TRY(make_exec(a, id, argv, timeout_ms, exec));
    CLEANUP(freep) char *path = str_printf("%s/exec/%s/start", a->prefix, exec);
    TRY(client_hijack(a->client, path, body, timeout_ms, &x->stream));
    *ret_exec = TAKE_PTR(x);
    return NULL;
}

/* ---- bytes ---- */

static void keep_why(docker_exec *x, const dockermux_piece *piece)
{
    size_t room = WHY_MAX - x->why.len;

    buf_append(&x->why, piece->p, piece->n < room ? piece->n : room);
}

/* Finds the next piece of stdout in the received bytes. Returns false if there is none. */
static bool next_piece(docker_exec *x)
{
    while (!x->npiece && x->at < x->n) {
        size_t used = 0;
        dockermux_piece piece;
        enum dockermux_result r =
            dockermux_feed(&x->mux, x->in + x->at, x->n - x->at, &used, &piece);
        x->at += used;
        if (r == DOCKERMUX_BAD) { /* plain text of the engine, without a frame's head */
            x->ended = true;
            x->at = x->n;
        } else if (r == DOCKERMUX_PIECE && piece.stream == DOCKERMUX_OUT) {
            x->piece = piece.p;
            x->npiece = piece.n;
        } else if (r == DOCKERMUX_PIECE) {
            keep_why(x, &piece);
        }
    }
    return x->npiece;
}

/* Receives once. Returns false at the end, or if there is nothing now (errno). */
static bool docker_exec_receive(docker_exec *x)
{
    ssize_t n = client_stream_recv(x->stream, x->in, sizeof x->in);

    x->at = 0;
    x->n = n > 0 ? (size_t)n : 0;
    if (n > 0)
        return true;
    x->ended = n != -EAGAIN;
    errno = EAGAIN;
    return false;
}

ssize_t docker_exec_read(docker_exec *x, void *p, size_t n)
{
    while (!next_piece(x))
        if (x->ended || !docker_exec_receive(x))
            return x->ended ? 0 : -1;
    size_t have = x->npiece < n ? x->npiece : n;
    memcpy(p, x->piece, have);
    x->piece += have;
    x->npiece -= have;
    return (ssize_t)have;
}

ssize_t docker_exec_write(docker_exec *x, const void *p, size_t n)
{
    ssize_t sent = client_stream_send(x->stream, p, n);

    if (sent >= 0)
        return sent;
    errno = (int)-sent;
    return -1;
}
