#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "wire/spine_codec.h"

#define SPAWN_FLAGS \
    (SP_F_PTY | SP_F_MERGE | SP_F_NOSTDIN | SP_F_MEMFD | SP_F_KEEP | SP_F_EXECFD | SP_F_SETUID)
#define ERRNO_MAX 4095
#define PID_LIMIT (1u << 22)
#define FDS_MASK  ((1u << SP_FDS_MAX) - 1)

/* ---- building ---- */

static size_t strings_size(char *const *v)
{
    size_t n = 0;
    for (; v && *v; v++)
        n += strlen(*v) + 1;
    return n;
}

static void put_strings(buf *b, char *const *v)
{
    for (; v && *v; v++)
        buf_append(b, *v, strlen(*v) + 1);
}

/* Chooses the buffer for a payload of `size` bytes. Reserves all of it: growing would leave copies
 * of secrets in freed memory. */
static err *choose_place(size_t head, size_t size, spine_out *out, buf **ret_place)
{
    if (size > SP_PAYLOAD_MAX)
        return err_new(ERR_TOO_LARGE, "arguments and environment have %zu bytes, the limit is %u",
                       size, SP_PAYLOAD_MAX);
    bool apart = head + size > SP_INLINE_MAX;
    buf_reserve(&out->record, apart ? head : head + size);
    if (apart)
        buf_reserve(&out->payload, size);
    *ret_place = apart ? &out->payload : &out->record;
    return NULL;
}

err *spine_encode_spawn(const spine_spawn *s, spine_out *ret_out)
{
    const char *user = str_or(s->user, ""), *cwd = str_or(s->cwd, "");
    size_t size = s->nrlimits * sizeof *s->rlimits + strlen(user) + 1 + strlen(cwd) + 1 +
                  strings_size(s->argv) + strings_size(s->env);
    struct sp_spawn q = {.h = {.type = SP_SPAWN, .id = s->id},
                         .flags = s->flags,
                         .payload = (uint32_t)size,
                         .argc = (uint32_t)strv_len(s->argv),
                         .envc = s->env ? (uint32_t)strv_len(s->env) : 0,
                         .umask = s->umask,
                         .rows = s->rows,
                         .cols = s->cols,
                         .nrlimits = s->nrlimits};
    buf *place = NULL;

    if (!q.argc)
        return err_new(ERR_INVALID_REQUEST, "argv is empty");
    if (s->nrlimits > SP_RLIMITS_MAX)
        return err_new(ERR_INVALID_REQUEST, "more than %u resource limits", SP_RLIMITS_MAX);
    TRY(choose_place(sizeof q, size, ret_out, &place));
    if (place == &ret_out->payload)
        q.flags |= SP_F_MEMFD;
    buf_append(&ret_out->record, &q, sizeof q);
    if (s->nrlimits)
        buf_append(place, s->rlimits, s->nrlimits * sizeof *s->rlimits);
    buf_append(place, user, strlen(user) + 1);
    buf_append(place, cwd, strlen(cwd) + 1);
    put_strings(place, s->argv);
    put_strings(place, s->env);
    return NULL;
}

err *spine_encode_claim(const spine_claim *c, spine_out *ret_out)
{
    const char *user = str_or(c->user, ""), *cwd = str_or(c->cwd, "");
    size_t size = strlen(user) + 1 + strlen(cwd) + 1 + strings_size(c->env);
    struct sp_claim q = {.h = {.type = SP_CLAIM},
                         .payload = (uint32_t)size,
                         .envc = c->env ? (uint32_t)strv_len(c->env) : 0,
                         .umask = c->umask,
                         .grants = c->grants};
    buf *place = NULL;

    memcpy(q.sandbox, c->sandbox, sizeof q.sandbox);
    TRY(choose_place(sizeof q, size, ret_out, &place));
    if (place == &ret_out->payload)
        q.flags |= SP_F_MEMFD;
    buf_append(&ret_out->record, &q, sizeof q);
    buf_append(place, user, strlen(user) + 1);
    buf_append(place, cwd, strlen(cwd) + 1);
    put_strings(place, c->env);
    return NULL;
}

void spine_out_done(spine_out *o)
{
    if (o->record.p)
        secret_wipe(o->record.p, o->record.len);
    if (o->payload.p)
        secret_wipe(o->payload.p, o->payload.len);
    buf_done(&o->record);
    buf_done(&o->payload);
}

