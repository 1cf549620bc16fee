/* Logins: one file for each owner and one shared by all, mode 0600 in our own directory. During a
 * login skopeo writes another one in a scratch directory, which is removed when skopeo ends, or at
 * the next start of bothyd.
 *
 * A file consists of lines "host created base64(username) base64(username:password)". It is not
 * JSON, so that no library keeps copies. Every buffer that held a file is wiped. skopeo gets the
 * logins for one pull as a file in memory. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/spawn.h"
#include "base/str.h"
#include "image/images.h"
#include "image/skopeo.h"

#define FILE_FIRST "bothy-logins 1\n"
#define FILE_MAX   (1u << 20)
#define OUTPUT_MAX (16u << 10)
#define VERIFY_MS  60000

static void wipe_buf(buf *b)
{
    secret_wipe(b->p, b->cap);
    buf_done(b);
}

void login_done(login *l)
{
    free(l->host);
    free(l->username);
    *l = (login){0};
}

/* ---- the files ---- */

static char *file_of(const char *owner)
{
    unsigned char digest[SHA256_LEN];
    char hex[2 * SHA256_LEN + 1];

    if (!owner)
        return xstrdup("logins-shared");
    sha256(owner, strlen(owner), digest);
    hex_encode(digest, sizeof digest, hex);
    return str_printf("logins-%.32s", hex);
}

typedef struct line { /* one line of a file; points into its text */
    const char *at, *next;
    const char *host, *created, *username, *auth;
    size_t nhost, nusername, nauth;
} line;

/* Parses the line after `l`, or the first after the head. Returns false at the end. */
static bool next_line(const buf *text, line *l)
{
    if (!text->len)
        return false;
    const char *end = text->p + text->len;
    l->at = l->next ? l->next : text->p + strlen(FILE_FIRST);
    if (l->at >= end)
        return false;
    const char *stop = memchr(l->at, '\n', (size_t)(end - l->at));
    const char *a = stop ? memchr(l->at, ' ', (size_t)(stop - l->at)) : NULL;
    const char *b = a ? memchr(a + 1, ' ', (size_t)(stop - a - 1)) : NULL;
    const char *c = b ? memchr(b + 1, ' ', (size_t)(stop - b - 1)) : NULL;
    if (!c)
        return false;
    *l = (line){.at = l->at,
                .next = stop + 1,
                .host = l->at,
                .nhost = (size_t)(a - l->at),
                .created = a + 1,
                .username = b + 1,
                .nusername = (size_t)(c - b - 1),
                .auth = c + 1,
                .nauth = (size_t)(stop - c - 1)};
    return true;
}

static bool is_base64(const char *s, size_t n, char **ret_text)
{
    void *bytes = NULL;
    size_t len = 0;
    bool good = n && base64_decode(s, n, &bytes, &len) && !memchr(bytes, 0, len);

    if (good && ret_text)
        *ret_text = TAKE_PTR(bytes);
    else if (bytes)
        secret_wipe(bytes, len);
    free(bytes);
    return good;
}

/* Returns true if the parts have the form that image_login() writes: they are copied unchanged into
 * skopeo's file. */
static bool is_sound(const line *l)
{
    CLEANUP(freep) char *host = xstrndup(l->host, l->nhost);
    CLEANUP(freep) char *created = xstrndup(l->created, (size_t)(l->username - 1 - l->created));
    CLEANUP(freep) char *username = NULL;
    uint64_t when;

    return registry_host_ok(host) && str_to_u64(created, UINT64_MAX, &when) &&
           is_base64(l->username, l->nusername, &username) && ascii_visible(username) &&
           strlen(username) <= LOGIN_USERNAME_MAX && is_base64(l->auth, l->nauth, NULL);
}

/* Checks every line before any is used: rewriting a damaged file would drop the lines that cannot
 * be parsed. */
static err *check_file(const char *name, buf *text)
{
    line l = {0};

    if (!text->len)
        return NULL;
    bool good = str_starts(buf_cstr(text), FILE_FIRST) && !memchr(text->p, 0, text->len);
    while (good && next_line(text, &l))
        good = is_sound(&l);
    if (good && l.at == text->p + text->len)
        return NULL;
    return err_remedy(err_new(ERR_INTERNAL, "the file of logins '%s' is damaged", name),
                      "An administrator removes it from 'registries' in bothyd's state directory; "
                      "then log in again.");
}

