#include "door/mcp/tools.h"

#include <assert.h>

#include "api/mcp.h"
#include "base/cleanup.h"
#include "base/str.h"

static json_t *LISTED[2];

static json_t *schema_of(const json_t *doc, const json_t *tool, const char *which)
{
    const json_t *all = json_object_get(json_object_get(doc, "components"), "schemas");

    return json_deep_copy(json_object_get(all, json_str(tool, which)));
}

/* Makes `sandbox` required, because a connection without a session has no default for it. */
static void require_sandbox(json_t *schema)
{
    if (!json_object_get(json_object_get(schema, "properties"), "sandbox"))
        return;
    if (!json_object_get(schema, "required"))
        json_object_set_new(schema, "required", json_array());
    json_array_append_new(json_object_get(schema, "required"), json_string("sandbox"));
}

static json_t *tool_view(const json_t *doc, const json_t *tool, bool without_session)
{
    json_t *input = schema_of(doc, tool, "arguments");

    if (without_session)
        require_sandbox(input);
    return json_pack("{s:O,s:O,s:O,s:o,s:o,s:O}", "name", json_object_get(tool, "name"), "title",
                     json_object_get(tool, "title"), "description",
                     json_object_get(tool, "description"), "inputSchema", input, "outputSchema",
                     schema_of(doc, tool, "result"), "annotations",
                     json_object_get(tool, "annotations"));
}

void tools_init(void)
{
    CLEANUP(json_decrefp) json_t *doc = NULL;
    CLEANUP(err_freep) err *e = json_parse(MCP_JSON, MCP_JSON_LEN, &doc);
    const json_t *tool;
    size_t i;

    assert(!e);
    for (int without = 0; without < 2; without++) {
        json_decref(LISTED[without]);
        LISTED[without] = json_array();
        json_array_foreach(json_object_get(doc, "tools"), i, tool)
        {
            json_t *view = tool_view(doc, tool, without);
            assert(view);
            json_array_append_new(LISTED[without], view);
        }
    }
}

json_t *tools_listed(bool without_session)
{
    return LISTED[without_session];
}
