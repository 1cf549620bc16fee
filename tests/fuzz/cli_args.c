/* Command lines: words separated by NUL. A file that an option names has the last word's bytes.
 * Whatever is typed ends in help, an error or a request, and drives no terminal on its way. */
#include "base/buf.h"
#include "base/err.h"

static err *file_read(int dir, const char *name, size_t max, buf *ret_bytes);
#define fs_read file_read
#include "../../src/cli/spec.c"
#undef fs_read

#include "cli_fake.h"

#define WORDS_MAX 32

static const char *file_text = "";

static err *file_read(int dir, const char *name, size_t max, buf *ret_bytes)
{
    buf b = {0};

    (void)dir;
    if (!strcmp(name, "missing"))
        return err_sys(ERR_NOT_FOUND, 2, "cannot open %s", name);
    if (strlen(file_text) > max)
        return err_new(ERR_TOO_LARGE, "%s is larger than %zu bytes", name, max);
    buf_str(&b, file_text);
    buf_cstr(&b);
    *ret_bytes = b;
    return NULL;
}

/* doctor starts programs, a login without --password-stdin asks at the terminal. */
static bool may_run(char **argv, int argc)
{
    bool asks = false, piped = false;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "doctor"))
            return false;
        asks |= !strcmp(argv[i], "login");
        piped |= !strcmp(argv[i], "--password-stdin");
    }
    return !asks || piped;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char NOTHING[] = "2{}";
    fuzz_in in = {data, size};
    char *argv[WORDS_MAX + 2] = {xstrdup("bothy")}, *kept[WORDS_MAX + 2];
    int argc = 1;

    while (in.n && argc <= WORDS_MAX)
        argv[argc++] = fuzz_word(&in, 0);
    argv[argc] = NULL;
    memcpy(kept, argv, sizeof kept);
    file_text = argv[argc - 1];
    fake.piece = 4096;
    fake.answers = (fuzz_in){(const uint8_t *)NOTHING, sizeof NOTHING - 1};
    fake.requests = 0;
    if (may_run(argv, argc))
        fake_cli(argc, argv);
    for (int i = 0; i < argc; i++)
        free(kept[i]);
    return 0;
}
