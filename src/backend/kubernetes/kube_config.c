/* Reads kubeconfigs and the files of a service account. */
#include "backend/kubernetes/kube_config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#define SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"
#define GROUPS_MAX      64

/* One file of KUBECONFIG. */
typedef struct doc {
    json_t *root;
    char *file;
    char *dir; /* relative paths in the file are below it */
} doc;
typedef struct docs {
    doc all[KUBE_FILES_MAX];
    size_t n;
} docs;

static void docs_done(docs *d)
{
    for (size_t i = 0; i < d->n; i++) {
        json_decref(d->all[i].root);
        free(d->all[i].file);
        free(d->all[i].dir);
    }
}

void kube_config_done(kube_config *c)
{
    secret_freep(&c->key);
    secret_freep(&c->token);
    free(c->server);
    free(c->ns);
    free(c->ca_file);
    free(c->ca);
    free(c->cert_file);
    free(c->cert);
    free(c->key_file);
    free(c->token_file);
    free(c->tls_name);
    free(c->proxy);
    strv_free(c->as);
    *c = (kube_config){0};
}

/* ---- members ---- */

static err *kube_config_refuse(const doc *d, const char *what)
{
    return err_new(ERR_INVALID_REQUEST, "%s: %s", d->file, what);
}

/* Copies a text member; leaves *ret_text NULL if there is none. */
static err *text_of(const doc *d, const json_t *from, const char *key, char **ret_text)
{
    const json_t *v = json_object_get(from, key);

    if (!v || json_is_null(v))
        return NULL;
    if (!json_is_string(v) || utf8_has_control(json_string_value(v)))
        return err_new(ERR_INVALID_REQUEST, "%s: '%s' must be a line of text", d->file, key);
    if (*json_string_value(v))
        *ret_text = xstrdup(json_string_value(v));
    return NULL;
}

static err *path_of(const doc *d, const json_t *from, const char *key, char **ret_path)
{
    CLEANUP(freep) char *text = NULL;

    TRY(text_of(d, from, key, &text));
    if (text)
        *ret_path = *text == '/' || !d->dir ? TAKE_PTR(text) : str_printf("%s/%s", d->dir, text);
    return NULL;
}

/* Decodes base64 of PEM; ignores white space in it. */
static err *data_of(const doc *d, const json_t *from, const char *key, char **ret_pem)
{
    const char *text = json_str(from, key);
    CLEANUP(buf_done) buf packed = {0};
    CLEANUP(freep) void *bytes = NULL;
    size_t n = 0;

    if (!text || !*text)
        return NULL;
    for (; *text; text++)
        if (!strchr(" \t\r\n", *text))
            buf_char(&packed, *text);
    bool good =
        packed.len && base64_decode(packed.p, packed.len, &bytes, &n) && n && !memchr(bytes, 0, n);
    secret_wipe(packed.p, packed.len);
    if (!good)
        return err_new(ERR_INVALID_REQUEST, "%s: '%s' is no base64 of a PEM file", d->file, key);
    *ret_pem = xstrndup(bytes, n);
    secret_wipe(bytes, n);
    return NULL;
}

/* ---- lists of names ---- */

/* Finds the member `what` of the first entry with this name in any file. */
static err *kube_config_find(const docs *d, const char *list, const char *what, const char *name,
                             const doc **ret_doc, const json_t **ret_object)
{
    for (size_t i = 0; i < d->n; i++) {
        size_t at;
        json_t *entry;
        json_array_foreach(json_object_get(d->all[i].root, list), at, entry)
        {
            const json_t *object = json_object_get(entry, what);
            if (!str_eq(json_str(entry, "name"), name))
                continue;
            if (object && !json_is_object(object) && !json_is_null(object))
                return err_new(ERR_INVALID_REQUEST, "%s: %s '%s' must be a mapping", d->all[i].file,
                               what, name);
            *ret_doc = &d->all[i];
            *ret_object = object;
            return NULL;
        }
    }
    return err_remedy(err_new(ERR_INVALID_REQUEST, "the kubeconfig has no %s '%.200s'", what, name),
                      "Name one of its own: 'kubectl config get-contexts' lists them.");
}

static err *context_name(const docs *d, const char *wanted, char **ret_name)
{
    CLEANUP(freep) char *name = wanted ? xstrdup(wanted) : NULL;

    for (size_t i = 0; i < d->n && !name; i++)
        TRY(text_of(&d->all[i], d->all[i].root, "current-context", &name));
    if (!name)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "the kubeconfig has no current context"),
                          "Choose one with 'kubectl config use-context NAME', or name it.");
    *ret_name = TAKE_PTR(name);
    return NULL;
}

/* ---- the cluster ---- */

