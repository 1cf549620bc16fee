/* Runs one bothy-unpack: starts it with its descriptors, reads it to its end, and believes only its
 * status. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/spawn.h"
#include "base/str.h"
#include "warden/layers_priv.h"
#include "warden/meta.h"

#define REASON_MAX 400

enum { /* src/unpack/report.h */
    EXIT_REFUSED = 2,
    EXIT_DIGEST = 3,
};

typedef struct child {
    pid_t pid;
    int report, reason; /* read ends */
} child;

static void child_done(child *c)
{
    closep(&c->report);
    closep(&c->reason);
}

static err *warden_unpacking_start(const unpack_job *job, child *ret_child)
{
    char njoin[] = {(char)('0' + job->njoin), 0};
    char *const argv[] = {(char *)job->program,
                          "--format",
                          (char *)job->format,
                          "--diff-id",
                          (char *)job->diff_id.text,
                          "--join",
                          njoin,
                          NULL};
    int report[2], reason[2];

    if (pipe2(report, O_CLOEXEC))
        return err_sys(ERR_INTERNAL, errno, "cannot make a pipe");
    CLEANUP(closep) int report_wr = report[1];
    ret_child->report = report[0];
    if (pipe2(reason, O_CLOEXEC))
        return err_sys(ERR_INTERNAL, errno, "cannot make a pipe");
    CLEANUP(closep) int reason_wr = reason[1];
    ret_child->reason = reason[0];
    int fds[4 + LAYERS_JOIN_MAX] = {job->blob, report_wr, reason_wr, job->tree};
    memcpy(fds + 4, job->join, job->njoin * sizeof *fds);
    return spawn_start(&(spawn_spec){.argv = argv, .fds = fds, .nfds = 4 + job->njoin},
                       &ret_child->pid);
}

/* Takes what is there and keeps at most max bytes. Returns false at the end of the stream. */
static bool take_some(int fd, buf *to, size_t max)
{
    char block[16384];
    ssize_t n = read(fd, block, sizeof block);

    if (n > 0) {
        size_t room = to->len < max ? max - to->len : 0;
        buf_append(to, block, (size_t)n < room ? (size_t)n : room);
    }
    return n > 0 || (n < 0 && errno == EINTR);
}

/* Reads both streams to their end, or until the time is over. One byte above the ceiling is kept,
 * so that too much is noticed. */
static void unpacking_collect(child *c, uint64_t until, buf *report, buf *reason)
{
    struct pollfd p[] = {{c->report, POLLIN, 0}, {c->reason, POLLIN, 0}};

    while (p[0].fd >= 0 || p[1].fd >= 0) {
        uint64_t now = now_mono_ns();
        if (now >= until)
            return;
        int r = poll(p, 2, (int)((until - now) / NS_PER_MS + 1));
        if (r < 0 && errno != EINTR)
            return;
        if (r > 0 && p[0].revents && !take_some(p[0].fd, report, META_MAX + 1))
            p[0].fd = -1;
        if (r > 0 && p[1].revents && !take_some(p[1].fd, reason, REASON_MAX))
            p[1].fd = -1;
    }
}

/* Returns the first line, in visible characters: it is shown to people, and a stranger's bytes may
 * be in it. */
static const char *reason_of(buf *reason)
{
    char *text = (char *)buf_cstr(reason);
    const char *prefix = "bothy-unpack: ";

    text[strcspn(text, "\n")] = 0;
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
            *c = '?';
    return str_starts(text, prefix) ? text + strlen(prefix) : text;
}

static err *unpacking_failed(err_code code, int errnum, const char *what, const char *why)
{
    err *e = err_new(code, "%s", what);

    e->errnum = errnum;
    return *why ? err_because(e, "%s", why) : e;
}

static err *unpacking_judge(int status, buf *reason)
{
    const char *why = reason_of(reason);

    if (status == 0)
        return NULL;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_REFUSED)
        return unpacking_failed(ERR_IMAGE_UNSUPPORTED, EBADMSG, "a layer was refused", why);
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_DIGEST)
        return unpacking_failed(ERR_IMAGE_PULL_FAILED, EILSEQ, "a layer is not what it should be",
                                why);
    if (strstr(why, strerrordesc_np(ENOSPC)))
        return unpacking_failed(ERR_DISK_FULL, ENOSPC, "no room for a layer", why);
    return unpacking_failed(ERR_INTERNAL, EIO, "the unpacker failed", why);
}

err *unpacking_run(const unpack_job *job, char **ret_report, size_t *ret_n)
{
    CLEANUP(child_done) child c = {.report = -1, .reason = -1};
    CLEANUP(buf_done) buf report = {0};
    CLEANUP(buf_done) buf reason = {0};
    uint64_t until = now_mono_ns() + job->timeout_ms * NS_PER_MS;
    int status;

    TRY(warden_unpacking_start(job, &c));
    FAULT_KILL("unpack.started");
    unpacking_collect(&c, until, &report, &reason);
    uint64_t now = now_mono_ns();
    err *e = spawn_wait(c.pid, now >= until ? 1 : (until - now) / NS_PER_MS + 1, &status);
    if (e) {
        e->errnum = e->code == ERR_TIMEOUT ? ETIMEDOUT : e->errnum;
        return err_wrap(e, "unpacking a layer");
    }
    TRY(unpacking_judge(status, &reason));
    buf_cstr(&report);
    *ret_n = report.len;
    *ret_report = buf_take(&report);
    return NULL;
}
