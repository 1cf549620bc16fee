#include "unpack/names.h"

#include <string.h>

#define WH      ".wh."
#define WH_LEN  4
#define WH_META ".wh..wh."
#define WH_OPQ  ".wh..wh..opq"

static bool is_dots(const char *s, size_t n)
{
    return n == 2 && s[0] == '.' && s[1] == '.';
}

const char *name_normalise(char *path, unsigned max_depth, unsigned *ret_depth)
{
    char *to = path;
    unsigned depth = 0;

    if (strnlen(path, NAME_PATH_MAX + 1) > NAME_PATH_MAX)
        return "name longer than 4095 bytes";
    for (const char *from = path;;) {
        from += strspn(from, "/");
        size_t n = strcspn(from, "/");
        if (!n)
            break;
        if (is_dots(from, n))
            return "'..' in a name";
        if (n > NAME_LEAF_MAX)
            return "component longer than 255 bytes";
        if (!(n == 1 && *from == '.')) {
            if (++depth > max_depth)
                return "name too deep";
            if (to != path)
                *to++ = '/';
            memmove(to, from, n);
            to += n;
        }
        from += n;
    }
    *to = 0;
    *ret_depth = depth;
    return NULL;
}

const char *name_leaf(const char *path, size_t *ret_parent_len)
{
    const char *slash = strrchr(path, '/');

    *ret_parent_len = slash ? (size_t)(slash - path) : 0;
    return slash ? slash + 1 : path;
}

static enum name_kind kind_of_leaf(const char *leaf, const char **ret_target)
{
    if (strncmp(leaf, WH, WH_LEN) != 0)
        return NAME_PLAIN;
    if (strcmp(leaf, WH_OPQ) == 0)
        return NAME_OPAQUE;
    if (strncmp(leaf, WH_META, strlen(WH_META)) == 0)
        return NAME_AUFS;
    const char *target = leaf + WH_LEN;
    if (!*target || strcmp(target, ".") == 0 || is_dots(target, strlen(target)))
        return NAME_BAD;
    *ret_target = target;
    return NAME_WHITEOUT;
}

enum name_kind name_kind_of(const char *path, const char **ret_target)
{
    const char *c = path;

    for (const char *slash; (slash = strchr(c, '/')); c = slash + 1) {
        if (strncmp(c, WH_META, strlen(WH_META)) == 0)
            return NAME_AUFS;
        if (strncmp(c, WH, WH_LEN) == 0)
            return NAME_BAD;
    }
    return kind_of_leaf(c, ret_target);
}