static err *read_server(const doc *d, const json_t *from, kube_config *c)
{
    TRY(text_of(d, from, "server", &c->server));
    if (!c->server || !ascii_visible(c->server) ||
        (!str_starts(c->server, "https://") && !str_starts(c->server, "http://")))
        return kube_config_refuse(d, "'server' must be https://host[:port]");
    if (strpbrk(c->server, "?#@"))
        return kube_config_refuse(d, "'server' must be an address without a user or a query");
    for (size_t n = strlen(c->server); n && c->server[n - 1] == '/'; n--)
        c->server[n - 1] = 0;
    return strlen(c->server) > 8 ? NULL : kube_config_refuse(d, "'server' names no host");
}

static err *read_cluster(const doc *d, const json_t *from, kube_config *c)
{
    TRY(read_server(d, from, c));
    TRY(data_of(d, from, "certificate-authority-data", &c->ca));
    if (!c->ca)
        TRY(path_of(d, from, "certificate-authority", &c->ca_file));
    TRY(text_of(d, from, "tls-server-name", &c->tls_name));
    TRY(text_of(d, from, "proxy-url", &c->proxy));
    if (c->tls_name && !ascii_visible(c->tls_name))
        return kube_config_refuse(d, "'tls-server-name' must be a host name");
    c->insecure = json_flag(from, "insecure-skip-tls-verify");
    if (c->insecure && (c->ca || c->ca_file))
        return kube_config_refuse(
            d, "a certificate authority and insecure-skip-tls-verify exclude each other");
    return NULL;
}

/* ---- the user ---- */

static const struct {
    const char *key, *what, *remedy;
} REFUSED[] = {
    {"exec", "its user's credentials are made by a program, which is not run",
     "Make a service account for bothy and name its token: 'kubectl create token', or tokenFile."},
    {"auth-provider", "its user's credentials come from an auth provider, which is not supported",
     "Make a service account for bothy and name its token: 'kubectl create token', or tokenFile."},
    {"username", "a user name and a password are not supported by API servers any more",
     "Use a token or a client certificate."},
    {"password", "a user name and a password are not supported by API servers any more",
     "Use a token or a client certificate."},
};

static err *refuse_user(const doc *d, const json_t *from)
{
    for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++) {
        const json_t *v = json_object_get(from, REFUSED[i].key);
        if (v && !json_is_null(v))
            return err_remedy(kube_config_refuse(d, REFUSED[i].what), "%s", REFUSED[i].remedy);
    }
    return NULL;
}

static err *read_as(const doc *d, const json_t *from, kube_config *c)
{
    CLEANUP(freep) char *user = NULL;
    CLEANUP(freep) char *uid = NULL;
    const json_t *groups = json_object_get(from, "as-groups");
    size_t i;
    json_t *group;

    TRY(text_of(d, from, "as", &user));
    TRY(text_of(d, from, "as-uid", &uid));
    if (user)
        strv_push(&c->as, str_printf("Impersonate-User: %s", user));
    if (uid)
        strv_push(&c->as, str_printf("Impersonate-Uid: %s", uid));
    if (json_array_size(groups) > GROUPS_MAX)
        return kube_config_refuse(d, "too many 'as-groups'");
    json_array_foreach(groups, i, group)
    {
        if (!json_is_string(group) || utf8_has_control(json_string_value(group)))
            return kube_config_refuse(d, "'as-groups' must be lines of text");
        strv_push(&c->as, str_printf("Impersonate-Group: %s", json_string_value(group)));
    }
    /* Sent without a user, groups would be refused by the server, or ignored, which is worse. */
    if (c->as && !user)
        return kube_config_refuse(d, "'as-groups' and 'as-uid' need 'as'");
    return json_object_size(json_object_get(from, "as-user-extra"))
               ? kube_config_refuse(d, "'as-user-extra' is not supported")
               : NULL;
}

static err *read_user(const doc *d, const json_t *from, kube_config *c)
{
    TRY(refuse_user(d, from));
    TRY(data_of(d, from, "client-certificate-data", &c->cert));
    if (!c->cert)
        TRY(path_of(d, from, "client-certificate", &c->cert_file));
    TRY(data_of(d, from, "client-key-data", &c->key));
    if (!c->key)
        TRY(path_of(d, from, "client-key", &c->key_file));
    if ((c->cert || c->cert_file) != (c->key || c->key_file))
        return kube_config_refuse(d, "a client certificate and its key belong together");
    TRY(path_of(d, from, "tokenFile", &c->token_file));
    if (!c->token_file)
        TRY(text_of(d, from, "token", &c->token));
    if (c->token && !ascii_visible(c->token))
        return kube_config_refuse(d, "the token has characters no token has");
    return read_as(d, from, c);
}

