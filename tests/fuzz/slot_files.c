/* What the warden finds in a slot's directory after a kill: state, claim, ahead. Words end in NUL:
 * the three files, this boot's id, and what crun logged. What was written whole reads back; less
 * than whole is no claim. */
#include "base/buf.h"
#include "base/err.h"

static err *file_read(int dir, const char *name, size_t max, buf *ret_bytes);
#define fs_read file_read
#include "../../src/warden/refill.c"
#include "../../src/warden/slot.c"
#include "../../src/warden/slot_state.c"
#undef fs_read

#include "fuzz.h"

static const struct {
    const char *name;
} FILES[] = {{"state"}, {"claim"}, {"ahead"}, {"sys/kernel/random/boot_id"}, {"crun.log"}};
static char *text_of[ARRAY_LEN(FILES)];

static err *file_read(int dir, const char *name, size_t max, buf *ret_bytes)
{
    buf b = {0};

    (void)dir;
    for (size_t i = 0; i < ARRAY_LEN(FILES); i++) {
        if (strcmp(name, FILES[i].name) != 0 && !(i == 3 && strstr(name, "/stat")))
            continue;
        if (strlen(text_of[i]) > max)
            return err_new(ERR_TOO_LARGE, "%s is larger than %zu bytes", name, max);
        buf_str(&b, text_of[i]);
        buf_cstr(&b);
        *ret_bytes = b;
        return NULL;
    }
    return err_sys(ERR_NOT_FOUND, ENOENT, "cannot open %s", name);
}

static void check_state(const warden *w)
{
    slot s = {0};
    char again[256];

    if (slot_read_state(w, &s) != SLOT_FOUND)
        return;
    snprintf(again, sizeof again, "1 %d %" PRIu64 " ", s.pid, s.start);
    /* Never another process than the one that was written down. */
    MUST(s.pid > 1);
    CLEANUP(freep) char *old = text_of[0];
    slot second = {0};
    text_of[0] = str_printf("%s%.*s\n", again, BOOT_LEN, text_of[3]);
    if (!strpbrk(text_of[3], " \t\n\v\f\r"))
        MUST(slot_read_state(w, &second) == SLOT_FOUND && second.pid == s.pid &&
             second.start == s.start);
    free(text_of[0]);
    text_of[0] = TAKE_PTR(old);
}

static void check_claim(void)
{
    slot s = {0};
    char hex[65], again[128];

    if (!read_claim(&s))
        return;
    MUST(id_is_sandbox(s.id));
    hex_encode(s.image.sha256, 32, hex);
    snprintf(again, sizeof again, "%s\n%s\nok\n", s.id, hex);
    MUST(!strcasecmp(again, text_of[1]));
}

/* The last line is the cause, and is one line. */
static void check_log(void)
{
    slot s = {.dirfd = -1};
    err *e = crun_failed(&s, 1 << 8);

    MUST(e && (!e->cause || !strchr(e->cause, '\n')));
    err_free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static warden w = {.proc_fd = -1};
    fuzz_in in = {data, size};

    for (size_t i = 0; i < ARRAY_LEN(FILES); i++)
        text_of[i] = fuzz_word(&in, 0);
    check_state(&w);
    check_claim();
    check_log();
    (void)slot_start_time(-1, 2);
    for (size_t i = 0; i < ARRAY_LEN(FILES); i++)
        free(text_of[i]);
    return 0;
}
