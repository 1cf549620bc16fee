/* Finds the verb, parses by its table, prints help and errors. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/exit.h"
#include "cli/generate.h"
#include "cli/input.h"
#include "cli/out.h"

const verb *verb_find(const verb *const *table, const char *name)
{
    for (; *table; table++)
        if (str_eq((*table)->name, name) || str_eq((*table)->alias, name))
            return *table;
    return NULL;
}

static void list_verbs(const verb *const *table, buf *out)
{
    for (; *table; table++) {
        const char *alias = (*table)->alias;
        CLEANUP(freep)
        char *names = str_printf("%s%s%s", (*table)->name, alias ? ", " : "", str_or(alias, ""));
        buf_printf(out, "  %-14s  %s\n", names, (*table)->summary);
    }
}

void verb_help(const verb *v, const char *path, buf *out)
{
    buf_printf(out, "usage: %s %s\n\n%s\n", path, v->usage, v->summary);
    if (v->alias)
        buf_printf(out, "Also called '%s'.\n", v->alias);
    if (v->text)
        buf_printf(out, "\n%s\n", v->text);
    if (v->of) {
        buf_str(out, "\ncommands:\n");
        list_verbs(v->of, out);
        buf_printf(out, "\n'%s COMMAND --help' tells more.\n", path);
        return;
    }
    buf_str(out, "\noptions:\n");
    opt_help(v->opts, out);
}

void verb_help_all(buf *out)
{
    buf_str(out, "usage: bothy [--socket PATH | --url URL] [--json] COMMAND ...\n\n"
                 "Sandboxes for agents.\n\ncommands:\n");
    list_verbs(CLI_VERBS, out);
    buf_str(out, "\nTry first: bothy run busybox -- echo hello\n"
                 "'bothy COMMAND --help' tells more; 'man bothy' has it all.\n");
}

err *usage_error(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    CLEANUP(freep) char *text = str_vprintf(fmt, ap);
    va_end(ap);
    return err_new(ERR_INVALID_REQUEST, "%s", text);
}

static err *unknown_verb(const verb *const *table, const char *path, const char *word)
{
    const char *names[64];
    size_t n = 0;

    for (; *table && n + 1 < ARRAY_LEN(names); table++) {
        names[n++] = (*table)->name;
        if ((*table)->alias)
            names[n++] = (*table)->alias;
    }
    const char *near = str_nearest(word, names, n);
    err *e = usage_error("'%s' has no command '%s'", path, word);
    return near ? err_remedy(e, "Did you mean '%s %s'? '%s --help' lists all commands.", path, near,
                             path)
                : err_remedy(e, "'%s --help' lists all commands.", path);
}

static void print_help(const verb *v, const char *path)
{
    CLEANUP(buf_done) buf b = {0};

    if (v)
        verb_help(v, path, &b);
    else
        verb_help_all(&b);
    fputs(buf_cstr(&b), stdout);
}

static err *check_words(const verb *v, const char *path, const opt_words *w)
{
    err *e = NULL;

    if (w->n < v->words_min)
        e = usage_error("'%s' needs more words", path);
    else if (v->words_max >= 0 && w->n > v->words_max)
        e = usage_error("'%s' does not take '%s'", path, w->v[v->words_max]);
    return err_remedy(e, "usage: %s %s", path, v->usage);
}

/* argv[0] is the first word after the verb's name. */
static err *run_leaf(cli *c, const verb *v, const char *path, int argc, char **argv, int *status)
{
    void *args = xcalloc(1, v->args_size);
    opt_words words;

    memcpy(args, &c->common, sizeof c->common);
    err *e = opt_parse(v->opts, path, v->stop_early, argc, argv, args, &words);
    memcpy(&c->common, args, sizeof c->common);
    if (!e && c->common.help)
        print_help(v, path);
    else if (!e && !(e = check_words(v, path, &words)))
        e = v->run(c, args, &words, status);
    opt_args_done(v->opts, args);
    free(args);
    return e;
}

/* Walks from "bothy" through groups to the verb. argv[0] is the next name. */
static err *run_named(cli *c, const verb *const *table, const char *path, const verb *group,
                      int argc, char **argv, int *status)
{
    if (!argc || str_eq(argv[0], "--help") || str_eq(argv[0], "-h")) {
        print_help(group, path);
        *status = argc ? 0 : CLI_FAILED;
        return NULL;
    }
    const verb *v = verb_find(table, argv[0]);
    if (!v)
        return unknown_verb(table, path, argv[0]);
    CLEANUP(freep) char *longer = str_printf("%s %s", path, v->name);
    if (v->of)
        return run_named(c, v->of, longer, v, argc - 1, argv + 1, status);
    return run_leaf(c, v, longer, argc - 1, argv + 1, status);
}

typedef struct top_args {
    common_args common;
    bool version;
    const char *generate;
} top_args;
const opt CLI_TOP_OPTS[] = {
    OPT(0, "generate", "man|bash", OPT_CHOICE, top_args, generate, NULL),
    OPT(0, "version", NULL, OPT_FLAG, top_args, version, "print the version"),
    COMMON_OPTS(top_args),
};

/* Parses the options before the verb's name, then runs the verb. */
static err *run_top(cli *c, int argc, char **argv, int *status)
{
    top_args top = {0};
    opt_words words;

    TRY(opt_parse(CLI_TOP_OPTS, "bothy", true, argc - 1, argv + 1, &top, &words));
    c->common = top.common;
    if (top.generate)
        return generate(top.generate, stdout);
    if (top.version) {
        puts("bothy " BOTHY_VERSION);
        return NULL;
    }
    if (top.common.help) {
        print_help(NULL, "bothy");
        return NULL;
    }
    return run_named(c, CLI_VERBS, "bothy", NULL, words.n, words.v, status);
}

static bool nobody_reads(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return poll(&p, 1, 0) > 0 && p.revents & POLLERR;
}

/* Flushes stdout and reports output that was lost. A reader that closed the pipe knows it already,
 * so then nothing is printed. */
static int finish_output(const cli *c, int status)
{
    int errnum = fflush(stdout) ? errno : 0;

    if ((!errnum && !ferror(stdout)) || status)
        return status;
    if (errnum != EPIPE && !nobody_reads()) {
        CLEANUP(err_freep) err *e = out_failed(errnum, "the output");
        out_error(stderr, e, c->common.json, out_colours(stderr));
    }
    return CLI_FAILED;
}

/* Fills closed standard descriptors, so that no later file takes their number. /dev/null is opened
 * in the wrong direction on purpose: using them fails. */
static void fill_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            _exit(CLI_FAILED);
}

int cli_main(int argc, char **argv)
{
    cli c = {0};
    int status = 0;

    fill_standard();
    signal(SIGPIPE, SIG_IGN); /* a closed reader is a write error, reported once */
    log_init("bothy", LOG_WARN);
    log_set_plain();
    CLEANUP(err_freep) err *e = run_top(&c, argc, argv, &status);
    if (e) {
        fflush(stdout);
        out_error(stderr, e, c.common.json, out_colours(stderr));
        status = exit_of_error(e);
    }
    client_free(c.client);
    free(c.url);
    if (!status && input_has_failed())
        status = CLI_FAILED;
    return finish_output(&c, status);
}
