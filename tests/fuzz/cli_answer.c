/* Answers of a daemon, as every verb reads and prints them. First a byte for the command line and
 * one for the size of pieces, then the answers. */
#include "cli_fake.h"

#define WORDS 6

static const char *const LINES[][WORDS] = {
    {"ls"},
    {"ls", "-a", "-q"},
    {"ls", "--json"},
    {"show", "box"},
    {"show", "--json", "box"},
    {"info"},
    {"info", "--json"},
    {"image", "ls"},
    {"image", "ls", "-q"},
    {"image", "pull", "busybox"},
    {"image", "pull", "--json", "busybox"},
    {"image", "prune"},
    {"image", "rm", "busybox"},
    {"key", "ls"},
    {"key", "ls", "-q"},
    {"key", "create", "--owner", "o", "--role", "user"},
    {"pool"},
    {"logs", "box", "1"},
    {"logs", "--json", "box", "1"},
    {"logs", "-f", "box", "1"},
    {"exec", "box", "--", "true"},
    {"exec", "--json", "box", "--", "true"},
    {"exec", "-d", "box", "--", "true"},
    {"run", "busybox", "--", "true"},
    {"run", "--json", "busybox", "--", "true"},
    {"create", "busybox"},
    {"create", "--json", "busybox"},
    {"rm", "box"},
    {"registry"},
    {"registry", "--json"},
    {"logout", "ghcr.io"},
    {"version"},
    {"events"},
    {"events", "--json"},
    {"top", "--once"},
    {"pause", "box"},
    {"resume", "--json", "box"},
    {"update", "--ttl", "1m", "box"},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    const char *const *line = LINES[fuzz_byte(&in) % ARRAY_LEN(LINES)];
    char *argv[WORDS + 2] = {xstrdup("bothy")};
    int argc = 1;

    for (; argc <= WORDS && line[argc - 1]; argc++)
        argv[argc] = xstrdup(line[argc - 1]);
    uint8_t piece = fuzz_byte(&in);
    fake.piece = piece ? piece : 4096;
    fake.answers = in;
    fake.requests = 0;
    char *kept[WORDS + 2];
    memcpy(kept, argv, sizeof kept); /* the parser moves words about */
    fake_cli(argc, argv);
    for (int i = 0; i < argc; i++)
        free(kept[i]);
    return 0;
}
