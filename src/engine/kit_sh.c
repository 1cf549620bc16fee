/* The shell script that does file verbs where the kit cannot run, and the decoder of its
 * answers. */
#include "engine/kit_sh.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"

/* The script prints "S<stat>\n<name>\0<target>\0" for an entry, "X<errno>\n" when a verb fails and
 * ends, "D" before the bytes of a file or of a tar archive, which last until the end, and "Z" after
 * everything else.
 *
 * Arguments: $1 verb, $2 path, $3 other path, $4 mode or nothing, $5 depth, $6 flags (p parents, r
 * recursive, f follow, n new, o owners), $7 first byte as of tail -c, $8 number of bytes. Uses only
 * what both POSIX and busybox have. */
static const char SCRIPT[] =
    "LC_ALL=C; export LC_ALL; v=$1 p=$2 q=$3 m=$4 d=$5 f=$6 o=$7 c=$8\n"
    "has() { case $f in *$1*) return 0;; esac; return 1; }\n"
    "x() { printf 'X%s\\n' \"$1\"; exit 0; }\n"
    "why() { case $1 in *'No such'*) x 2;; *'ermission denied'*) x 13;; *'ot permitted'*) x 1;;\n"
    " *xists*) x 17;; *'ot a directory'*) x 20;; *'s a directory'*) x 21;; *'No space'*) x 28;;\n"
    " *uota*) x 122;; *ead-only*) x 30;; *'ot empty'*) x 39;; *usy*) x 16;; *'too long'*) x 36;;\n"
    " *) x 5;; esac; }\n"
    "there() { [ -e \"$1\" ] || [ -L \"$1\" ]; }\n"
    "ent() { s=$(stat $3 -c '%f %u %g %h %s %Y %d %i' -- \"$1\" 2>&1) || {\n"
    " [ -n \"$2\" ] && return 0; why \"$s\"; }\n"
    " t=; if [ -z \"$3\" ] && [ -L \"$1\" ]; then t=$(readlink -- \"$1\"; echo .); t=${t%??}; fi\n"
    " printf 'S%s\\n%s\\0%s\\0' \"$s\" \"$2\" \"$t\"; }\n"
    "walk() { [ \"$3\" -gt 0 ] || return 0\n"
    " for w in \"$1\"/* \"$1\"/.[!.]* \"$1\"/..?*; do there \"$w\" || continue\n"
    "  ent \"$w\" \"$2${w##*/}\"\n"
    "  if [ -d \"$w\" ] && [ ! -L \"$w\" ]; then walk \"$w\" \"$2${w##*/}/\" $(($3 - 1)); fi\n"
    " done; }\n"
    "up() { case ${1%/*} in \"$1\"|'') ;; *) has p && mkdir -p -- \"${1%/*}\" 2>/dev/null;; esac; }\n"
    "case $p in -*) p=./$p;; esac; case $q in -*) q=./$q;; esac\n"
    "case $v in\n"
    "stat) if has f; then ent \"$p\" '' -L; else ent \"$p\" ''; fi;;\n"
    "list) there \"$p\" || x 2; [ -d \"$p\" ] || x 20; [ -r \"$p\" ] || x 13; walk \"$p\" '' \"$d\";;\n"
    "mkdir) if [ -d \"$p\" ]; then has n && x 17; else up \"$p\"\n"
    "  e=$(mkdir ${m:+-m \"$m\"} -- \"$p\" 2>&1) || why \"$e\"; fi; ent \"$p\" '' -L;;\n"
    "move) there \"$p\" || x 2; there \"$q\" && has n && x 17; [ -d \"$q\" ] && x 21; up \"$q\"\n"
    "  e=$(mv -f -- \"$p\" \"$q\" 2>&1) || why \"$e\"; ent \"$q\" '';;\n"
    "remove) there \"$p\" || x 2; case $p in /|.|..|*/.|*/..) x 16;; esac\n"
    "  if [ -d \"$p\" ] && [ ! -L \"$p\" ]; then if has r; then e=$(rm -rf -- \"$p\" 2>&1)\n"
    "  else e=$(rmdir -- \"$p\" 2>&1); fi; else e=$(rm -f -- \"$p\" 2>&1); fi || why \"$e\";;\n"
    "read) [ -e \"$p\" ] || x 2; [ -d \"$p\" ] && x 21; [ -f \"$p\" ] || x 22; [ -r \"$p\" ] || x 13\n"
    "  ent \"$p\" '' -L; printf D; tail -c \"$o\" -- \"$p\" | head -c \"$c\"; exit 0;;\n"
    "write) i=0; while [ -L \"$p\" ] && [ $i -lt 16 ]; do l=$(readlink -- \"$p\"; echo .); l=${l%??}\n"
    "  case $l in /*) p=$l;; *) case $p in */*) p=${p%/*}/$l;; *) p=$l;; esac;; esac; i=$((i+1)); done\n"
    "  [ -d \"$p\" ] && x 21; there \"$p\" && { has n && x 17; [ -f \"$p\" ] || x 22; }; up \"$p\"\n"
    "  case $p in */*) t=${p%/*}/.bothy-$$;; *) t=.bothy-$$;; esac\n"
    "  a=; if [ -f \"$p\" ]; then a=$(stat -c %u:%g -- \"$p\"); m=${m:-$(stat -c %a -- \"$p\")}; fi\n"
    "  trap 'rm -f -- \"$t\"; exit 1' TERM HUP\n"
    "  e=$( (set -C; : >\"$t\") 2>&1) || why \"$e\"\n"
    "  e=$(cat 2>&1 >\"$t\") || { rm -f -- \"$t\"; why \"$e\"; }\n"
    "  [ -z \"$a\" ] || chown \"$a\" -- \"$t\" 2>/dev/null\n"
    "  [ -z \"$m\" ] || chmod \"$m\" -- \"$t\"\n"
    "  e=$(mv -f -- \"$t\" \"$p\" 2>&1) || { rm -f -- \"$t\"; why \"$e\"; }; ent \"$p\" '' -L;;\n"
    "pack) if has f; then [ -e \"$p\" ] || x 2; else there \"$p\" || x 2; fi\n"
    "  command -v tar >/dev/null || x 38; [ -L \"$p\" ] || [ -r \"$p\" ] || x 13\n"
    "  if [ -d \"$p\" ] && { has f || [ ! -L \"$p\" ]; }; then cd \"$p\" || x 13; printf D; exec tar -cf - .; fi\n"
    "  b=${p##*/}; case $p in */*) cd \"${p%/*}/\" || x 13;; esac\n"
    "  printf D; if has f; then exec tar -hcf - \"./$b\"; else exec tar -cf - \"./$b\"; fi;;\n"
    "unpack) command -v tar >/dev/null || x 38; there \"$p\" || { has p && mkdir -p -- \"$p\" 2>/dev/null; }\n"
    "  there \"$p\" || x 2; [ -d \"$p\" ] || x 20; cd \"$p\" || x 13\n"
    "  if has o; then e=$(tar -xpf - 2>&1); else e=$(tar -xof - 2>&1); fi || why \"$e\";;\n"
    "esac; printf Z\n";

