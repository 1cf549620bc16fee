/* Bytes of stdio on a stream: init keeps each exec's output until it is received, and its stdin
 * until it is written.
 *
 * Memory consists of pages from two pools, taken when bytes come. Every queue has a few guaranteed
 * pages, so one exec with a slow reader does not stop the others; the rest is shared, first come
 * first served. Bytes that do not fit stay in the pipe, and the command waits. */
#include "init/init.h"
#include "wire/spine_link.h"

#define PAGE     4096u
#define NO_PAGE  0xffffffffu
#define READ_MAX SPS_CHUNK_MAX
#define SEND_MAX (16u * 1024) /* of one stream, before the next stream has its turn */
#define PTY_REST SPL_KEPT     /* most bytes read from a terminal after the command's end */

enum {
    OUT_PAGES = SPL_KEPT_ALL / PAGE,
    OUT_SURE = 1, /* guaranteed pages of one stream: half of all pages in total */
    IN_SURE = 2,  /* so that SPL_STDIN_CREDIT bytes fit at any offset */
    IN_SHARED = 1024,
    IN_PAGES = SP_MAX_EXEC * IN_SURE + IN_SHARED,
    IN_LARGE = SPL_STDIN_KEPT / PAGE + 1 - IN_SURE, /* shared pages of a large window */
};
_Static_assert(OUT_PAGES > 2 * SP_MAX_EXEC * OUT_SURE, "some pages are shared");
_Static_assert(SPL_STDIN_CREDIT <= PAGE * (IN_SURE - 1), "the first credit always fits");

struct pool {
    char *base;
    u32 *next; /* by page: the next page in its queue or in the free list */
    u32 pages, sure;
    u32 free;   /* head of the list of free pages */
    u32 fresh;  /* first page that was never used */
    u32 used;   /* in queues */
    u32 shared; /* of the used ones, beyond the guaranteed */
    u32 shared_max;
};
static struct pool out_pool = {.pages = OUT_PAGES,
                               .sure = OUT_SURE,
                               .free = NO_PAGE,
                               .shared_max = OUT_PAGES - 2 * SP_MAX_EXEC * OUT_SURE};
static struct pool in_pool = {
    .pages = IN_PAGES, .sure = IN_SURE, .free = NO_PAGE, .shared_max = IN_SHARED};
static u32 in_large; /* shared stdin pages promised by windows */

struct queue {
    u32 head, tail; /* pages; valid if pages > 0 */
    u32 pages;
    u32 at;   /* of the first byte in head */
    u32 fill; /* bytes used in tail */
    u32 len;
};

struct place { /* a position in a queue */
    u32 page, at;
};

struct output {
    struct queue q;
    u64 base;  /* offset of the first byte kept: all before it were received */
    u64 sent;  /* on this connection */
    u64 limit; /* may be sent up to here */
    u64 at_exit;
    struct place next; /* where `sent` is */
    bool eof, eof_sent;
    bool settled; /* at_exit is known */
    bool hung_up; /* a terminal that no process has open: read again at the exit */
};

struct flow {
    struct output out[2];
    struct queue in;
    u64 in_base; /* offset up to which bytes were written to the command */
    u64 in_limit;
    bool in_eof, in_over, in_large;
    bool taken_due;
    bool on; /* requested on this connection */
    bool exit_sent;
};
static struct flow flows[SP_MAX_EXEC];

static struct flow *flow_of(const struct entry *e)
{
    return &flows[entry_index(e)];
}

/* ---- pages ---- */

static bool pool_ready(struct pool *p)
{
    if (!p->base)
        p->base = map_anon_lazy((size_t)p->pages * PAGE);
    if (!p->next)
        p->next = map_anon_lazy((size_t)p->pages * sizeof *p->next);
    return p->base && p->next;
}

static u32 pool_room(const struct pool *p, const struct queue *q)
{
    u32 sure = q->pages < p->sure ? p->sure - q->pages : 0;

    return sure + (p->shared_max - p->shared);
}

static bool page_add(struct pool *p, struct queue *q)
{
    u32 i = p->free;

    if (!pool_ready(p) || !pool_room(p, q))
        return false;
    if (i != NO_PAGE)
        p->free = p->next[i];
    else
        i = p->fresh++;
    p->next[i] = NO_PAGE;
    if (q->pages)
        p->next[q->tail] = i;
    else
        q->head = i;
    q->tail = i;
    q->fill = 0;
    p->used++;
    p->shared += ++q->pages > p->sure;
    return true;
}

