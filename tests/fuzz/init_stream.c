/* Init's container mode over a kernel of the target's own: connections of strangers, a bothyd that
 * keeps the protocol's frames and breaks its rules, commands whose pipes give and take what the
 * input says. The target reads what init sends as bothyd would.
 * Steps: [what][...], see step(). */
#define HOSTED  1
#define syscall fuzz_kernel
/* The kernel comes before what runs on it. */
/* clang-format off */
#include "init_kernel.h"
#include "init/serve.c"
#include "init/stream.c"
#include "wire/spine_stream.h"
/* clang-format on */

#define EXECS  64
#define PIECES 4096

static const uint8_t SECRET[SPL_SECRET] = "the box's";

/* bothyd's end */
static struct {
    spl_end end;
    buf in;
    struct {
        spl_window win[2];
        uint64_t told[2]; /* RECEIVED, also of what never came */
        bool eof[2], exited, known;
    } exec[EXECS];
} peer;

/* what the kernel says next */
static struct {
    fuzz_in to_init; /* recvfrom */
    buf from_init;
    size_t room;    /* of sendto */
    uint8_t output; /* how read() of a pipe ends: bytes, EAGAIN, end, EIO */
    size_t noutput, ninput;
    long exits; /* pid to be reaped, 0: none */
    int status;
} now;

static long give(void *p, size_t n)
{
    if (!now.to_init.n)
        return -EAGAIN;
    n = n < now.to_init.n ? n : now.to_init.n;
    memcpy(p, now.to_init.p, n);
    now.to_init.p += n;
    now.to_init.n -= n;
    return (long)n;
}

static long take(int fd, const void *p, size_t n)
{
    if (fd != lnk.fd)
        return (long)n; /* a stranger's */
    n = n < now.room ? n : now.room;
    now.room -= n;
    if (!n)
        return -EAGAIN;
    buf_append(&now.from_init, p, n);
    return (long)n;
}

static long pipe_read(void *p, size_t n)
{
    n = n < now.noutput ? n : now.noutput;
    now.noutput -= n;
    if (n) {
        memset(p, 'o', n);
        return (long)n;
    }
    return now.output == 0 ? -EAGAIN : now.output == 1 ? 0 : -EIO;
}

static long pipe_write(size_t n)
{
    n = n < now.ninput ? n : now.ninput;
    now.ninput -= n;
    if (n)
        return (long)n;
    return now.output == 3 ? -EPIPE : -EAGAIN;
}

static long reap(int *status)
{
    long pid = now.exits;

    now.exits = 0;
    *status = now.status;
    return pid;
}

/* The calls that init_kernel.h leaves to a target. */
static bool own_call(long n, const long a[6], long *ret)
{
    switch (n) {
    case __NR_recvfrom:
        *ret = give((void *)a[1], (size_t)a[2]);
        return true;
    case __NR_sendto:
        *ret = take((int)a[0], (const void *)a[1], (size_t)a[2]);
        return true;
    case __NR_read:
        *ret = pipe_read((void *)a[1], (size_t)a[2]);
        return true;
    case __NR_write:
        *ret = pipe_write((size_t)a[2]);
        return true;
    case __NR_wait4:
        *ret = reap((int *)a[1]);
        memset((void *)a[3], 0, sizeof(struct rusage));
        return true;
    case __NR_accept4:
        *ret = kernel.next_fd++;
        return true;
    case __NR_getrandom:
        memset((void *)a[0], 7, (size_t)a[1]);
        *ret = a[1];
        return true;
    case __NR_ioctl:
        if (a[1] == FIONREAD)
            *(int *)a[2] = (int)(now.noutput & 0xffff);
        return a[1] == FIONREAD;
    case __NR_getpid:
        *ret = 1;
        return true;
    default:
        return false;
    }
}

/* ---- bothyd ---- */

static void on_stdio(const sps_message *m)
{
    const struct sps_data *d = m->record;
    size_t i = d->h.id % EXECS;

    spl_window *w = &peer.exec[i].win[d->a - 1];

    MUST(peer.exec[i].known); /* nothing flows that was not asked for */
    if (d->offset > w->next && d->offset <= peer.exec[i].told[d->a - 1])
        w->next = d->offset; /* we said that we have what is before it */
    MUST(spl_window_take(w, d->offset, m->nextra) == SPL_TAKE_OK);
    MUST(!peer.exec[i].eof[d->a - 1]);
    peer.exec[i].eof[d->a - 1] = !m->nextra;
}