enum {
    ARGC = 13,
    /* Longest answers: the decoder's verdict does not depend on how they are split. */
    ENTRY_MAX = 3 * KIT_PATH_MAX,
    FAILURE_MAX = 16,
    /* Fields of the stat line, in this order: mode, uid, gid, links, size, mtime, device, inode. */
    STAT_FIELDS = 8,
    STAT_MTIME = 5,
};

struct kit_sh {
    char *argv[ARGC];
    enum kit_verb verb;
    uint64_t max, entries, at, end; /* at, end: range of a file's bytes */
    char *after;                    /* names up to and including this one are left out */
    uint64_t offset, length;
    bool suffix, data, failed, more, told;
    uint64_t size;
};

static bool kit_sh_can(enum kit_verb v)
{
    return v == KIT_STAT || v == KIT_READ || v == KIT_WRITE || v == KIT_LIST || v == KIT_MKDIR ||
           v == KIT_MOVE || v == KIT_REMOVE || v == KIT_PACK || v == KIT_UNPACK;
}

/* Writes the arguments of tail and head. First: "+N" is the first byte, counted from 1, "N" the
 * number of last bytes. Count: how many. */
static void put_range(const kit_request *rq, char **ret_first, char **ret_count)
{
    bool suffix = rq->flags & KIT_F_SUFFIX;
    uint64_t n = rq->length < INT64_MAX ? rq->length : INT64_MAX;

    *ret_first = suffix ? str_printf("%lu", n) : str_printf("+%lu", rq->offset + 1);
    *ret_count = str_printf("%lu", n);
}

