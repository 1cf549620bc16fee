/* Runs one step of a build. Programs of the image do the work as the image's root. Text from the
 * caller is passed to them as arguments, never as a part of a script, except for RUN. */
#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "engine/build_internal.h"

/* Adds a user by useradd if the image has it, else by hand, with the first free number from 1000
 * on. */
#define ADD_USER                                                                                     \
    "add_user() {\n"                                                                                 \
    "  shell=/bin/sh; [ -x /bin/bash ] && shell=/bin/bash\n"                                         \
    "  if command -v useradd >/dev/null 2>&1; then\n"                                                \
    "    if grep -q \"^$1:\" /etc/group 2>/dev/null\n"                                               \
    "    then useradd -m -s \"$shell\" -g \"$1\" \"$1\"; else useradd -m -s \"$shell\" \"$1\"; fi\n" \
    "    return\n"                                                                                   \
    "  fi\n"                                                                                         \
    "  mkdir -p /etc \"/home/$1\"; touch /etc/passwd /etc/group; id=1000\n"                          \
    "  while grep -q \"^[^:]*:[^:]*:$id:\" /etc/passwd /etc/group; do id=$((id + 1)); done\n"        \
    "  echo \"$1:x:$id:$id::/home/$1:$shell\" >>/etc/passwd\n"                                       \
    "  echo \"$1:x:$id:\" >>/etc/group\n"                                                            \
    "  [ ! -f /etc/shadow ] || echo \"$1:*:19000:0:99999:7:::\" >>/etc/shadow\n"                     \
    "  chown \"$id:$id\" \"/home/$1\"\n"                                                             \
    "}\n"                                                                                            \
    "may_sudo() {\n"                                                                                 \
    "  [ -f /etc/sudoers ] || return 0\n"                                                            \
    "  grep -q \"^$1 ALL=(ALL:ALL) NOPASSWD: ALL\" /etc/sudoers ||\n"                                \
    "    echo \"$1 ALL=(ALL:ALL) NOPASSWD: ALL\" >>/etc/sudoers\n"                                   \
    "}\n"

static const char PROVISION[] =
    ADD_USER "set -e\n"
             "grep -q '^user:' /etc/passwd 2>/dev/null || add_user user >&2\n"
             "mkdir -p /home/user /code; chmod 777 /code\n"
             "chown \"$(id -u user):$(id -g user)\" /home/user\n"
             "may_sudo user\n"
             "if [ \"$1\" = finalize ] && [ -d /usr/local ]; then\n"
             "  find /usr/local -xdev -type d -exec chmod 777 {} +\n"
             "fi\n"
             "if [ -x /bin/bash ]; then printf /bin/bash; else printf /bin/sh; fi\n";

static const char USER[] = ADD_USER "set -e\n"
                                    "id -u \"$1\" >/dev/null 2>&1 || add_user \"$1\"\n"
                                    "[ \"$2\" != true ] || may_sudo \"$1\"\n";

/* New directories belong to the user. */
static const char WORKDIR[] = "set -e\n"
                              "if [ ! -d \"$1\" ]; then\n"
                              "  new=; at=$1\n"
                              "  while [ ! -d \"$at\" ]; do new=$at; at=$(dirname \"$at\"); done\n"
                              "  mkdir -p \"$1\"\n"
                              "  chown -R \"$(id -u \"$2\"):$(id -g \"$2\")\" \"$new\"\n"
                              "fi\n"
                              "cd \"$1\" && pwd\n";

/* Runs a script as root, by the image's sh, with up to three arguments. */
static err *run_script(build *b, const char *script, const char *const *args, buf *ret_out)
{
    char *argv[8] = {(char *)"/bin/sh", (char *)"-c", (char *)script, (char *)"build"};

    for (size_t i = 0; i < 3 && args[i]; i++)
        argv[4 + i] = (char *)args[i];
    return build_command_run(
        b, &(build_command){.argv = argv, .user = "0", .cwd = "/", .bare = true, .level = "debug"},
        ret_out);
}

/* ---- PATH ---- */

#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const char PROFILE[] = "mkdir -p /etc/profile.d && printf '%s\\n' \"$1\" "
                              ">/etc/profile.d/template-path.sh";

/* Sets PATH in /etc/profile.d, too: SDKs run commands by a login shell, whose profile resets
 * PATH. */
static err *set_path(build *b, const char *path)
{
    CLEANUP(buf_done) buf line = {0};

    buf_str(&line, "export PATH='");
    for (const char *p = path; *p; p++)
        buf_str(&line, *p == '\'' ? "'\\''" : (char[]){*p, 0});
    buf_char(&line, '\'');
    return run_script(b, PROFILE, (const char *const[]){buf_cstr(&line), NULL}, NULL);
}

static err *keep_path(build *b)
{
    sandbox_view v = {0};

    sandbox_get(b->sb, &v);
    const char *path = v.image ? strv_env_get(v.image->env, "PATH") : NULL;
    CLEANUP(freep) char *own = path && !str_eq(path, PATH_DEFAULT) ? xstrdup(path) : NULL;
    sandbox_view_done(&v);
    return own ? set_path(b, own) : NULL;
}

