/* Detach keys: finds a sequence of keys in what is typed.
 *
 * Notation as in docker: "ctrl-p,ctrl-q", single characters and ctrl- with a letter or one of
 * @[\]^_. The beginning of a sequence is held back, and passed on if the next key does not
 * match. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define KEYS_DEFAULT "ctrl-p,ctrl-q"
#define KEYS_MAX     8

typedef struct keys {
    unsigned char v[KEYS_MAX];
    size_t n;    /* 0: no detach keys */
    size_t held; /* how many of them were typed so far */
} keys;

/* Parses a sequence. An empty text means no keys. */
err *keys_parse(const char *text, keys *ret_keys) ERR_MUST;
/* Appends typed bytes that are meant for the command. Returns true if the whole sequence was typed;
 * the rest of p is dropped. */
bool keys_feed(keys *k, const char *p, size_t n, buf *out);
