/* bothy code-run: runs a snippet in a sandbox of its own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

#define CODE_MAX (1 << 20)

typedef struct code_args {
    common_args common;
    uint64_t timeout_ms;
} code_args;

static const opt OPTS[] = {
    OPT('t', "timeout", "TIME", OPT_DURATION, code_args, timeout_ms,
        "how long it may run, at most 5m (default 10s)"),
    COMMON_OPTS(code_args),
};

static err *read_all(int fd, const char *name, buf *b)
{
    for (;;) {
        buf_reserve(b, 65536);
        ssize_t n = read(fd, b->p + b->len, 65536);
        if (n < 0 && errno != EINTR)
            return err_sys(ERR_INVALID_REQUEST, errno, "cannot read '%s'", name);
        if (n == 0)
            return NULL;
        b->len += n > 0 ? (size_t)n : 0;
        if (b->len > CODE_MAX)
            return err_new(ERR_TOO_LARGE, "'%s' has more than 1 MiB", name);
    }
}

static err *read_code(const char *word, buf *b)
{
    if (!word || str_eq(word, "-"))
        return read_all(STDIN_FILENO, "stdin", b);
    CLEANUP(closep) int fd = open(word, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(ERR_INVALID_REQUEST, errno, "cannot open '%s'", word);
    return read_all(fd, word, b);
}

/* Prints a stream. Returns false if it is truncated. */
static bool write_stream(FILE *to, const json_t *stream)
{
    const char *text = json_str(stream, "text"), *b64 = json_str(stream, "b64");
    CLEANUP(freep) void *bytes = NULL;
    size_t n = 0;

    if (text)
        fwrite(text, 1, strlen(text), to);
    else if (b64 && base64_decode(b64, strlen(b64), &bytes, &n))
        fwrite(bytes, 1, n, to);
    fflush(to);
    return !json_flag(stream, "truncated");
}

static err *code_run_run(cli *c, void *args, const opt_words *words, int *status)
{
    const code_args *a = args;
    CLEANUP(json_decrefp) json_t *answer = NULL;
    CLEANUP(buf_done) buf code = {0};

    TRY(read_code(words->n > 1 ? words->v[1] : NULL, &code));
    json_t *text = json_stringn(code.p ? code.p : "", code.len);
    if (!text || memchr(buf_cstr(&code), 0, code.len)) {
        json_decref(text);
        return err_new(ERR_INVALID_REQUEST, "the code is not text in UTF-8");
    }
    json_t *body = json_pack("{s:s,s:o}", "language", words->v[0], "code", text);
    if (a->timeout_ms)
        json_object_set_new(body, "timeout_ms", json_integer((json_int_t)a->timeout_ms));
    TRY(cli_call(c, "POST", body, &answer, "/v1/code-run"));
    *status = (int)(json_int(answer, "exit_code", CLI_FAILED) & 255);
    if (c->common.json) {
        out_json(stdout, answer);
        return NULL;
    }
    bool whole = write_stream(stdout, json_object_get(answer, "out"));
    if (write_stream(stderr, json_object_get(answer, "err")) && whole)
        return NULL;
    fprintf(stderr, "bothy: the program has written more than is kept; the rest is lost\n");
    if (!*status)
        *status = CLI_FAILED;
    return NULL;
}

const verb VERB_CODE_RUN = {
    .name = "code-run",
    .usage = "[--timeout TIME] python|javascript|typescript|bash [FILE]",
    .summary = "Run a snippet of code in a sandbox of its own",
    .text =
        "The code is FILE's, or stdin's. It has no network, a read-only root, /sandbox to write\n"
        "to (64 MiB), 256 MiB of memory and 50 processes; nothing of it is left. Exits as the\n"
        "program does, and with 124 when its time is over.",
    .opts = OPTS,
    .args_size = sizeof(code_args),
    .words_min = 1,
    .words_max = 2,
    .run = code_run_run,
};
