/* Registries: writes skopeo's configuration of them, and decides which may be asked. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "image/images.h"

#define CA_MAX (1u << 20)

const registries *image_registries(const image_store *s, bool *ret_listed_only)
{
    static const registries NONE;

    *ret_listed_only = s->o.listed_only;
    return s->o.registries ? s->o.registries : &NONE;
}

/* ---- skopeo's files ---- */

static bool is_insecure(const registries *all, const char *mirror)
{
    CLEANUP(freep) char *host = xstrndup(mirror, strcspn(mirror, "/"));
    const registry *r = registries_find(all, host);

    return r && r->insecure;
}

/* Writes one registry. Hosts and mirrors are validated names, so nothing needs quoting. */
static void write_registry(buf *out, const registries *all, const registry *r)
{
    buf_printf(out, "\n[[registry]]\nlocation = \"%s\"\ninsecure = %s\n", r->host,
               r->insecure ? "true" : "false");
    for (char **m = r->mirrors; m && *m; m++)
        buf_printf(out, "[[registry.mirror]]\nlocation = \"%s\"\ninsecure = %s\n", *m,
                   is_insecure(all, *m) ? "true" : "false");
}

static err *write_ca(int home, const registry *r)
{
    CLEANUP(freep) char *dir = str_printf(".config/containers/certs.d/%s", r->host);
    CLEANUP(closep) int fd = -1;
    CLEANUP(buf_done) buf pem = {0};

    err *e = fs_read(AT_FDCWD, r->ca, CA_MAX, &pem);
    if (e)
        return err_remedy(err_wrap(e, "registries.%s.ca", r->host),
                          "Name a PEM file that bothyd's user can read.");
    for (char *slash = dir; (slash = strchr(slash + 1, '/')); *slash = '/') {
        *slash = 0;
        if (mkdirat(home, dir, 0700) && errno != EEXIST)
            return err_sys(ERR_INTERNAL, errno, "cannot make %s", dir);
    }
    TRY(fs_dir(home, dir, 0700, &fd));
    return fs_write(fd, "ca.crt", pem.p, pem.len, 0600, false);
}

/* Writes the files that skopeo reads: registries.conf and the registries' CA certificates. Called
 * at each start of bothyd, because its configuration may have changed. Removes the certificates of
 * the start before. */
err *registry_write_conf(image_store *s)
{
    bool listed_only;
    const registries *all = image_registries(s, &listed_only);
    CLEANUP(closep) int home = -1;
    CLEANUP(buf_done) buf text = {0};

    if (!s->o.conf_path)
        return NULL;
    TRY(fs_remove(s->o.conf_dir, "home"));
    TRY(fs_dir(s->o.conf_dir, "home", 0700, &home));
    buf_str(&text, "# Written by bothyd from bothy.yaml at its start.\n"
                   "unqualified-search-registries = []\n");
    for (size_t i = 0; i < all->n; i++) {
        write_registry(&text, all, &all->v[i]);
        if (all->v[i].ca)
            TRY(write_ca(home, &all->v[i]));
    }
    return fs_write(s->o.conf_dir, "registries.conf", text.p, text.len, 0600, false);
}

/* ---- what may be asked ---- */

char *registry_of(const char *reference)
{
    if (image_is_local_source(reference) || !strchr(reference, '/'))
        return NULL;
    return xstrndup(reference, strcspn(reference, "/"));
}

static err *not_listed(const char *host)
{
    return err_remedy(
        err_new(ERR_FORBIDDEN, "registry '%.100s' is not among those of this node", host),
        "Use an image of a registry that 'bothy registry' lists, or let an "
        "administrator add it below 'registries' in bothy.yaml.");
}

static err *not_public(const char *host)
{
    return err_remedy(
        err_new(ERR_FORBIDDEN, "registry '%.100s' is at an address of this node or its site", host),
        "If it is meant to be used, an administrator names it below 'registries' in bothy.yaml.");
}

/* Refuses hosts at non-public addresses, so that tenants cannot use the node to reach what only the
 * node can. skopeo resolves the name again: a name that changes its address in between, or a
 * registry that redirects, is not covered. */
static err *check_addresses(const char *host)
{
    CLEANUP(freep)
    char *name = registry_name_of(str_eq(host, "docker.io") ? "registry-1.docker.io" : host);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    int r = getaddrinfo(name, NULL, &hints, &all);
    bool good = true;

    if (r)
        return err_remedy(
            err_because(err_new(ERR_IMAGE_PULL_FAILED, "the registry '%.100s' was not found", host),
                        "%s", gai_strerror(r)),
            "Check the host in the image's name, and the node's name service.");
    for (const struct addrinfo *a = all; a; a = a->ai_next)
        good &= address_is_public(a->ai_addr);
    freeaddrinfo(all);
    return good ? NULL : not_public(host);
}

err *registry_check_host(image_store *s, const char *host)
{
    bool listed_only;
    const registries *all = image_registries(s, &listed_only);

    if (registries_find(all, host))
        return NULL;
    return listed_only ? not_listed(host) : check_addresses(host);
}

err *registry_check(image_store *s, const char *reference)
{
    CLEANUP(freep) char *host = registry_of(reference);
    err *e = host ? err_wrap(registry_check_host(s, host), "image '%.200s'", reference) : NULL;

    /* Every word that names no image here is completed with this host. */
    if (e && e->code == ERR_IMAGE_PULL_FAILED && str_eq(host, "docker.io"))
        e = err_remedy(e, "Check the image's name: 'bothy image ls' lists what is here, and the "
                          "rest is fetched. Then check the node's network and its name service.");
    return e;
}
