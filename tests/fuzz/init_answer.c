/* bothyd against a pid 1 that is a tenant's: a script of requests, answers, descriptors and broken
 * connections. Whatever comes, an answer is told for what was asked and once, nothing is told after
 * the end, and no descriptor stays behind. */
#include <sys/uio.h>

#include "backend/oci.h"

static ssize_t fake_recv(int fd, void *p, size_t max, int fds[SOCK_FDS_MAX], size_t *ret_nfds,
                         int flags);
static void fake_discard(box *x, const int *fds, size_t n);
static int fake_send(int fd, const struct iovec *v, size_t nv, const int *fds, size_t nfds,
                     int flags);
#define sock_recv_all fake_recv
#define sock_send     fake_send
#define oci_discard   fake_discard
#include "../../src/backend/oci_box.c"
#undef sock_recv_all
#undef sock_send
#undef oci_discard

#include "fuzz.h"

#define IDS 16

static struct {
    fuzz_in in;
    int asked[IDS]; /* SPAWN and FETCH without an answer, by id */
    bool gone, removed, waiting, newer;
    unsigned sends;
} world;

/* ---- what the box tells ---- */

static void on_attached(void *arg, const struct sp_hello *h, const struct sp_rec *recs)
{
    (void)arg;
    MUST(!world.gone && h->nrec <= SP_MAX_EXEC);
    world.newer = false;
    for (uint32_t i = 0; i < h->nrec; i++)
        MUST(recs[i].id && recs[i].id <= h->high && recs[i].pid);
}

static void on_started(void *arg, uint64_t exec, int refused, const struct sp_started *st,
                       int fd[SP_FDS_MAX])
{
    (void)arg;
    MUST(!world.gone && exec > 0 && exec < IDS && world.asked[exec] > 0);
    MUST(refused >= 0 && (!refused || !st->fds));
    world.asked[exec]--;
    for (int i = 0; i < SP_FDS_MAX; i++) {
        MUST((fd[i] >= 0) == !!(st->fds & 1u << i));
        if (fd[i] >= 0)
            close(fd[i]);
    }
}

static void on_exited(void *arg, const struct sp_rec *r)
{
    (void)arg;
    MUST(!world.gone && r->id && r->state != SP_LIVE);
}

static void on_signalled(void *arg, uint64_t exec, uint64_t cookie, int errnum)
{
    (void)arg;
    MUST(!world.gone && exec < IDS && cookie == exec + 1 && errnum >= 0);
}

static void on_gone(void *arg, const char *why)
{
    (void)arg;
    MUST(!world.gone && why && *why);
    world.gone = true;
}

static void on_newer(void *arg)
{
    (void)arg;
    world.newer = true;
}

static const box_events EVENTS = {.newer = on_newer,
                                  .attached = on_attached,
                                  .started = on_started,
                                  .exited = on_exited,
                                  .signalled = on_signalled,
                                  .gone = on_gone};

/* ---- what the box uses ---- */

void oci_loop_post(oci_loop *l, void (*fn)(void *arg), void *arg)
{
    (void)l;
    fn(arg);
}

void oci_loop_watch(oci_loop *l, box *x, bool first, bool want_out)
{
    (void)l, (void)x, (void)first, (void)want_out;
}

void oci_loop_unwatch(oci_loop *l, box *x)
{
    (void)l, (void)x;
}

void oci_loop_timer(oci_loop *l, box *x, uint64_t delay_ms)
{
    (void)l, (void)x, (void)delay_ms;
}

void oci_loop_remove(oci_loop *l, box *x)
{
    (void)l, (void)x;
    MUST(!world.removed);
    world.removed = true;
}

uint32_t oci_warden_caps(oci_warden *w)
{
    (void)w;
    return WP_CAP_WALLS;
}

/* DESTROY and WALLS have no answer here; ATTACH gets its own when the script says so. */
void oci_warden_send(oci_warden *w, const warden_ask *ask, warden_done *done, void *arg)
{
    (void)w, (void)done;
    if (ask->type != WP_ATTACH)
        return;
    world.waiting = true;
    oci_box_unref(arg); /* the request's own reference */
}

