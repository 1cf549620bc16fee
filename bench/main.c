/* bench-client: what is timed, in C, so that the drivers' own time is no part of it. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#include "bench.h"

void die(const char *what)
{
    fprintf(stderr, "bench-client: %s: %s\n", what, strerrordesc_np(errno));
    exit(1);
}

void fail(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fputs("bench-client: ", stderr);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

unsigned number(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);

    if (*end || !n || n > UINT32_MAX)
        fail("'%s' is no number", text);
    return (unsigned)n;
}

void note(const char *subject, uint64_t ns)
{
    printf("%s %lu\n", subject, ns);
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} BENCHES[] = {
    {"tti", bench_tti},     {"exec", bench_exec}, {"output", bench_output},
    {"burst", bench_burst}, {"root", bench_root}, {"session", bench_session},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < ARRAY_LEN(BENCHES); i++)
        if (strcmp(argv[1], BENCHES[i].name) == 0)
            return BENCHES[i].run(argc - 1, argv + 1);
    fprintf(stderr, "usage: bench-client BENCH ...; the drivers beside it know how\n");
    return 2;
}