static const struct entry *entry_known(uint64_t id)
{
    const struct entry *e = entry_find(id);

    MUST(e);
    return e;
}

/* Where the streams of an exec begin on this connection. */
static void on_begin(uint64_t id)
{
    const struct entry *e = entry_known(id);

    for (int k = 0; k < 2; k++) {
        const struct output *o = &flow_of(e)->out[k];
        peer.exec[id % EXECS].win[k] = (spl_window){o->base, o->limit};
        peer.exec[id % EXECS].eof[k] = false;
        peer.exec[id % EXECS].told[k] = 0;
    }
    peer.exec[id % EXECS].known = true;
    peer.exec[id % EXECS].exited = false;
}

static void on_answer(const sps_message *m)
{
    const struct sp_hdr *h = m->record;

    if (m->type == SPS_STDIO)
        on_stdio(m);
    else if (m->type == SP_EXIT) {
        MUST(peer.exec[h->id % EXECS].known && !peer.exec[h->id % EXECS].exited);
        peer.exec[h->id % EXECS].exited = true;
    }
}

/* All that init has sent so far. Credit that was given meanwhile is init's own word: what is told
 * with it is compared when it was sent. */
static void read_answers(void)
{
    size_t at = 0;

    buf_append(&peer.in, now.from_init.p, now.from_init.len);
    buf_clear(&now.from_init);
    for (;;) {
        sps_message m;
        const char *why = NULL;
        long n = spl_next(&peer.end, peer.in.p + at, peer.in.len - at, &m, &why);
        MUST(n >= 0);
        if (!n)
            break;
        at += (size_t)n;
        why = sps_check(&m, SPS_ANSWERS);
        if (why)
            fuzz_broken(why, __FILE__, __LINE__);
        on_answer(&m);
    }
    buf_consume(&peer.in, at);
}

/* A message of bothyd's goes into the kernel's queue and is read by init at once. */
static void tell(const void *record, size_t size, const void *extra, size_t nextra)
{
    const struct sps_data *d = record;
    char *out = xmalloc(spl_size(size, nextra));
    size_t n = spl_put(&peer.end, out, record, size, extra, nextra);

    if (size == sizeof *d && d->h.type == SPS_RECEIVED && (d->a == 1 || d->a == 2)) {
        uint64_t *told = &peer.exec[d->h.id % EXECS].told[d->a - 1];
        *told = d->offset > *told ? d->offset : *told;
        spl_window_grant(&peer.exec[d->h.id % EXECS].win[d->a - 1], d->offset, d->b);
    }
    now.to_init = (fuzz_in){(uint8_t *)out, n};
    while (lnk.fd && now.to_init.n && link_may_read()) {
        link_read();
        link_serve();
    }
    free(out);
}

/* ---- the world ---- */

static void check_pool(const struct pool *p, uint32_t used, uint32_t shared)
{
    MUST(p->used == used && p->shared == shared && p->shared <= p->shared_max);
    MUST(p->fresh <= p->pages);
}

static void check_world(void)
{
    uint32_t out = 0, out_shared = 0, in = 0, in_shared = 0, large = 0;

    for (uint32_t i = 0; i < g.top; i++) {
        const struct flow *f = &flows[i];
        for (int k = 0; k < 2; k++) {
            const struct output *o = &f->out[k];
            MUST(o->q.len <= SPL_KEPT && o->sent >= o->base && o->sent <= output_end(o));
            out += o->q.pages;
            out_shared += o->q.pages > OUT_SURE ? o->q.pages - OUT_SURE : 0;
        }
        MUST(f->in.len <= SPL_STDIN_KEPT);
        in += f->in.pages;
        in_shared += f->in.pages > IN_SURE ? f->in.pages - IN_SURE : 0;
        large += f->in_large ? IN_LARGE : 0;
        MUST(g.tab[i].used || (!f->in.pages && !f->out[0].q.pages && !f->out[1].q.pages));
    }
    check_pool(&out_pool, out, out_shared);
    check_pool(&in_pool, in, in_shared);
    MUST(in_large == large && large <= IN_SHARED);
    MUST(lnk.at <= lnk.len && lnk.len <= TX_MAX && lnk.have <= SPL_REQUEST_MAX);
}

