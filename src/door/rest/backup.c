/* GET /v1/backup: the request's thread makes the copy, the relay sends it. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/openapi.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "door/rest/internal.h"

#define STEP_BYTES (64u << 10)

typedef struct copy_job {
    int fd;
    off_t at, size;
    char *request_id;
} copy_job;

static enum relay_next on_step(void *ctx, relay_io *io)
{
    copy_job *j = ctx;
    char part[STEP_BYTES];

    if (io->stalled)
        return RELAY_CLOSE;
    if (!j->at)
        http_head_write(io->out, &(http_head){.status = 200,
                                              .type = "application/vnd.sqlite3",
                                              .length = j->size,
                                              .keep_alive = io->keep_alive,
                                              .request_id = j->request_id});
    ssize_t n = pread(j->fd, part, sizeof part, j->at);
    if (n <= 0)
        /* the file is shorter than the promised length, which the peer notices */
        return RELAY_CLOSE;
    buf_append(io->out, part, (size_t)n);
    j->at += n;
    if (j->at < j->size)
        return RELAY_MORE;
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static void on_free(void *ctx)
{
    copy_job *j = ctx;

    close(j->fd);
    free(j->request_id);
    free(j);
}

static const relay_ops COPY_OPS = {.kind = STREAM_ANSWER, .step = on_step, .free = on_free};

err *rest_backup_get(request *rq, response *rs)
{
    CLEANUP(closep) int fd = -1;
    struct stat st;

    TRY(engine_backup(rest_engine(rq), rest_caller(rq), &fd));
    if (fstat(fd, &st) || !st.st_size)
        return err_sys(ERR_INTERNAL, errno, "cannot look at the copy");
    copy_job *j = xcalloc(1, sizeof *j);
    *j = (copy_job){.fd = TAKE_FD(fd), .size = st.st_size, .request_id = xstrdup(request_id(rq))};
    response_relay(rs, &COPY_OPS, j);
    return NULL;
}
