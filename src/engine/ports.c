/* Sockets to the ports of a sandbox, which a door connects and moves bytes over. Where the backend
 * offers no sockets, the kit connects inside, and the socket is a tunnel to it. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "engine/files.h"
#include "engine/internal.h"

#define DIAL_MS 10000 /* as long as a door waits for a connection */

bool engine_port_connects(const engine *e)
{
    return engine_files_cap(e) == CAP_NATIVE && (e->o.prefer_kit || !e->o.backend->ops->socket);
}

atomic_uint *engine_port_waits(sandbox *sb)
{
    return &sb->port_waits;
}

enum cap_level engine_socket_cap(const engine *e)
{
    if (engine_port_connects(e))
        return CAP_EMULATED;
    return e->o.backend->ops->socket ? e->o.backend->caps.socket : CAP_ABSENT;
}

err *engine_port_check(engine *e, const caller *c, sandbox *sb)
{
    TRY(caller_require(c, CALLER_USER));
    TRY(engine_wait_awake(sb));
    if (engine_port_connects(e))
        return sandbox_check_commands(e, c, sb);
    if (!e->o.backend->ops->socket)
        return err_new(ERR_UNSUPPORTED, "the backend '%s' gives no way to a sandbox's ports",
                       e->o.backend->caps.name);
    return NULL;
}

typedef struct port_ask {
    sandbox *sb;
    uint16_t port;
    socket_done *done;
    void *arg;
} port_ask;

/* Passes the backend's answer on. If the sandbox has ended, the error gets its cause. */
static void socket_came(void *arg, err *failure, int fd)
{
    CLEANUP(freep) port_ask *q = arg;

    failure = sandbox_told(q->sb, failure);
    engine_count_port(!failure);
    q->done(q->arg, failure, fd);
    sandbox_unref(q->sb);
}

/* ---- by the kit ---- */

static err *ports_dialled(int fd, uint16_t port)
{
    char said[sizeof(struct kit_dialled)];
    int errnum = 0;
    ssize_t n = recv(fd, said, sizeof said, MSG_DONTWAIT);

    if (n < 0 || !kit_dialled_read(said, (size_t)n, &errnum))
        return err_because(err_new(ERR_UNAVAILABLE, "the kit in the sandbox failed"),
                           "its answer is none");
    if (errnum)
        return err_sys(ERR_PORT_CLOSED, errnum, "nothing listens on port %u", port);
    return NULL;
}

static void tunnel_came(void *arg, err *failure, int fd)
{
    const port_ask *q = arg;

    if (!failure)
        failure = ports_dialled(fd, q->port);
    if (failure)
        closep(&fd);
    socket_came(arg, failure, failure ? -1 : fd);
}

static err *ports_dial(port_ask *q)
{
    char numbers[KIT_NUMBERS];
    const char *argv[KIT_ARGC + 1];
    exec_spec spec;

    TRY(sandbox_usable(q->sb));
    kit_spec(q->sb->engine, &(kit_request){.verb = KIT_DIAL, .offset = q->port, .path = "/"},
             numbers, argv, &spec);
    spec.stdin_open = true;
    spec.timeout_ms = DIAL_MS;
    return exec_tunnel(q->sb->table, &spec, sizeof(struct kit_dialled), tunnel_came, q);
}

void engine_port_socket(sandbox *sb, uint16_t port, socket_done *done, void *arg)
{
    backend *b = sb->engine->o.backend;
    port_ask *q = xcalloc(1, sizeof *q);

    *q = (port_ask){.sb = sandbox_ref(sb), .port = port, .done = done, .arg = arg};
    if (!engine_port_connects(sb->engine)) {
        b->ops->socket(b, sandbox_box(sb).id, socket_came, q);
        return;
    }
    err *failure = ports_dial(q);
    if (failure)
        socket_came(q, failure, -1);
}
