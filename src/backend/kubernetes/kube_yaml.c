/* YAML to JSON, for kubeconfigs: no aliases, anchors or tags, one document, bounded. */
#include <string.h>
#include <yaml.h>

#include "backend/kubernetes/kube_config.h"
#include "base/cleanup.h"
#include "base/str.h"

#define DEPTH_MAX 32
#define NODES_MAX 65536

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; deleted before the next */
    const char *file;
    size_t nodes;
} reader;

static err *kube_yaml_refuse(const reader *r, const char *what)
{
    return err_new(ERR_INVALID_REQUEST, "%s:%zu: %s", r->file, r->event.start_mark.line + 1, what);
}

static err *kube_yaml_next(reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        memset(&r->event, 0, sizeof r->event);
        return err_new(ERR_INVALID_REQUEST, "%s:%zu: %s", r->file, r->parser.problem_mark.line + 1,
                       str_or(r->parser.problem, "not YAML"));
    }
    if (++r->nodes > NODES_MAX)
        return kube_yaml_refuse(r, "too much is in it");
    return r->event.type == YAML_ALIAS_EVENT
               ? kube_yaml_refuse(r, "aliases are not understood here")
               : NULL;
}

static err *check_plain(const reader *r, const yaml_char_t *anchor, const yaml_char_t *tag)
{
    return anchor || tag ? kube_yaml_refuse(r, "anchors and tags are not understood here") : NULL;
}

static err *read_scalar(const reader *r, json_t **ret_value)
{
    const char *text = (const char *)r->event.data.scalar.value;
    bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

    TRY(check_plain(r, r->event.data.scalar.anchor, r->event.data.scalar.tag));
    if (strlen(text) != r->event.data.scalar.length)
        return kube_yaml_refuse(r, "a NUL");
    if (plain && (!*text || str_eq(text, "~") || str_eq(text, "null")))
        *ret_value = json_null();
    else if (plain && (str_eq(text, "true") || str_eq(text, "false")))
        *ret_value = json_boolean(*text == 't');
    else
        *ret_value = json_string(text);
    return *ret_value ? NULL : kube_yaml_refuse(r, "not UTF-8");
}

static err *read_node(reader *r, unsigned depth, json_t **ret_value);

static err *read_list(reader *r, unsigned depth, json_t **ret_value)
{
    CLEANUP(json_decrefp) json_t *list = json_array();

    TRY(check_plain(r, r->event.data.sequence_start.anchor, r->event.data.sequence_start.tag));
    for (;;) {
        json_t *value = NULL;
        TRY(kube_yaml_next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        TRY(read_node(r, depth + 1, &value));
        json_array_append_new(list, value);
    }
    *ret_value = TAKE_PTR(list);
    return NULL;
}

static err *read_key(const reader *r, const json_t *into, char **ret_key)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return kube_yaml_refuse(r, "a key must be a plain value");
    TRY(check_plain(r, r->event.data.scalar.anchor, r->event.data.scalar.tag));
    const char *text = (const char *)r->event.data.scalar.value;
    size_t n = r->event.data.scalar.length;
    if (strlen(text) != n || !utf8_valid(text, n))
        return kube_yaml_refuse(r, "a key that is no text");
    if (json_object_get(into, text))
        return kube_yaml_refuse(r, "a key that is there twice");
    *ret_key = xstrdup(text);
    return NULL;
}

static err *read_mapping(reader *r, unsigned depth, json_t **ret_value)
{
    CLEANUP(json_decrefp) json_t *object = json_object();

    TRY(check_plain(r, r->event.data.mapping_start.anchor, r->event.data.mapping_start.tag));
    for (;;) {
        CLEANUP(freep) char *key = NULL;
        json_t *value = NULL;
        TRY(kube_yaml_next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            break;
        TRY(read_key(r, object, &key));
        TRY(kube_yaml_next(r));
        TRY(read_node(r, depth + 1, &value));
        json_object_set_new(object, key, value);
    }
    *ret_value = TAKE_PTR(object);
    return NULL;
}

/* Reads the value that begins with the current event. */
static err *read_node(reader *r, unsigned depth, json_t **ret_value)
{
    if (depth > DEPTH_MAX)
        return kube_yaml_refuse(r, "nested too deeply");
    if (r->event.type == YAML_SCALAR_EVENT)
        return read_scalar(r, ret_value);
    return r->event.type == YAML_MAPPING_START_EVENT ? read_mapping(r, depth, ret_value)
                                                     : read_list(r, depth, ret_value);
}

static err *read_document(reader *r, json_t **ret_root)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    do /* skip the start of stream and document */
        TRY(kube_yaml_next(r));
    while (r->event.type == YAML_STREAM_START_EVENT || r->event.type == YAML_DOCUMENT_START_EVENT);
    if (r->event.type == YAML_STREAM_END_EVENT)
        return kube_yaml_refuse(r, "nothing is in it");
    TRY(read_node(r, 0, &root));
    TRY(kube_yaml_next(r)); /* the document's end */
    TRY(kube_yaml_next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return kube_yaml_refuse(r, "more than one document");
    *ret_root = TAKE_PTR(root);
    return NULL;
}

err *kube_yaml_parse(const char *file, const void *p, size_t n, json_t **ret_root)
{
    reader r = {.file = file};

    if (n > KUBE_CONFIG_MAX)
        return err_new(ERR_INVALID_REQUEST, "%s has more than %d bytes", file, KUBE_CONFIG_MAX);
    if (!yaml_parser_initialize(&r.parser))
        abort();
    yaml_parser_set_input_string(&r.parser, p, n);
    err *e = read_document(&r, ret_root);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return e;
}