struct sp_op spine_fetch(uint64_t id)
{
    return (struct sp_op){.h = {.type = SP_FETCH, .id = id}};
}

struct sp_op spine_signal(uint64_t id, uint32_t signo, uint32_t scope, uint32_t pid, uint64_t since)
{
    return (struct sp_op){.h = {.type = SP_SIGNAL, .id = id},
                          .signo = signo,
                          .scope = scope,
                          .pid = pid,
                          .since = since};
}

struct sp_op spine_close(uint64_t id, uint32_t mask)
{
    return (struct sp_op){.h = {.type = SP_CLOSE, .id = id}, .mask = mask};
}

struct sp_op spine_ack(uint64_t id, uint32_t mask)
{
    return (struct sp_op){.h = {.type = SP_ACK, .id = id}, .mask = mask};
}

/* ---- checking what init says ---- */

/* Returns true for the wait status of an ended process: an exit (low byte 0) or a signal. */
static bool ended_status(int32_t status)
{
    int signal = status & 0x7f;
    return !(status & ~0xffff) && signal != 0x7f && !(status & (signal ? 0xff00 : 0x80));
}

static const char *check_rec(const struct sp_rec *r)
{
    if (!r->id)
        return "a record has no id";
    if (!r->pid || r->pid >= PID_LIMIT)
        return "a record's pid is out of range";
    if (r->open & ~FDS_MASK || r->flags & ~(SPAWN_FLAGS | SP_F_ACKED))
        return "a record has unknown bits";
    if (r->reserved)
        return "a record's reserved field is not zero";
    switch (r->state) {
    case SP_LIVE:
        return r->flags & SP_F_ACKED ? "a live record is acknowledged" : NULL;
    case SP_EXITED:
        return ended_status(r->status) ? NULL : "a record's wait status is none";
    case SP_FAILED:
        if (r->status <= 0 || r->status > ERRNO_MAX)
            return "a record's errno is out of range";
        return r->stage >= SP_ST_PARSE && r->stage <= SP_ST_PRIVS ? NULL
                                                                  : "a record's stage is unknown";
    default:
        return "a record's state is unknown";
    }
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static bool ids_differ(const struct sp_rec *recs, uint32_t n)
{
    CLEANUP(freep) uint64_t *ids = xcalloc(n ? n : 1, sizeof *ids);

    for (uint32_t i = 0; i < n; i++)
        ids[i] = recs[i].id;
    qsort(ids, n, sizeof *ids, compare_ids);
    for (uint32_t i = 1; i < n; i++)
        if (ids[i] == ids[i - 1])
            return false;
    return true;
}

/* Checks a pair of wall sets. A newer init may have checks unknown here: their bits are ignored,
 * not refused. */
static bool walls_ok(uint64_t walls)
{
    return !(SP_HELD(walls) & ~SP_TRIED(walls));
}

static bool hello_flags_ok(uint32_t flags)
{
    uint32_t again = flags >> SP_HELLO_WALLS;

    return !(flags & ((1u << SP_HELLO_WALLS) - 1) & ~SP_HELLO_CLAIMED) &&
           (!again || flags & SP_HELLO_CLAIMED);
}

/* Reads only the beginning of HELLO, whose layout never changes between versions. */
bool spine_hello_is_newer(const void *p, size_t n)
{
    const struct sp_hello *h = p;

    return n >= offsetof(struct sp_hello, nrec) && h->h.type == SP_HELLO && h->version > SP_VERSION;
}

static const char *check_hello(const struct sp_hello *h, size_t n)
{
    if (spine_hello_is_newer(h, n))
        return "init speaks a newer version of the spine than this bothyd";
    if (n < sizeof *h)
        return "HELLO is short";
    if (h->version < SP_VERSION_MIN)
        return "init speaks a version of the spine that this bothyd does not know any more";
    if (h->h.err)
        return "HELLO has an error";
    if (h->nrec > SP_MAX_EXEC || n != sizeof *h + h->nrec * sizeof(struct sp_rec))
        return "HELLO's length is not that of its records";
    if (h->high > SP_ID_MAX)
        return "HELLO's highest id is out of range";
    if (!h->capacity || h->capacity > SP_MAX_EXEC || !hello_flags_ok(h->flags))
        return "HELLO has a capacity or bits out of range";
    if (!walls_ok(h->h.id))
        return "HELLO's walls are none";
    const struct sp_rec *recs = spine_hello_recs(h);
    for (uint32_t i = 0; i < h->nrec; i++) {
        const char *why = check_rec(&recs[i]);
        if (why)
            return why;
        if (recs[i].id > h->high)
            return "HELLO has a record above its highest id";
    }
    return ids_differ(recs, h->nrec) ? NULL : "HELLO names an exec twice";
}

static const char *check_started(const struct sp_started *s, size_t n, size_t nfds)
{
    if (n != sizeof *s)
        return "STARTED's length is wrong";
    if (s->fds & ~FDS_MASK || (size_t)__builtin_popcount(s->fds) != nfds)
        return "STARTED names other descriptors than it brought";
    if (s->reserved || s->reserved2)
        return "STARTED's reserved fields are not zero";
    if (s->h.err)
        return nfds ? "a refusal brought descriptors" : NULL;
    if (!s->h.id || !s->pid || s->pid >= PID_LIMIT || s->flags & ~SPAWN_FLAGS)
        return "STARTED has an id, a pid or bits out of range";
    return NULL;
}

static const char *check_exit(const struct sp_exit *x, size_t n)
{
    if (n != sizeof *x)
        return "EXIT's length is wrong";
    if (x->h.err || x->h.id != x->r.id)
        return "EXIT's ids differ";
    if (x->r.state == SP_LIVE)
        return "EXIT of a live process";
    return check_rec(&x->r);
}

const char *spine_check_answer(const void *p, size_t n, size_t nfds)
{
    const struct sp_hdr *h = p;

    if (n < sizeof *h)
        return "the record is shorter than its header";
    if (h->err < 0 || h->err > ERRNO_MAX)
        return "the record's errno is out of range";
    if (nfds && h->type != SP_STARTED && h->type != SP_FDS)
        return "the record brought descriptors";
    switch (h->type) {
    case SP_HELLO:
        return check_hello(p, n);
    case SP_STARTED:
    case SP_FDS:
        return check_started(p, n, nfds);
    case SP_EXIT:
        return check_exit(p, n);
    case SP_DONE:
        return n == sizeof *h ? NULL : "DONE's length is wrong";
    default:
        return "the record's type is unknown";
    }
}

const struct sp_rec *spine_hello_recs(const struct sp_hello *h)
{
    return (const struct sp_rec *)(h + 1);
}

/* ---- reading requests ---- */

static bool all_zero(const uint32_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

static const char *check_spawn(const struct sp_spawn *q, size_t n, size_t nfds)
{
    if (n < sizeof *q)
        return "SPAWN is short";
    bool memfd = q->flags & SP_F_MEMFD;
    size_t want = !!memfd + !!(q->flags & SP_F_EXECFD) + !!(q->flags & SP_F_KEEP);
    if (!q->h.id || q->flags & ~SPAWN_FLAGS || !all_zero(q->reserved, ARRAY_LEN(q->reserved)))
        return "SPAWN has no id, unknown flags or reserved fields";
    if (nfds != want)
        return "SPAWN has another number of descriptors than its flags say";
    if (q->payload > SP_PAYLOAD_MAX || n != sizeof *q + (memfd ? 0 : q->payload))
        return "SPAWN's length is not that of its payload";
    if (!q->argc || q->argc > q->payload || q->envc > q->payload || q->nrlimits > SP_RLIMITS_MAX)
        return "SPAWN's counts are out of range";
    if (q->umask > 0777 && q->umask != SP_UMASK_CLAIM)
        return "SPAWN's umask is out of range";
    return NULL;
}

static const char *check_claim(const struct sp_claim *q, size_t n, size_t nfds)
{
    if (n < sizeof *q)
        return "CLAIM is short";
    bool memfd = q->flags & SP_F_MEMFD;
    if (q->h.id || q->flags & ~SP_F_MEMFD || q->grants & ~SP_GRANT_SETUID || q->umask > 0777 ||
        !all_zero(q->reserved, ARRAY_LEN(q->reserved)))
        return "CLAIM has an id, unknown bits or reserved fields";
    if (nfds != memfd || !q->payload || q->payload > SP_PAYLOAD_MAX || q->envc > q->payload ||
        n != sizeof *q + (memfd ? 0 : q->payload))
        return "CLAIM's length is not that of its payload";
    return NULL;
}

static const char *check_op(const struct sp_op *q, size_t n, size_t nfds)
{
    if (n != sizeof *q || nfds || q->reserved)
        return "the request's length is wrong";
    if (q->h.type == SP_SIGNAL && (q->scope >= SP_SCOPES || q->signo > 64))
        return "SIGNAL's number or scope is unknown";
    return NULL;
}

const char *spine_check_request(const void *p, size_t n, size_t nfds)
{
    const struct sp_hdr *h = p;

    if (n < sizeof *h)
        return "the record is shorter than its header";
    switch (h->type) {
    case SP_SPAWN:
        return check_spawn(p, n, nfds);
    case SP_CLAIM:
        return check_claim(p, n, nfds);
    case SP_FETCH:
    case SP_SIGNAL:
    case SP_CLOSE:
    case SP_ACK:
        return check_op(p, n, nfds);
    default:
        return "the record's type is unknown";
    }
}

/* A cursor over NUL-terminated strings. */
typedef struct strings {
    const char *p, *end;
    bool bad;
} strings;

static const char *take_string(strings *s)
{
    const char *start = s->p;
    const char *nul = s->p < s->end ? memchr(s->p, 0, (size_t)(s->end - s->p)) : NULL;

    if (!nul) {
        s->bad = true;
        return "";
    }
    s->p = nul + 1;
    return start;
}

static char **take_vector(strings *s, uint32_t n)
{
    if (n > (size_t)(s->end - s->p)) {
        s->bad = true;
        n = 0;
    }
    char **v = xcalloc((size_t)n + 1, sizeof *v);
    for (uint32_t i = 0; i < n && !s->bad; i++)
        v[i] = (char *)take_string(s);
    return v;
}

static err *spine_malformed(const char *what)
{
    return err_new(ERR_INVALID_REQUEST, "the payload of %s is malformed", what);
}

err *spine_decode_spawn(const struct sp_spawn *q, const void *payload, size_t n,
                        spine_spawn *ret_spawn)
{
    size_t limits = q->nrlimits * sizeof(struct sp_rlimit);

    if (n != q->payload || q->nrlimits > SP_RLIMITS_MAX || limits > n)
        return spine_malformed("SPAWN");
    strings s = {.p = (const char *)payload + limits, .end = (const char *)payload + n};
    spine_spawn out = {.id = q->h.id,
                       .flags = q->flags & ~SP_F_MEMFD,
                       .umask = q->umask,
                       .rows = q->rows,
                       .cols = q->cols,
                       .rlimits = payload,
                       .nrlimits = q->nrlimits};
    out.user = take_string(&s);
    out.cwd = take_string(&s);
    out.argv = take_vector(&s, q->argc);
    out.env = take_vector(&s, q->envc);
    if (s.bad || s.p != s.end || !q->argc) {
        spine_spawn_done(&out);
        return spine_malformed("SPAWN");
    }
    *ret_spawn = out;
    return NULL;
}

void spine_spawn_done(spine_spawn *s)
{
    free((void *)s->argv);
    free((void *)s->env);
    *s = (spine_spawn){0};
}

err *spine_decode_claim(const struct sp_claim *q, const void *payload, size_t n,
                        spine_claim *ret_claim)
{
    strings s = {.p = payload, .end = (const char *)payload + n};
    spine_claim out = {.umask = q->umask, .grants = q->grants};

    if (n != q->payload)
        return spine_malformed("CLAIM");
    memcpy(out.sandbox, q->sandbox, sizeof out.sandbox);
    out.user = take_string(&s);
    out.cwd = take_string(&s);
    out.env = take_vector(&s, q->envc);
    if (s.bad || s.p != s.end) {
        spine_claim_done(&out);
        return spine_malformed("CLAIM");
    }
    *ret_claim = out;
    return NULL;
}

void spine_claim_done(spine_claim *c)
{
    free((void *)c->env);
    *c = (spine_claim){0};
}

const char *spine_stage_name(uint32_t stage)
{
    static const char *const names[] = {
        [SP_ST_PARSE] = "request",   [SP_ST_RLIMIT] = "limits", [SP_ST_TTY] = "terminal",
        [SP_ST_CWD] = "directory",   [SP_ST_GROUPS] = "groups", [SP_ST_GID] = "group",
        [SP_ST_UID] = "uid",         [SP_ST_EXEC] = "exec",     [SP_ST_USER] = "user",
        [SP_ST_PRIVS] = "privileges"};

    return stage < ARRAY_LEN(names) && names[stage] ? names[stage] : "unknown";
}
