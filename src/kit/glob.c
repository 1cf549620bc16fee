/* Matches names against patterns, for the search verb. */
#include "kit/kit.h"

#define STEPS_MAX 100000u /* of one name, so that a pattern of many stars ends */

/* Returns whether the set at p (behind its '[') contains c. *ret_end is behind its ']', or NULL if
 * it has none. */
static bool in_set(const char *p, char c, const char **ret_end)
{
    bool not = *p == '!' || *p == '^', found = false;

    p += not ;
    for (bool first = true; *p && (first || *p != ']'); first = false) {
        unsigned char low = (unsigned char)*p++, high = low, at = (unsigned char)c;
        if (p[0] == '-' && p[1] && p[1] != ']') {
            high = (unsigned char)p[1];
            p += 2;
        }
        found |= at >= low && at <= high;
    }
    *ret_end = *p ? p + 1 : NULL;
    return found != not ;
}

/* Matches one element of the pattern against one character; *ret_next is the pattern behind it. */
static bool glob_one(const char *p, char c, const char **ret_next)
{
    const char *end;

    *ret_next = p + 1;
    if (*p == '?')
        return c != '/';
    if (*p == '[') {
        bool in = in_set(p + 1, c, &end);
        if (end) {
            *ret_next = end;
            return in && c != '/';
        }
    }
    if (*p == '\\' && p[1]) {
        *ret_next = p + 2;
        return p[1] == c;
    }
    return *p == c;
}

static bool kit_glob_match(const char *p, const char *s, u32 *steps)
{
    for (;;) {
        if (++*steps > STEPS_MAX)
            return false;
        if (!*p)
            return !*s;
        if (*p == '*') {
            bool deep = p[1] == '*';
            while (*p == '*')
                p++;
            if (deep && *p == '/' && kit_glob_match(p + 1, s, steps))
                return true; /* a/ ** /b matches a/b */
            for (;; s++) {
                if (kit_glob_match(p, s, steps))
                    return true;
                if (!*s || (*s == '/' && !deep) || *steps > STEPS_MAX)
                    return false;
            }
        }
        const char *next;
        if (!*s || !glob_one(p, *s, &next))
            return false;
        p = next;
        s++;
    }
}

bool glob_match(const char *pattern, const char *s)
{
    u32 steps = 0;

    return kit_glob_match(pattern, s, &steps);
}
