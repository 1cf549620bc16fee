/* Execs under a pid 1 that is a tenant's: a journal of an earlier life, then what the box tells, in
 * any order. Whatever it is, every exec has one end when the sandbox has ended, reading the journal
 * again finds the same, ids go up, and no descriptor stays behind.
 *
 * First byte: 1 for the frames form, 6 how many tunnels are begun behind them, each of which is
 * told of once, 8 that ids may be those of tunnels of an earlier life. Then how many execs began
 * before and how many of those have ended. Then events: a letter's byte, an exec's number, and what
 * it needs. */
#include <sys/mman.h>
#include <sys/socket.h>

#include "wire/spine_codec.h"

#include "exec_world.h"

#define IDS    8
#define EVENTS 48

/* ---- the backend ---- */

static void no_ref(box *x)
{
    (void)x;
}

static err *no_exec(box *x, uint64_t id, const exec_spec *spec, int keep)
{
    (void)x, (void)id, (void)spec, (void)keep;
    return NULL;
}

static err *no_fetch(box *x, uint64_t id)
{
    (void)x, (void)id;
    return NULL;
}

static err *no_signal(box *x, const signal_spec *s)
{
    (void)x, (void)s;
    return NULL;
}

static void no_answer(box *x, uint64_t id, uint32_t mask)
{
    (void)x, (void)id, (void)mask;
}

static void no_received(box *x, uint64_t id, int stream, uint64_t offset)
{
    (void)x, (void)id, (void)stream, (void)offset;
}

static err *no_stdin(box *x, uint64_t id, uint64_t offset, const void *p, size_t n, bool eof)
{
    (void)x, (void)id, (void)offset, (void)p, (void)n, (void)eof;
    return NULL;
}

static err *no_usage(backend *b, const char *id, box_usage *ret_usage)
{
    (void)b, (void)id, (void)ret_usage;
    return err_new(ERR_UNSUPPORTED, "there is none");
}

static const backend_ops OPS = {.exec = no_exec,
                                .fetch = no_fetch,
                                .signal = no_signal,
                                .close = no_answer,
                                .ack = no_answer,
                                .received = no_received,
                                .stdin_write = no_stdin,
                                .usage = no_usage,
                                .box_ref = no_ref,
                                .box_unref = no_ref};

/* ---- an earlier life ---- */

static void write_journal(unsigned begun, unsigned ended, uint8_t flags, bool ids)
{
    CLEANUP(closep) int fd = world_journal();
    journal_rec given = {.type = JOURNAL_IDS, .exec = 1, .ids = {.until = IDS}};

    journal_seal(&given);
    if (ids)
        MUST(!fs_write_all(fd, &given, sizeof given));

    for (unsigned i = 1; i <= begun; i++) {
        journal_rec r = {.type = JOURNAL_BEGIN, .exec = i, .begin = {.flags = flags, .real_ns = 1}};
        journal_seal(&r);
        MUST(!fs_write_all(fd, &r, sizeof r));
        if (i > ended)
            continue;
        r = (journal_rec){.type = JOURNAL_END, .exec = i, .end = {.how = 1}};
        r.end.rec = (struct sp_rec){.id = i, .state = SP_EXITED, .pid = 2};
        journal_seal(&r);
        MUST(!fs_write_all(fd, &r, sizeof r));
    }
}

/* ---- tunnels ---- */

#define TUNNELS 3
static struct peer {
    pthread_mutex_t lock;
    bool asked, told;
    int fd;
} peers[TUNNELS] = {{.lock = PTHREAD_MUTEX_INITIALIZER},
                    {.lock = PTHREAD_MUTEX_INITIALIZER},
                    {.lock = PTHREAD_MUTEX_INITIALIZER}};

static void on_tunnel(void *arg, err *failure, int fd)
{
    struct peer *p = arg;

    LOCK_SCOPE(&p->lock);
    MUST(p->asked && !p->told && (fd < 0) == (failure != NULL));
    p->told = true;
    p->fd = fd;
    err_free(failure);
}

