/* bothy doctor: reports what this machine lacks, and what to do about it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/doctor.h"
#include "cli/out.h"
#include "cli/user.h"
#include "cli/verbs.h"

typedef struct doctor_args {
    common_args common;
    const char *probe;
    bool quiet, node;
} doctor_args;

static const opt OPTS[] = {
    OPT('q', "quiet", NULL, OPT_FLAG, doctor_args, quiet, "only what is not in order"),
    OPT(0, "node", NULL, OPT_FLAG, doctor_args, node,
        "what a node needs, although this machine is none"),
    OPT(0, "probe", "NAME", OPT_TEXT, doctor_args, probe, NULL),
    COMMON_OPTS(doctor_args),
};

static const struct {
    const char *name, *colour;
} LEVELS[] = {
    [DOCTOR_OK] = {"ok", "\x1b[32m"},
    [DOCTOR_WARN] = {"warn", "\x1b[33m"},
    [DOCTOR_FAIL] = {"fail", "\x1b[1;31m"},
};

bool doctor_pretends(const char *name)
{
    const char *list = str_or(cli_setting("BOTHY_DOCTOR_FAIL"), "");
    const char *dot = strchr(name, '.');

    for (; *list; list += strspn(list, ", ")) {
        size_t n = strcspn(list, ", ");
        /* "openat2" and "kernel.openat2" mean the same. */
        if ((strlen(name) == n && !memcmp(list, name, n)) ||
            (dot && strlen(dot + 1) == n && !memcmp(list, dot + 1, n)))
            return true;
        list += n;
    }
    return false;
}

void doctor_say(doctor *d, const char *name, doctor_level level, const char *remedy,
                const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    CLEANUP(freep) char *message = str_vprintf(fmt, ap);
    va_end(ap);
    json_t *line = json_pack("{s:s,s:s,s:s,s:s?}", "name", name, "level", LEVELS[level].name,
                             "message", message, "remedy", remedy);
    json_array_append_new(d->lines, line);
    d->worst = level > d->worst ? level : d->worst;
}

static void print_line(const json_t *line, bool colours)
{
    const char *level = str_or(json_str(line, "level"), "?"), *remedy = json_str(line, "remedy");
    CLEANUP(buf_done) buf message = {0}, advice = {0}, name = {0};
    const char *colour = "";

    for (size_t i = 0; i < ARRAY_LEN(LEVELS); i++)
        if (str_eq(level, LEVELS[i].name))
            colour = LEVELS[i].colour;
    out_safe(&message, json_str(line, "message"));
    out_safe(&name, json_str(line, "name"));
    printf("%s%-4s%s  %-36s  %s\n", colours ? colour : "", level, colours ? "\x1b[0m" : "",
           buf_cstr(&name), buf_cstr(&message));
    if (!remedy)
        return;
    out_safe(&advice, remedy);
    printf("      %-36s  remedy: %s\n", "", buf_cstr(&advice));
}

static void print_all(const doctor *d, bool quiet)
{
    size_t i, counts[ARRAY_LEN(LEVELS)] = {0};
    bool colours = out_colours(stdout);
    json_t *line;

    json_array_foreach(d->lines, i, line)
    {
        const char *level = json_str(line, "level");
        for (size_t l = 0; l < ARRAY_LEN(LEVELS); l++)
            counts[l] += str_eq(level, LEVELS[l].name);
        if (!quiet || !str_eq(level, "ok"))
            print_line(line, colours);
    }
    printf("%zu ok, %zu warnings, %zu failed\n", counts[DOCTOR_OK], counts[DOCTOR_WARN],
           counts[DOCTOR_FAIL]);
}

static err *doctor_run(cli *c, void *args, const opt_words *words, int *status)
{
    const doctor_args *a = args;
    CLEANUP(json_decrefp) json_t *lines = json_array();
    doctor d = {.c = c, .lines = lines};

    (void)words;
    if (a->probe) {
        /* Exit at once: a process that has entered a namespace cannot do anything else. */
        _exit(doctor_probe(a->probe));
    }
    c->no_start = true;
    d.user = !a->node && user_has_no_node();
    bool elsewhere = d.user && doctor_is_client(&d);
    for (const doctor_check *k = DOCTOR_CHECKS; k->name; k++)
        if (elsewhere ? k->client : k->user || !d.user)
            k->run(&d, k);
    *status = d.worst == DOCTOR_FAIL;
    if (c->common.json) {
        CLEANUP(json_decrefp)
        json_t *j = json_pack("{s:b,s:O}", "ok", d.worst != DOCTOR_FAIL, "checks", lines);
        out_json(stdout, j);
    } else {
        print_all(&d, a->quiet);
    }
    return NULL;
}

const verb VERB_DOCTOR = {
    .name = "doctor",
    .usage = "[OPTIONS]",
    .summary = "Check what this machine has and lacks for sandboxes",
    .text =
        "Works without a daemon. Each line is ok, warn or fail with what to do; the status is 1\n"
        "if anything fails. As root it also tries what only root can. Where there is no node, it\n"
        "is about what your own daemon needs, or about the daemon alone that you name, if it\n"
        "answers; --node asks for the rest.",
    .opts = OPTS,
    .args_size = sizeof(doctor_args),
    .run = doctor_run,
};