static int fake_send(int fd, const struct iovec *v, size_t nv, const int *fds, size_t nfds,
                     int flags)
{
    (void)fd, (void)v, (void)nv, (void)fds, (void)nfds, (void)flags;
    return ++world.sends % 32 == 0 ? -EAGAIN : 0;
}

static int make_fd(uint8_t kind)
{
    int p[2];

    switch (kind % 4) {
    case 0:
    case 1:
        if (pipe2(p, O_CLOEXEC))
            abort();
        close(p[!(kind % 4)]);
        return p[kind % 4];
    case 2:
        return memfd_create("fuzz", MFD_CLOEXEC);
    default:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    }
}

/* A sound record about an exec, for the input to spoil: its byte at an offset is another. */
static size_t make_record(uint8_t form, void *p)
{
    uint64_t id = fuzz_byte(&world.in) % IDS;
    struct sp_rec r = {.id = id, .state = SP_EXITED, .pid = 7, .status = 3 << 8};
    union {
        struct sp_hdr done;
        struct sp_started started;
        struct sp_exit exit;
        struct {
            struct sp_hello h;
            struct sp_rec r;
        } hello;
    } m = {0};
    size_t n = sizeof m.done;

    if (form == 1) {
        m.hello.h = (struct sp_hello){.h = {.type = SP_HELLO},
                                      .version = SP_VERSION,
                                      .nrec = id != 0,
                                      .high = id,
                                      .capacity = SP_MAX_EXEC,
                                      .flags = fuzz_byte(&world.in) & 1};
        m.hello.r = r;
        n = sizeof m.hello.h + (id ? sizeof r : 0);
    } else if (form == 2 || form == 3) {
        uint32_t fds = fuzz_byte(&world.in) & 15;
        m.started = (struct sp_started){
            .h = {.type = form == 2 ? SP_STARTED : SP_FDS, .id = id}, .pid = 7, .fds = fds};
        n = sizeof m.started;
    } else if (form == 4) {
        m.exit = (struct sp_exit){.h = {.type = SP_EXIT, .id = id}, .r = r};
        n = sizeof m.exit;
    } else {
        m.done = (struct sp_hdr){.type = SP_DONE, .err = fuzz_byte(&world.in), .id = id};
    }
    uint8_t at = fuzz_byte(&world.in);
    ((char *)&m)[at % n] ^= (char)fuzz_byte(&world.in);
    memcpy(p, &m, n);
    return n;
}

/* Descriptors for each bit, of the right kind unless the input says otherwise. */
static size_t make_fds(const void *p, uint8_t kinds, int *fds, size_t max)
{
    const struct sp_started *st = p;
    size_t n = 0;

    if (st->h.type != SP_STARTED && st->h.type != SP_FDS)
        return 0;
    for (uint32_t i = 0; i < SP_FDS_MAX && n < max; i++)
        if (st->fds & 1u << i)
            fds[n++] = make_fd((uint8_t)((i == SP_FD_IN     ? 1
                                          : i == SP_FD_KEEP ? 2
                                                            : 0) ^
                                         kinds >> 2 * i));
    return n;
}

/* At once: what is made here does not linger. */
static void fake_discard(box *x, const int *fds, size_t n)
{
    (void)x;
    for (size_t i = 0; i < n; i++)
        closep(&fds[i]);
}