err *kit_sh_new(const kit_request *rq, kit_sh **ret_sh)
{
    if (!kit_sh_can(rq->verb))
        return err_remedy(
            err_new(ERR_UNSUPPORTED, "%s: this node has no kit", kit_verb_name(rq->verb)),
            "Run find or grep in the sandbox instead.");
    kit_sh *s = xcalloc(1, sizeof *s);
    *s = (kit_sh){.verb = rq->verb,
                  .max = rq->verb == KIT_LIST ? rq->max : UINT64_MAX,
                  .offset = rq->offset,
                  .length = rq->length,
                  .suffix = rq->flags & KIT_F_SUFFIX,
                  .after = rq->verb == KIT_LIST && rq->to && *rq->to ? xstrdup(rq->to) : NULL};
    const char *flags[] = {rq->flags & KIT_F_PARENTS ? "p" : "",
                           rq->flags & KIT_F_RECURSIVE ? "r" : "",
                           rq->flags & KIT_F_FOLLOW ? "f" : "", rq->flags & KIT_F_NEW ? "n" : "",
                           rq->flags & KIT_F_OWNERS ? "o" : ""};
    char **v = s->argv;
    v[0] = xstrdup("sh");
    v[1] = xstrdup("-c");
    v[2] = xstrdup(SCRIPT);
    v[3] = xstrdup("bothy-kit");
    v[4] = xstrdup(kit_verb_name(rq->verb));
    v[5] = xstrdup(rq->path);
    v[6] = xstrdup(rq->verb == KIT_MOVE ? rq->to : "");
    bool has_mode = rq->mode != KIT_MODE_NONE && (rq->verb == KIT_WRITE || rq->verb == KIT_MKDIR);
    v[7] = has_mode ? str_printf("%o", rq->mode) : xstrdup("");
    v[8] = str_printf("%u", rq->depth);
    v[9] = str_printf("%s%s%s%s%s", flags[0], flags[1], flags[2], flags[3], flags[4]);
    put_range(rq, &v[10], &v[11]);
    *ret_sh = s;
    return NULL;
}

void kit_sh_free(kit_sh *s)
{
    if (!s)
        return;
    for (int i = 0; i < ARGC; i++)
        free(s->argv[i]);
    free(s->after);
    free(s);
}

char **kit_sh_argv(kit_sh *s)
{
    return s->argv;
}

/* ---- its answers ---- */

static enum kit_verdict kit_sh_error(kit_sh *s, int errnum, kit_record *r)
{
    *r = (kit_record){.type = KIT_ERROR, .name = ""};
    r->error = (struct kit_error){.errnum = errnum > 0 && errnum < 4096 ? errnum : EIO,
                                  .flags = KIT_E_FATAL};
    s->failed = true;
    return KIT_OK;
}

static enum kit_verdict kit_sh_end(kit_sh *s, kit_record *r)
{
    *r = (kit_record){.type = KIT_END};
    r->end = (struct kit_end){.entries = s->verb == KIT_REMOVE ? 1 : s->entries,
                              .flags = s->more ? KIT_E_MORE : 0};
    return KIT_OK;
}