static void connect_peer(void)
{
    uint8_t nonce[SPL_NONCE] = {3};
    uint64_t greeting[SPL_GREETING_ROOM / 8], attach[SPL_ATTACH_ROOM / 8];
    sps_message m;
    const char *why;
    spl_end init;

    /* init's nonce is what getrandom gives: the same greeting, made again */
    uint8_t theirs[SPL_NONCE];
    memset(theirs, 7, sizeof theirs);
    size_t n = spl_begin_init(&init, theirs, g.instance, serve.owned, greeting);
    spl_begin_link(&peer.end, nonce);
    MUST(spl_next(&peer.end, greeting, n, &m, &why) == (long)n);
    n = spl_attach(&peer.end, SECRET, attach);
    peer_accept();
    struct peer *p = NULL;
    for (uint32_t i = 0; i < SPL_UNPROVED_MAX; i++)
        if (serve.waiting[i].fd && (!p || serve.waiting[i].fd > p->fd))
            p = &serve.waiting[i];
    buf_clear(&peer.in);
    memset(peer.exec, 0, sizeof peer.exec);
    now.to_init = (fuzz_in){(uint8_t *)attach, n};
    peer_read(p);
    MUST(lnk.fd); /* whoever proves it gets in */
    now.room = SPL_SIZE(SP_HELLO_MAX, 0);
    link_serve();
    read_answers();
    MUST(peer.end.phase == SPL_OPEN);
}

static void stranger(fuzz_in *in)
{
    int before = lnk.fd;
    size_t n = 0;
    uint8_t which = fuzz_byte(in) % SPL_UNPROVED_MAX;
    void *p = fuzz_bytes(in, fuzz_byte(in), &n);

    if (!serve.waiting[which].fd)
        peer_accept();
    now.to_init = (fuzz_in){p, n};
    while (now.to_init.n && serve.waiting[which].fd)
        peer_read(&serve.waiting[which]);
    MUST(lnk.fd == before);
    free(p);
}

static void spawn(fuzz_in *in)
{
    static const uint32_t flags[] = {SP_F_NOSTDIN, 0, SP_F_PTY, SP_F_MERGE};
    static const char payload[] = "\0\0sh";
    struct {
        struct sp_spawn q;
        char payload[sizeof payload];
    } m = {.q = {.h = {SP_SPAWN, 0, 1 + fuzz_byte(in) % (EXECS - 1)},
                 .flags = flags[fuzz_byte(in) % 4],
                 .payload = sizeof payload,
                 .argc = 1,
                 .umask = 022}};
    bool known = entry_find(m.q.h.id) && flow_is_on(entry_find(m.q.h.id));

    memcpy(m.payload, payload, sizeof payload);
    uint64_t high = g.high;
    now.room = 0; /* what it sends is read behind the beginning */
    tell(&m, sizeof m.q + sizeof payload, NULL, 0);
    if (!known && (g.high != high || entry_find(m.q.h.id)))
        on_begin(m.q.h.id);
}

static void fetch(fuzz_in *in)
{
    struct sp_op q = {.h = {SP_FETCH, 0, fuzz_byte(in) % EXECS}};

    now.room = 1u << 20;
    link_serve(); /* what is on its way is of the time before */
    read_answers();
    if (lnk.at != lnk.len)
        return;
    now.room = 0;
    tell(&q, sizeof q, NULL, 0);
    if (entry_find(q.h.id))
        on_begin(q.h.id);
}

static void data(fuzz_in *in)
{
    static const uint32_t types[] = {SPS_RECEIVED, SPS_STDIN, SPS_RESIZE, SPS_PING};
    struct sps_data d = {.h.type = types[fuzz_byte(in) % 4], .h.id = fuzz_byte(in) % EXECS};
    size_t n = 0;

    d.a = fuzz_byte(in);
    d.b = (uint32_t)fuzz_number(in, 3);
    d.offset = fuzz_number(in, 3);
    char *extra = xcalloc(1, PIECES * 16);
    n = d.h.type == SPS_STDIN ? (size_t)fuzz_number(in, 2) : 0;
    tell(&d, sizeof d, extra, n < (size_t)PIECES * 16 ? n : 0);
    free(extra);
}

