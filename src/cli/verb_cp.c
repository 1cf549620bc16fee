/* bothy cp: copies files and directories into a sandbox and out of it.
 *
 * Both directions use a tar stream over .../files/archive, also for a single file: so one way keeps
 * modes, times, links and holes, and replaces a file as a whole. The names of copies follow docker
 * cp. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "cli/bar.h"
#include "cli/cp_plan.h"
#include "cli/out.h"
#include "cli/pack.h"
#include "cli/unpack.h"
#include "cli/verbs.h"
#include "wire/archive.h"

typedef struct cp_args {
    common_args common;
    bool archive, follow, quiet;
    const char *user;
} cp_args;

static const opt OPTS[] = {
    OPT('a', "archive", NULL, OPT_FLAG, cp_args, archive,
        "keep owners and user.* attributes (owners on this side: only as root)"),
    OPT('L', "follow-link", NULL, OPT_FLAG, cp_args, follow,
        "a local source that is a symbolic link: what it points to"),
    OPT('q', "quiet", NULL, OPT_FLAG, cp_args, quiet, "no bar and no summary"),
    OPT('u', "user", "USER[:GROUP]", OPT_TEXT, cp_args, user,
        "who reads and writes in the sandbox (default: its user)"),
    COMMON_OPTS(cp_args),
};

/* A copy in progress. */
typedef struct copy {
    cli *cli;
    const cp_args *args;
    char *url;      /* of the archive in the API */
    pack *pack;     /* upload */
    int raw_in;     /* upload of a tar from stdin; -1: no */
    unpack *unpack; /* download */
    int raw_out;    /* download as a tar to stdout; -1: no */
    bar bar;
    bool show;
    uint64_t total;               /* 0: unknown */
    uint64_t raw_bytes;           /* bytes that have passed */
    char last[ARCHIVE_NOTE_SIZE]; /* the last of them, in a download */
    err *failed;                  /* error on this side */
} copy;

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t asking; /* nothing has changed yet: a signal ends us at once */

static void on_signal(int signo)
{
    static const char TEXT[] = "bothy: the copy was interrupted before it began\n";

    interrupted = signo;
    if (!asking)
        return;
    if (write(STDERR_FILENO, TEXT, sizeof TEXT - 1) >= 0)
        _exit(CLI_SIGNAL + signo);
    _exit(CLI_SIGNAL + signo);
}

static void watch_signals(void)
{
    static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction sa = {.sa_handler = on_signal}, now;

    for (size_t i = 0; i < ARRAY_LEN(SIGNALS); i++)
        if (!sigaction(SIGNALS[i], NULL, &now) && now.sa_handler != SIG_IGN)
            sigaction(SIGNALS[i], &sa, NULL);
}

/* ---- the sandbox's side ---- */

static char *files_url(const copy *c, const char *id, const char *what, const char *path,
                       const char *more)
{
    CLEANUP(freep) char *escaped = client_escape(path);
    CLEANUP(freep) char *user = c->args->user ? client_escape(c->args->user) : NULL;

    return str_printf("/v1/sandboxes/%s/files%s?path=%s%s%s%s", id, what, escaped, more,
                      user ? "&user=" : "", user ? user : "");
}

static err *cp_look(copy *c, const char *id, const char *path, enum found *ret_found,
                    uint64_t *ret_size)
{
    CLEANUP(freep) char *url = files_url(c, id, "/stat", path, "&follow=true");
    CLEANUP(json_decrefp) json_t *st = NULL;

    asking = 1;
    CLEANUP(err_freep) err *e = cli_call(c->cli, "GET", NULL, &st, "%s", url);
    asking = 0;
    *ret_found = FOUND_NOTHING;
    if (e && e->code == ERR_NOT_FOUND && str_eq(e->kind, "path"))
        return NULL;
    if (e)
        return TAKE_PTR(e);
    bool is_dir = str_eq(json_str(st, "type"), "directory");
    *ret_found = is_dir ? FOUND_DIR : FOUND_OTHER;
    if (ret_size)
        *ret_size = is_dir ? 0 : (uint64_t)json_int(st, "size", 0);
    return NULL;
}

/* ---- moving bytes ---- */

static void cp_draw(copy *c)
{
    pack_count up = c->pack ? pack_counted(c->pack) : (pack_count){0};
    unpack_count down = c->unpack ? unpack_counted(c->unpack) : (unpack_count){0};
    uint64_t files = up.files + down.files;
    char note[48];

    if (!c->show || !bar_due(&c->bar))
        return;
    snprintf(note, sizeof note, "%llu files", (unsigned long long)files);
    bar_draw(&c->bar,
             &(bar_state){.done = c->pack || c->unpack ? up.bytes + down.bytes : c->raw_bytes,
                          .total = c->total,
                          .percent = -1,
                          .note = files > 1 ? note : NULL});
}

