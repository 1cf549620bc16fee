/* What an API server sends on an exec's WebSocket, and answers that are no upgrade. Bytes and end
 * do not depend on how it is cut; success is what was said to be; what is kept is bounded. */
#include "backend/kubernetes/kube_exec.h"

#include "base/cleanup.h"

#include "fuzz.h"

static void masks(void *p, size_t n)
{
    memset(p, 0x3c, n);
}

static kube_frames *run(const uint8_t *data, size_t size, size_t step)
{
    kube_frames *f = kube_frames_new(5, masks);
    CLEANUP(buf_done) buf out = {0};

    for (size_t at = 0; at < size; at += step)
        kube_frames_feed(f, data + at, step < size - at ? step : size - at);
    kube_frames_flush(f, &out);
    kube_frames_stdin(f, &out, "x", 1);
    MUST(kube_frames_err(f)->len <= KUBE_STDERR_MAX);
    MUST(kube_frames_out(f)->len <= size);
    return f;
}

static void same(const buf *a, const buf *b)
{
    MUST(a->len == b->len && (!a->len || !memcmp(a->p, b->p, a->len)));
}

static void status(const uint8_t *data, size_t size)
{
    static const long STATUS[] = {400, 403, 404, 409, 410, 422, 429, 500, 504};
    kube_reply r = {.body = data + 1, .nbody = size - 1, .json_patch = data[0] & 1};

    r.status = STATUS[(data[0] >> 1) % ARRAY_LEN(STATUS)];
    CLEANUP(err_freep) err *e = kube_reply_err(&r, "GET", "/x?y");
    MUST(e->kind && ascii_visible(e->kind));
    MUST(e->retry_after >= 0 && !strchr(e->message, '?'));
    MUST(!e->cause || utf8_valid(e->cause, strlen(e->cause)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kube_frames *whole = run(data, size, size ? size : 1), *pieces = run(data, size, 1);
    const kube_end *a = kube_frames_end(whole), *b = kube_frames_end(pieces);

    same(kube_frames_out(whole), kube_frames_out(pieces));
    same(kube_frames_err(whole), kube_frames_err(pieces));
    MUST(a->known == b->known && a->exit_code == b->exit_code && a->started == b->started);
    MUST(a->known || (!a->exit_code && !a->message));
    MUST(!a->known || a->message || !a->exit_code);
    MUST(a->exit_code >= -1 && a->exit_code <= 255);
    kube_frames_free(whole);
    kube_frames_free(pieces);
    if (size)
        status(data, size);
    return 0;
}