/* Frees the head page. When the last used page is freed, all memory goes back to the kernel. */
static void page_drop(struct pool *p, struct queue *q)
{
    u32 i = q->head;

    q->head = p->next[i];
    q->at = 0;
    p->shared -= q->pages-- > p->sure;
    p->next[i] = p->free;
    p->free = i;
    if (--p->used)
        return;
    SYS(madvise, p->base, (size_t)p->fresh * PAGE, K_MADV_DONTNEED);
    p->free = NO_PAGE;
    p->fresh = 0;
}

/* ---- queues ---- */

static size_t queue_room(const struct pool *p, const struct queue *q)
{
    return (q->pages ? PAGE - q->fill : 0) + (size_t)pool_room(p, q) * PAGE;
}

/* Appends bytes. The caller has checked the room: bytes that do not fit are lost. */
static void queue_put(struct pool *p, struct queue *q, const char *b, size_t n)
{
    while (n) {
        if ((!q->pages || q->fill == PAGE) && !page_add(p, q))
            return;
        size_t k = PAGE - q->fill < n ? PAGE - q->fill : n;
        memcpy(p->base + (size_t)q->tail * PAGE + q->fill, b, k);
        q->fill += (u32)k;
        q->len += (u32)k;
        b += k;
        n -= k;
    }
}

static void queue_drop(struct pool *p, struct queue *q, size_t n)
{
    while (n) {
        u32 end = q->pages == 1 ? q->fill : PAGE;
        size_t k = end - q->at < n ? end - q->at : n;
        q->at += (u32)k;
        q->len -= (u32)k;
        n -= k;
        if (q->at == end)
            page_drop(p, q);
    }
    if (!q->len && q->pages)
        page_drop(p, q);
}

/* Returns the contiguous bytes at a place, at most max; moves the place behind them. */
static size_t queue_piece(const struct pool *p, const struct queue *q, struct place *at, size_t max,
                          const char **ret)
{
    if (at->at == PAGE) {
        at->page = p->next[at->page];
        at->at = 0;
    }
    u32 end = at->page == q->tail ? q->fill : PAGE;
    size_t n = end - at->at < max ? end - at->at : max;
    *ret = p->base + (size_t)at->page * PAGE + at->at;
    at->at += (u32)n;
    return n;
}

static struct place queue_begin(const struct queue *q)
{
    return (struct place){q->head, q->at};
}

/* ---- output ---- */

static u64 output_end(const struct output *o)
{
    return o->base + o->q.len;
}

static size_t output_room(const struct output *o)
{
    size_t room = queue_room(&out_pool, &o->q), left = SPL_KEPT - o->q.len;

    return room < left ? room : left;
}

/* Fixes how much output there was at the exit. The number may go down: another reader of the pipe
 * may have taken some of it. */
static void output_settle(struct output *o, u64 at)
{
    if (!o->settled || at < o->at_exit)
        o->at_exit = at;
    o->settled = true;
}

static void output_over(struct entry *e, u32 i)
{
    struct output *o = &flow_of(e)->out[i];

    fd_close(&e->fd[SP_FD_OUT + i]);
    o->eof = true;
    if (e->r.state != SP_LIVE)
        output_settle(o, output_end(o));
}

/* Returns true if there may be more to read. */
static bool output_read(struct entry *e, u32 i)
{
    static char bytes[READ_MAX];
    struct output *o = &flow_of(e)->out[i];
    size_t room = output_room(o);
    bool pty = e->r.flags & SP_F_PTY, live = e->r.state == SP_LIVE;

    if (!room || e->fd[SP_FD_OUT + i] < 0)
        return false;
    long n = SYS(read, e->fd[SP_FD_OUT + i], bytes, room < sizeof bytes ? room : sizeof bytes);
    if (n > 0) {
        queue_put(&out_pool, &o->q, bytes, (size_t)n);
        if (!live && output_end(o) >= o->at_exit + PTY_REST)
            output_settle(o, output_end(o));
        return true;
    }
    if (n == -EINTR)
        return true;
    if (n == -EAGAIN) {
        if (!live)
            output_settle(o, output_end(o)); /* all output from before the exit has been read */
        return false;
    }
    if (pty && live)
        o->hung_up = true;
    else
        output_over(e, i);
    return false;
}

