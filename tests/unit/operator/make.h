/* Objects for the planners' tests, from JSON as an API server would send it. */
#pragma once

#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "operator/names.h"
#include "operator/objects.h"

#include "../unit.h"

#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static inline json_t *parse(const char *text)
{
    json_t *j = NULL;
    CLEANUP(freep) char *quoted = xstrdup(text);

    /* Tests write ' for ". */
    for (char *c = quoted; *c; c++)
        if (*c == '\'')
            *c = '"';
    assert_ok(json_parse(quoted, strlen(quoted), &j));
    return j;
}

static inline crd_template make_template(const char *spec)
{
    CLEANUP(freep)
    char *text =
        str_printf("{'metadata':{'name':'python','uid':'t','generation':1},'spec':%s}", spec);
    CLEANUP(json_decrefp) json_t *j = parse(text);
    crd_template t;

    assert_ok(crd_template_decode(j, &t));
    assert_ok(crd_template_check(&t));
    return t;
}

/* extra: more members of the metadata, beginning with a comma. */
static inline crd_pool make_pool(const char *spec, const char *extra)
{
    CLEANUP(freep)
    char *text = str_printf("{'metadata':{'name':'p','namespace':'ns','uid':'u','generation':3%s},"
                            "'spec':%s}",
                            extra, spec);
    CLEANUP(json_decrefp) json_t *j = parse(text);
    crd_pool p;

    assert_ok(crd_pool_decode(j, &p));
    assert_ok(crd_pool_check(&p));
    return p;
}

/* labels: more of them, beginning with a comma; rest: spec and status, likewise. */
static inline pod_view make_pod(const char *name, const char *labels, const char *meta,
                                const char *rest)
{
    CLEANUP(freep)
    char *text = str_printf("{'metadata':{'name':'%s','namespace':'ns','uid':'uid-%s','labels':"
                            "{'bothy.dev/pool':'p'%s}%s}%s}",
                            name, name, labels, meta, rest);
    CLEANUP(json_decrefp) json_t *j = parse(text);
    pod_view p;

    assert_ok(pod_view_decode(j, &p));
    return p;
}

#define STATUS_RUNNING \
    ",'status':{'phase':'Running','containerStatuses':[{'name':'sandbox','state':{'running':{}}}]}"
#define STATUS_WAITING(reason, message)                                                        \
    ",'status':{'phase':'Pending','containerStatuses':[{'name':'sandbox','state':{'waiting':{" \
    "'reason':'" reason "','message':'" message "'}}}]}"
#define STATUS_ENDED(reason, code)                                                               \
    ",'status':{'phase':'Failed','containerStatuses':[{'name':'sandbox','state':{'terminated':{" \
    "'reason':'" reason "','exitCode':" code "}}}]}"
#define STATUS_UNSCHEDULABLE                                                              \
    ",'status':{'phase':'Pending','conditions':[{'type':'PodScheduled','status':'False'," \
    "'reason':'Unschedulable','message':'0/1 nodes are available','lastTransitionTime':"  \
    "'2026-01-02T03:04:05Z'}]}"

static inline const char *condition_of(const json_t *status, const char *type, const char *member)
{
    const json_t *all = json_object_get(status, "conditions");

    for (size_t i = 0; i < json_array_size(all); i++)
        if (str_eq(json_str(json_array_get(all, i), "type"), type))
            return json_str(json_array_get(all, i), member);
    return NULL;
}
