/* Parses the passwd and group files for user_resolve(). */
#include "bare/passwd.h"

#include "bare/lib.h"

static const char no_home[] = "/", no_shell[] = "/bin/sh", root_name[] = "root";

static bool to_id(const char *s, u32 *ret)
{
    u64 v;

    if (!text_number(s, s + text_len(s), &v) || v >= NO_ID)
        return false;
    *ret = (u32)v;
    return true;
}

static bool all_digits(const char *s)
{
    u64 v;
    return text_number(s, s + text_len(s), &v) || (*s >= '0' && *s <= '9');
}

enum {
    PW_NAME,
    PW_PASSWORD,
    PW_UID,
    PW_GID,
    PW_GECOS,
    PW_HOME,
    PW_SHELL
};
enum {
    GR_NAME,
    GR_PASSWORD,
    GR_GID,
    GR_MEMBERS
};

static bool take_user(const char *const field[TEXT_FIELDS], struct user *ret)
{
    if (!to_id(field[PW_UID], &ret->uid) || !to_id(field[PW_GID], &ret->gid))
        return false;
    ret->name = field[PW_NAME];
    ret->home = *field[PW_HOME] ? field[PW_HOME] : no_home;
    ret->shell = *field[PW_SHELL] ? field[PW_SHELL] : no_shell;
    return true;
}

/* Searches by name, then by number; the first matching line wins. */
static long find_user(char *file, const char *who, struct user *ret)
{
    const char *field[TEXT_FIELDS];
    u32 id = NO_ID, uid;
    bool number = to_id(who, &id), found = false;
    struct user by_number;

    for (char *at = file; text_fields(&at, field);) {
        if (text_equal(field[PW_NAME], who) && take_user(field, ret))
            return 0;
        if (number && !found && to_id(field[PW_UID], &uid) && uid == id) {
            by_number = *ret;
            found = take_user(field, &by_number);
        }
    }
    if (found)
        *ret = by_number;
    else if (number)
        ret->uid = id;
    else
        return all_digits(who) ? -EINVAL : -ENOENT;
    return 0;
}

static long find_group(char *file, const char *who, u32 *ret)
{
    const char *field[TEXT_FIELDS];
    u32 gid;

    for (char *at = file; text_fields(&at, field);)
        if (text_equal(field[GR_NAME], who) && to_id(field[GR_GID], &gid)) {
            *ret = gid;
            return 0;
        }
    if (to_id(who, ret))
        return 0;
    return all_digits(who) ? -EINVAL : -ENOENT;
}

static bool has_member(const char *members, const char *name)
{
    size_t n = text_len(name);

    for (const char *p = members; *p;) {
        size_t m = 0;
        while (p[m] && p[m] != ',')
            m++;
        if (m == n && text_starts(p, name))
            return true;
        p += m + (p[m] == ',');
    }
    return false;
}

static void add_groups(char *file, struct user *u)
{
    const char *field[TEXT_FIELDS];

    for (char *at = file; text_fields(&at, field) && u->ngroups < USER_GROUPS_MAX;) {
        u32 gid;
        if (has_member(field[GR_MEMBERS], u->name) && to_id(field[GR_GID], &gid))
            u->groups[u->ngroups++] = gid;
    }
}

long user_resolve(const char *spec, struct user *ret)
{
    static char who[256];
    char *group = NULL;
    size_t n = text_len(spec);

    if (n >= sizeof who)
        return -EINVAL;
    memcpy(who, spec, n + 1);
    for (char *p = who; *p && !group; p++)
        if (*p == ':') {
            *p = 0;
            group = p + 1;
        }
    if (!*who && !group)
        memcpy(who, "0", 2);
    if (!*who || (group && !*group))
        return -EINVAL;
    *ret = (struct user){.home = no_home, .shell = no_shell};
    long r = find_user(text_file("/etc/passwd"), who, ret);
    if (r)
        return r;
    if (!ret->name && !ret->uid)
        ret->name = root_name;
    if (group)
        return find_group(text_file("/etc/group"), group, &ret->gid);
    if (ret->name)
        add_groups(text_file("/etc/group"), ret);
    return 0;
}