static void output_restart(struct output *o)
{
    o->sent = o->base;
    o->next = queue_begin(&o->q);
    o->eof_sent = false;
}

static void output_received(struct entry *e, u32 i, u64 offset, u32 credit)
{
    struct output *o = &flow_of(e)->out[i];
    spl_window w = {.limit = o->limit};
    u64 end = output_end(o), to = offset < end ? offset : end;

    spl_window_grant(&w, offset, credit);
    o->limit = w.limit;
    if (to <= o->base)
        return;
    queue_drop(&out_pool, &o->q, (size_t)(to - o->base));
    o->base = to;
    if (o->sent <= to) {
        o->sent = to;
        o->next = queue_begin(&o->q);
    }
    entry_maybe_free(e);
}

static struct sps_data output_head(const struct entry *e, u32 i)
{
    return (struct sps_data){
        {.type = SPS_STDIO, .id = e->r.id}, .a = i + 1, .offset = flow_of(e)->out[i].sent};
}

static bool output_send(struct entry *e, u32 i, size_t n)
{
    struct output *o = &flow_of(e)->out[i];
    struct sps_data d = output_head(e, i);
    char *to = link_begin(&d, sizeof d, n);

    if (!to)
        return false;
    if (o->sent == o->base) /* the queue may have been empty when the place was set */
        o->next = queue_begin(&o->q);
    o->sent += n;
    while (n) {
        const char *piece;
        size_t k = queue_piece(&out_pool, &o->q, &o->next, n, &piece);
        memcpy(to, piece, k);
        to += k;
        n -= k;
    }
    link_end();
    return true;
}

/* Returns true if something was sent. */
static bool output_flush(struct entry *e, u32 i)
{
    struct output *o = &flow_of(e)->out[i];
    u64 end = output_end(o), to = end < o->limit ? end : o->limit;

    if (o->sent < to)
        return output_send(e, i, to - o->sent < SEND_MAX ? (size_t)(to - o->sent) : SEND_MAX);
    if (!o->eof || o->eof_sent || o->sent < end)
        return false;
    struct sps_data d = output_head(e, i);
    o->eof_sent = link_send(&d, sizeof d) >= 0;
    return o->eof_sent;
}

/* ---- stdin ---- */

static void input_end(struct flow *f)
{
    queue_drop(&in_pool, &f->in, f->in.len);
    if (f->in_large)
        in_large -= IN_LARGE;
    f->in_large = false;
}

static void input_over(struct entry *e)
{
    struct flow *f = flow_of(e);

    fd_close(&e->fd[SP_FD_IN]);
    f->in_over = f->taken_due = true;
    input_end(f);
}

/* Ends stdin. A terminal gets the end-of-file character instead of a close alone. */
static void input_finish(struct entry *e)
{
    char end = 4;

    if (e->r.flags & SP_F_PTY && SYS(write, e->fd[SP_FD_IN], &end, 1) == -EAGAIN)
        return;
    fd_close(&e->fd[SP_FD_IN]);
    input_end(flow_of(e));
}

static void input_write(struct entry *e)
{
    struct flow *f = flow_of(e);

    while (e->fd[SP_FD_IN] >= 0 && f->in.len) {
        struct place at = queue_begin(&f->in);
        const char *piece;
        size_t n = queue_piece(&in_pool, &f->in, &at, f->in.len, &piece);
        long r = SYS(write, e->fd[SP_FD_IN], piece, n);
        if (r == -EINTR)
            continue;
        if (r == -EAGAIN)
            return;
        if (r <= 0) {
            input_over(e);
            return;
        }
        queue_drop(&in_pool, &f->in, (size_t)r);
        f->in_base += (u64)r;
        f->taken_due = true;
    }
    if (f->in_eof && e->fd[SP_FD_IN] >= 0)
        input_finish(e);
}

static u32 input_window(struct flow *f)
{
    if (!f->in_large && f->in_base && in_large + IN_LARGE <= IN_SHARED) {
        in_large += IN_LARGE;
        f->in_large = true;
    }
    return f->in_large ? SPL_STDIN_KEPT : SPL_STDIN_CREDIT;
}

