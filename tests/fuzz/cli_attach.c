/* The command line in front of a command: messages of the daemon, keys, modes of a terminal. Output
 * is passed on as it is and counted; nothing else reaches stdout. */
#include "base/fs.h"

static int fake_write(int fd, const void *p, size_t n);
#define fs_write_all fake_write
#include "../../src/cli/attach.c"
#undef fs_write_all
#include "fuzz.h"

static size_t written[2];

static int fake_write(int fd, const void *p, size_t n)
{
    (void)p;
    written[fd == STDERR_FILENO] += n;
    return 0;
}

/* 16 bits of length before each message. */
static void messages(fuzz_in in)
{
    attach_args args = {.sandbox = "s", .exec = "1"};
    attached s = {.a = &args};

    written[0] = written[1] = 0;
    while (in.n) {
        size_t n, want = (size_t)fuzz_number(&in, 2);
        CLEANUP(freep) void *p = fuzz_bytes(&in, want, &n);
        uint64_t before[2] = {s.at[0], s.at[1]};
        size_t was[2] = {written[0], written[1]};
        bool control = n && *(char *)p == 3;
        on_message(&s, false, p, n);
        for (int i = 0; i < 2 && !control; i++)
            MUST(s.at[i] - before[i] == written[i] - was[i]);
        for (int i = 0; i < 2 && control; i++)
            MUST(written[i] == was[i]);
    }
    if (s.end)
        MUST(exit_of_end(s.end) >= 0 && exit_of_end(s.end) <= 255);
    json_decref(s.end);
    err_free(s.fatal);
}

static void screens(const uint8_t *p, size_t n)
{
    modes whole = {0}, pieces = {0}, after;
    CLEANUP(buf_done) buf undo = {0};

    modes_see(&whole, p, n);
    for (size_t i = 0; i < n; i++)
        modes_see(&pieces, p + i, 1);
    MUST(whole.on == pieces.on && whole.state == pieces.state);
    after = whole;
    modes_undo(&whole, &undo);
    modes_see(&after, undo.p, undo.len);
    MUST(!after.on); /* what it writes undoes what it saw */
}

/* What is passed on, and what is held, is what was typed, up to the keys. */
static void typing(fuzz_in in)
{
    static const char *const KEYS[] = {KEYS_DEFAULT, "a,a,b", "a,b,a,c", "ctrl-@", ""};
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(buf_done) buf all = {0};
    keys k;

    err_free(keys_parse(KEYS[fuzz_byte(&in) % ARRAY_LEN(KEYS)], &k));
    bool found = keys_feed(&k, (const char *)in.p, in.n, &out);
    buf_append(&all, out.p, out.len);
    buf_append(&all, k.v, found ? k.n : k.held);
    MUST(all.len <= in.n && (found || all.len == in.n));
    MUST(!all.len || !memcmp(all.p, in.p, all.len));
    if (k.n)
        MUST(found == (in.n && memmem(in.p, in.n, k.v, k.n) != NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(freep) char *text = xstrndup((const char *)data, size);
    keys k;

    messages((fuzz_in){data, size});
    screens(data, size);
    typing((fuzz_in){data, size});
    err_free(keys_parse(text, &k));
    return 0;
}
