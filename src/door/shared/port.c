#include "door/shared/port.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "net/gateway.h"

static void ask_socket(void *arg, uint16_t port, gateway_socket *done, void *ticket)
{
    engine_port_socket(arg, port, done, ticket);
}

static void release_sandbox(void *arg)
{
    sandbox_stream_end(arg);
    sandbox_unref(arg);
}

err *port_start(request *rq, response *rs, engine *e, const caller *c, sandbox *sb,
                const port_way *w)
{
    TRY(engine_port_check(e, c, sb));
    if (!sandbox_stream_begin(sb)) /* it has ended meanwhile */
        return engine_port_check(e, c, sb);
    CLEANUP(freep) char *where = str_printf("port %u of sandbox %s", w->port, sandbox_id(sb));
    return gateway_start(rq, rs,
                         &(gateway_options){.ask = ask_socket,
                                            .connected = engine_port_connects(e),
                                            .free = release_sandbox,
                                            .arg = sandbox_ref(sb),
                                            .port = w->port,
                                            .where = where,
                                            .tunnel = w->tunnel,
                                            .prefix = w->prefix,
                                            .answer_ms = w->answer_ms,
                                            .idle_ms = w->idle_ms,
                                            .patient_until = w->patient_until,
                                            .waiting = engine_port_waits(sb)});
}