static void begin_tunnels(exec_table *t, unsigned n)
{
    exec_spec spec = {.argv = (char *[]){"x", NULL}, .exec_fd = -1, .timeout_ms = 60000};

    for (unsigned i = 0; i < TUNNELS; i++) {
        peers[i].asked = i < n;
        peers[i].told = false;
        peers[i].fd = -1;
        spec.stdin_open = i != 1;
        if (i < n)
            MUST(!exec_tunnel(t, &spec, 1 + 2 * i, on_tunnel, &peers[i]));
    }
}

static void peer_acts(fuzz_in *in)
{
    struct peer *p = &peers[fuzz_byte(in) % TUNNELS];
    uint8_t what = fuzz_byte(in) % 4;
    char some[256] = "what a caller says";

    LOCK_SCOPE(&p->lock);
    if (what == 0)
        closep(&p->fd), p->fd = -1;
    else if (what == 1)
        shutdown(p->fd, SHUT_WR);
    else if (what == 2)
        (void)!send(p->fd, some, sizeof some, MSG_DONTWAIT | MSG_NOSIGNAL);
    else
        (void)!recv(p->fd, some, sizeof some, MSG_DONTWAIT);
}

static bool tunnels_are_told(exec_table *t)
{
    (void)t;
    for (int i = 0; i < TUNNELS; i++) {
        LOCK_SCOPE(&peers[i].lock);
        if (peers[i].asked && !peers[i].told)
            return false;
    }
    return true;
}

static bool no_tunnel_is_left(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    return !t->tunnels.count && !atomic_load(&t->ntunnels);
}

static void end_tunnels(exec_table *t)
{
    world_wait(tunnels_are_told, t);
    for (int i = 0; i < TUNNELS; i++)
        closep(&peers[i].fd);
    world_wait(no_tunnel_is_left, t);
    MUST(!atomic_load(&hub->tunnel_bytes));
}

/* ---- events ---- */

static struct sp_rec make_rec(fuzz_in *in, uint64_t id)
{
    struct sp_rec r = {.id = id, .state = SP_LIVE + fuzz_byte(in) % 3, .pid = 2 + fuzz_byte(in)};

    r.status = r.state == SP_EXITED ? (fuzz_byte(in) & 0x7e) << 8 : fuzz_byte(in);
    r.stage = fuzz_byte(in) % 12;
    r.open = fuzz_byte(in) & 15;
    r.end_real = fuzz_number(in, 8);
    return r;
}

static void tell_attached(exec_table *t, fuzz_in *in)
{
    struct {
        struct sp_hello h;
        struct sp_rec r[4];
    } m = {.h = {.h = {.type = SP_HELLO}, .version = SP_VERSION, .capacity = SP_MAX_EXEC}};

    m.h.nrec = fuzz_byte(in) % 5;
    m.h.high = fuzz_byte(in) & 0x80 ? fuzz_number(in, 8) : IDS;
    for (uint32_t i = 0; i < m.h.nrec; i++)
        m.r[i] = make_rec(in, 1 + fuzz_byte(in) % IDS);
    size_t n = sizeof m.h + m.h.nrec * sizeof *m.r;
    if (!spine_check_answer(&m, n, 0))
        EXEC_BOX_EVENTS.attached(t, &m.h, m.r);
}

/* Descriptors as oci_check_fds() lets them pass: pipes the right way round, a file to keep. */
static void make_fds(uint32_t mask, int fd[SP_FDS_MAX])
{
    for (int i = 0; i < SP_FDS_MAX; i++) {
        int p[2];
        fd[i] = -1;
        if (!(mask & 1u << i))
            continue;
        if (i == SP_FD_KEEP) {
            fd[i] = memfd_create("fuzz", MFD_CLOEXEC);
            continue;
        }
        MUST(!pipe2(p, O_CLOEXEC | O_NONBLOCK));
        if (i != SP_FD_IN && write(p[1], "out", 3) != 3)
            abort();
        fd[i] = p[i == SP_FD_IN];
        close(p[i != SP_FD_IN]);
    }
}

