/* Names of images, as Docker normalises them. */
#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "image/image.h"

#define NAME_MAX_LEN 255
#define TAG_MAX_LEN  128
#define HEX_MIN      12
#define HEX_FULL     64
#define SOURCE_MAX   4096
#define SHORT_PREFIX "docker.io/library/" /* prefix added to a single word */

static const char *const LOCAL_SOURCES[] = {"oci:", "docker-archive:", "dir:"};

bool image_is_local_source(const char *reference)
{
    for (size_t i = 0; i < ARRAY_LEN(LOCAL_SOURCES); i++)
        if (str_starts(reference, LOCAL_SOURCES[i]))
            return true;
    return false;
}

static bool is_lower_hex(const char *s, size_t min, size_t max)
{
    size_t n = strlen(s);

    return n >= min && n <= max && strspn(s, "0123456789abcdef") == n;
}

static bool is_lower_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Returns the length of a separator between two alphanumerics: one dot, one or two underscores, or
 * any number of dashes. */
static size_t separator_len(const char *s)
{
    if (*s == '.')
        return 1;
    if (*s == '_')
        return s[1] == '_' ? 2 : 1;
    return strspn(s, "-");
}

static bool is_component(const char *s, size_t n)
{
    const char *end = s + n;

    while (s < end && is_lower_alnum(*s)) {
        while (s < end && is_lower_alnum(*s))
            s++;
        if (s == end)
            return true;
        size_t sep = separator_len(s);
        if (!sep)
            return false;
        s += sep;
    }
    return false;
}

static bool is_path(const char *path)
{
    for (;;) {
        size_t n = strcspn(path, "/");
        if (!is_component(path, n))
            return false;
        if (!path[n])
            return true;
        path += n + 1;
    }
}

static bool is_tag(const char *tag)
{
    size_t n = strlen(tag);

    if (!n || n > TAG_MAX_LEN || *tag == '.' || *tag == '-')
        return false;
    for (; *tag; tag++)
        if (!isalnum((unsigned char)*tag) && !strchr("_.-", *tag))
            return false;
    return true;
}

/* Accepts host names, addresses and an optional port. */
static bool is_domain(const char *domain)
{
    const char *port = strrchr(domain, ':');
    size_t n = port ? (size_t)(port - domain) : strlen(domain);

    if (!n || (port && (!port[1] || strspn(port + 1, "0123456789") != strlen(port + 1))))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)domain[i]) && !strchr(".-", domain[i]))
            return false;
    return domain[0] != '-' && domain[0] != '.' && domain[n - 1] != '-' && domain[n - 1] != '.';
}

typedef struct parts { /* of a reference; all point into text */
    char *text;
    const char *domain, *path, *tag, *digest;
} parts;

static void parts_done(parts *p)
{
    free(p->text);
}

static bool has_upper(const char *s)
{
    for (; *s; s++)
        if (*s >= 'A' && *s <= 'Z')
            return true;
    return false;
}

/* Splits off the host. The first component is a host if it has a dot, a port or capitals, or is
 * "localhost". */
static void split_domain(parts *p, char *name)
{
    char *slash = strchr(name, '/');

    p->domain = "docker.io";
    p->path = name;
    if (!slash)
        return;
    *slash = 0;
    if (strpbrk(name, ".:") || str_eq(name, "localhost") || has_upper(name)) {
        p->domain = str_eq(name, "index.docker.io") ? "docker.io" : name;
        p->path = slash + 1;
    } else {
        *slash = '/';
    }
}

static void reference_split(const char *reference, parts *ret_parts)
{
    parts p = {.text = xstrdup(reference)};
    char *at = strchr(p.text, '@');

    if (at) {
        *at = 0;
        p.digest = at + 1;
    }
    char *colon = strrchr(p.text, ':');
    if (colon && !strchr(colon, '/')) {
        *colon = 0;
        p.tag = colon + 1;
    }
    split_domain(&p, p.text);
    *ret_parts = p;
}