static bool on_tick(void *arg)
{
    cp_draw(arg);
    return !interrupted;
}

static ssize_t on_read(void *arg, void *p, size_t max)
{
    copy *c = arg;
    size_t n = 0;

    if (interrupted)
        return -1;
    if (c->pack) {
        c->failed = pack_read(c->pack, p, max, &n);
        return c->failed ? -1 : (ssize_t)n;
    }
    ssize_t got = read(c->raw_in, p, max);
    if (got < 0 && errno != EINTR)
        c->failed = err_sys(ERR_INTERNAL, errno, "cannot read stdin");
    c->raw_bytes += got > 0 ? (uint64_t)got : 0;
    return got;
}

static void keep_last(copy *c, const char *p, size_t n)
{
    size_t keep = n < sizeof c->last ? sizeof c->last - n : 0, more = sizeof c->last - keep;

    memmove(c->last, c->last + sizeof c->last - keep, keep);
    memcpy(c->last + keep, p + n - more, more);
}

/* Checks the note behind the archive, which says how many entries the sandbox's side could not
 * read. */
static err *check_unread(const copy *c)
{
    CLEANUP(freep) char *note = xstrndup(c->last, sizeof c->last - 1);
    uint64_t n = 0;

    note[strcspn(note, "\n")] = 0;
    if (!str_starts(note, ARCHIVE_NOTE) ||
        !str_to_u64(note + strlen(ARCHIVE_NOTE), UINT64_MAX, &n) || !n)
        return NULL;
    return err_remedy(err_new(ERR_FORBIDDEN,
                              "%llu of the entries cannot be read and %s not in the copy",
                              (unsigned long long)n, n == 1 ? "is" : "are"),
                      "Copy as somebody who may read them: --user root.");
}

static bool on_bytes(void *arg, const void *p, size_t n)
{
    copy *c = arg;

    c->raw_bytes += n;
    keep_last(c, p, n);
    if (interrupted)
        return false;
    if (c->unpack)
        return unpack_feed(c->unpack, p, n);
    int rc = fs_write_all(c->raw_out, p, n);
    if (rc)
        c->failed = out_failed(-rc, "the archive");
    return !rc;
}

static err *cp_stopped(void)
{
    return err_remedy(err_new(ERR_INTERNAL, "the copy was interrupted"),
                      "Files that were complete stay; the one under way left nothing. Copy again.");
}

/* Returns the result. An error on this side comes first: it is why the other side saw an end. */
static err *cp_outcome(copy *c, err *transport)
{
    CLEANUP(err_freep) err *e = transport;

    bar_clear(&c->bar);
    if (interrupted)
        return cp_stopped();
    return c->failed ? TAKE_PTR(c->failed) : TAKE_PTR(e);
}

static err *cp_transfer(copy *c, bool up, json_t **ret_answer)
{
    client_call call = {.method = up ? "PUT" : "GET",
                        .path = c->url,
                        .accept = up ? "application/json" : "application/x-tar",
                        .type = "application/x-tar",
                        .on_read = up ? on_read : NULL,
                        .on_bytes = up ? NULL : on_bytes,
                        .on_tick = on_tick,
                        .arg = c};
    CLEANUP(client_answer_done) client_answer answer = {0};

    TRY(cp_outcome(c, client_do(c->cli->client, &call, &answer)));
    return ret_answer && answer.body.len ? json_parse(answer.body.p, answer.body.len, ret_answer)
                                         : NULL;
}

/* ---- upload ---- */

static err *local_kind(const cp_args *a, const char *path, bool *ret_dir)
{
    bool follow = a->follow || path_ends_with_slash(path) || path_wants_content(path);
    struct stat st;

    if (follow ? stat(path, &st) : lstat(path, &st))
        return err_sys(errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_INVALID_REQUEST,
                       errno, "cannot read %s", path);
    *ret_dir = S_ISDIR(st.st_mode);
    if (!*ret_dir && path_ends_with_slash(path))
        return plan_no_directory(path);
    return NULL;
}

/* Resolves "." and "..", which are no names, to the directory's own name. */
static char *real_source(const char *from)
{
    char *real = path_has_name(from) ? NULL : realpath(from, NULL);

    return real ? real : xstrdup(from);
}

