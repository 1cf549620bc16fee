/* The commands of the kill test: what number n runs and what it must have written. Shared by the
 * victim (the process that is killed) and the test that checks what it left. */
#pragma once

#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "exec/exec.h"

#define VICTIM_BOX  "killaaaaaaaaaaaaaaaa"
#define VICTIM_LIVE 8u

enum victim_kind {
    V_SEQ,
    V_BOTH,
    V_CODE,
    V_MERGED,
    V_PTY,
    V_CAT,
    V_MISSING,
    V_SUICIDE,
    V_SLOW,
    V_LATE,
    V_KINDS
};

typedef struct victim_plan {
    unsigned n;
    enum victim_kind kind;
    unsigned size, code;
} victim_plan;

static inline victim_plan victim_plan_of(unsigned n)
{
    uint64_t h = (n + 1) * UINT64_C(0x9E3779B97F4A7C15);

    h ^= h >> 29;
    return (victim_plan){n, (enum victim_kind)(n % V_KINDS), (unsigned)(h % 4000) + 1,
                         (unsigned)(h >> 20) % 200 + 1};
}

static inline exec_key victim_key(unsigned n)
{
    exec_key k = {.body = {1}};

    memcpy(k.key, &n, sizeof n);
    k.key[15] = 1;
    return k;
}

/* Each run leaves a line in the box's directory: running twice or never is seen. */
static inline char *victim_command(victim_plan p)
{
    buf b = {0};

    buf_printf(&b, "echo %u >>ran; ", p.n);
    switch (p.kind) {
    case V_SEQ:
        buf_printf(&b, "exec seq 1 %u", p.size);
        break;
    case V_BOTH:
        buf_printf(&b, "seq 1 %u; seq 1 %u >&2; exit %u", p.size, p.size, p.code);
        break;
    case V_CODE:
        buf_printf(&b, "exit %u", p.code);
        break;
    case V_PTY:
        buf_printf(&b, "seq 1 %u; exit %u", p.size, p.code);
        break;
    case V_MERGED:
        buf_str(&b, "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done");
        break;
    case V_CAT:
        buf_str(&b, "exec cat");
        break;
    case V_SUICIDE:
        buf_str(&b, "echo x; kill -9 $$");
        break;
    case V_SLOW:
        buf_str(&b, "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.02; done");
        break;
    case V_LATE:
        buf_str(&b, "echo now; (sleep 0.05; echo late) &");
        break;
    default:
        break;
    }
    return buf_take(&b);
}

static inline void victim_seq(buf *b, unsigned to, const char *nl)
{
    for (unsigned i = 1; i <= to; i++)
        buf_printf(b, "%u%s", i, nl);
}

/* stream 1 or 2, everything that will ever be in it. */
static inline void victim_output(victim_plan p, int stream, buf *ret)
{
    buf_clear(ret);
    if (stream == 2) {
        if (p.kind == V_BOTH)
            victim_seq(ret, p.size, "\n");
        return;
    }
    switch (p.kind) {
    case V_SEQ:
    case V_BOTH:
    case V_CAT: /* its input */
        victim_seq(ret, p.size, "\n");
        break;
    case V_PTY:
        victim_seq(ret, p.size, "\r\n");
        break;
    case V_MERGED:
        buf_str(ret, "o1\ne1\no2\ne2\no3\ne3\no4\ne4\no5\ne5\n");
        break;
    case V_SUICIDE:
        buf_str(ret, "x\n");
        break;
    case V_SLOW:
        victim_seq(ret, 8, "\n");
        break;
    case V_LATE:
        buf_str(ret, "now\nlate\n");
        break;
    default:
        break;
    }
}
