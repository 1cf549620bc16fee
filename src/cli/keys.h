/* The keys that let go of a terminal: a sequence that is looked for in what is typed.
 *
 * Docker's notation: "ctrl-p,ctrl-q", single characters and ctrl- with a letter or one of @[\]^_.
 * What only began like the sequence is passed on when the next key shows that it is none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define KEYS_DEFAULT "ctrl-p,ctrl-q"
#define KEYS_MAX     8

typedef struct keys {
    unsigned char v[KEYS_MAX];
    size_t n;    /* 0: nothing lets go */
    size_t held; /* of them typed so far */
} keys;

/* An empty text: no keys. */
err *keys_parse(const char *text, keys *ret_keys) ERR_MUST;
/* Looks at what was typed, appends what is meant for the command. True: the whole sequence came;
 * what follows it in p is dropped. */
bool keys_feed(keys *k, const char *p, size_t n, buf *out);
