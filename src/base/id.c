#include "base/id.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/str.h"

static const char ALPHABET[] = "abcdefghijklmnopqrstuvwxyz0123456789";

void random_bytes(void *p, size_t n)
{
    char *at = p;

    while (n) {
        ssize_t k = getrandom(at, n, 0);
        if (k <= 0)
            abort();
        at += k;
        n -= (size_t)k;
    }
}

void id_random(char *ret_text, size_t n)
{
    unsigned char pool[32];
    size_t left = 0;

    for (size_t i = 0; i < n;) {
        if (!left)
            random_bytes(pool, left = sizeof pool);
        unsigned char b = pool[--left];
        if (b < 252) /* 252 = 7 * 36: no character is likelier than another */
            ret_text[i++] = ALPHABET[b % 36];
    }
    ret_text[n] = 0;
}

void id_sandbox(const char cell[CELL_LEN + 1], char ret_id[SANDBOX_ID_LEN + 1])
{
    memcpy(ret_id, cell, CELL_LEN);
    id_random(ret_id + CELL_LEN, SANDBOX_ID_LEN - CELL_LEN);
}

bool id_is_sandbox(const char *s)
{
    return strlen(s) == SANDBOX_ID_LEN && strspn(s, ALPHABET) == SANDBOX_ID_LEN;
}
