/* …/ports/{port}/… and <port>-<id>.<domain>: HTTP to servers inside; …/forward/{port}: bytes. */
#include <string.h>

#include "api/openapi.h"
#include "door/rest/internal.h"
#include "wire/gateway.h"

static err *parse_port(const char *text, uint16_t *ret_port)
{
    if (gateway_port_parse(text, strlen(text), ret_port))
        return NULL;
    return err_remedy(err_new(ERR_INVALID_REQUEST, "port: '%.16s' is not 1 to 65535", text),
                      "Name the port that the server in the sandbox listens on, in decimal.");
}

static err *ports_go(request *rq, response *rs, const char *id, port_way w)
{
    const rest_options *o = &rest_of(rq)->o;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(engine_find(rest_engine(rq), rest_caller(rq), id, &sb));
    w.answer_ms = o->port_answer_ms;
    w.idle_ms = o->port_idle_ms;
    return port_start(rq, rs, rest_engine(rq), rest_caller(rq), sb, &w);
}

/* Returns the part "/v1/sandboxes/x/ports/80" of a target, as the caller wrote it. */
static char *prefix_of(const char *target)
{
    const char *p = target;

    for (int i = 0; i < 5; i++)
        p += 1 + strcspn(p + 1, "/?");
    return xstrndup(target, (size_t)(p - target));
}

err *rest_port(request *rq, response *rs)
{
    CLEANUP(freep) char *prefix = prefix_of(request_target(rq));
    port_way w = {.prefix = prefix};

    TRY(parse_port(request_param(rq, 1), &w.port));
    return ports_go(rq, rs, request_param(rq, 0), w);
}

/* Redirects to the path with a slash behind the port: without it,
 * relative links would lead elsewhere. */
err *rest_port_slash(request *rq, response *rs)
{
    CLEANUP(freep) char *prefix = prefix_of(request_target(rq));
    uint16_t port = 0;

    TRY(parse_port(request_param(rq, 1), &port));
    response_status(rs, 308);
    response_header(rs, "Location", "%s/%s", prefix, request_target(rq) + strlen(prefix));
    return NULL;
}

err *rest_forward(request *rq, response *rs)
{
    port_way w = {.tunnel = true};

    TRY(parse_port(request_param(rq, 1), &w.port));
    if (!request_upgrades(rq, "tcp"))
        return err_remedy(err_new(ERR_INVALID_REQUEST, "this is for connections that become bytes"),
                          "Send GET with 'Connection: Upgrade' and 'Upgrade: tcp', or use 'bothy "
                          "forward'.");
    return ports_go(rq, rs, request_param(rq, 0), w);
}

/* ---- the host form ---- */

enum gateway_host ports_host(request *rq, char ret_id[SANDBOX_ID_LEN + 1], uint16_t *ret_port)
{
    const char *host = request_header(rq, "Host"), *domain = rest_of(rq)->o.port_domain;

    if (!host || !domain || !*domain)
        return GATEWAY_HOST_OTHER;
    return gateway_host_parse(host, domain, SANDBOX_ID_LEN, ret_id, ret_port);
}

err *ports_by_host(request *rq, response *rs, const char *id, uint16_t port)
{
    return ports_go(rq, rs, id, (port_way){.port = port});
}
