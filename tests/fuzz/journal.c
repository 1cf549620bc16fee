/* Records of a journal: what decodes is within its ranges and is sealed to the same bytes again. */
#include "exec/journal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const journal_rec *r, const void *raw)
{
    journal_rec again = *r;

    if (r->type == JOURNAL_BEGIN && strlen(r->begin.command) >= JOURNAL_COMMAND_MAX)
        abort();
    if (r->type == JOURNAL_MARK && (r->mark.stream - 1 > 1 || r->mark.from >= r->mark.to))
        abort();
    if (r->type == JOURNAL_RESET && (!*r->reset.box || strlen(r->reset.box) >= JOURNAL_BOX_MAX))
        abort();
    if (!r->exec || !r->type || r->type >= JOURNAL_TYPES)
        abort();
    journal_seal(&again);
    if (memcmp(&again, raw, sizeof again))
        abort();
}

/* The sum is almost never right by chance: each record is also tried with its own. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at + JOURNAL_REC <= size; at += JOURNAL_REC) {
        journal_rec r, sealed;
        if (journal_decode(data + at, &r) == JOURNAL_OK)
            check(&r, data + at);
        memcpy(&sealed, data + at, sizeof sealed);
        journal_seal(&sealed);
        if (journal_decode(&sealed, &r) == JOURNAL_OK)
            check(&r, &sealed);
    }
    return 0;
}
