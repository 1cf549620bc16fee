/* Sockets to the ports of a sandbox. Who connects them, and what goes through, is a door's. */
#include "base/str.h"
#include "engine/internal.h"

err *engine_port_check(engine *e, const caller *c, sandbox *sb)
{
    TRY(caller_require(c, CALLER_USER));
    TRY(sandbox_usable(sb));
    if (!e->o.backend->ops->socket)
        return err_new(ERR_UNSUPPORTED, "the backend '%s' gives no way to a sandbox's ports",
                       e->o.backend->caps.name);
    return NULL;
}

typedef struct port_ask {
    sandbox *sb;
    socket_done *done;
    void *arg;
} port_ask;

/* The backend knows that it has gone, the sandbox knows why. */
static void socket_came(void *arg, err *failure, int fd)
{
    CLEANUP(freep) port_ask *q = arg;

    failure = sandbox_told(q->sb, failure);
    engine_count_port(!failure);
    q->done(q->arg, failure, fd);
    sandbox_unref(q->sb);
}

void engine_port_socket(sandbox *sb, socket_done *done, void *arg)
{
    backend *b = sb->engine->o.backend;
    port_ask *q = xcalloc(1, sizeof *q);

    *q = (port_ask){.sb = sandbox_ref(sb), .done = done, .arg = arg};
    b->ops->socket(b, sandbox_box(sb).id, socket_came, q);
}
