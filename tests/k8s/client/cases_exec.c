/* exec over WebSocket: k8s-design's test 29 without the part that is the link's. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/digest.h"
#include "tests/k8s/client/client.h"

typedef const char *const argv_t[];

static kube_exec_spec spec(const world *w, const char *pod, const char *const *argv)
{
    return (kube_exec_spec){.ns = w->ns, .pod = pod, .container = "c", .argv = argv, .err = true};
}

static err *check_exit(world *w, const char *script, int code, const char *out)
{
    CLEANUP(buf_done) buf got = {0};
    CLEANUP(kube_end_done) kube_end end = {0};
    argv_t argv = {"sh", "-c", script, NULL};
    kube_exec_spec s = spec(w, "exec", argv);

    TRY(kube_exec_run(w->k, &s, NULL, 1 << 20, &got, &end));
    if (!end.started || end.exit_code != code)
        FAIL("'%s' ended with %d, not %d (%s)", script, end.exit_code, code,
             str_or(end.message, ""));
    if (!str_eq(buf_cstr(&got), out))
        FAIL("'%s' wrote '%s', not '%s'", script, got.p, out);
    return NULL;
}

err *case_exec_basic(world *w)
{
    argv_t missing = {"/nonexistent", NULL};
    argv_t yes = {"true", NULL};
    CLEANUP(buf_done) buf got = {0};
    CLEANUP(kube_end_done) kube_end end = {0};
    kube_exec_spec s = spec(w, "exec", missing);

    TRY(make_pod(w, "exec", NULL));
    TRY(check_exit(w, "echo out; echo err >&2", 0, "out\n"));
    TRY(check_exit(w, "exit 7", 7, ""));
    TRY(check_exit(w, "kill -9 $$", 137, ""));
    TRY(kube_exec_run(w->k, &s, NULL, 1 << 20, &got, &end));
    if (end.started || !strstr(end.message, "nonexistent"))
        FAIL("a command that is not there: %s", end.message);
    s = spec(w, "nobody", yes);
    TRY(expect_kind(kube_exec_run(w->k, &s, NULL, 1 << 20, &got, &end), KUBE_NOT_FOUND));
    s = spec(w, "exec", yes);
    s.container = "other";
    err *e = kube_exec_run(w->k, &s, NULL, 1 << 20, &got, &end);
    if (!e)
        FAIL("a container that is not there answered");
    printf("           a missing container: %s, %s\n", err_info_of(e->code)->name, e->cause);
    err_free(e);
    return NULL;
}

/* Everything it writes, with its hash; true when a status came. */
static err *drain(kube_exec *x, const buf *input, size_t *at, uint64_t ms, buf *out)
{
    uint64_t until = now_mono_ns() + ms * NS_PER_MS;
    char p[65536];

    while (now_mono_ns() < until) {
        bool more = input && *at < input->len;
        ssize_t sent = more ? kube_exec_write(x, input->p + *at, input->len - *at) : 0;
        if (sent > 0)
            *at += (size_t)sent;
        if (more && *at == input->len)
            kube_exec_stdin_end(x);
        ssize_t n = kube_exec_read(x, p, sizeof p);
        if (!n)
            return NULL;
        if (n > 0)
            buf_append(out, p, (size_t)n);
        if (n > 0 || sent > 0)
            continue;
        struct pollfd f = {.fd = kube_exec_fd(x), .events = POLLIN};
        if (more || kube_exec_wants_out(x))
            f.events |= POLLOUT;
        poll(&f, 1, 1000);
        kube_exec_write(x, NULL, 0);
    }
    FAIL("it did not end in time");
}

