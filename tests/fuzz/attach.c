/* The door's side of an attached WebSocket: frames of a caller, in pieces as the input says, over a
 * command whose stdin is full now and then. */
#include "exec/exec.h"

static err *fake_stdin(exec *x, const void *p, size_t n, uint64_t offset, bool eof) ERR_MUST;
static err *fake_signal(exec *x, int signo, uint32_t scope) ERR_MUST;
static err *fake_resize(exec *x, uint16_t rows, uint16_t cols) ERR_MUST;
#define exec_stdin  fake_stdin
#define exec_signal fake_signal
#define exec_resize fake_resize
#include "../../src/door/rest/attach.c"
#include "fuzz.h"

static struct {
    unsigned turn; /* bit n: the n-th write finds no room */
    unsigned writes;
    size_t taken;
    bool eof;
} command;

static err *fake_stdin(exec *x, const void *p, size_t n, uint64_t offset, bool eof)
{
    (void)x;
    MUST(offset == UINT64_MAX && (!n || p));
    if (command.eof)
        return n ? err_kind(err_new(ERR_CONFLICT, "it has ended"), "stdin") : NULL;
    if (command.turn >> command.writes++ % 32 & 1)
        return err_kind(err_new(ERR_QUOTA_EXCEEDED, "full"), "stdin");
    command.taken += n;
    command.eof = eof;
    return NULL;
}

static err *fake_signal(exec *x, int signo, uint32_t scope)
{
    (void)x;
    MUST(signo >= 1 && signo <= 64 && scope < SP_SCOPES && scope != SP_TO_ALL);
    return NULL;
}

static err *fake_resize(exec *x, uint16_t rows, uint16_t cols)
{
    (void)x;
    MUST(rows >= 1 && rows <= 1000 && cols >= 1 && cols <= 1000);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    attach a = {.request_id = (char *)"id"};
    CLEANUP(buf_done) buf sent = {0};

    memset(&command, 0, sizeof command);
    command.turn = (unsigned)fuzz_number(&in, 2);
    size_t step = fuzz_byte(&in) + 1u;
    a.ws =
        ws_new(&(ws_options){.message_max = MESSAGE_MAX + 1, .on_message = on_message, .arg = &a});
    while (in.n) {
        size_t n;
        CLEANUP(freep) void *p = fuzz_bytes(&in, step, &n);
        bool more = on_input(&a, p, n);
        MUST(more == !has_enough(&a));
        MUST(a.pending.len <= MESSAGE_MAX + 256);
        attach_feed(&a);
        if (a.said.len > SAID_MAX)
            buf_clear(&a.said);
    }
    command.turn = 0;
    attach_feed(&a);
    MUST(!a.pending.len && !a.eof); /* with room, nothing is left behind */
    ws_flush(a.ws, &sent);
    ws_free(a.ws);
    buf_done(&a.said);
    buf_done(&a.pending);
    return 0;
}
