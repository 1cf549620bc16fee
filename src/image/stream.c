/* Streams the layers of one image from the registry to the backend, without a copy on disk.
 *
 * skopeo returns each blob as a pipe, and the backend unpacks from a pipe. The pull's worker
 * splices between the two and counts bytes. A layer is accepted when the unpacker has confirmed its
 * diff id and skopeo has confirmed size and digest of the blob. Unpacked layers stay with the
 * backend, so a retried pull fetches only the missing ones.
 *
 * A lane is one layer under way. Its blob is requested, the first bytes show its format, then it
 * moves. The proxy answers one request at a time, and FinishPipe blocks it until the blob has
 * ended. So FinishPipe is sent only when all bytes have come, or when none came for a while: only
 * then does skopeo report a broken connection. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "image/images.h"
#include "image/skopeo.h"

#define HEAD_LEN    4 /* enough for every magic number */
#define SPLICE_MAX  (1u << 20)
#define PIPE_LEN    (1 << 20)
#define TICK_MS     250
#define WAIT_MS     50 /* poll interval for a layer that another pull fetches */
#define SILENCE_NS  (UINT64_C(2) * NS_PER_S)   /* after this FinishPipe is sent */
#define SILENCE_MAX (UINT64_C(120) * NS_PER_S) /* after this the pull fails */
#define LANES       IMAGE_LANES

typedef struct stream stream;

enum lane_state {
    LANE_FREE,
    LANE_OPENING, /* GetBlob is sent, or will be */
    LANE_MOVING,
    LANE_ENDING /* all bytes moved: waits for the unpacker */
};

typedef struct lane {
    stream *of;
    enum lane_state state;
    size_t layer;
    int blob, out; /* from skopeo; to the unpacker */
    uint32_t pipe; /* skopeo's number of the blob */
    uint64_t moved, heard_ns;
    char head[HEAD_LEN];
    size_t nhead; /* bytes in head, not passed on until the format is known */
    bool out_full;
    bool finish_asked, finished; /* FinishPipe: sent; answered without error */
    /* the unpacker's thread */
    bool started;
    pthread_t thread;
    int in;
    enum layer_format format;
    _Atomic bool unpacked; /* failure is set before this */
    err *failure;
    bool failed; /* the unpacker failed; the rest is read to learn whether the blob was whole */
} lane;

struct stream {
    const layer_source *src;
    image_store *s;
    enum {
        WANTED,
        MOVING,
        HERE
    } state[MANIFEST_LAYERS_MAX];
    bool waited[MANIFEST_LAYERS_MAX]; /* another pull was fetching it */
    lane lane[LANES];
    lane *asking; /* whose request is unanswered */
    int wake;
    uint64_t told_ns;
    const char *told_stage;
};

static const descriptor *blob_of(const lane *l)
{
    return &l->of->src->manifest->layer[l->layer];
}

static const uint8_t *diff_of(const stream *t, size_t layer)
{
    return t->src->config->diff_ids[layer];
}

/* ---- who fetches what ---- */

/* Claims a layer. Returns false if it is being fetched already, by another pull or as an equal
 * layer of this image. */
static bool claim_layer(stream *t, size_t layer)
{
    char hex[65];

    hex_encode(diff_of(t, layer), 32, hex);
    LOCK_SCOPE(&t->s->lock);
    if (map_get_str(&t->s->fetching, hex))
        return false;
    map_put_str(&t->s->fetching, hex, t);
    return true;
}

static void release_layer(stream *t, size_t layer)
{
    char hex[65];

    hex_encode(diff_of(t, layer), 32, hex);
    LOCK_SCOPE(&t->s->lock);
    map_take_str(&t->s->fetching, hex);
}

static err *ask_backend(stream *t, size_t from, size_t n)
{
    backend *b = t->s->o.backend;
    bool here[MANIFEST_LAYERS_MAX] = {0};

    if (!n || !b->ops->layers)
        return NULL;
    TRY(b->ops->layers(b, (const uint8_t(*)[32])t->src->config->diff_ids + from, n, here));
    for (size_t i = 0; i < n; i++)
        if (here[i])
            t->state[from + i] = HERE;
    return NULL;
}

/* Finds and claims the next layer to fetch. *ret_found is false if all that are missing are being
 * fetched elsewhere. */
static err *next_layer(stream *t, size_t *ret_layer, bool *ret_found)
{
    *ret_found = false;
    for (size_t i = 0; i < t->src->manifest->nlayers; i++) {
        if (t->state[i] != WANTED)
            continue;
        if (!claim_layer(t, i)) {
            t->waited[i] = true;
            continue;
        }
        err *e = t->waited[i] ? ask_backend(t, i, 1) : NULL;
        if (e || t->state[i] == HERE)
            release_layer(t, i);
        if (e)
            return e;
        if (t->state[i] == HERE)
            continue;
        t->state[i] = MOVING;
        *ret_layer = i;
        *ret_found = true;
        return NULL;
    }
    return NULL;
}

