/* Metadata of sandboxes, and the filter of lists by metadata. */
#include <string.h>

#include "core/spec.h"
#include "door/e2b/control.h"

#define FILTERS_MAX 64

/* Returns false if a name contains "=": a label's name ends at the first one, so the name would
 * come back changed. */
static bool names_stay_whole(const json_t *metadata)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)metadata, name, value)
    {
        if (strchr(name, '='))
            return false;
    }
    return true;
}

char **metadata_labels(const json_t *metadata)
{
    char **labels = NULL;
    const char *name;
    json_t *value;

    if (!names_stay_whole(metadata))
        return NULL;
    json_object_foreach((json_t *)metadata, name, value)
        strv_push(&labels, str_printf("%s=%s", name, json_string_value(value)));
    err *e = spec_labels_check(labels);
    if (!e)
        return labels;
    err_free(e);
    strv_free(labels);
    return NULL;
}

/* Decodes in place what URLSearchParams and urllib's quote encode: "+" is a space. */
static bool form_decode(char *s)
{
    size_t n;

    for (char *p = s; *p; p++)
        if (*p == '+')
            *p = ' ';
    return percent_decode(s, &n) && utf8_valid(s, strlen(s));
}

static bool add_pair(json_t *pairs, char *pair)
{
    char *eq = strchr(pair, '=');

    if (eq)
        *eq = 0;
    char *value = eq ? eq + 1 : pair + strlen(pair);
    if (!form_decode(pair) || !form_decode(value))
        return false;
    json_object_set_new(pairs, pair, json_string(value));
    return true;
}

static err *bad_filter(void)
{
    return err_new(ERR_INVALID_REQUEST,
                   "metadata: must be name=value pairs, percent-encoded, at most %d", FILTERS_MAX);
}

/* Example: "user=u%25201". The whole text is decoded, split, and each part decoded again. */
err *metadata_filter(const char *text, json_t **ret_pairs)
{
    CLEANUP(json_decrefp) json_t *pairs = json_object();
    CLEANUP(freep) char *whole = xstrdup(text);
    char *rest = whole;

    if (!form_decode(whole))
        return bad_filter();
    while (rest && *rest) {
        char *pair = rest;
        rest = strchr(rest, '&');
        if (rest)
            *rest++ = 0;
        if (json_object_size(pairs) >= FILTERS_MAX || !add_pair(pairs, pair))
            return bad_filter();
    }
    *ret_pairs = TAKE_PTR(pairs);
    return NULL;
}

bool metadata_matches(const json_t *metadata, const json_t *pairs)
{
    const char *name;
    json_t *value;

    json_object_foreach(
        (json_t *)pairs, name,
        value) if (!json_equal(value, json_object_get(metadata, name))) return false;
    return true;
}
