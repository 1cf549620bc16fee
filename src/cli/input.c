#include "cli/input.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/follow.h"
#include "cli/out.h"

#define PIECE (64U * 1024)

typedef struct input {
    client *client; /* its own */
    char *path;     /* .../stdin */
    int fd;
    bool joins;
    uint64_t offset; /* bytes that the command's stdin has received */
} input;

static _Atomic bool failed;

bool input_has_failed(void)
{
    return atomic_load(&failed);
}

static void input_free(input *in)
{
    if (!in)
        return;
    client_free(in->client);
    free(in->path);
    free(in);
}

/* Posts bytes; *ret_length is the length of the command's stdin afterwards. */
static err *input_post(input *in, const char *query, const void *p, size_t n, uint64_t *ret_length)
{
    CLEANUP(freep) char *path = str_printf("%s%s", in->path, query);
    CLEANUP(json_decrefp) json_t *answer = NULL;
    client_call call = {.method = "POST", .path = path, .bytes = p, .nbytes = n};

    TRY(client_json(in->client, &call, &answer));
    *ret_length = (uint64_t)json_int(answer, "length", 0);
    return NULL;
}

static err *input_shared(void)
{
    err *e = err_new(ERR_CONFLICT, "someone else writes to the command's stdin");

    return err_remedy(err_kind(e, "offset"), "Let one program write to it.");
}

/* Finds out after a lost answer how much had arrived. */
static err *input_resync(input *in, uint64_t begin, size_t n)
{
    uint64_t length = 0;

    TRY(input_post(in, "", NULL, 0, &length));
    if (length < begin || length > begin + n)
        return input_shared();
    in->offset = length;
    return NULL;
}

/* Returns true if the piece may be sent again: the offset makes that safe, also when there was no
 * room. */
static bool is_lost(const err *e)
{
    return e->retryable;
}

/* Returns true if the stdin is not as long as we thought: someone else has written to it. Nothing
 * of the piece was appended then. */
static bool has_moved(const err *e)
{
    return e->code == ERR_CONFLICT && str_eq(e->kind, "offset");
}

/* Asks how many bytes the command's stdin has received so far. */
static err *find_length(input *in)
{
    uint64_t deadline = now_mono_ns() + follow_patience_ns();

    for (;;) {
        CLEANUP(err_freep) err *e = input_post(in, "", NULL, 0, &in->offset);
        if (!e || !is_lost(e) || now_mono_ns() > deadline)
            return TAKE_PTR(e);
        follow_pause_ms(100);
    }
}

/* Sends p[0..n) after everything sent before; repeats what was lost. If someone else has written
 * meanwhile and we join, sends it behind their bytes, unless an answer was lost: the piece might
 * then arrive twice. */
static err *send_piece(input *in, const char *p, size_t n, bool eof)
{
    uint64_t begin = in->offset, deadline = now_mono_ns() + follow_patience_ns();
    bool lost = false;

    for (;;) {
        size_t done = (size_t)(in->offset - begin);
        CLEANUP(freep)
        char *query =
            str_printf("?offset=%llu%s", (unsigned long long)in->offset, eof ? "&eof=true" : "");
        CLEANUP(err_freep) err *e = input_post(in, query, p + done, n - done, &in->offset);
        if (e && has_moved(e)) {
            if (!in->joins || lost)
                return input_shared();
            TRY(find_length(in));
            begin = in->offset;
            continue;
        }
        if (!e || !is_lost(e) || now_mono_ns() > deadline)
            return TAKE_PTR(e);
        lost = true;
        follow_pause_ms(100);
        CLEANUP(err_freep) err *again = input_resync(in, begin, n);
        if (again && !is_lost(again))
            return TAKE_PTR(again);
        if (!again && !eof && in->offset == begin + n)
            return NULL;
    }
}

/* Blocks even if the descriptor is non-blocking, as another process that shares it may have set
 * it. */
static ssize_t read_piece(int fd, char *piece)
{
    for (;;) {
        ssize_t n = read(fd, piece, PIECE);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN))
            return n;
        if (errno == EAGAIN)
            poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
    }
}

/* Closes the command's stdin, behind the bytes of any other writer: it would wait for ever. */
static void give_up(input *in)
{
    atomic_store(&failed, true);
    in->joins = true;
    err_drop(send_piece(in, NULL, 0, true), "stdin");
}

static err *input_unreadable(input *in, int errnum)
{
    give_up(in);
    return err_remedy(err_sys(ERR_INTERNAL, errnum, "cannot read stdin"),
                      "Give it a file, a pipe or a terminal, or leave -i out. The command was told "
                      "that its input ends here.");
}

static err *input_pump(input *in)
{
    CLEANUP(freep) char *piece = xmalloc(PIECE);

    if (in->joins)
        TRY(find_length(in));
    for (;;) {
        ssize_t n = read_piece(in->fd, piece);
        if (n < 0)
            return input_unreadable(in, errno);
        TRY(send_piece(in, piece, (size_t)n, n == 0));
        if (!n)
            return NULL;
    }
}

/* Returns true if the command has ended or closed its stdin. That is no error, as in cat | head. */
static bool is_over(const err *e)
{
    return (e->code == ERR_CONFLICT && !has_moved(e)) || e->code == ERR_SANDBOX_GONE ||
           e->code == ERR_NOT_FOUND;
}

/* Runs the thread. */
static void *input_run(void *arg)
{
    input *in = arg;
    CLEANUP(err_freep) err *e = input_pump(in);

    if (e && !is_over(e)) {
        out_error(stderr, err_wrap(e, "stdin"), false, false);
        if (!input_has_failed())
            give_up(in);
    }
    input_free(in);
    return NULL;
}

err *input_start(const cli *c, const char *sandbox, const char *exec, int fd, bool joins)
{
    input *in = xcalloc(1, sizeof *in);
    pthread_t thread;

    in->fd = fd;
    in->joins = joins;
    in->path = str_printf("/v1/sandboxes/%s/processes/%s/stdin", sandbox, exec);
    err *e = cli_client(c, &in->client);
    int rc = e ? 0 : pthread_create(&thread, NULL, input_run, in);
    if (rc)
        e = err_sys(ERR_INTERNAL, rc, "cannot start a thread");
    if (e)
        input_free(in);
    else
        pthread_detach(thread);
    return e;
}
