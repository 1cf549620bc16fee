#include "operator/status.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "operator/text.h"

json_t *status_text(const char *s, size_t max)
{
    CLEANUP(freep) char *copy = xstrdup(s);
    size_t n = strlen(copy);

    if (n > max) {
        n = max;
        while (n && ((unsigned char)copy[n] & 0xc0) == 0x80)
            n--;
        copy[n] = 0;
    }
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)copy[i] < 0x20 || copy[i] == 0x7f)
            copy[i] = ' ';
    json_t *j = json_string(copy);
    return j ? j : json_string("(not a text)");
}

static const condition *status_find(const condition *all, size_t n, const char *type)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(all[i].type, type))
            return &all[i];
    return NULL;
}

json_t *status_conditions(const condition *before, size_t nbefore, const wanted_condition *want,
                          size_t n, uint64_t generation, uint64_t now_ns)
{
    json_t *all = json_array();
    char now[TIME_TEXT_MAX];

    time_to_text(now_ns, now);
    for (size_t i = 0; i < n; i++) {
        const char *status = want[i].is ? "True" : "False";
        const condition *old = status_find(before, nbefore, want[i].type);
        bool same = old && str_eq(old->status, status) && old->since_ns;
        json_array_append_new(
            all, json_pack("{s:s, s:s, s:s, s:o, s:s, s:I}", "type", want[i].type, "status", status,
                           "reason", want[i].reason, "message",
                           status_text(str_or(want[i].message, ""), STATUS_MESSAGE_MAX),
                           "lastTransitionTime", same ? old->since : now, "observedGeneration",
                           (json_int_t)generation));
    }
    return all;
}

bool status_differs(const json_t *is, const json_t *wanted)
{
    if (!is)
        return json_object_size(wanted) > 0;
    return !json_equal(is, wanted);
}

json_t *status_members(const json_t *is, const json_t *wanted)
{
    json_t *patch = json_deep_copy(wanted);
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)is, name, v)
    {
        if (!json_object_get(wanted, name))
            json_object_set_new(patch, name, json_null());
    }
    return patch;
}

json_t *status_patch(const json_t *is, const json_t *wanted)
{
    return json_pack("{s:o}", "status", status_members(is, wanted));
}

enum cause_kind status_cause_kind(const char *code)
{
    enum cause_kind k = cause_by_name(code);

    if (k != CAUSES)
        return k;
    /* `unknown`: the sandbox is unreachable. That counts as a lost
     * node, which its user may retry. */
    return str_eq(code, "unknown") ? CAUSE_NODE_LOST : CAUSE_POLICY;
}
