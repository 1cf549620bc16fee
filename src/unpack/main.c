/* bothy-unpack: unpacks one OCI layer (descriptor 0) into an empty directory (descriptor 3).
 *
 *   bothy-unpack --format plain|gzip|zstd --diff-id HEX <blob 3<DIRECTORY >report
 *
 * Started by the warden as root; see README.md. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "unpack/box.h"
#include "unpack/report.h"
#include "unpack/stream.h"
#include "unpack/writer.h"

#define LAYER_DIR 3
#define JOIN_FROM 4 /* cgroup.procs files */
#define JOIN_MAX  4

typedef struct options {
    enum unpack_format format;
    unsigned char diff_id[32];
    bool has_format, has_diff_id, refuse_devices;
    unpack_limits lim;
    uint64_t join;
} options;

static const char *const FORMATS[] = {
    [FORMAT_PLAIN] = "plain", [FORMAT_GZIP] = "gzip", [FORMAT_ZSTD] = "zstd"};

static const struct option LONG_OPTIONS[] = {
    {"format", required_argument, NULL, 'f'},
    {"diff-id", required_argument, NULL, 'd'},
    {"devices", required_argument, NULL, 'D'},
    {"max-entries", required_argument, NULL, 'e'},
    {"max-bytes", required_argument, NULL, 'b'},
    {"max-file", required_argument, NULL, 'F'},
    {"join", required_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool set_format(options *o, const char *value)
{
    for (size_t i = 0; i < ARRAY_LEN(FORMATS); i++)
        if (strcmp(value, FORMATS[i]) == 0) {
            o->format = (enum unpack_format)i;
            return o->has_format = true;
        }
    return false;
}

static bool set_option(options *o, int which, const char *value)
{
    switch (which) {
    case 'f':
        return set_format(o, value);
    case 'd':
        return o->has_diff_id = strlen(value) == 64 && hex_decode(value, o->diff_id, 32);
    case 'D':
        o->refuse_devices = strcmp(value, "refuse") == 0;
        return o->refuse_devices || strcmp(value, "skip") == 0;
    case 'e':
        return str_to_u64(value, UINT64_MAX, &o->lim.entries);
    case 'b':
        return str_to_u64(value, UINT64_MAX, &o->lim.bytes);
    case 'F':
        return str_to_u64(value, INT64_MAX, &o->lim.file);
    case 'j':
        return str_to_u64(value, JOIN_MAX, &o->join);
    default:
        return false;
    }
}

static bool read_options(int argc, char **argv, options *o)
{
    int which;

    while ((which = getopt_long(argc, argv, "", LONG_OPTIONS, NULL)) != -1) /* NOLINT */
        if (!set_option(o, which, optarg))
            return false;
    return optind == argc && o->has_format && o->has_diff_id;
}

/* Writes the error as one line to descriptor 2 and returns the exit status. Takes ownership of e.
 * Does not use stdio, which would query the terminal. */
static int main_tell(err *e)
{
    CLEANUP(buf_done) buf line = {0};

    if (!e)
        return UNPACK_OK;
    buf_printf(&line, "bothy-unpack: %s", e->message);
    if (e->cause)
        buf_printf(&line, ": %s", e->cause);
    buf_char(&line, '\n');
    (void)!write(STDERR_FILENO, line.p, line.len);
    err_code code = e->code;
    err_free(e);
    return code == ERR_IMAGE_UNSUPPORTED   ? UNPACK_REFUSED
           : code == ERR_IMAGE_PULL_FAILED ? UNPACK_DIGEST
                                           : UNPACK_FAILED;
}

/* Runs the decompressor and exits. It writes its error first, then a byte to at_end, which shows
 * that it was not killed. */
static _Noreturn void run_decompressor(const options *o, int out, int at_end, int opaque_fd,
                                       int root)
{
    close(root);
    close(opaque_fd);
    close(STDOUT_FILENO);
    err *e = box_close(BOX_DECOMPRESSOR, &o->lim);
    if (!e)
        e = stream_decompress(STDIN_FILENO, out, o->format, &o->lim);
    if (e && e->errnum == EPIPE)
        _exit(UNPACK_FAILED); /* the writer has ended and reports why */
    int status = main_tell(e);
    (void)!write(at_end, "", 1);
    _exit(status);
}

/* Forks the decompressor. Its exit status is not collected: the diff id over the bytes that arrived
 * decides. */
static err *start_decompressor(const options *o, int opaque_fd, int root, int *ret_from,
                               int *ret_at_end)
{
    int p[2], at_end[2];

    if (pipe2(p, O_CLOEXEC) || pipe2(at_end, O_CLOEXEC))
        return err_sys(ERR_INTERNAL, errno, "cannot make a pipe");
    (void)fcntl(p[1], F_SETPIPE_SZ, 1 << 20); /* only a matter of speed */
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot start the decompressor");
    if (!pid) {
        close(p[0]);
        close(at_end[0]);
        run_decompressor(o, p[1], at_end[1], opaque_fd, root);
    }
    close(p[1]);
    close(at_end[1]);
    close(STDIN_FILENO);
    *ret_from = p[0];
    *ret_at_end = at_end[0];
    return NULL;
}

/* Replaces the error if the layer ended early because the decompressor was killed: that is not the
 * image's fault. */
static err *main_blame(err *e, const stream *s, int at_end)
{
    char byte;

    if (!e || !s->ended || read(at_end, &byte, 1) == 1)
        return e;
    err_free(e);
    return err_new(ERR_INTERNAL, "the decompressor was killed");
}

static err *check_diff_id(stream *s, const options *o, unsigned char ret_digest[32])
{
    char is[65], wanted[65];

    stream_diff_id(s, ret_digest);
    if (memcmp(ret_digest, o->diff_id, 32) == 0)
        return NULL;
    hex_encode(ret_digest, 32, is);
    hex_encode(o->diff_id, 32, wanted);
    return err_new(ERR_IMAGE_PULL_FAILED, "the layer's diff id is %s, not %s", is, wanted);
}

static err *main_unpack(const options *o, stream *s, int root, int opaque_fd)
{
    CLEANUP(writer_done) writer w;
    CLEANUP(buf_done) buf report = {0};
    struct archive *tar;
    unsigned char digest[32];

    writer_init(&w, root, &o->lim);
    w.opaque_fd = opaque_fd;
    w.refuse_devices = o->refuse_devices;
    TRY(stream_open_tar(s, &tar)); /* lives as long as the process */
    TRY(writer_run(&w, tar));
    TRY(stream_drain(s));
    TRY(check_diff_id(s, o, digest));
    w.tally.out = s->total;
    tally_write(&w.tally, digest, &report);
    int r = fs_write_all(STDOUT_FILENO, report.p, report.len);
    return r ? err_sys(ERR_INTERNAL, -r, "cannot write the report") : NULL;
}

/* Runs the writer. Libraries that open files by themselves (locale, OpenSSL) are prepared before
 * the root changes: afterwards such a file would come from the image. */
static err *run_writer(const options *o, int tree, int opaque_fd)
{
    stream s;
    int root = -1, at_end = -1;

    TRY(stream_init(&s, o->lim.bytes));
    TRY(box_enter(tree, &root));
    close(tree);
    close(LAYER_DIR);
    TRY(start_decompressor(o, opaque_fd, root, &s.fd, &at_end));
    TRY(box_close(BOX_WRITER, &o->lim));
    return main_blame(main_unpack(o, &s, root, opaque_fd), &s, at_end);
}

static err *wait_writer(pid_t pid, int *ret_exit)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(ERR_INTERNAL, errno, "cannot wait for the writer");
    if (WIFSIGNALED(status))
        return err_new(ERR_INTERNAL, "the writer was ended by signal %d", WTERMSIG(status));
    *ret_exit = WEXITSTATUS(status);
    return NULL;
}

static err *run_outer(const options *o, pid_t writer_pid, int opaque_from, int *ret_exit)
{
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    TRY(box_see_only(LAYER_DIR));
    TRY(box_close(BOX_OUTER, &o->lim));
    TRY(box_mark_opaques(opaque_from, LAYER_DIR));
    return wait_writer(writer_pid, ret_exit);
}

static err *main_run(const options *o, int *ret_exit)
{
    int opaque[2], tree;
    pid_t pid;

    umask(0);
    if (!setlocale(LC_CTYPE, "C.UTF-8")) /* NOLINT(concurrency-mt-unsafe): no threads */
        return err_new(ERR_WALL_FAILED, "the locale C.UTF-8 is missing");
    TRY(box_take_tree(LAYER_DIR, &tree));
    if (pipe2(opaque, O_CLOEXEC))
        return err_sys(ERR_INTERNAL, errno, "cannot make a pipe");
    TRY(box_fork(&pid));
    if (!pid) {
        close(opaque[0]);
        _exit(main_tell(run_writer(o, tree, opaque[1])));
    }
    close(opaque[1]);
    close(tree);
    return run_outer(o, pid, opaque[0], ret_exit);
}

/* Joins the cgroups given with --join. Called before anything else, so that forked processes are
 * inside, too. */
static err *join_cgroups(const options *o)
{
    for (int fd = JOIN_FROM; fd < JOIN_FROM + (int)o->join; fd++) {
        if (write(fd, "0", 1) != 1)
            return err_sys(ERR_INTERNAL, errno, "cannot join a cgroup");
        close(fd);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    options o = {.lim = UNPACK_LIMITS_DEFAULT};
    int status = UNPACK_FAILED;

    if (!read_options(argc, argv, &o)) {
        fprintf(stderr, "usage: bothy-unpack --format plain|gzip|zstd --diff-id HEX\n"
                        "         [--devices skip|refuse] [--max-entries N] [--max-bytes N]\n"
                        "         [--max-file N] [--join N] <BLOB 3<EMPTY-DIRECTORY >REPORT\n");
        return UNPACK_FAILED;
    }
    err *e = join_cgroups(&o);
    if (!e)
        e = main_run(&o, &status);
    return e ? main_tell(e) : status;
}
