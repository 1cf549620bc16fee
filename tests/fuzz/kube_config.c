/* A kubeconfig. What is taken has a server to connect to, and nothing in it ends a header line. */
#include "backend/kubernetes/kube_config.h"

#include "base/cleanup.h"

#include "fuzz.h"

static void line(const char *s)
{
    MUST(!s || (utf8_valid(s, strlen(s)) && !utf8_has_control(s)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(kube_config_done) kube_config c = {0};
    err *e = kube_config_parse("fuzz", data, size, "/dir", NULL, &c);

    if (e) {
        MUST(e->code == ERR_INVALID_REQUEST && *e->message);
        err_free(e);
        MUST(!c.server && !c.key && !c.as);
        return 0;
    }
    MUST(str_starts(c.server, "http"));
    MUST(!str_ends(c.server, "/") && ascii_visible(c.server));
    MUST((c.cert || c.cert_file) == (c.key || c.key_file));
    MUST(str_starts(c.server, "https://") || (!c.token && !c.token_file));
    MUST(!c.token || ascii_visible(c.token));
    MUST(!c.ca_file || *c.ca_file == '/');
    line(c.ns);
    line(c.tls_name);
    line(c.proxy);
    for (char **as = c.as; as && *as; as++)
        line(*as);
    return 0;
}