err *build_provision(build *b, bool finalize)
{
    CLEANUP(buf_done) buf out = {0};

    TRY(run_script(b, PROVISION, (const char *const[]){finalize ? "finalize" : "base", NULL},
                   &out));
    free(b->shell);
    b->shell = xstrdup(buf_cstr(&out));
    return finalize || !b->recipe.as_user ? NULL : keep_path(b);
}

/* ---- values ---- */

/* Quotes a value so that the shell expands variables in it; whatever would run a command or end the
 * quotes stays text. */
static void build_step_quote(buf *out, const char *value)
{
    buf_char(out, '"');
    for (const char *p = value; *p; p++) {
        bool command = *p == '$' && p[1] == '(';
        if (*p == '\\' || *p == '"' || *p == '`' || command)
            buf_char(out, '\\');
        buf_char(out, *p);
    }
    buf_char(out, '"');
}

err *build_expand(build *b, const char *value, char **ret_text)
{
    CLEANUP(buf_done) buf script = {0}, out = {0};

    if (!strchr(value, '$')) {
        *ret_text = xstrdup(value);
        return NULL;
    }
    buf_str(&script, "printf %s ");
    build_step_quote(&script, value);
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)buf_cstr(&script), NULL};
    TRY(err_wrap(
        build_command_run(b, &(build_command){.argv = argv, .user = "0", .cwd = "/"}, &out),
        "'%.64s' cannot be expanded", value));
    *ret_text = xstrdup(buf_cstr(&out));
    return NULL;
}

/* ---- steps ---- */

static err *build_step_arguments(const build_step *s, size_t min)
{
    return strv_len(s->args) >= min
               ? NULL
               : err_new(ERR_INVALID_REQUEST, "it needs %zu argument%s", min, min > 1 ? "s" : "");
}

static err *step_run(build *b, const build_step *s)
{
    TRY(build_step_arguments(s, 1));
    char *argv[] = {b->shell, (char *)"-l", (char *)"-c", s->args[0], NULL};
    const char *user = s->args[1] && *s->args[1] ? s->args[1] : b->user;

    return build_command_run(b, &(build_command){.argv = argv, .user = user, .cwd = b->cwd}, NULL);
}

static bool env_name_valid(const char *name)
{
    if (!*name || isdigit((unsigned char)*name))
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

/* Sets variables. All values are expanded with those from before the step, as in Docker. */
static err *step_env(build *b, const build_step *s)
{
    CLEANUP(strv_freep) char **set = strv_copy(b->env);
    size_t n = strv_len(s->args);

    TRY(build_step_arguments(s, 2));
    if (n % 2)
        return err_new(ERR_INVALID_REQUEST, "the last name has no value");
    for (size_t i = 0; i < n; i += 2) {
        CLEANUP(freep) char *value = NULL;
        if (!env_name_valid(s->args[i]))
            return err_new(ERR_INVALID_REQUEST, "'%.64s' is no name of a variable", s->args[i]);
        TRY(build_expand(b, s->args[i + 1], &value));
        strv_env_set(&set, s->args[i], value);
    }
    strv_free(b->env);
    b->env = TAKE_PTR(set);
    for (size_t i = 0; i < n; i += 2)
        if (str_eq(s->args[i], "PATH"))
            TRY(set_path(b, strv_env_get(b->env, "PATH")));
    return NULL;
}

static err *step_workdir(build *b, const build_step *s)
{
    CLEANUP(freep) char *path = NULL;
    CLEANUP(buf_done) buf out = {0};

    TRY(build_step_arguments(s, 1));
    TRY(build_expand(b, s->args[0], &path));
    CLEANUP(freep)
    char *whole = *path == '/' ? xstrdup(path) : str_printf("%s/%s", str_or(b->cwd, ""), path);
    TRY(run_script(b, WORKDIR, (const char *const[]){whole, b->user, NULL}, &out));
    while (out.len && out.p[out.len - 1] == '\n')
        out.len--;
    if (!out.len || out.p[0] != '/')
        return err_new(ERR_INVALID_REQUEST, "'%.64s' is no directory", path);
    free(b->cwd);
    b->cwd = xstrndup(out.p, out.len);
    return NULL;
}

/* Returns true for a numeric user, with a group or not: it needs no entry in the image's passwd. */
static bool is_number(const char *user)
{
    return *user && strspn(user, "0123456789:") == strlen(user);
}

static err *step_user(build *b, const build_step *s)
{
    CLEANUP(freep) char *user = NULL;

    TRY(build_step_arguments(s, 1));
    TRY(build_expand(b, s->args[0], &user));
    if (!*user || *user == '-' || strpbrk(user, "/\n"))
        return err_new(ERR_INVALID_REQUEST, "'%.64s' is no user", user);
    size_t name = strcspn(user, ":");
    CLEANUP(freep) char *alone = xstrndup(user, name);
    if (!is_number(user))
        TRY(run_script(b, USER, (const char *const[]){alone, s->args[1] ? s->args[1] : "", NULL},
                       NULL));
    free(b->user);
    b->user = TAKE_PTR(user);
    return NULL;
}

err *build_step_run(build *b, const build_step *s)
{
    static err *(*const RUN[BUILD_VERBS])(build *, const build_step *) = {
        step_run, build_copy, step_env, step_workdir, step_user};

    return RUN[s->verb](b, s);
}