/* Parses exactly n numbers with one space between them. Returns false otherwise. */
static bool parse_numbers(const char *p, int64_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *end;
        errno = 0;
        v[i] = strtoll(p, &end, i ? 10 : 16); /* the mode comes first */
        if (end == p || errno || *end != (i + 1 < n ? ' ' : 0) || (v[i] < 0 && i != STAT_MTIME))
            return false;
        p = end + 1;
    }
    return true;
}

static bool parse_stat(const char *p, size_t n, struct kit_entry *e)
{
    CLEANUP(freep) char *line = xstrndup(p, n);
    int64_t v[STAT_FIELDS];

    if (strlen(line) != n || !parse_numbers(line, v, STAT_FIELDS))
        return false;
    *e = (struct kit_entry){.mode = (uint32_t)v[0],
                            .uid = (uint32_t)v[1],
                            .gid = (uint32_t)v[2],
                            .nlink = (uint32_t)v[3],
                            .size = (uint64_t)v[4],
                            .mtime = v[STAT_MTIME],
                            .dev = (uint64_t)v[6],
                            .ino = (uint64_t)v[7]};
    return true;
}

/* Sets [at, end), the range of the file that the following bytes are. */
static void set_span(kit_sh *s)
{
    uint64_t n = s->length;

    s->at = s->suffix ? (n < s->size ? s->size - n : 0) : s->offset;
    s->end = s->at >= s->size ? s->at : n < s->size - s->at ? s->at + n : s->size;
}

/* Decodes "S…\n name \0 target \0" at p, of which n bytes are there. */
static enum kit_verdict kit_sh_entry(kit_sh *s, const char *p, size_t n, kit_record *r,
                                     size_t *used)
{
    n = n < ENTRY_MAX ? n : ENTRY_MAX;
    const char *line = memchr(p, '\n', n);
    const char *name = line ? line + 1 : NULL;
    const char *name_end = name ? memchr(name, 0, n - (size_t)(name - p)) : NULL;
    const char *target = name_end ? name_end + 1 : NULL;
    const char *target_end = target ? memchr(target, 0, n - (size_t)(target - p)) : NULL;

    if (!target_end)
        return n == ENTRY_MAX ? KIT_BAD : KIT_SHORT;
    *used = (size_t)(target_end - p) + 1;
    *r = (kit_record){.type = KIT_ENTRY,
                      .name = name,
                      .name_len = (size_t)(name_end - name),
                      .bytes = target,
                      .bytes_len = (size_t)(target_end - target)};
    if (!parse_stat(p + 1, (size_t)(line - p) - 1, &r->entry) || r->bytes_len > KIT_PATH_MAX ||
        !kit_name_valid(r->name, r->name_len))
        return KIT_BAD;
    s->size = r->entry.size;
    return KIT_OK;
}

/* Returns true if the entry belongs to the page; entries up to the cursor do not. */
static bool is_wanted(kit_sh *s, const kit_record *r)
{
    if (s->after) {
        bool is_last = strlen(s->after) == r->name_len && !memcmp(s->after, r->name, r->name_len);
        if (is_last) {
            free(s->after);
            s->after = NULL;
        }
        return false;
    }
    return true;
}

static enum kit_verdict kit_sh_data(kit_sh *s, const char *p, size_t n, bool all, kit_record *r,
                                    size_t *used)
{
    size_t take = n < KIT_DATA_MAX ? n : KIT_DATA_MAX;

    if (s->at == s->end)
        return n ? KIT_BAD : all ? kit_sh_end(s, r) : KIT_SHORT;
    if (!n)
        return all ? kit_sh_error(s, ESTALE, r) : KIT_SHORT;
    if (take > s->end - s->at)
        take = (size_t)(s->end - s->at);
    *r = (kit_record){.type = KIT_DATA, .offset = s->at, .bytes = p, .bytes_len = take};
    s->at += take;
    *used = take;
    return KIT_OK;
}

static enum kit_verdict one_entry(kit_sh *s, const char *p, size_t n, kit_record *r, size_t *used)
{
    enum kit_verdict v = kit_sh_entry(s, p, n, r, used);

