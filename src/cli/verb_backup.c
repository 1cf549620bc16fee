/* bothy backup: writes a copy of the daemon's store. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

typedef struct backup_args {
    common_args common;
} backup_args;

static const opt OPTS[] = {COMMON_OPTS(backup_args)};

typedef struct saving {
    int fd;
    uint64_t bytes;
    int errnum;
} saving;

static bool on_bytes(void *arg, const void *p, size_t n)
{
    saving *s = arg;

    s->errnum = -fs_write_all(s->fd, p, n);
    s->bytes += n;
    return !s->errnum;
}

static err *backup_fetch(cli *c, saving *s)
{
    CLEANUP(client_answer_done) client_answer answer = {0};
    const client_call call = {.method = "GET",
                              .path = "/v1/backup",
                              .accept = "application/vnd.sqlite3",
                              .on_bytes = on_bytes,
                              .arg = s};

    TRY(cli_connect(c));
    CLEANUP(err_freep) err *e = client_do(c->client, &call, &answer);
    if (s->errnum)
        return err_sys(s->errnum == ENOSPC ? ERR_DISK_FULL : ERR_INTERNAL, s->errnum,
                       "cannot write the copy");
    return TAKE_PTR(e);
}

/* Writes to another name until the copy is complete and on the disk. */
static err *into_file(cli *c, const char *path, saving *s)
{
    CLEANUP(freep) char *part = str_printf("%s.part", path);

    if (!access(path, F_OK))
        return err_remedy(err_new(ERR_CONFLICT, "%s is there already", path),
                          "Give another name: a copy is never written over.");
    s->fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (s->fd < 0)
        return err_sys(ERR_INVALID_REQUEST, errno, "cannot make %s", part);
    err *e = backup_fetch(c, s);
    if (!e && (fsync(s->fd) || link(part, path)))
        e = err_sys(ERR_INTERNAL, errno, "cannot keep the copy as %s", path);
    close(s->fd);
    unlink(part);
    return e;
}

static err *backup_run(cli *c, void *args, const opt_words *words, int *status)
{
    saving s = {.fd = STDOUT_FILENO};
    const char *path = words->v[0];

    (void)args, (void)status;
    if (str_eq(path, "-"))
        return backup_fetch(c, &s);
    TRY(into_file(c, path, &s));
    if (c->common.json) {
        CLEANUP(json_decrefp)
        json_t *j = json_pack("{s:s,s:I}", "file", path, "bytes", (json_int_t)s.bytes);
        out_json(stdout, j);
        return NULL;
    }
    printf("%s: %" PRIu64 " bytes: sandboxes, keys (hashes), images, events as of now\n", path,
           s.bytes);
    fputs(
        "bothy: not in it: what commands wrote, layers of images, logins. After 'bothyd --restore'\n"
        "bothy: sandboxes that were made since are destroyed, and keys removed since are valid again.\n",
        stderr);
    return NULL;
}

const verb VERB_BACKUP = {
    .name = "backup",
    .usage = "FILE|-",
    .summary = "Write a copy of the node's records, while it runs",
    .text =
        "For administrators. FILE must not be there yet; '-' is stdout. 'bothyd --restore FILE'\n"
        "puts it back while bothyd is stopped. In it: sandboxes, keys (as hashes), images, events.\n"
        "Not in it: journals and output of commands, layers of images, logins to registries.",
    .opts = OPTS,
    .args_size = sizeof(backup_args),
    .words_min = 1,
    .words_max = 1,
    .run = backup_run,
};