static err *seq_is_whole(world *w, int version)
{
    CLEANUP(kube_exec_freep) kube_exec *x = NULL;
    CLEANUP(buf_done) buf out = {0};
    argv_t argv = {"seq", "1", "2000000", NULL};
    kube_exec_spec s = spec(w, "exec", argv);
    unsigned char got[SHA256_LEN], want[SHA256_LEN];
    CLEANUP(buf_done) buf expected = {0};
    size_t at = 0;

    s.version = version;
    TRY(kube_exec_open(w->k, &s, &x));
    MUST(kube_exec_version(x) == version);
    TRY(drain(x, NULL, &at, 60000, &out));
    MUST(kube_exec_end(x)->known && !kube_exec_end(x)->exit_code);
    for (int i = 1; i <= 2000000; i++)
        buf_printf(&expected, "%d\n", i);
    sha256(out.p, out.len, got);
    sha256(expected.p, expected.len, want);
    if (memcmp(got, want, sizeof got) != 0)
        FAIL("%zu bytes came, %zu were written", out.len, expected.len);
    return NULL;
}

static err *stdin_is_whole(world *w, int version, size_t size)
{
    CLEANUP(kube_exec_freep) kube_exec *x = NULL;
    CLEANUP(buf_done) buf out = {0}, in = {0};
    /* Version 4 cannot end stdin: the command counts. */
    CLEANUP(freep)
    char *script = version == 5 ? xstrdup("cat | sha256sum; exit 3")
                                : str_printf("head -c %zu | sha256sum; exit 3", size);
    argv_t argv = {"sh", "-c", script, NULL};
    kube_exec_spec s = spec(w, "exec", argv);
    unsigned char digest[SHA256_LEN];
    char hex[2 * SHA256_LEN + 1];
    size_t at = 0;

    for (uint32_t i = 0; in.len < size; i = i * 1664525 + 1013904223)
        buf_append(&in, &i, 4);
    sha256(in.p, in.len, digest);
    hex_encode(digest, sizeof digest, hex);
    s.in = true;
    s.version = version;
    TRY(kube_exec_open(w->k, &s, &x));
    uint64_t began = now_mono_ns();
    TRY(drain(x, &in, &at, 120000, &out));
    printf("           v%d: %zu MiB of stdin in %u ms\n", version, size >> 20,
           (unsigned)((now_mono_ns() - began) / NS_PER_MS));
    if (!str_starts(buf_cstr(&out), hex))
        FAIL("stdin arrived as %s, not %s", out.p, hex);
    MUST(kube_exec_end(x)->exit_code == 3);
    return NULL;
}

static err *ensure_pod(world *w)
{
    err *e = make_pod(w, "exec", NULL);

    return kube_is(e, KUBE_EXISTS) ? err_free(e), NULL : e;
}

err *case_exec_bytes_v5(world *w)
{
    TRY(ensure_pod(w));
    TRY(seq_is_whole(w, 5));
    return stdin_is_whole(w, 5, 64 << 20);
}

err *case_exec_bytes_v4(world *w)
{
    TRY(ensure_pod(w));
    TRY(seq_is_whole(w, 4));
    return stdin_is_whole(w, 4, 64 << 20);
}

/* A connection that is cut says nothing about the command, least of all that it succeeded. */
err *case_exec_cut(world *w)
{
    proxy *p = proxy_new(w->config.server);
    CLEANUP(kube_freep) kube *k = NULL;
    CLEANUP(kube_exec_freep) kube_exec *x = NULL;
    CLEANUP(buf_done) buf out = {0};
    argv_t argv = {"sh", "-c", "seq 1 2000000; exit 0", NULL};
    kube_exec_spec s = spec(w, "exec", argv);
    size_t at = 0;

    TRY(ensure_pod(w));
    TRY(proxy_client(w, p, &k));
    proxy_cut_after(p, 300000);
    TRY(kube_exec_open(k, &s, &x));
    TRY(drain(x, NULL, &at, 30000, &out));
    MUST(!kube_exec_end(x)->known);
    MUST(out.len > 0);
    MUST(kube_exec_write(x, "x", 1) < 0);
    kube_exec_free(TAKE_PTR(x));
    kube_free(TAKE_PTR(k));
    proxy_free(p);
    return NULL;
}
