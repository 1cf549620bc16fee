/* A sandbox's row as the store may hold it: written by another version, or damaged. What is read of
 * it is written again as the same, and shows as one JSON object. Words end in NUL: state, cause,
 * spec, walls. */
#include "base/cleanup.h"
#include "base/log.h"
#include "door/rest/internal.h"
#include "engine/internal.h"

#include "fuzz.h"

static void check_view(sandbox *sb)
{
    CLEANUP(sandbox_view_done) sandbox_view v;
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(json_decrefp) json_t *again = NULL;

    sandbox_get(sb, &v);
    json_t *j = view_sandbox(&v);
    MUST(j && json_is_object(j));
    json_write(&out, j);
    MUST(!json_parse(out.p, out.len, &again));
    json_decref(j);
    json_t *walls = view_walls(&v);
    MUST(walls && (json_is_object(walls) || json_is_null(walls)));
    json_decref(walls);
}

/* The receipt is written once, and read again as the same. */
static void check_receipt(const sandbox *sb)
{
    CLEANUP(freep) char *text = receipt_text(&sb->receipt);
    receipt again;

    receipt_read(&again, text);
    MUST(again.walls.refill == sb->receipt.walls.refill);
    MUST(!text || again.walls.claim == sb->receipt.walls.claim);
    MUST(!(again.walls.refill & ~WALLS_ALL) && !(again.walls.claim & ~WALLS_ALL));
}

/* A box that a reset would make of it: what it is asked to be is within its limits, or refused. */
static void check_spec(sandbox *sb)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = {0};

    sandbox_to_spec(sb, &s);
    err *e = sandbox_spec_check(&s);
    MUST(e || (s.ntmpfs <= SPEC_TMPFS_MAX && s.umask <= 0777));
    err_free(e);
}

static void check_again(engine *e, sandbox *sb)
{
    sandbox_row first = {0}, second = {0};
    sandbox *copy = NULL;

    sandbox_to_row(sb, &first);
    copy = sandbox_from_row(e, &first);
    sandbox_to_row(copy, &second);
    MUST(!strcmp(first.spec, second.spec) && !strcmp(first.state, second.state));
    free(first.spec);
    free(second.spec);
    sandbox_unref(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static engine e = {.o = {.clock = &CLOCK_SYSTEM}};
    log_init("fuzz", LOG_ERROR + 1); /* damage is told */
    fuzz_in in = {data, size};
    CLEANUP(freep) char *state = fuzz_word(&in, 0);
    CLEANUP(freep) char *ended = fuzz_word(&in, 0);
    CLEANUP(freep) char *spec = fuzz_word(&in, 0);
    CLEANUP(freep) char *walls = fuzz_word(&in, 0);
    sandbox_row r = {.id = "abcd0123456789abcdef",
                     .owner = "admin",
                     .state = state,
                     .cause = *ended ? ended : NULL,
                     .image = "docker.io/library/busybox:latest",
                     .spec = spec,
                     .walls = *walls ? walls : NULL,
                     .created_ns = 1,
                     .ttl_ns = 2};
    sandbox *sb = sandbox_from_row(&e, &r);

    check_view(sb);
    check_receipt(sb);
    check_spec(sb);
    check_again(&e, sb);
    sandbox_unref(sb);
    return 0;
}
