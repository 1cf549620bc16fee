#include "cli/keys.h"

#include <string.h>

#include "base/str.h"
#include "cli/cli.h"

/* Returns the code of one key of the list; -1 if it is not a key. */
static int key_of(const char *word, size_t n)
{
    if (n == 1)
        return (unsigned char)*word;
    if (n != 6 || strncmp(word, "ctrl-", 5) != 0)
        return -1;
    char c = word[5];
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 1;
    return c && strchr("@[\\]^_", c) ? c - '@' : -1;
}

err *keys_parse(const char *text, keys *ret_keys)
{
    keys k = {0};

    while (*text) {
        size_t n = strcspn(text, ",");
        int key = key_of(text, n);
        if (key < 0 || k.n == KEYS_MAX)
            return err_remedy(usage_error("'%s' is not a sequence of keys", text),
                              "Give up to %d, like ctrl-p,ctrl-q; none at all for no such keys.",
                              KEYS_MAX);
        k.v[k.n++] = (unsigned char)key;
        text += n + (text[n] == ',');
    }
    *ret_keys = k;
    return NULL;
}

/* Handles a key that does not match: passes on the held keys, except a rest that may begin the
 * sequence again. */
static void give_up(keys *k, buf *out)
{
    size_t keep = k->held - 1;

    while (keep && memcmp(k->v, k->v + k->held - keep, keep) != 0)
        keep--;
    buf_append(out, k->v, k->held - keep);
    k->held = keep;
}

bool keys_feed(keys *k, const char *p, size_t n, buf *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        while (k->held && k->v[k->held] != c)
            give_up(k, out);
        if (!k->n || k->v[k->held] != c) {
            buf_append(out, &c, 1);
        } else if (++k->held == k->n) {
            k->held = 0;
            return true;
        }
    }
    return false;
}