static void any_message(fuzz_in *in)
{
    size_t size = fuzz_byte(in), nextra = fuzz_byte(in);
    char *record = fuzz_bytes(in, size, &size), *extra = fuzz_bytes(in, nextra, &nextra);
    uint32_t type = 0;

    if (size >= sizeof type)
        memcpy(&type, record, sizeof type);
    /* what begins streams is said by who looks at it */
    if (type != SP_SPAWN && type != SP_FETCH && type != SPS_RECEIVED && size >= 16)
        tell(record, size, extra, nextra);
    free(record);
    free(extra);
}

static void commands(fuzz_in *in)
{
    struct pollfd p[FLOW_POLLS];

    now.output = fuzz_byte(in) % 4;
    now.noutput = (size_t)fuzz_number(in, 3);
    now.ninput = (size_t)fuzz_number(in, 3);
    uint32_t n = flow_poll(p);
    for (uint32_t i = 0; i < n; i++)
        p[i].revents = p[i].events;
    flow_polled(p);
}

static void one_exits(fuzz_in *in)
{
    uint8_t which = fuzz_byte(in);

    if (!g.top || !g.tab[which % g.top].used || g.tab[which % g.top].r.state != SP_LIVE)
        return;
    now.noutput = (size_t)fuzz_number(in, 2);
    now.exits = g.tab[which % g.top].r.pid;
    now.status = fuzz_byte(in) << 8;
    children_reap();
}

static void flush(fuzz_in *in)
{
    now.room = (size_t)fuzz_number(in, 3);
    link_serve();
}

static void step(fuzz_in *in)
{
    switch (fuzz_byte(in) % 9) {
    case 0:
        stranger(in);
        break;
    case 1:
        connect_peer();
        break;
    case 2:
        spawn(in);
        break;
    case 3:
        fetch(in);
        break;
    case 4:
        data(in);
        break;
    case 5:
        any_message(in);
        break;
    case 6:
        commands(in);
        break;
    case 7:
        one_exits(in);
        break;
    default:
        flush(in);
        break;
    }
    if (!lnk.fd)
        connect_peer();
    link_serve();
    read_answers();
    check_world();
}

static void reset(void)
{
    static struct note notes[SP_MAX_EXEC];
    /* not mapped anew for each input: that would be most of the time */
    static char out_pages[OUT_PAGES * PAGE], in_pages[IN_PAGES * PAGE];
    static uint32_t out_next[OUT_PAGES], in_next[IN_PAGES];
    static uint64_t rx[SPL_REQUEST_MAX / 8], tx[TX_MAX / 8];

    kernel_reset();
    kernel_own = own_call;
    memset(&g, 0, sizeof g);
    memset(&serve, 0, sizeof serve);
    memset(&lnk, 0, sizeof lnk);
    memset(flows, 0, sizeof flows);
    memset(&now, 0, sizeof now);
    out_pool.base = out_pages;
    in_pool.base = in_pages;
    out_pool.next = out_next;
    in_pool.next = in_next;
    out_pool.free = in_pool.free = NO_PAGE;
    out_pool.fresh = out_pool.used = out_pool.shared = 0;
    in_pool.fresh = in_pool.used = in_pool.shared = 0;
    in_large = 0;
    g.notes = notes;
    g.stream = true;
    g.conn = -1;
    g.procdir = 4;
    g.ptsdir = 5;
    lnk.rx = (char *)rx;
    lnk.tx = (char *)tx;
}

__attribute__((noinline)) static void run(fuzz_in *in)
{
    if (setjmp(kernel.over))
        return;
    connect_peer();
    for (int i = 0; i < 200 && in->n; i++)
        step(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data_of, size_t size)
{
    fuzz_in in = {data_of, size};

    reset();
    run(&in);
    buf_done(&now.from_init);
    buf_done(&peer.in);
    kernel_reset();
    return 0;
}