static bool input_tell(struct entry *e)
{
    struct flow *f = flow_of(e);
    bool closed = e->fd[SP_FD_IN] < 0;
    struct sps_data d = {{.type = SPS_TAKEN, .id = e->r.id},
                         .b = closed ? 0 : input_window(f),
                         .offset = f->in_over ? UINT64_MAX : f->in_base};

    if (link_send(&d, sizeof d) < 0)
        return false;
    if (d.b && d.offset + d.b > f->in_limit)
        f->in_limit = d.offset + d.b;
    f->taken_due = false;
    return true;
}

static bool input_take(struct entry *e, const struct sps_data *d, const char *bytes, size_t n)
{
    struct flow *f = flow_of(e);
    u64 have = f->in_base + f->in.len;

    if (e->fd[SP_FD_IN] < 0)
        return true; /* the end of stdin was reported, or will be */
    if (d->offset > have || d->offset + n < d->offset || (n && d->offset + n > f->in_limit))
        return false;
    if (d->offset + n > have && !f->in_eof) {
        size_t skip = (size_t)(have - d->offset);
        queue_put(&in_pool, &f->in, bytes + skip, n - skip);
    }
    if (d->a & SPS_STDIN_EOF && d->offset + n == f->in_base + f->in.len)
        f->in_eof = true;
    input_write(e);
    return true;
}

/* ---- the flow of an exec ---- */

void flow_begin(struct entry *e)
{
    struct flow *f = flow_of(e);

    memset(f, 0, sizeof *f);
    f->on = true;
    f->in_over = e->fd[SP_FD_IN] < 0;
    f->taken_due = !f->in_over; /* follows STARTED */
    f->in_limit = SPL_STDIN_CREDIT;
    for (u32 i = 0; i < 2; i++) {
        f->out[i].limit = SPL_CREDIT;
        f->out[i].eof = e->fd[SP_FD_OUT + i] < 0; /* merged, or a terminal: no such stream */
    }
}

void flow_fetch(struct entry *e)
{
    struct flow *f = flow_of(e);

    f->on = f->taken_due = true;
    f->exit_sent = false;
    output_restart(&f->out[0]);
    output_restart(&f->out[1]);
    input_tell(e);
}

bool flow_is_on(const struct entry *e)
{
    return flow_of(e)->on;
}

void flow_hold_all(void)
{
    for (u32 i = 0; i < g.top; i++) {
        struct flow *f = &flows[i];
        f->on = false;
        for (u32 k = 0; k < 2; k++)
            f->out[k].limit = f->out[k].base + SPL_CREDIT;
    }
}

/* Called at the command's exit. Bytes in a pipe now were written before the end. A terminal does
 * not report how much it holds, so it is read until it is empty. */
void flow_exited(struct entry *e)
{
    struct flow *f = flow_of(e);

    for (u32 i = 0; i < 2; i++) {
        struct output *o = &f->out[i];
        int waiting = 0, fd = e->fd[SP_FD_OUT + i];
        o->at_exit = output_end(o);
        o->hung_up = false;
        if (fd < 0) {
            output_settle(o, o->at_exit);
        } else if (e->r.flags & SP_F_PTY) {
            while (output_read(e, i) && !o->settled)
                continue;
        } else {
            SYS(ioctl, fd, FIONREAD, &waiting);
            output_settle(o, o->at_exit + (u32)waiting);
        }
    }
}

/* Returns true if output is not yet received or its end not yet sent. */
static bool output_is_open(const struct output *o)
{
    return o->q.len || (o->eof && !o->eof_sent);
}

u32 flow_open_mask(const struct entry *e)
{
    const struct flow *f = flow_of(e);

    return (u32)output_is_open(&f->out[0]) << SP_FD_OUT | (u32)output_is_open(&f->out[1])
                                                              << SP_FD_ERR;
}

void flow_close(struct entry *e, u32 mask)
{
    struct flow *f = flow_of(e);

    if (mask & 1u << SP_FD_IN && !f->in_over) {
        f->in_over = f->taken_due = true;
        input_end(f);
    }
    for (u32 i = 0; i < 2; i++) {
        struct output *o = &f->out[i];
        if (!(mask & 1u << (SP_FD_OUT + i)))
            continue;
        u64 end = output_end(o);
        queue_drop(&out_pool, &o->q, o->q.len);
        o->base = o->sent = o->at_exit = end;
        o->settled |= e->r.state != SP_LIVE;
        o->eof = o->eof_sent = true; /* no reader waits for it */
    }
}