/* ---- the unpacker ---- */

static void *run_unpacker(void *arg)
{
    lane *l = arg;
    backend *b = l->of->s->o.backend;

    l->failure = b->ops->unpack(b, diff_of(l->of, l->layer), (int)l->format, l->in);
    close(l->in);
    atomic_store(&l->unpacked, true);
    (void)!write(l->of->wake, &(uint64_t){1}, sizeof(uint64_t));
    return NULL;
}

/* Returns the format by the bytes, not by the manifest's type: archives of docker save call plain
 * tars compressed, and other tools do the same. */
static enum layer_format format_of(const char *head, size_t n)
{
    if (n >= 2 && !memcmp(head, "\x1f\x8b", 2))
        return LAYER_GZIP;
    return n >= 4 && !memcmp(head, "\x28\xb5\x2f\xfd", 4) ? LAYER_ZSTD : LAYER_PLAIN;
}

static err *start_unpacker(lane *l)
{
    int p[2];

    if (pipe2(p, O_CLOEXEC))
        return err_sys(ERR_INTERNAL, errno, "cannot make a pipe");
    l->in = p[0];
    l->out = p[1];
    (void)!fcntl(l->out, F_SETPIPE_SZ, PIPE_LEN); /* a smaller pipe works, but slower */
    (void)!write(l->out, l->head, l->nhead);      /* the pipe is empty: it fits */
    fcntl(l->out, F_SETFL, O_NONBLOCK);
    l->format = format_of(l->head, l->nhead);
    l->nhead = HEAD_LEN + 1;
    err *e = thread_try_start("layer", run_unpacker, l, &l->thread);
    if (e) {
        close(TAKE_FD(l->in));
        return e;
    }
    l->started = true;
    FAULT_KILL("pull.handing_over");
    return NULL;
}

/* ---- questions ---- */

static json_t *blob_args(const lane *l)
{
    char text[72] = "sha256:";

    hex_encode(blob_of(l)->sha256, 32, text + strlen("sha256:"));
    return json_pack("[I, s, I]", (json_int_t)l->of->src->image, text,
                     (json_int_t)blob_of(l)->size);
}

/* Returns for how long skopeo has sent nothing although there was room. */
static uint64_t silence_of(const lane *l, uint64_t now)
{
    return l->out_full || now < l->heard_ns ? 0 : now - l->heard_ns;
}

static bool wants_finish(const lane *l, uint64_t now)
{
    return l->state == LANE_MOVING && !l->finish_asked &&
           (l->moved == blob_of(l)->size || silence_of(l, now) > SILENCE_NS);
}

/* Sends the next request. FinishPipe goes first, because it is answered at once and frees a lane.
 */
static err *ask_next(stream *t, uint64_t now)
{
    for (lane *l = t->lane; l < t->lane + LANES && !t->asking; l++)
        if (wants_finish(l, now)) {
            l->finish_asked = true;
            t->asking = l;
            TRY(proxy_ask(t->src->proxy, "FinishPipe", json_pack("[I]", (json_int_t)l->pipe)));
        }
    for (lane *l = t->lane; l < t->lane + LANES && !t->asking; l++)
        if (l->state == LANE_OPENING) {
            t->asking = l;
            TRY(proxy_ask(t->src->proxy, "GetBlob", blob_args(l)));
        }
    return NULL;
}

static err *take_answer(stream *t)
{
    CLEANUP(proxy_reply_done) proxy_reply r = {.fd = -1};
    lane *l = t->asking;

    TRY(proxy_answer(t->src->proxy, &r));
    if (!l)
        return err_new(ERR_INTERNAL, "skopeo answered what nobody asked");
    t->asking = NULL;
    if (l->finish_asked) {
        l->finished = true;
        return NULL;
    }
    if (r.fd < 0)
        return err_new(ERR_INTERNAL, "skopeo's answer has no content");
    l->blob = TAKE_FD(r.fd);
    l->pipe = r.pipe;
    l->heard_ns = now_mono_ns();
    l->state = LANE_MOVING;
    fcntl(l->blob, F_SETFL, O_NONBLOCK);
    (void)!fcntl(l->blob, F_SETPIPE_SZ, PIPE_LEN);
    return NULL;
}

/* ---- bytes ---- */

static err *broke_off(const lane *l)
{
    err *e = err_because(
        err_new(ERR_IMAGE_PULL_FAILED, "image '%.200s' cannot be fetched", l->of->src->reference),
        "a layer ended after %llu of %llu bytes", (unsigned long long)l->moved,
        (unsigned long long)blob_of(l)->size);
    e->errnum = FETCH_AGAIN;
    return e;
}