/* A record of the script: [fds, kinds][length, 2 bytes][bytes], or a made one. */
static ssize_t fake_recv(int fd, void *p, size_t max, int fds[SOCK_FDS_MAX], size_t *ret_nfds,
                         int flags)
{
    const size_t max_fds = SP_FDS_MAX + 1; /* also more than there can be */
    (void)fd, (void)flags;
    *ret_nfds = 0;
    uint8_t what = fuzz_byte(&world.in), kinds = fuzz_byte(&world.in);
    size_t n = 0;

    if (what >= 0x20 && what < 0xc0 && world.in.n) {
        n = make_record(what >> 5, p);
        *ret_nfds = make_fds(p, kinds, fds, max_fds);
        return (ssize_t)n;
    }
    size_t want = fuzz_number(&world.in, 2);

    if (what == 0xff || !world.in.n)
        return what & 1 ? -EAGAIN : 0;
    if (want > max)
        return -EMSGSIZE;
    void *bytes = fuzz_bytes(&world.in, want, &n);
    memcpy(p, bytes, n);
    free(bytes);
    if (!n)
        return -EAGAIN;
    *ret_nfds = what % 5 < max_fds ? what % 5 : max_fds;
    for (size_t i = 0; i < *ret_nfds; i++)
        fds[i] = make_fd(kinds >> 2 * i);
    return (ssize_t)n;
}

/* ---- the script ---- */

static void ask(box *x, uint8_t op)
{
    char *argv[] = {"true", NULL};
    uint64_t id = op >> 4;
    spine_out out = {0};
    oci_out *o = NULL;

    if (!id)
        return;
    if (op & 1) {
        struct sp_op fetch = spine_fetch(id);
        o = oci_out_op(&fetch, 0);
    } else if (op & 2) {
        struct sp_op signal = spine_signal(id, op & 4 ? SIGKILL : SIGTERM, SP_TO_TREE, 0, 0);
        o = oci_out_op(&signal, id + 1);
    } else {
        MUST(!spine_encode_spawn(&(spine_spawn){.id = id, .argv = argv}, &out));
        MUST(!oci_out_new(&out, NULL, 0, &o));
        spine_out_done(&out);
    }
    bool counts = !(op & 2) || op & 1;
    err *e = oci_box_push(x, o);
    if (!e && counts)
        world.asked[id]++;
    MUST(!e || world.gone || world.removed || e->code == ERR_SANDBOX_EXHAUSTED ||
         (world.newer && e->code == ERR_UNAVAILABLE));
    err_free(e);
}

static void step(box *x)
{
    uint8_t op = fuzz_byte(&world.in);

    if (world.waiting) { /* the warden's answer to ATTACH */
        world.waiting = false;
        oci_box_connected(x, open("/dev/null", O_RDWR | O_CLOEXEC), NULL, 0);
        return;
    }
    if (op < 0x10)
        oci_box_readable(x);
    else if (op == 0xff)
        oci_box_timer(x);
    else
        ask(x, op);
}

static void ignore_done(void *arg, err *failure, box *made, const box_timing *timing)
{
    (void)arg, (void)timing;
    MUST(!failure != !made);
    err_free(failure);
    world.gone |= failure != NULL;
}

static int count_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 128; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static oci here;
    static bool quiet;
    spine_out out = {0};
    int before = count_fds();

    if (!quiet)
        log_init("fuzz", LOG_ERROR + 1); /* every violation is told */
    quiet = true;
    memset(&world, 0, sizeof world);
    world.in = (fuzz_in){data, size};
    box *x = oci_box_new(&here, "abcd0123456789abcdef", &EVENTS, NULL);
    if (fuzz_byte(&world.in) & 1) { /* a create: CLAIM first */
        MUST(!spine_encode_claim(&(spine_claim){.umask = 022}, &out));
        MUST(!oci_out_new(&out, NULL, 0, &x->claim));
        x->done = ignore_done;
        spine_out_done(&out);
    }
    oci_box_connected(x, open("/dev/null", O_RDWR | O_CLOEXEC), NULL, 0);
    for (int i = 0; i < 256 && world.in.n && !world.removed; i++)
        step(x);
    bool failed = x->state == BOX_GONE && world.removed && !atomic_load(&x->users);
    oci_box_shut(x);
    oci_box_unref(x);
    if (!failed) /* a create that failed has given back its users' */
        oci_box_unref(x);
    MUST(count_fds() == before);
    return 0;
}
