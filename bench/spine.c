/* Claim and exec without bothyd: the warden's frames and init's records, one thread, nothing
 * between. What bothyd adds to this is HTTP, the store, the spool and the journal. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sock.h"
#include "wire/spine_codec.h"
#include "wire/wardenp.h"

#include "bench.h"

#define DEADLINE_MS 10000

static int warden = -1;
static uint64_t next_request;
static char rx[WP_FRAME_MAX + 1] __attribute__((aligned(8)));

static void must(err *e)
{
    if (e)
        fail("%s", e->message);
}

/* One request and its answer; the body's length. The body begins behind the header in rx. */
static size_t call(uint32_t type, const void *body, size_t n, int *ret_fd)
{
    struct wp_hdr h = {.type = type, .request = ++next_request};
    const struct iovec v[] = {{&h, sizeof h}, {(void *)body, n}};
    const struct wp_hdr *got = (const struct wp_hdr *)rx;
    size_t nfds;

    errno = -sock_send(warden, v, 2, NULL, 0, 0);
    if (errno)
        die("the warden's socket");
    ssize_t r = sock_recv(warden, rx, WP_FRAME_MAX, ret_fd, ret_fd != NULL, &nfds, 0);
    if (r < (ssize_t)sizeof *got || got->type != (type | WP_ANSWER) || got->request != h.request)
        fail("the warden does not answer %s", wp_type_name(type));
    rx[r] = 0;
    if (got->err)
        fail("%s: %s: %s", wp_type_name(type), strerrordesc_np(got->err),
             rx + sizeof *got + sizeof(struct wp_error));
    return (size_t)r - sizeof *got;
}

static const void *body(void)
{
    return rx + sizeof(struct wp_hdr);
}

void warden_open(const char *path)
{
    struct wp_hello hello = {.min = WP_VERSION, .max = WP_VERSION};

    must(sock_connect_path(path, SOCK_SEQPACKET, &warden));
    call(WP_HELLO, &hello, sizeof hello, NULL);
}

static unsigned gauge(const char *name)
{
    char line[96];

    snprintf(line, sizeof line, "\n%s ", name);
    const char *p = strstr(body(), line);
    if (!p)
        fail("the warden does not tell %s", name);
    return (unsigned)strtoul(p + strlen(line), NULL, 10);
}

void warden_pool(pool_state *ret_state)
{
    struct wp_watermarks ask = {0};

    call(WP_POOL, &ask, sizeof ask, NULL);
    ret_state->low = ((const struct wp_pool *)body())->low;
    ret_state->high = ((const struct wp_pool *)body())->high;
    ret_state->ready = ((const struct wp_pool *)body())->ready;
    ret_state->waiting = ((const struct wp_pool *)body())->waiting;
    call(WP_METRICS, NULL, 0, NULL);
    ret_state->dying = gauge("bothy_warden_slots_dying");
}

void warden_watermarks(unsigned low, unsigned high)
{
    struct wp_watermarks ask = {.low = low, .high = high, .flags = WP_POOL_SET};

    call(WP_POOL, &ask, sizeof ask, NULL);
}

/* ---- records ---- */

static void send_record(int fd, const spine_out *o)
{
    const struct iovec v = {o->record.p, o->record.len};

    errno = -sock_send(fd, &v, 1, NULL, 0, 0);
    if (errno)
        die("init's socket");
}

static const struct sp_hdr *receive(int fd, uint32_t type, int *fds, size_t *ret_nfds)
{
    const struct sp_hdr *h = (const struct sp_hdr *)rx;
    ssize_t n = sock_recv(fd, rx, WP_FRAME_MAX, fds, SP_FDS_MAX, ret_nfds, 0);
    const char *why = n > 0 ? spine_check_answer(rx, (size_t)n, *ret_nfds) : "no record";

    if (why || h->type != type || h->err)
        fail("init: %s (type %u, errno %d)", why ? why : "not the answer", h->type, h->err);
    return h;
}

static void claim_record(int fd)
{
    static char *const ENV[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                NULL};
    CLEANUP(spine_out_done) spine_out o = {0};
    int fds[SP_FDS_MAX];
    size_t nfds;

    must(spine_encode_claim(&(spine_claim){.user = "", .cwd = "", .env = ENV, .umask = 022}, &o));
    send_record(fd, &o);
    receive(fd, SP_DONE, fds, &nfds);
}

int slot_claim(const char *id, const uint8_t image[32])
{
    struct wp_claim c = {.deadline_ms = DEADLINE_MS};
    int fd = -1;

    memcpy(c.sandbox.id, id, strlen(id));
    memcpy(c.image.sha256, image, sizeof c.image.sha256);
    size_t n = call(WP_CLAIM, &c, sizeof c, &fd);
    if (fd < 0 || !wp_answer_ok(WP_CLAIM, body(), n))
        fail("the warden's answer to CLAIM is wrong");
    claim_record(fd);
    return fd;
}

/* Both pipes to their ends. */
static void drain(int *fds, size_t n)
{
    char bytes[65536];

    for (size_t i = 0; i < n; i++) {
        ssize_t k;
        do {
            struct pollfd p = {.fd = fds[i], .events = POLLIN};
            poll(&p, 1, -1);
            k = read(fds[i], bytes, sizeof bytes);
        } while (k > 0 || (k < 0 && errno == EAGAIN));
        close(fds[i]);
    }
}

void slot_run(int fd, uint64_t exec, char *const *argv)
{
    CLEANUP(spine_out_done) spine_out o = {0};
    int fds[SP_FDS_MAX], none[SP_FDS_MAX];
    size_t nfds, nnone;

    must(spine_encode_spawn(
        &(spine_spawn){.id = exec, .flags = SP_F_NOSTDIN, .umask = SP_UMASK_CLAIM, .argv = argv},
        &o));
    send_record(fd, &o);
    receive(fd, SP_STARTED, fds, &nfds);
    drain(fds, nfds);
    const struct sp_exit *x = (const struct sp_exit *)receive(fd, SP_EXIT, none, &nnone);
    if (x->r.state != SP_EXITED || x->r.status)
        fail("the command in the slot ended with %#x", (unsigned)x->r.status);
    struct sp_op ack = spine_ack(exec, 15);
    const struct iovec v = {&ack, sizeof ack};
    sock_send(fd, &v, 1, NULL, 0, 0);
}

void slot_destroy(const char *id, int fd)
{
    struct wp_id w = {0};

    memcpy(w.id, id, strlen(id));
    call(WP_DESTROY, &w, sizeof w, NULL);
    close(fd);
}
