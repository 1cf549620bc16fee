#include "cli/generate.h"

#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/exit.h"
#include "cli/verbs.h"

extern const opt CLI_TOP_OPTS[];

/* ---- the manual page ---- */

/* Escapes text for troff: a dash is \-, a backslash \e, a line must not begin with a dot or
 * quote. */
static void generate_roff(buf *out, const char *s)
{
    if (*s == '.' || *s == '\'')
        buf_str(out, "\\&");
    for (; *s; s++) {
        if (*s == '\\')
            buf_str(out, "\\e");
        else if (*s == '-')
            buf_str(out, "\\-");
        else
            buf_char(out, *s);
        if (*s == '\n' && (s[1] == '.' || s[1] == '\''))
            buf_str(out, "\\&");
    }
}

static void man_options(buf *out, const opt *o)
{
    for (; o->name; o++) {
        if (!o->help)
            continue;
        CLEANUP(buf_done) buf spelled = {0};
        opt_spell(o, &spelled);
        const char *text = buf_cstr(&spelled);
        buf_str(out, ".TP\n\\fB");
        generate_roff(out, text + strspn(text, " "));
        buf_str(out, "\\fR\n");
        generate_roff(out, o->help);
        buf_char(out, '\n');
    }
}

static void man_text(buf *out, const char *text)
{
    buf_str(out, ".nf\n");
    generate_roff(out, text);
    buf_str(out, "\n.fi\n");
}

static bool is_common(const char *name)
{
    return str_eq(name, "socket") || str_eq(name, "url") || str_eq(name, "json") ||
           str_eq(name, "help");
}

/* Lists the verb's own options. The common ones are listed once. */
static void man_own_options(buf *out, const opt *o)
{
    for (; o->name; o++)
        if (!is_common(o->name)) {
            opt one[2] = {*o, OPT_END};
            man_options(out, one);
        }
}

static void man_verb(buf *out, const verb *v, const char *path)
{
    CLEANUP(freep) char *longer = str_printf("%s %s", path, v->name);

    if (v->of) {
        for (const verb *const *s = v->of; *s; s++)
            man_verb(out, *s, longer);
        return;
    }
    buf_printf(out, ".SS \"%s ", longer);
    generate_roff(out, v->usage);
    buf_str(out, "\"\n");
    generate_roff(out, v->summary);
    buf_str(out, ".\n");
    if (v->alias)
        buf_printf(out, "Also called \\fB%s\\fR.\n", v->alias);
    if (v->text)
        man_text(out, v->text);
    man_own_options(out, v->opts);
}

static const char MAN_HEAD[] =
    ".TH BOTHY 1 \"\" \"bothy " BOTHY_VERSION "\" \"User commands\"\n"
    ".SH NAME\nbothy \\- sandboxes for agents\n"
    ".SH SYNOPSIS\n.B bothy\n[\\-\\-socket PATH | \\-\\-url URL] [\\-\\-json] COMMAND ...\n"
    ".SH DESCRIPTION\nMakes sandboxes from images, runs commands in them, shows what they wrote and "
    "how they ended. It speaks to the daemon bothyd over its socket or over TCP.\n"
    ".SH OPTIONS\nThese may stand before or behind the name of the command.\n";
static const char MAN_TAIL[] =
    ".SH EXIT STATUS\n"
    "\\fBrun\\fR and \\fBexec\\fR exit with the status of the command. Otherwise:\n"
    ".TP\n0\nsuccess\n.TP\n1\n\\fBdoctor\\fR found something that fails\n"
    ".TP\n124\nthe command's time was over\n"
    ".TP\n125\nan error of bothy, or the end of the command is not known\n"
    ".TP\n126\nthe command could not be executed\n.TP\n127\nthe command was not found\n"
    ".TP\n128+n\nsignal n ended the command\n"
    ".SH ENVIRONMENT\n"
    ".TP\nBOTHY_URL\nthe daemon's address over TCP, http://HOST:PORT; before BOTHY_SOCKET\n"
    ".TP\nBOTHY_KEY\nthe key sent to that address\n"
    ".TP\nBOTHY_SOCKET\nthe daemon's socket\n"
    ".TP\nBOTHY_PATIENCE\nhow many seconds a lost daemon is waited for (default 60)\n"
    ".TP\nNO_COLOR\nno colours\n"
    ".SH FILES\n.TP\n" CLI_SOCKET "\nthe socket of the node's daemon\n"
    ".TP\n$XDG_RUNTIME_DIR/bothy/bothyd.sock\nthe socket of your own daemon, which is started where "
    "there is neither a node nor a daemon, and runs sandboxes on Docker or Podman\n"
    ".TP\n$XDG_STATE_HOME/bothy\nits state and its log, bothyd.log (~/.local/state/bothy)\n"
    ".TP\n$XDG_CONFIG_HOME/bothy/bothy.yaml\nits configuration (~/.config/bothy/bothy.yaml)\n"
    ".SH EXAMPLES\n.nf\nbothy run busybox \\-\\- sh \\-c 'echo hello; exit 3'\n"
    "id=$(bothy create \\-\\-ttl 10m debian)\nbothy exec \"$id\" python3 \\-c 'print(1+1)'\n"
    "bothy rm \"$id\"\n.fi\n";

