/* What bothy is measured against: programs that are spawned and waited for.
 *
 *   -- NAME plain COMMAND...
 *   -- NAME root MERGED SCRATCH LOWER UID COMMAND...   an overlay is mounted before COMMAND and
 *                                                      unmounted after it; both are timed */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

void rival_sample(const rival *r, unsigned round)
{
    char name[64];

    if (!r->has_root) {
        note(r->name, run_timed(r->argv, round, -1));
        return;
    }
    snprintf(name, sizeof name, "%s-%u", r->name, round);
    root_make_upper(&r->root, name);
    uint64_t begun = now_mono_ns();
    root_mount(&r->root, name);
    run_timed(r->argv, round, -1);
    root_umount(&r->root);
    note(r->name, now_mono_ns() - begun);
}

/* Takes the words of one rival apart; the "--" behind them becomes the end of its argv. */
static char **read_rival(char **word, rival *ret)
{
    ret->name = *word++;
    ret->has_root = *word && strcmp(*word, "root") == 0;
    if (*word)
        word++;
    if (ret->has_root) {
        ret->root = (root_plan){.merged = word[0], .scratch = word[1], .lower = word[2]};
        ret->root.uid_base = number(word[3]);
        word += 4;
        root_map_layers(&ret->root);
    }
    ret->argv = word;
    while (*word && strcmp(*word, "--") != 0)
        word++;
    if (word == ret->argv)
        fail("%s has no command", ret->name);
    return word;
}

size_t rivals_read(char **word, rival ret[RIVALS_MAX])
{
    size_t n = 0;

    while (*word && n < RIVALS_MAX) {
        *word++ = NULL; /* the "--" */
        word = read_rival(word, &ret[n++]);
    }
    return n;
}

void digest_read(const char *hex, uint8_t ret[32])
{
    for (size_t i = 0; i < 32; i++) {
        const char two[] = {hex[2 * i], hex[2 * i] ? hex[2 * i + 1] : 0, 0};
        ret[i] = (uint8_t)strtoul(two, NULL, 16);
        if (!two[0] || !two[1])
            fail("%s is no digest", hex);
    }
}