    if (v != KIT_OK)
        return v;
    if (!is_wanted(s, r)) {
        *r = (kit_record){.type = KIT_PING}; /* consumed, without a record for the caller */
    } else if (s->entries >= s->max) {
        s->more = true;
        return kit_sh_end(s, r);
    } else {
        s->entries++;
    }
    return KIT_OK;
}

/* Decodes bytes of a tar archive, as one file of unknown length. tar continues after files that it
 * cannot read, and reports them by its exit status. */
static enum kit_verdict tar_data(kit_sh *s, const char *p, size_t n, bool all,
                                 const exec_end *ended, kit_record *r, size_t *used)
{
    size_t take = n < KIT_DATA_MAX ? n : KIT_DATA_MAX;

    if (n) {
        *r = (kit_record){.type = KIT_DATA, .offset = s->at, .bytes = p, .bytes_len = take};
        s->at += take;
        *used = take;
        return KIT_OK;
    }
    if (!all)
        return KIT_SHORT;
    if (ended->how != EXEC_EXITED || ended->exit_code > 2)
        return kit_sh_error(s, EIO, r);
    if (!ended->exit_code || s->told)
        return kit_sh_end(s, r);
    s->told = true;
    *r = (kit_record){.type = KIT_ERROR};
    r->error = (struct kit_error){.errnum = EACCES};
    return KIT_OK;
}

static enum kit_verdict begin_tar(kit_sh *s, kit_record *r, size_t *used)
{
    s->data = true;
    *r = (kit_record){.type = KIT_ENTRY};
    r->entry = (struct kit_entry){.mode = S_IFREG, .flags = KIT_E_UNSIZED};
    *used = 1;
    return KIT_OK;
}

static enum kit_verdict begin_data(kit_sh *s, kit_record *r, size_t *used)
{
    s->data = true;
    set_span(s);
    *r = (kit_record){.type = KIT_PING};
    *used = 1;
    return KIT_OK;
}

static enum kit_verdict kit_sh_failure(kit_sh *s, const char *p, size_t n, kit_record *r,
                                       size_t *used)
{
    const char *line = memchr(p, '\n', n < FAILURE_MAX ? n : FAILURE_MAX);
    uint64_t errnum = 0;

    if (!line)
        return n >= FAILURE_MAX ? KIT_BAD : KIT_SHORT;
    CLEANUP(freep) char *number = xstrndup(p + 1, (size_t)(line - p) - 1);
    *used = (size_t)(line - p) + 1;
    return kit_sh_error(s, str_to_u64(number, 4095, &errnum) ? (int)errnum : EIO, r);
}

enum kit_verdict kit_sh_decode(kit_sh *s, const char *p, size_t n, bool all, const exec_end *ended,
                               kit_record *ret_record, size_t *ret_used)
{
    *ret_used = 0;
    if (s->failed)
        return kit_sh_end(s, ret_record);
    if (s->data && s->verb == KIT_PACK)
        return tar_data(s, p, n, all, ended, ret_record, ret_used);
    if (s->data)
        return kit_sh_data(s, p, n, all, ret_record, ret_used);
    if (!n) /* 127: one of its tools is missing */
        return all && ended->how == EXEC_EXITED && ended->exit_code == 127
                   ? kit_sh_error(s, ENOSYS, ret_record)
                   : KIT_SHORT;
    switch (*p) {
    case 'S':
        return one_entry(s, p, n, ret_record, ret_used);
    case 'D':
        return s->verb == KIT_READ   ? begin_data(s, ret_record, ret_used)
               : s->verb == KIT_PACK ? begin_tar(s, ret_record, ret_used)
                                     : KIT_BAD;
    case 'X':
        return kit_sh_failure(s, p, n, ret_record, ret_used);
    case 'Z':
        *ret_used = 1;
        return kit_sh_end(s, ret_record);
    default:
        return KIT_BAD;
    }
}