static err *config_of(const docs *d, const char *wanted, kube_config *c)
{
    CLEANUP(freep) char *name = NULL;
    CLEANUP(freep) char *cluster = NULL;
    CLEANUP(freep) char *user = NULL;
    const json_t *from = NULL;
    const doc *in = &d->all[0];

    TRY(context_name(d, wanted, &name));
    TRY(kube_config_find(d, "contexts", "context", name, &in, &from));
    TRY(text_of(in, from, "cluster", &cluster));
    TRY(text_of(in, from, "user", &user));
    TRY(text_of(in, from, "namespace", &c->ns));
    TRY(kube_config_find(d, "clusters", "cluster", str_or(cluster, ""), &in, &from));
    TRY(read_cluster(in, from, c));
    if (!user)
        return NULL;
    TRY(kube_config_find(d, "users", "user", user, &in, &from));
    return read_user(in, from, c);
}

static err *config_finish(const docs *d, const char *context, kube_config *ret_config)
{
    CLEANUP(kube_config_done) kube_config c = {0};

    TRY(config_of(d, context, &c));
    if (str_starts(c.server, "http://") && (c.token || c.token_file))
        return err_remedy(
            err_new(ERR_INVALID_REQUEST, "a token is not sent over plain http to %s", c.server),
            "Use the server's https address.");
    *ret_config = c;
    memset(&c, 0, sizeof c); /* the caller owns it now */
    return NULL;
}

/* ---- files ---- */

static err *docs_add(docs *d, const char *file, const char *dir, const void *p, size_t n)
{
    json_t *root = NULL;

    TRY(kube_yaml_parse(file, p, n, &root));
    d->all[d->n++] = (doc){root, xstrdup(file), dir ? xstrdup(dir) : NULL};
    return json_is_object(root) ? NULL : err_new(ERR_INVALID_REQUEST, "%s is no kubeconfig", file);
}

err *kube_config_parse(const char *file, const void *p, size_t n, const char *dir,
                       const char *context, kube_config *ret_config)
{
    CLEANUP(docs_done) docs d = {0};

    TRY(docs_add(&d, file, dir, p, n));
    return config_finish(&d, context, ret_config);
}

static err *read_one(docs *d, const char *path)
{
    CLEANUP(buf_done) buf text = {0};
    const char *slash = strrchr(path, '/');
    CLEANUP(freep)
    char *dir = slash == path ? xstrdup("/")
                : slash       ? xstrndup(path, (size_t)(slash - path))
                              : NULL;
    err *e = fs_read_linked(path, KUBE_CONFIG_MAX, &text);

    if (e && e->code == ERR_NOT_FOUND) {
        err_free(e);
        return NULL;
    }
    TRY(err_wrap(e, "kubeconfig"));
    e = docs_add(d, path, dir, text.p ? text.p : "", text.len);
    secret_wipe(text.p, text.len);
    return e;
}

err *kube_config_load(const char *paths, const char *context, kube_config *ret_config)
{
    CLEANUP(docs_done) docs d = {0};
    CLEANUP(freep) char *list = xstrdup(paths);
    char *rest = list;

    for (const char *path; (path = strsep(&rest, ":"));) {
        if (!*path)
            continue;
        if (d.n == KUBE_FILES_MAX)
            return err_new(ERR_INVALID_REQUEST, "more than %d kubeconfigs", KUBE_FILES_MAX);
        TRY(read_one(&d, path));
    }
    if (!d.n)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "there is no kubeconfig at %s", paths),
                          "Name the file of the cluster to use, or run bothyd inside it.");
    return config_finish(&d, context, ret_config);
}

/* ---- inside a cluster ---- */

err *kube_config_in_cluster(const char *host, const char *port, const char *dir,
                            kube_config *ret_config)
{
    CLEANUP(kube_config_done) kube_config c = {0};
    CLEANUP(buf_done) buf ns = {0};
    uint64_t number = 0;

    dir = str_or(dir, SERVICE_ACCOUNT);
    if (!host || !port || !ascii_visible(host) || !str_to_u64(port, 65535, &number))
        return err_remedy(err_new(ERR_INVALID_REQUEST, "this is no pod of a cluster"),
                          "Name a kubeconfig, or run bothyd inside the cluster.");
    c.server = str_printf(strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host, port);
    c.ca_file = str_printf("%s/ca.crt", dir);
    c.token_file = str_printf("%s/token", dir);
    CLEANUP(freep) char *file = str_printf("%s/namespace", dir);
    err *e = fs_read_linked(file, 256, &ns);
    if (e)
        return err_remedy(err_wrap(e, "the pod's service account"),
                          "Mount one: automountServiceAccountToken must be true for bothyd's pod.");
    c.ns = xstrndup(ns.p ? ns.p : "", ns.len ? strcspn(buf_cstr(&ns), " \t\r\n") : 0);
    *ret_config = c;
    memset(&c, 0, sizeof c); /* the caller owns it now */
    return NULL;
}