static err *read_file(image_store *s, const char *owner, buf *ret_text)
{
    CLEANUP(freep) char *name = file_of(owner);
    err *e = s->o.conf_path ? fs_read(s->o.conf_dir, name, FILE_MAX, ret_text) : NULL;

    if (e && e->errnum == ENOENT) {
        err_free(e);
        return NULL;
    }
    return e ? e : check_file(name, ret_text);
}

/* Removes temporary files of fs_write() that a kill left: of logins, with a password, and of
 * skopeo's configuration. */
err *login_clean(image_store *s)
{
    struct dirent *e;
    int r = 0;

    if (!s->o.conf_path)
        return NULL;
    CLEANUP(closep) int fd = openat(s->o.conf_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return err_sys(ERR_INTERNAL, errno, "cannot look for logins half written");
    (void)TAKE_FD(fd);             /* owned by d now */
    while (!r && (e = readdir(d))) /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        if (e->d_name[0] == '.' && e->d_name[1] && e->d_name[1] != '.' &&
            unlinkat(s->o.conf_dir, e->d_name, 0))
            r = errno;
    closedir(d);
    return r ? err_sys(ERR_INTERNAL, r, "cannot remove a login half written") : NULL;
}

static bool is_host(const line *l, const char *host)
{
    return l->nhost == strlen(host) && !memcmp(l->host, host, l->nhost);
}

static bool find_line(const buf *text, const char *host, line *ret_line)
{
    line l = {0};

    while (next_line(text, &l))
        if (is_host(&l, host)) {
            *ret_line = l;
            return true;
        }
    return false;
}

/* Writes the file without the host's line, and with `added` if it is not NULL. */
static err *replace_line(image_store *s, const char *owner, const char *host, const char *added,
                         bool *ret_was_there)
{
    CLEANUP(freep) char *name = file_of(owner);
    CLEANUP(wipe_buf) buf old = {0};
    CLEANUP(wipe_buf) buf text = {0};
    line l = {0};

    LOCK_SCOPE(&s->logins);
    *ret_was_there = false;
    TRY(read_file(s, owner, &old));
    buf_reserve(&text, old.len + (added ? strlen(added) : 0) + sizeof FILE_FIRST);
    buf_str(&text, FILE_FIRST);
    while (next_line(&old, &l)) {
        if (is_host(&l, host))
            *ret_was_there = true;
        else
            buf_append(&text, l.at, (size_t)(l.next - l.at));
    }
    if (added)
        buf_str(&text, added);
    TRY(fs_write(s->o.conf_dir, name, text.p, text.len, 0600, true));
    FAULT_KILL("login.written");
    return NULL;
}

/* Makes a file in memory for skopeo. A pipe could hold only a page or two when our user has many.
 */
static err *memory_file(const void *p, size_t n, int *ret_fd)
{
    CLEANUP(closep) int fd = memfd_create("login", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : fs_write_all(fd, p, n);

    if (r || lseek(fd, 0, SEEK_SET))
        return err_sys(ERR_INTERNAL, r ? -r : errno, "cannot prepare the login");
    *ret_fd = TAKE_FD(fd);
    return NULL;
}

/* ---- for a pull ---- */

/* Adds the host's login; the owner's own comes before the shared one. */
static void add_auth(buf *out, const buf *own, const buf *shared, const char *host)
{
    line l;

    if (!find_line(own, host, &l) && !find_line(shared, host, &l))
        return;
    buf_printf(out, "%s\"%s\":{\"auth\":\"", out->len ? "," : "", host);
    buf_append(out, l.auth, l.nauth);
    buf_str(out, "\"}");
}

/* Reads the owner's lines (owner may be NULL) and the shared ones. */
static err *read_both(image_store *s, const char *owner, buf *own, buf *shared)
{
    LOCK_SCOPE(&s->logins);

    if (owner)
        TRY(read_file(s, owner, own));
    return read_file(s, NULL, shared);
}

/* Writes the logins for the reference's host and for its mirrors, which may be asked in its place.
 * Empty if there are none. */
static err *auths_of(image_store *s, const char *owner, const char *reference, buf *out)
{
    CLEANUP(freep) char *host = registry_of(reference);
    CLEANUP(wipe_buf) buf own = {0};
    CLEANUP(wipe_buf) buf shared = {0};
    bool listed_only;

    if (!host || !s->o.conf_path)
        return NULL;
    TRY(read_both(s, owner, &own, &shared));
    const registry *r = registries_find(image_registries(s, &listed_only), host);
    buf_reserve(out, own.len + shared.len + 1024);
    add_auth(out, &own, &shared, host);
    for (char **m = r ? r->mirrors : NULL; m && *m; m++) {
        CLEANUP(freep) char *mirror = xstrndup(*m, strcspn(*m, "/"));
        if (!str_eq(mirror, host))
            add_auth(out, &own, &shared, mirror);
    }
    return NULL;
}

uint64_t login_tag(image_store *s, const char *owner, const char *reference)
{
    CLEANUP(wipe_buf) buf auths = {0};

    err_drop(auths_of(s, owner, reference, &auths), "login");
    return auths.len ? hash_bytes(auths.p, auths.len) : 0;
}

err *login_file(image_store *s, const char *owner, const char *reference, int *ret_fd)
{
    CLEANUP(wipe_buf) buf auths = {0};
    CLEANUP(wipe_buf) buf text = {0};

    TRY(auths_of(s, owner, reference, &auths));
    if (!s->o.conf_path)
        return NULL;
    buf_reserve(&text, auths.len + 32);
    buf_str(&text, "{\"auths\":{");
    buf_append(&text, auths.p, auths.len);
    buf_str(&text, "}}");
    return memory_file(text.p, text.len, ret_fd);
}

/* Splits "username:password" of a line that has passed is_sound(). */
static void take_words(const line *l, pull_login *ret_login)
{
    CLEANUP(secret_freep) char *pair = NULL;

    if (!is_base64(l->auth, l->nauth, &pair))
        return;
    const char *colon = strchr(pair, ':');
    if (!colon)
        return;
    *ret_login = (pull_login){.username = xstrndup(pair, (size_t)(colon - pair)),
                              .password = xstrdup(colon + 1)};
}

err *login_words(image_store *s, const char *owner, const char *reference, pull_login *ret_login)
{
    CLEANUP(freep) char *host = registry_of(reference);
    CLEANUP(wipe_buf) buf own = {0};
    CLEANUP(wipe_buf) buf shared = {0};
    line l;

    if (!host || !s->o.conf_path)
        return NULL;
    TRY(read_both(s, owner, &own, &shared));
    if (find_line(&own, host, &l) || find_line(&shared, host, &l))
        take_words(&l, ret_login);
    return NULL;
}

/* ---- logging in ---- */

static err *check_words(const char *host, const char *username, const char *password)
{
    size_t n = strlen(password);

    if (!registry_host_ok(host))
        return err_remedy(err_new(ERR_INVALID_REQUEST, "'%.100s' is not a registry's host", host),
                          "Write it as in image names: HOST or HOST:PORT, in lower case.");
    if (!*username || strlen(username) > LOGIN_USERNAME_MAX || !ascii_visible(username) ||
        strchr(username, ':') || username[0] == '-')
        return err_new(ERR_INVALID_REQUEST,
                       "the user name must be 1 to 255 visible ASCII characters without a colon");
    if (!n || n > LOGIN_PASSWORD_MAX || strpbrk(password, "\r\n"))
        return err_new(ERR_INVALID_REQUEST, "the password must be one line of 1 to 16384 bytes");
    return NULL;
}

static err *read_output(const skopeo_limit *l, int fd, buf *out)
{
    for (;;) {
        char block[4096];
        TRY(skopeo_wait(l, fd));
        ssize_t n = read(fd, block, sizeof block);
        if (n == 0 || (n < 0 && errno != EINTR))
            return NULL;
        if (n > 0 && out->len + (size_t)n <= OUTPUT_MAX)
            buf_append(out, block, (size_t)n);
    }
}

static err *start_login(const skopeo_where *w, const char *host, const char *username,
                        const char *password, int out, pid_t *ret_pid)
{
    CLEANUP(strv_freep) char **argv = skopeo_argv(w);
    CLEANUP(strv_freep) char **env = skopeo_env(w);
    const char *words[] = {"login", "--password-stdin", "--username", username, "--authfile"};
    CLEANUP(closep) int in = -1;

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        strv_push(&argv, xstrdup(words[i]));
    strv_push(&argv, str_printf("%s/auth.json", w->scratch));
    strv_push(&argv, xstrdup(host));
    TRY(memory_file(password, strlen(password), &in));
    const int fds[] = {in, out, out};
    return skopeo_start(w, &(spawn_spec){.argv = argv, .envp = env, .fds = fds, .nfds = 3},
                        ret_pid);
}

static err *login_refused(const char *host, buf *output)
{
    CLEANUP(freep) char *text = skopeo_log_text(output);
    CLEANUP(err_freep) err *why = skopeo_reason(host, text);
    bool wrong = strstr(text, "invalid username/password") != NULL;

    err *e = err_because(err_new(why->code, "cannot log in to %s", host), "%.400s", text);
    return err_remedy(e, "%s",
                      wrong ? "Check the user name and the password." : err_remedy_of(why));
}

static err *verify_in(image_store *s, const char *place, const char *host, const char *username,
                      const char *password)
{
    const skopeo_where where = {
        .program = s->o.skopeo, .conf = s->o.conf_path, .scratch = place, .start = s->o.start};
    const skopeo_limit limit = {.until = now_mono_ns() + VERIFY_MS * NS_PER_MS,
                                .stop_fd = s->stop_fd};
    CLEANUP(buf_done) buf output = {0};
    int p[2], status = 0;
    pid_t pid;

    if (pipe2(p, O_CLOEXEC))
        return err_sys(ERR_INTERNAL, errno, "cannot make a pipe");
    CLEANUP(closep) int rd = p[0];
    CLEANUP(closep) int wr = p[1];
    TRY(start_login(&where, host, username, password, wr, &pid));
    close(TAKE_FD(wr));
    err *e = read_output(&limit, rd, &output);
    err *late = spawn_wait(pid, e ? 1 : 10000, &status);
    if (e || late) {
        err_free(e ? late : NULL);
        return err_wrap(e ? e : late, "log in to %s", host);
    }
    return status ? login_refused(host, &output) : NULL;
}

/* Verifies a login. skopeo leaves it in a file of the scratch directory, which is removed at once.
 */
static err *login_verify(image_store *s, const char *host, const char *username,
                         const char *password)
{
    CLEANUP(scratch_done) scratch x = {0};

    TRY(scratch_make(s, &x));
    return verify_in(s, x.path, host, username, password);
}

err *image_login(image_store *s, const char *owner, const char *host, const char *username,
                 const char *password)
{
    CLEANUP(wipe_buf) buf pair = {0};
    CLEANUP(secret_freep) char *auth = NULL;
    CLEANUP(secret_freep) char *added = NULL;
    bool was_there;

    TRY(check_words(host, username, password));
    assert(username && password); /* check_words() has tested them */
    if (!s->o.conf_path)
        return err_new(ERR_UNSUPPORTED, "this node keeps no logins");
    TRY(registry_check_host(s, host));
    TRY(login_verify(s, host, username, password));
    FAULT_KILL("login.verified");
    buf_reserve(&pair, strlen(username) + strlen(password) + 2);
    buf_printf(&pair, "%s:%s", username, password);
    auth = base64_encode(pair.p, pair.len);
    CLEANUP(freep) char *name = base64_encode(username, strlen(username));
    added = str_printf("%s %" PRIu64 " %s %s\n", host, now_real_ns(), name, auth);
    return replace_line(s, owner, host, added, &was_there);
}

err *image_logout(image_store *s, const char *owner, const char *host)
{
    bool was_there = false;

    if (s->o.conf_path)
        TRY(replace_line(s, owner, host, NULL, &was_there));
    return was_there
               ? NULL
               : err_kind(err_remedy(err_new(ERR_NOT_FOUND, "there is no login for '%.100s'", host),
                                     "'bothy registry' lists what there is."),
                          "login");
}

static void add_logins(const buf *text, bool shared, login **list, size_t *n)
{
    line l = {0};

    while (next_line(text, &l)) {
        void *name = NULL;
        size_t len = 0;
        if (!base64_decode(l.username, l.nusername, &name, &len))
            continue;
        *list = xrealloc(*list, (*n + 1) * sizeof **list);
        (*list)[(*n)++] = (login){.host = xstrndup(l.host, l.nhost),
                                  .username = xstrndup(name, len),
                                  .shared = shared,
                                  .created_ns = strtoull(l.created, NULL, 10)};
        free(name);
    }
}

err *image_logins(image_store *s, const char *owner, login **ret_logins, size_t *ret_n)
{
    CLEANUP(wipe_buf) buf own = {0};
    CLEANUP(wipe_buf) buf shared = {0};
    login *list = NULL;
    size_t n = 0;

    LOCK_SCOPE(&s->logins);
    if (owner)
        TRY(read_file(s, owner, &own));
    TRY(read_file(s, NULL, &shared));
    add_logins(&own, false, &list, &n);
    add_logins(&shared, true, &list, &n);
    *ret_logins = list;
    *ret_n = n;
    return NULL;
}
