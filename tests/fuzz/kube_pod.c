/* A pod's object. What is read of it is bounded and can be said; a fate is one. */
#include <sys/wait.h>

#include "backend/kubernetes/pod.h"
#include "base/cleanup.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(json_decrefp) json_t *o = NULL;
    CLEANUP(pod_facts_done) pod_facts f = {0};
    box_fate fate;
    err *e = json_parse(size ? (const void *)data : "", size, &o);

    if (!e)
        e = pod_facts_read(o, &f);
    if (e) {
        MUST(e->code == ERR_INVALID_REQUEST);
        err_free(e);
        return 0;
    }
    CLEANUP(freep) char *handle = pod_handle("ns", &f);
    CLEANUP(freep) char *why = pod_why(&f);
    pod_fate(&f, &fate);
    MUST(*f.uid && *f.name && strlen(handle) < LINK_HANDLE_MAX);
    MUST(!*f.sandbox || id_is_sandbox(f.sandbox));
    MUST(strlen(why) < 4096 && f.exit_code >= -1 && f.exit_code <= 255);
    MUST(!fate.has_status || WIFEXITED(fate.status) || WIFSIGNALED(fate.status));
    return 0;
}
