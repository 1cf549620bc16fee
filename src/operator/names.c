#include "operator/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/digest.h"
#include "base/str.h"

bool name_is_reserved(const char *key)
{
    static const char DOMAIN[] = OPERATOR_GROUP;
    const char *slash = strchr(key, '/');
    size_t n = slash ? (size_t)(slash - key) : 0, d = sizeof DOMAIN - 1;

    if (n < d || strncasecmp(key + n - d, DOMAIN, d) != 0)
        return false;
    return n == d || key[n - d - 1] == '.';
}

/* Returns whether s has letters and digits at both ends, and between them
 * also - _ . (in DNS names no _). */
static bool is_word(const char *s, size_t n, size_t max, bool dns)
{
    if (!n || n > max)
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        bool plain = dns ? islower(c) || isdigit(c) : isalnum(c);
        bool inner = i && i + 1 < n && (c == '-' || c == '.' || (c == '_' && !dns));
        if (c > 0x7e || (!plain && !inner))
            return false;
    }
    return true;
}

bool name_is_dns(const char *name, size_t max)
{
    return is_word(name, strlen(name), max, true) && !strstr(name, "..") && !strstr(name, ".-") &&
           !strstr(name, "-.");
}

/* Returns whether the n bytes are [prefix/]name. */
static bool is_key(const char *key, size_t n)
{
    const char *slash = memchr(key, '/', n);
    size_t prefix = slash ? (size_t)(slash - key) : 0;

    if (slash && !is_word(key, prefix, KUBE_NAME_MAX, true))
        return false;
    size_t at = slash ? prefix + 1 : 0;
    return is_word(key + at, n - at, KUBE_LABEL_MAX, false);
}

static err *key_check(const char *pair, size_t n, const char *what)
{
    if (!is_key(pair, n))
        return err_new(ERR_INVALID_REQUEST, "%s: '%.*s' is not a name of a label", what,
                       (int)(n < 128 ? n : 128), pair);
    if (name_is_reserved(pair))
        return err_remedy(err_new(ERR_INVALID_REQUEST, "%s: '%.*s' is bothy's own", what,
                                  (int)(n < 128 ? n : 128), pair),
                          "Use a name without the prefix bothy.dev/.");
    return NULL;
}

err *annotations_check(char *const *annotations, const char *what)
{
    for (size_t i = 0; annotations && annotations[i]; i++)
        TRY(key_check(annotations[i], strcspn(annotations[i], "="), what));
    return NULL;
}

err *labels_check(char *const *labels, const char *what)
{
    TRY(annotations_check(labels, what));
    for (size_t i = 0; labels && labels[i]; i++) {
        const char *value = strchr(labels[i], '=') + 1;
        if (*value && !is_word(value, strlen(value), KUBE_LABEL_MAX, false))
            return err_new(ERR_INVALID_REQUEST, "%s: '%.128s' has a value no label may have", what,
                           labels[i]);
    }
    return NULL;
}

void hash_text(const void *p, size_t n, char ret_text[HASH_TEXT_LEN + 1])
{
    unsigned char digest[SHA256_LEN];

    sha256(p, n, digest);
    hex_encode(digest, HASH_TEXT_LEN / 2, ret_text);
}

void hash_json(const json_t *j, char ret_text[HASH_TEXT_LEN + 1])
{
    char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);

    hash_text(str_or(text, ""), text ? strlen(text) : 0, ret_text);
    free(text);
}

void pod_name_of(const char *pool, const char random[POD_NAME_RANDOM + 1],
                 char ret_name[KUBE_LABEL_MAX + 1])
{
    int room = KUBE_LABEL_MAX - POD_NAME_RANDOM - 1;
    int n = snprintf(ret_name, KUBE_LABEL_MAX + 1, "%.*s", room, pool);

    n = n < room ? n : room;
    while (n && (ret_name[n - 1] == '-' || ret_name[n - 1] == '.'))
        n--;
    snprintf(ret_name + n, (size_t)(KUBE_LABEL_MAX + 1 - n), "-%.*s", POD_NAME_RANDOM, random);
}

void label_of_name(const char *name, char ret_value[KUBE_LABEL_MAX + 1])
{
    if (is_word(name, strlen(name), KUBE_LABEL_MAX, false))
        str_copy(ret_value, KUBE_LABEL_MAX + 1, name);
    else
        hash_text(name, strlen(name), ret_value);
}

void record_proof(const uint8_t key[32], const char *namespace, const char *name, const char *id,
                  char ret_proof[HASH_TEXT_LEN + 1])
{
    CLEANUP(buf_done) buf text = {0};
    unsigned char mac[SHA256_LEN];

    /* Neither the namespace nor the name can contain a slash. */
    buf_printf(&text, "record/%s/%s/%s", namespace, name, id);
    hmac_sha256(key, 32, text.p, text.len, mac);
    hex_encode(mac, HASH_TEXT_LEN / 2, ret_proof);
}