static err *reference_bad(const char *reference, const char *why)
{
    return err_remedy(
        err_new(ERR_INVALID_REQUEST, "image name '%.100s' is not valid: %s", reference, why),
        "Write it as [host[:port]/]path[:tag][@sha256:digest], in lower case, or name "
        "a local source as oci:PATH:TAG, docker-archive:FILE or dir:PATH.");
}

/* Returns true for a single word of docker.io: it is in its "library". */
static bool is_official(const parts *p)
{
    return str_eq(p->domain, "docker.io") && !strchr(p->path, '/');
}

/* Checks all parts. The length includes what normalising adds: the normalised name must be valid
 * too. */
static err *check_parts(const char *reference, const parts *p)
{
    size_t completed = is_official(p) ? strlen("library/") : 0;

    if (strlen(p->domain) + completed + strlen(p->path) > NAME_MAX_LEN)
        return reference_bad(reference, "longer than 255 bytes");
    if (!is_domain(p->domain))
        return reference_bad(reference, "the host");
    if (has_upper(p->path))
        return reference_bad(reference, "capital letters");
    if (!is_path(p->path))
        return reference_bad(reference, "the path");
    if (p->tag && !is_tag(p->tag))
        return reference_bad(reference, "the tag");
    if (p->digest && !(str_starts(p->digest, "sha256:") &&
                       is_lower_hex(p->digest + strlen("sha256:"), HEX_FULL, HEX_FULL)))
        return reference_bad(reference, "the digest");
    return NULL;
}

static err *check_source(const char *reference)
{
    const char *rest = strchr(reference, ':') + 1;

    if (!*rest || strlen(reference) > SOURCE_MAX)
        return reference_bad(reference, "a local source needs a path of at most 4096 bytes");
    if (!utf8_valid(rest, strlen(rest)))
        return reference_bad(reference, "not UTF-8");
    return utf8_has_control(rest) ? reference_bad(reference, "control characters") : NULL;
}

err *image_normalise(const char *reference, char **ret_name)
{
    CLEANUP(parts_done) parts p = {0};

    if (strlen(reference) > SOURCE_MAX)
        return reference_bad(reference, "too long");
    if (image_is_local_source(reference)) {
        TRY(check_source(reference));
        *ret_name = xstrdup(reference);
        return NULL;
    }
    if (str_starts(reference, "sha256:") && is_lower_hex(reference + 7, HEX_MIN, HEX_FULL)) {
        *ret_name = xstrdup(reference);
        return NULL;
    }
    if (is_lower_hex(reference, HEX_FULL, HEX_FULL))
        return reference_bad(reference, "64 hexadecimal digits: write sha256: before a digest");
    reference_split(reference, &p);
    TRY(check_parts(reference, &p));
    *ret_name = str_printf("%s/%s%s%s%s%s%s", p.domain, is_official(&p) ? "library/" : "", p.path,
                           p.tag ? ":" : "", p.tag ? p.tag : (p.digest ? "" : ":latest"),
                           p.digest ? "@" : "", str_or(p.digest, ""));
    return NULL;
}

/* Returns true if the name could be taken for a digest: "0123456789ab" would find
 * "docker.io/library/0123456789ab:latest". */
static bool looks_like_digest(const char *name)
{
    const char *last = str_starts(name, SHORT_PREFIX) ? name + strlen(SHORT_PREFIX) : "";
    size_t n = strcspn(last, ":");
    CLEANUP(freep) char *word = xstrndup(last, n);

    return str_starts(name, "sha256:") || strchr(name, '@') ||
           is_lower_hex(word, HEX_MIN, HEX_FULL);
}

err *image_normalise_as(const char *as, char **ret_name)
{
    CLEANUP(freep) char *name = NULL;

    TRY(image_normalise(as, &name));
    assert(name);
    if (!image_is_local_source(name) && looks_like_digest(name))
        return err_remedy(
            err_new(ERR_INVALID_REQUEST, "'%.100s' cannot be given: it is or has a digest", as),
            "Choose a name without '@' that is not made of hexadecimal digits alone.");
    *ret_name = TAKE_PTR(name);
    return NULL;
}