static void generate_man(buf *out)
{
    buf_str(out, MAN_HEAD);
    man_options(out, CLI_TOP_OPTS);
    buf_str(out, ".SH COMMANDS\n");
    for (const verb *const *v = CLI_VERBS; *v; v++)
        man_verb(out, *v, "bothy");
    buf_str(out, MAN_TAIL);
}

/* ---- bash ---- */

static void bash_words(buf *out, const opt *o)
{
    for (; o->name; o++)
        if (o->help)
            buf_printf(out, "--%s ", o->name);
}

/* Writes what follows an option: "--network) choices='none open'", or "--template) of=template" for
 * names that the daemon has. */
static void bash_arguments(buf *out, const opt *o)
{
    static const char *const NAMES[] = {"template", "snapshot", "image", "sandbox"};

    for (; o->name; o++) {
        if (!o->arg || !o->help)
            continue;
        if (o->kind == OPT_CHOICE) {
            CLEANUP(freep) char *words = xstrdup(o->arg);
            for (char *c = words; *c; c++)
                *c = *c == '|' ? ' ' : *c;
            buf_printf(out, "        --%s) choices='%s' ;;\n", o->name, words);
        }
        for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
            if (o->kind == OPT_TEXT && str_eq(o->name, NAMES[i]))
                buf_printf(out, "        --%s) of=%s ;;\n", o->name, NAMES[i]);
    }
}

/* Writes the options whose next word is their argument. */
static void bash_takes(buf *out, const opt *o)
{
    buf_str(out, "        takes=' ");
    for (; o->name; o++) {
        if (!o->arg || !o->help)
            continue;
        buf_printf(out, "--%s ", o->name);
        if (o->letter)
            buf_printf(out, "-%c ", o->letter);
    }
    buf_str(out, "'\n");
}

static void bash_names(buf *out, const verb *const *table)
{
    for (; *table; table++)
        buf_printf(out, "%s ", (*table)->name);
}

/* Returns what completes a word of a usage line: the word's kind, or "-". */
static const char *bash_word_kind(const verb *v, const char *word, size_t n)
{
    static const struct {
        const char *word, *kind;
    } KINDS[] = {
        {"SANDBOX", "sandbox"}, {"SESSION", "session"}, {"EXEC", "exec"}, {"IMAGE", "image"}};

    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++)
        if (strlen(KINDS[i].word) == n && !memcmp(word, KINDS[i].word, n))
            return KINDS[i].kind;
    return str_eq(v->name, "help") ? "verb" : "-";
}

/* Writes the kinds of a verb's words in the order of its usage line: "sandbox exec+", where + is:
 * and all that follow. "=a|b" is a choice. */
static void bash_kinds(buf *out, const verb *v)
{
    const char *at = v->usage;

    if (strstr(v->usage, "SANDBOX:PATH")) { /* cp: on either side */
        buf_str(out, "sandbox+");
        return;
    }
    for (bool argument = false; *at && *at != '|'; at += strspn(at, " ")) {
        const char *word = at + (*at == '[');
        size_t len = strcspn(at, " "), n = strcspn(word, ".] ");
        bool option = *word == '-' || !strncmp(word, "OPTIONS", strlen("OPTIONS"));
        bool more = len >= 3 && memmem(at, len, "...", 3);
        if (!option && !argument) {
            bool choice = *word >= 'a' && *word <= 'z' && memchr(word, '|', n);
            if (choice)
                buf_printf(out, "=%.*s", (int)n, word);
            else
                buf_str(out, bash_word_kind(v, word, n));
            buf_str(out, more ? "+ " : " ");
        }
        argument = *word == '-' && !memchr(at, ']', len);
        at += len;
    }
}