static bool exit_flush(struct entry *e)
{
    struct flow *f = flow_of(e);

    if (e->r.state == SP_LIVE || f->exit_sent)
        return false;
    for (u32 i = 0; i < 2; i++)
        if (!f->out[i].settled || f->out[i].sent < f->out[i].at_exit)
            return false;
    struct sp_exit x = {.h = {.type = SP_EXIT, .id = e->r.id}, .r = *entry_record(e)};
    f->exit_sent = link_send(&x, sizeof x) >= 0;
    return f->exit_sent;
}

static bool flush_entry(struct entry *e)
{
    struct flow *f = flow_of(e);
    bool sent = false;

    if (!f->on)
        return false;
    if (f->taken_due && link_has_room())
        sent |= input_tell(e);
    for (u32 i = 0; i < 2 && link_has_room(); i++)
        sent |= output_flush(e, i);
    if (link_has_room())
        sent |= exit_flush(e);
    entry_maybe_free(e); /* an end may have been the last message */
    return sent;
}

/* Gives each exec a turn, round after round, while there is room. The next call begins after the
 * exec that was served last. */
bool flow_flush(void)
{
    static u32 first;
    bool more = true;

    while (more && link_has_room()) {
        more = false;
        for (u32 n = g.top, i = 0; i < n && link_has_room(); i++) {
            u32 at = (first + i) % n;
            if (g.tab[at].used && flush_entry(&g.tab[at]))
                more = true;
            if (!link_has_room())
                first = at + 1;
        }
    }
    return more;
}

/* ---- messages ---- */

static void stream_resize(const struct entry *e, const struct sps_data *d)
{
    struct k_winsize size = {(unsigned short)d->a, (unsigned short)d->b, 0, 0};
    int fd = e->fd[SP_FD_IN] >= 0 ? e->fd[SP_FD_IN] : e->fd[SP_FD_OUT];

    if (e->r.flags & SP_F_PTY && d->a <= 0xffff && d->b <= 0xffff)
        SYS(ioctl, fd, TIOCSWINSZ, &size);
}

bool flow_message(const sps_message *m)
{
    const struct sps_data *d = m->record;

    if (m->size != sizeof *d || m->nextra > (m->type == SPS_STDIN ? SPS_CHUNK_MAX : 0))
        return false;
    struct entry *e = entry_find(d->h.id);
    if (m->type == SPS_RECEIVED && (d->a < 1 || d->a > 2))
        return false;
    if (!e)
        return true; /* the exec has been forgotten meanwhile */
    if (m->type == SPS_RECEIVED)
        output_received(e, d->a - 1, d->offset, d->b);
    else if (m->type == SPS_STDIN)
        return input_take(e, d, m->extra, m->nextra);
    else if (m->type == SPS_RESIZE)
        stream_resize(e, d);
    return true;
}

/* ---- polling ---- */

static struct {
    u32 n;
    unsigned short entry[FLOW_POLLS];
    unsigned char fd[FLOW_POLLS];
} polled;

static void stream_want(struct pollfd *ret, u32 entry, u32 fd, short events)
{
    ret[polled.n] = (struct pollfd){g.tab[entry].fd[fd], events, 0};
    polled.entry[polled.n] = (unsigned short)entry;
    polled.fd[polled.n++] = (unsigned char)fd;
}

u32 flow_poll(struct pollfd *ret)
{
    polled.n = 0;
    for (u32 i = 0; i < g.top; i++) {
        const struct entry *e = &g.tab[i];
        if (!e->used)
            continue;
        if (e->fd[SP_FD_IN] >= 0 && (flows[i].in.len || flows[i].in_eof))
            stream_want(ret, i, SP_FD_IN, POLLOUT);
        for (u32 k = 0; k < 2; k++)
            if (e->fd[SP_FD_OUT + k] >= 0 && !flows[i].out[k].hung_up &&
                output_room(&flows[i].out[k]))
                stream_want(ret, i, SP_FD_OUT + k, POLLIN);
    }
    return polled.n;
}

void flow_polled(const struct pollfd *p)
{
    for (u32 i = 0; i < polled.n; i++) {
        struct entry *e = &g.tab[polled.entry[i]];
        if (!p[i].revents || !e->used || e->fd[polled.fd[i]] != p[i].fd)
            continue;
        if (polled.fd[i] == SP_FD_IN)
            input_write(e);
        else
            output_read(e, polled.fd[i] - SP_FD_OUT);
    }
}
