/* What a caller says about a command: its body, offsets, ranges of output, signals. The first byte
 * chooses. */
#include "net/internal.h"

#include "../../src/door/rest/processes.c" /* the door's own steps */
#include "fuzz.h"

static void body(const void *p, size_t n)
{
    CLEANUP(exec_request_done) exec_request in = {0};
    CLEANUP(exec_spec_done) exec_spec spec = {.exec_fd = -1};
    err *e = exec_request_decode(p, n, &in);

    if (!e) {
        take_exec(&in, &spec);
        e = exec_spec_check(&spec);
    }
    if (!e) {
        MUST(spec.argv && spec.argv[0] && spec.argv[0][0]);
        MUST(spec.timeout_ms <= SPEC_TIMEOUT_MAX_MS && spec.stdio <= STDIO_PTY);
        MUST(!spec.cwd || spec.cwd[0] == '/');
        MUST(spec.rows == in.rows && spec.cols == in.cols);
        for (char **v = spec.env; v && *v; v++)
            MUST(strchr(*v, '=') > *v);
    }
    err_free(e);
}

/* "<out>.<err>" is what a stream's id is: it reads back as the same two numbers. */
static void offsets(const char *text)
{
    uint64_t a = 0, b = 0, c = 1, d = 1;
    char again[64];
    err *e = rest_parse_offsets(text, &a, &b);

    if (!e) {
        MUST(a <= INT64_MAX && b <= INT64_MAX);
        snprintf(again, sizeof again, "%lu.%lu", a, b);
        MUST(!rest_parse_offsets(again, &c, &d) && a == c && b == d);
    }
    err_free(e);
}

static const char *ONE_QUERY[3]; /* stream, offset, follow */

static const char *find_one(void *arg, const char *name)
{
    static const char *const NAMES[3] = {"stream", "offset", "follow"};
    (void)arg;

    for (int i = 0; i < 3; i++)
        if (!strcmp(name, NAMES[i]) && *ONE_QUERY[i])
            return ONE_QUERY[i];
    return NULL;
}

/* Only streams that there are are asked for, each from an offset that a file can have. */
static void output(fuzz_in *in)
{
    CLEANUP(freep) char *stream = fuzz_word(in, '&');
    CLEANUP(freep) char *offset = fuzz_word(in, '&');
    CLEANUP(freep) char *until = fuzz_word(in, '&');
    CLEANUP(process_output_query_done) process_output_query q = {0};
    request rq = {0}; /* without headers */
    follow_options o = {0};

    ONE_QUERY[0] = stream;
    ONE_QUERY[1] = offset;
    ONE_QUERY[2] = until;
    bool events = fuzz_byte(in) & 1;
    err *e = process_output_query_decode(find_one, NULL, &q);
    if (!e)
        e = output_range(&rq, &q, events, &o);
    if (!e) {
        MUST(o.streams == 2 || o.streams == 4 || (o.streams == 6 && events));
        MUST(o.from[0] == 0 && o.from[1] <= INT64_MAX && o.from[2] <= INT64_MAX);
    }
    err_free(e);
}

static void signals(const char *text)
{
    int n = rest_signal_number(text);

    MUST(n == -1 || (n > 0 && n <= 64));
    if (n > 0 && n < 32 && sigabbrev_np(n))
        MUST(rest_signal_number(sigabbrev_np(n)) == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    uint8_t kind = fuzz_byte(&in);
    CLEANUP(freep) char *text = NULL;

    if (kind == 'b') {
        body(in.p, in.n);
    } else if (kind == 'r') {
        output(&in);
    } else {
        text = fuzz_word(&in, 0);
        offsets(text);
        signals(text);
    }
    return 0;
}