static void tell_started(exec_table *t, fuzz_in *in, uint64_t id, bool frames)
{
    int fd[SP_FDS_MAX];
    struct sp_started st = {.h = {.type = SP_STARTED, .id = id}, .pid = 2 + fuzz_byte(in)};

    st.h.err = fuzz_byte(in) & 1 ? fuzz_byte(in) : 0;
    st.fds = st.h.err || frames ? 0 : fuzz_byte(in) & 15;
    if (spine_check_answer(&st, sizeof st, (size_t)__builtin_popcount(st.fds)))
        return;
    make_fds(st.fds, fd);
    EXEC_BOX_EVENTS.started(t, id, st.h.err, &st, fd);
}

static void tell_frame(exec_table *t, fuzz_in *in, uint64_t id)
{
    int stream = fuzz_byte(in) % 4;
    uint64_t offset = fuzz_byte(in) & 0x80 ? fuzz_number(in, 8) : fuzz_byte(in);
    size_t n = 0;
    void *p = fuzz_bytes(in, fuzz_byte(in), &n);

    EXEC_BOX_EVENTS.frame(t, id, stream, offset, p, n);
    free(p);
}

static void tell(exec_table *t, fuzz_in *in, bool frames, bool tunnels)
{
    uint8_t what = fuzz_byte(in) % 6;
    uint64_t id = 1 + fuzz_byte(in) % (IDS + 1);

    if (what == 0) {
        tell_attached(t, in);
    } else if (what == 1) {
        tell_started(t, in, id, frames);
    } else if (what == 2) {
        struct sp_exit x = {.h = {.type = SP_EXIT, .id = id}, .r = make_rec(in, id)};
        if (!spine_check_answer(&x, sizeof x, 0))
            EXEC_BOX_EVENTS.exited(t, &x.r);
    } else if (what == 3 && frames) {
        tell_frame(t, in, id);
    } else if (what == 4 && frames) {
        EXEC_BOX_EVENTS.stdin_taken(t, id, fuzz_number(in, 8));
    } else if (what == 5 && tunnels) {
        peer_acts(in);
    } else {
        EXEC_BOX_EVENTS.signalled(t, id, 0, fuzz_byte(in));
    }
}

/* ---- the end ---- */

static size_t check_ends(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    for (size_t i = 0; i < t->npast; i++)
        MUST(t->past[i].end && (!i || t->past[i].id > t->past[i - 1].id));
    MUST(!t->npast || t->next_id > t->past[t->npast - 1].id);
    MUST(t->next_id); /* it has not gone round */
    return t->npast;
}

static int count_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 128; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void run(fuzz_in *in)
{
    uint8_t form = fuzz_byte(in);
    bool frames = form & 1;
    backend b = {.ops = &OPS, .caps = {.frames = frames}};
    unsigned begun = fuzz_byte(in) % IDS, ended = fuzz_byte(in) % (begun + 1);
    exec_table *t = NULL;
    int nothing;

    write_journal(begun, ended, fuzz_byte(in), form & 8);
    MUST(!exec_table_open(hub, BOX, &t));
    exec_table_bind(t, &b, (box *)&nothing, NULL, NULL);
    begin_tunnels(t, (form & 6) >> 1);
    for (int i = 0; i < EVENTS && in->n; i++)
        tell(t, in, frames, form & 6);
    EXEC_BOX_EVENTS.gone(t, "it was fuzzed");
    exec_table_end(t);
    end_tunnels(t);
    world_wait(no_exec_lives, t);
    size_t first = check_ends(t);
    exec_table_unref(t);
    world_wait(no_table_is_open, NULL);
    MUST(!exec_table_open(hub, BOX, &t));
    MUST(check_ends(t) == first);
    exec_table_unref(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};

    world_make();
    int before = count_fds();
    run(&in);
    world_wait(no_table_is_open, NULL);
    for (int i = 0; i < 2000 && count_fds() != before; i++) {
        pthread_cond_signal(
            &hub->sync_wake); /* journals are synced and closed now, not in a second */
        usleep(1000);         /* others are closed behind the table's end */
    }
    MUST(count_fds() == before);
    err_free(fs_remove(dir, BOX));
    return 0;
}
