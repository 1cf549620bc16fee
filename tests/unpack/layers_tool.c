/* The layer store of the warden as a command, for tests.
 *
 *   layers_tool STORE UNPACK unpack DIFFID plain|gzip|zstd BLOB
 *   layers_tool STORE UNPACK image IMAGE DIFFID...      bottom first
 *   layers_tool STORE UNPACK stack IMAGE                prints what to mount, top first
 *   layers_tool STORE UNPACK prune N IMAGE... IN-USE... N images to forget, the rest are in use
 *
 * Exit status: 0, or the errno of the error. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "warden/layers.h"

#define DIGESTS 512

static uint8_t digest[DIGESTS][32];

static size_t read_digests(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (i == DIGESTS || !hex_decode(argv[i], digest[i], 32))
            exit(2);
    return (size_t)argc;
}

static err *do_unpack(layers *l, int argc, char **argv)
{
    static const char *const FORMATS[] = {"plain", "gzip", "zstd"};
    CLEANUP(closep) int blob = argc == 3 ? open(argv[2], O_RDONLY | O_CLOEXEC) : -1;
    layers_unpacked what = {0};
    unsigned format = 0;

    if (blob < 0)
        exit(2);
    read_digests(1, argv);
    while (format < ARRAY_LEN(FORMATS) && strcmp(argv[1], FORMATS[format]) != 0)
        format++;
    err *e = layers_unpack(l, digest[0], format, blob, &what);
    if (!e)
        printf("entries=%lu bytes=%lu was_there=%d\n", what.entries, what.bytes, what.was_there);
    return e;
}

static err *do_image(layers *l, int argc, char **argv)
{
    size_t n = read_digests(argc, argv);

    return layers_image(l, digest[0], (const uint8_t(*)[32])(digest + 1), n - 1);
}

static err *do_stack(layers *l, int argc, char **argv)
{
    CLEANUP(layers_stack_done) layers_stack s = {0};

    read_digests(argc, argv);
    TRY(layers_stack_of(l, digest[0], &s));
    for (size_t i = 0; i < s.n; i++)
        puts(s.path[i]);
    return NULL;
}

static err *do_prune(layers *l, int argc, char **argv)
{
    size_t forget = (size_t)strtoul(argv[0], NULL, 10), n = read_digests(argc - 1, argv + 1);
    layers_pruned what = {0};

    TRY(layers_prune(l, (const uint8_t(*)[32])digest, forget,
                     (const uint8_t(*)[32])(digest + forget), n - forget, false, &what));
    printf("layers=%lu bytes=%lu\n", what.layers, what.bytes);
    return NULL;
}

static const struct {
    const char *name;
    err *(*run)(layers *l, int argc, char **argv);
} VERBS[] = {{"unpack", do_unpack}, {"image", do_image}, {"stack", do_stack}, {"prune", do_prune}};

int main(int argc, char **argv)
{
    layers *l = NULL;

    if (argc < 5)
        return 2;
    CLEANUP(closep) int dir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    err *e =
        layers_open(&(layers_options){.dirfd = dir, .unpack = argv[2], .timeout_ms = 60000}, &l);
    for (size_t i = 0; !e && i < ARRAY_LEN(VERBS); i++)
        if (strcmp(VERBS[i].name, argv[3]) == 0)
            e = VERBS[i].run(l, argc - 4, argv + 4);
    layers_free(l);
    if (!e)
        return 0;
    fprintf(stderr, "%s: %s%s%s\n", err_info_of(e->code)->name, e->message, e->cause ? ": " : "",
            e->cause ? e->cause : "");
    int status = e->errnum ? e->errnum : 255;
    err_free(e);
    return status;
}