static void bash_verb(buf *out, const verb *v, const char *path)
{
    CLEANUP(freep) char *longer = *path ? str_printf("%s %s", path, v->name) : xstrdup(v->name);

    if (v->of) {
        buf_printf(out, "    '%s')\n        words='", longer);
        bash_names(out, v->of);
        buf_str(out, "' ;;\n");
        for (const verb *const *s = v->of; *s; s++)
            bash_verb(out, *s, longer);
        return;
    }
    if (v->alias)
        buf_printf(out, "    '%s'|'%s%s%s')\n", longer, path, *path ? " " : "", v->alias);
    else
        buf_printf(out, "    '%s')\n", longer);
    buf_str(out, "        kinds='");
    bash_kinds(out, v);
    buf_str(out, "'\n        words='");
    bash_words(out, v->opts);
    buf_str(out, "'\n");
    bash_takes(out, v->opts);
    buf_str(out, "        case $prev in\n");
    bash_arguments(out, v->opts);
    buf_str(out, "        esac ;;\n");
}

static const char BASH_HEAD[] =
    "# bash completion for bothy; generated by 'bothy --generate bash'.\n"
    "_bothy() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    local path='' words='' kind='' kinds='' takes='' choices='' of='' box='' all w i\n"
    "    local at=0 n=0 verbs='%s'\n"
    "    COMPREPLY=()\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        w=${COMP_WORDS[i]}\n"
    "        case $w in\n"
    "        --socket|--url) ((i++)) ;;\n"
    "        -*) ;;\n"
    "        *)\n"
    "            case $path in\n"
    "            '') path=$w at=$i ;;\n";
static const char BASH_GROUP[] = "            %s) path=\"$path $w\" at=$i ;;\n";
static const char BASH_MIDDLE[] = "            esac ;;\n"
                                  "        esac\n"
                                  "    done\n"
                                  "    case $path in\n";
/* Which word of the verb is completed is counted behind its options; box is the first. */
static const char BASH_TAIL[] =
    "    esac\n"
    "    if [[ $takes == *\" $prev \"* ]]; then\n"
    "        kind=$of words=$choices\n"
    "    elif [ -n \"$kinds\" ] && [[ $cur != -* ]]; then\n"
    "        for ((i = at + 1; i < COMP_CWORD; i++)); do\n"
    "            w=${COMP_WORDS[i]}\n"
    "            case $takes in\n"
    "            *\" $w \"*)\n"
    "                ((i++))\n"
    "                [ \"${COMP_WORDS[i]}\" != = ] || ((i++)) ;;\n"
    "            *)\n"
    "                case $w in\n"
    "                -*|=) ;;\n"
    "                *) ((n++)) || box=$w ;;\n"
    "                esac ;;\n"
    "            esac\n"
    "        done\n"
    "        all=($kinds) kind=${all[n]-} words=''\n"
    "        [ -n \"$kind\" ] || [[ ${kinds% } != *+ ]] || kind=${all[${#all[@]}-1]}\n"
    "        kind=${kind%+}\n"
    "    fi\n"
    "    case $kind in\n"
    "    =*) kind=${kind#=} words=${kind//|/ } ;;\n"
    "    sandbox) words=$(bothy ls --names 2>/dev/null) ;;\n"
    "    session) words=$(bothy session ls \"$box\" 2>/dev/null |\n"
    "        awk 'NR > 1 { print $1; if ($2 != \"-\") print $2 }') ;;\n"
    "    exec) words=$(bothy show \"$box\" 2>/dev/null |\n"
    "        awk 'on { print $1 } $1 == \"EXEC\" { on = 1 }') ;;\n"
    "    image) words=$(bothy image ls -q 2>/dev/null |\n"
    "        sed 's:^docker.io/\\(library/\\)\\{0,1\\}::; s/:latest$//') ;;\n"
    "    template|snapshot) words=$(bothy $kind ls -q 2>/dev/null) ;;\n"
    "    verb) words=$verbs ;;\n"
    "    esac\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
    "}\n"
    "complete -o default -F _bothy bothy\n";

static void generate_bash(buf *out)
{
    CLEANUP(buf_done) buf names = {0};

    bash_names(&names, CLI_VERBS);
    buf_printf(out, BASH_HEAD, buf_cstr(&names));
    for (const verb *const *v = CLI_VERBS; *v; v++)
        if ((*v)->of)
            buf_printf(out, BASH_GROUP, (*v)->name);
    buf_str(out, BASH_MIDDLE);
    buf_str(out, "    '')\n        words='");
    bash_names(out, CLI_VERBS);
    bash_words(out, CLI_TOP_OPTS);
    buf_str(out, "' ;;\n");
    for (const verb *const *v = CLI_VERBS; *v; v++)
        bash_verb(out, *v, "");
    buf_str(out, BASH_TAIL);
}

err *generate(const char *what, FILE *f)
{
    CLEANUP(buf_done) buf out = {0};

    if (str_eq(what, "man"))
        generate_man(&out);
    else
        generate_bash(&out);
    fwrite(out.p, 1, out.len, f);
    return NULL;
}