static err *open_up(copy *c, const char *from, plan *p)
{
    const pack_options o = {.path = from,
                            .name = p->name,
                            .follow = c->args->follow || path_ends_with_slash(from),
                            .xattrs = c->args->archive};

    if (c->show)
        c->total = pack_measure(&o).bytes;
    return pack_new(&o, &c->pack);
}

static err *copy_up(copy *c, const char *from, const char *id, const char *to)
{
    CLEANUP(plan_done) plan p = {0};
    enum found found = FOUND_NOTHING;
    bool is_dir = false;

    if (!*to)
        to = "/";
    if (str_eq(from, "-")) {
        p = (plan){.dir = xstrdup(to), .name = xstrdup("")};
        c->raw_in = STDIN_FILENO;
    } else {
        TRY(local_kind(c->args, from, &is_dir));
        TRY(cp_look(c, id, to, &found, NULL));
        CLEANUP(freep) char *real = path_wants_content(from) ? xstrdup(from) : real_source(from);
        TRY(plan_make(real, is_dir, to, found, &p));
        TRY(open_up(c, real, &p));
    }
    CLEANUP(buf_done) buf more = {0};
    if (p.parents)
        buf_str(&more, "&mkdir=true");
    if (c->args->archive)
        buf_str(&more, "&owners=true");
    c->url = files_url(c, id, "/archive", p.dir, buf_cstr(&more));
    CLEANUP(json_decrefp) json_t *answer = NULL;
    return cp_transfer(c, true, &answer);
}

/* ---- download ---- */

static err *local_found(const char *path, enum found *ret_found)
{
    struct stat st;

    if (!stat(path, &st))
        *ret_found = S_ISDIR(st.st_mode) ? FOUND_DIR : FOUND_OTHER;
    else if (errno == ENOENT)
        *ret_found = FOUND_NOTHING;
    else
        return err_sys(ERR_INVALID_REQUEST, errno, "cannot look at %s", path);
    return NULL;
}

/* Opens the directory that receives the copy; *ret_new: a tree's root was made. The path that the
 * user named may be a link. Below it the name comes from the source, and a link there may be left
 * by an earlier copy and lead anywhere, so it is not followed. */