static err *read_head(lane *l)
{
    uint64_t size = blob_of(l)->size;
    size_t want = size < HEAD_LEN ? (size_t)size : HEAD_LEN;

    while (l->nhead < want) {
        ssize_t n = read(l->blob, l->head + l->nhead, want - l->nhead);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR
                       ? NULL
                       : err_sys(ERR_INTERNAL, errno, "cannot read a layer");
        if (n == 0) {
            close(TAKE_FD(l->blob));
            return NULL;
        }
        l->nhead += (size_t)n;
        l->moved += (uint64_t)n;
        l->heard_ns = now_mono_ns();
    }
    return start_unpacker(l);
}

/* Discards the rest of the blob after the unpacker has ended. */
static err *read_on_for_nothing(lane *l)
{
    closep(&l->out);
    l->out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    l->out_full = false;
    l->failed = true;
    return l->out < 0 ? err_sys(ERR_INTERNAL, errno, "cannot open /dev/null") : NULL;
}

static bool is_started(const lane *l)
{
    return l->nhead > HEAD_LEN;
}

static err *move_some(lane *l)
{
    uint64_t left = blob_of(l)->size - l->moved;

    if (!is_started(l))
        return read_head(l);
    if (!left)
        return NULL;
    ssize_t n = splice(l->blob, NULL, l->out, NULL, left < SPLICE_MAX ? (size_t)left : SPLICE_MAX,
                       SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    if (n > 0) {
        FAULT_KILL("pull.moved");
        l->moved += (uint64_t)n;
        l->heard_ns = now_mono_ns();
        l->out_full = false;
        return NULL;
    }
    if (n == 0) {
        close(TAKE_FD(l->blob));
        return NULL;
    }
    if (errno == EPIPE)
        return read_on_for_nothing(l);
    if (errno != EAGAIN && errno != EINTR)
        return err_sys(ERR_INTERNAL, errno, "cannot move a layer");
    struct pollfd p = {l->blob, POLLIN, 0};
    l->out_full = poll(&p, 1, 0) > 0; /* skopeo has data, so the unpacker's pipe is full */
    return NULL;
}

/* ---- a lane's end ---- */

static void lane_clear(lane *l)
{
    closep(&l->blob);
    closep(&l->out);
    if (l->started)
        pthread_join(l->thread, NULL);
    if (l->state != LANE_FREE)
        release_layer(l->of, l->layer);
    err_free(l->failure);
    *l = (lane){.of = l->of, .blob = -1, .out = -1, .in = -1};
}

/* Ends a lane; the unpacker's result decides about the layer. */
static err *end_lane(lane *l)
{
    err *e = TAKE_PTR(l->failure);
    stream *t = l->of;
    size_t layer = l->layer;

    t->state[layer] = e ? WANTED : HERE;
    lane_clear(l);
    return e;
}

/* Returns true if the error is about the blob's content. Other errors need not wait for the blob's
 * end. */
static bool is_about_content(const err *e)
{
    return e->code == ERR_IMAGE_UNSUPPORTED || e->code == ERR_IMAGE_PULL_FAILED;
}

/* Returns true if the pipe ended too early. If FinishPipe was sent, waits for its answer first,
 * because skopeo knows the reason. */
static bool is_cut_off(const lane *l)
{
    return l->state == LANE_MOVING && l->blob < 0 && l->moved < blob_of(l)->size &&
           (l->finished || !l->finish_asked);
}

static err *check_lane(lane *l, uint64_t now)
{
    bool unpacked = l->started && atomic_load(&l->unpacked);

    if (unpacked && l->failure && !is_about_content(l->failure))
        return end_lane(l);
    if (unpacked && l->failure && !l->failed)
        TRY(read_on_for_nothing(l));
    if (is_cut_off(l))
        return broke_off(l);
    if (l->state == LANE_MOVING && l->moved == blob_of(l)->size && is_started(l)) {
        if (l->blob >= 0)
            close(TAKE_FD(l->blob)); /* skopeo notices if the blob is too long */
        if (l->finished) {
            closep(&l->out);
            l->out = -1;
            l->state = LANE_ENDING;
        }
    }
    if (l->state == LANE_ENDING && atomic_load(&l->unpacked))
        return end_lane(l);
    if (l->state == LANE_MOVING && silence_of(l, now) > SILENCE_MAX)
        return err_new(ERR_IMAGE_PULL_FAILED, "the registry of '%.200s' sends nothing any more",
                       l->of->src->reference);
    return NULL;
}

/* ---- progress ---- */

static void stream_tell(stream *t, uint64_t now, bool always)
{
    const manifest *m = t->src->manifest;
    pull_progress p = {.stage = "fetch", .layers = (unsigned)m->nlayers};

    for (size_t i = 0; i < m->nlayers; i++) {
        p.bytes += m->layer[i].size;
        p.bytes_done += t->state[i] == HERE ? m->layer[i].size : 0;
        p.layers_done += t->state[i] == HERE;
    }
    for (lane *l = t->lane; l < t->lane + LANES; l++)
        p.bytes_done += l->state == LANE_FREE ? 0 : l->moved;
    if (p.bytes_done == p.bytes)
        p.stage = "unpack";
    if (!always && now - t->told_ns < TICK_MS * NS_PER_MS && str_eq(t->told_stage, p.stage))
        return;
    t->told_ns = now;
    t->told_stage = p.stage;
    t->src->progress->tell(t->src->progress->arg, &p);
}

/* ---- the loop ---- */

static err *fill_lanes(stream *t)
{
    for (lane *l = t->lane; l < t->lane + LANES; l++) {
        bool found;
        size_t layer;
        if (l->state != LANE_FREE)
            continue;
        TRY(next_layer(t, &layer, &found));
        if (!found)
            return NULL;
        l->layer = layer;
        l->state = LANE_OPENING;
    }
    return NULL;
}

static bool is_complete(const stream *t)
{
    for (size_t i = 0; i < t->src->manifest->nlayers; i++)
        if (t->state[i] != HERE)
            return false;
    return true;
}

enum {
    P_STOP,
    P_WAKE,
    P_PROXY,
    P_LANE
};

static err *wait_for_something(stream *t, struct pollfd p[static P_LANE + LANES])
{
    const skopeo_limit *limit = t->src->limit;
    uint64_t now = now_mono_ns(), drained;
    bool waits = false;

    p[P_STOP] = (struct pollfd){limit->stop_fd, POLLIN, 0};
    p[P_WAKE] = (struct pollfd){t->wake, POLLIN, 0};
    p[P_PROXY] = (struct pollfd){proxy_fd(t->src->proxy), POLLIN, 0};
    for (size_t i = 0; i < LANES; i++) {
        const lane *l = &t->lane[i];
        p[P_LANE + i] = l->state != LANE_MOVING || l->blob < 0 ? (struct pollfd){-1, 0, 0}
                        : l->out_full                          ? (struct pollfd){l->out, POLLOUT, 0}
                                      : (struct pollfd){l->blob, POLLIN, 0};
        waits |= l->state == LANE_FREE;
    }
    if (now >= limit->until)
        return err_new(ERR_TIMEOUT, "image '%.200s' did not come in time", t->src->reference);
    if (poll(p, P_LANE + LANES, waits ? WAIT_MS : TICK_MS) < 0 && errno != EINTR)
        return err_sys(ERR_INTERNAL, errno, "cannot wait for layers");
    if (p[P_STOP].revents)
        return err_new(ERR_DRAINING, "the node is going down");
    if (p[P_WAKE].revents)
        (void)!read(t->wake, &drained, sizeof drained);
    return NULL;
}

static err *stream_step(stream *t)
{
    struct pollfd p[P_LANE + LANES] = {0};

    TRY(fill_lanes(t));
    TRY(ask_next(t, now_mono_ns()));
    TRY(wait_for_something(t, p));
    uint64_t now = now_mono_ns();
    if (p[P_PROXY].revents)
        TRY(take_answer(t));
    for (size_t i = 0; i < LANES; i++) {
        lane *l = &t->lane[i];
        if (l->state == LANE_MOVING && l->blob >= 0 && p[P_LANE + i].revents)
            TRY(move_some(l));
        if (l->state == LANE_MOVING && !is_started(l) && !blob_of(l)->size)
            TRY(read_head(l));
        if (l->state != LANE_FREE)
            TRY(check_lane(l, now));
    }
    stream_tell(t, now, false);
    return NULL;
}

/* Cleans up after success or failure. The unpackers' threads end because their pipes are closed. */
static void stream_finish(stream *t)
{
    for (lane *l = t->lane; l < t->lane + LANES; l++)
        lane_clear(l);
    closep(&t->wake);
}

err *stream_layers(image_store *s, const layer_source *src)
{
    CLEANUP(freep) stream *t = xcalloc(1, sizeof *t);
    err *e = NULL;

    if (s->o.backend->caps.images == CAP_ABSENT)
        return NULL;
    *t = (stream){.src = src, .s = s, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    for (size_t i = 0; i < LANES; i++)
        t->lane[i] = (lane){.of = t, .blob = -1, .out = -1, .in = -1};
    if (t->wake < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot make an event descriptor");
    e = ask_backend(t, 0, src->manifest->nlayers);
    if (!e)
        stream_tell(t, now_mono_ns(), true);
    while (!e && !is_complete(t))
        e = stream_step(t);
    stream_finish(t);
    return e;
}
