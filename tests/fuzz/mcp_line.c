/* A line of MCP over stdio that is refused: where an id is found in it, it is the one that a parser
 * finds if there is nothing to refuse. */
#include "cli/mcp_line.h"

#include "base/cleanup.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    CLEANUP(json_decrefp) json_t *found = mcp_line_id(p, size);
    CLEANUP(json_decrefp) json_t *whole = NULL;
    CLEANUP(err_freep) err *e = json_parse(p, size, &whole);

    MUST(!found || json_is_string(found) || json_is_number(found));
    if (!e && found)
        MUST(json_equal(found, json_object_get(whole, "id")));
    if (e) {
        CLEANUP(freep) char *told = mcp_line_refusal(e);
        MUST(*told);
    }
    return 0;
}