static err *open_target(const plan *p, bool from_dir, int *ret_fd, bool *ret_new)
{
    if (from_dir && !*p->name) {
        *ret_new = !mkdir(p->dir, 0777);
        if (!*ret_new && errno != EEXIST)
            return err_sys(ERR_INVALID_REQUEST, errno, "cannot make %s", p->dir);
    }
    CLEANUP(closep) int dir = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(ERR_INVALID_REQUEST, errno, "cannot open %s", p->dir);
    if (!from_dir || !*p->name) {
        *ret_fd = TAKE_FD(dir);
        return NULL;
    }
    *ret_new = !mkdirat(dir, p->name, 0777);
    if (!*ret_new && errno != EEXIST)
        return err_sys(ERR_INVALID_REQUEST, errno, "cannot make %s/%s", p->dir, p->name);
    *ret_fd = openat(dir, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(ERR_INVALID_REQUEST, errno, "cannot open %s/%s as a directory",
                                 p->dir, p->name)
                       : NULL;
}

static err *down_tree(copy *c, const plan *p, bool from_dir)
{
    CLEANUP(closep) int dir = -1;
    bool is_new = false;

    TRY(open_target(p, from_dir, &dir, &is_new));
    const unpack_options o = {.dir = dir,
                              .only = from_dir ? NULL : p->name,
                              .own_root = is_new,
                              .owners = c->args->archive};
    TRY(unpack_new(&o, &c->unpack));
    err *transport = cp_transfer(c, false, NULL);
    CLEANUP(err_freep) err *here = unpack_end(c->unpack, !transport && !interrupted);
    bar_clear(&c->bar);
    /* A stream that broke fails on both sides, and the transport knows why. A stream that we
     * refused fails here. */
    if (transport)
        return transport;
    if (interrupted)
        return cp_stopped();
    return here ? TAKE_PTR(here) : check_unread(c);
}

static err *copy_down(copy *c, const char *id, const char *from, const char *to)
{
    CLEANUP(plan_done) plan p = {0};
    enum found source, found = FOUND_NOTHING;
    bool raw = str_eq(to, "-");

    if (!*from)
        from = "/";
    c->url = files_url(c, id, "/archive", from, "&notes=true");
    TRY(cp_look(c, id, from, &source, &c->total));
    if (raw && isatty(STDOUT_FILENO))
        return err_remedy(usage_error("an archive is not written to a terminal"),
                          "Give it to a file or a program: bothy cp SANDBOX:PATH - | tar tv");
    if (raw) {
        c->raw_out = STDOUT_FILENO;
        TRY(cp_transfer(c, false, NULL));
        return check_unread(c);
    }
    bool from_dir = source == FOUND_DIR;
    TRY(local_found(to, &found));
    TRY(plan_make(from, from_dir, to, found, &p));
    return down_tree(c, &p, from_dir);
}

/* ---- the verb ---- */

static void cp_summary(const copy *c, const char *from, const char *to)
{
    pack_count up = c->pack ? pack_counted(c->pack) : (pack_count){0};
    unpack_count down = c->unpack ? unpack_counted(c->unpack) : (unpack_count){0};
    uint64_t files = up.files + down.files, left_out = up.left_out + down.left_out;
    uint64_t bytes = c->pack || c->unpack ? up.bytes + down.bytes : c->raw_bytes;
    CLEANUP(buf_done) buf line = {0};

    if (c->cli->common.json && c->raw_out < 0) {
        CLEANUP(json_decrefp)
        json_t *j =
            json_pack("{s:s?,s:s?,s:I,s:I,s:I}", "from", from, "to", to, "files", (json_int_t)files,
                      "bytes", (json_int_t)bytes, "left_out", (json_int_t)left_out);
        out_json(stdout, j);
    } else if (!c->args->quiet && c->raw_out < 0) {
        out_size(&line, bytes);
        if (c->pack || c->unpack)
            buf_printf(&line, " in %llu file%s", (unsigned long long)files, files == 1 ? "" : "s");
        fprintf(stderr, "copied %s\n", buf_cstr(&line));
    }
    if (left_out && !c->cli->common.json)
        fprintf(stderr, "bothy: %llu left out: devices, FIFOs and sockets are not copied\n",
                (unsigned long long)left_out);
}

static err *copy_between(copy *c, const place *from, const place *to)
{
    CLEANUP(json_decrefp) json_t *sandbox = NULL;
    const char *word = from->sandbox ? from->sandbox : to->sandbox;

    if (!from->sandbox == !to->sandbox)
        return err_remedy(usage_error("one side is a sandbox's, SANDBOX:PATH, and one is here"),
                          "usage: bothy cp LOCAL SANDBOX:PATH, or bothy cp SANDBOX:PATH LOCAL");
    asking = 1;
    TRY(cli_sandbox(c->cli, word, false, &sandbox));
    asking = 0;
    const char *id = str_or(json_str(sandbox, "id"), word);
    return from->sandbox ? copy_down(c, id, from->path, to->path)
                         : copy_up(c, from->path, id, to->path);
}

static void copy_done(copy *c)
{
    bar_clear(&c->bar);
    pack_free(c->pack);
    unpack_free(c->unpack);
    err_free(c->failed);
    free(c->url);
}

static err *cp_run(cli *cl, void *args, const opt_words *words, int *status)
{
    const cp_args *a = args;
    CLEANUP(copy_done)
    copy c = {.cli = cl, .args = a, .raw_in = -1, .raw_out = -1, .bar = bar_start("copy")};
    CLEANUP(place_done) place from = {0};
    CLEANUP(place_done) place to = {0};

    /* libarchive reads and writes names by the locale: bytes stay bytes in this one.
     * NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet */
    setlocale(LC_CTYPE, "C.UTF-8");
    c.show = !a->quiet && !cl->common.json && isatty(STDERR_FILENO);
    place_parse(words->v[0], &from);
    place_parse(words->v[1], &to);
    watch_signals();
    CLEANUP(err_freep) err *e = copy_between(&c, &from, &to);
    if (e && interrupted) {
        out_error(stderr, e, cl->common.json, out_colours(stderr));
        *status = CLI_SIGNAL + interrupted;
        return NULL;
    }
    if (e)
        return TAKE_PTR(e);
    cp_summary(&c, words->v[0], words->v[1]);
    return NULL;
}

const verb VERB_CP = {
    .name = "cp",
    .usage = "[OPTIONS] LOCAL SANDBOX:PATH | SANDBOX:PATH LOCAL",
    .summary = "Copy files and directories into a sandbox and out of it",
    .text = "A directory that is copied to one that exists lies in it afterwards; with '/.' behind "
            "its name only its content does. To a name that does not exist it gets that name. A "
            "LOCAL of '-' is a tar archive: stdin is unpacked in a directory, stdout gets one. "
            "Modes, times, links and holes are kept; what comes out of a sandbox never has set-uid "
            "bits and never lands outside LOCAL. A file appears under its name when it is "
            "complete.",
    .opts = OPTS,
    .args_size = sizeof(cp_args),
    .words_min = 2,
    .words_max = 2,
    .run = cp_run,
};
