#include "core/cause.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/str.h"

enum cause_members {
    HAS_BY = 1,
    HAS_STAGE = 2,
    HAS_MEMORY = 4
};

static const struct {
    const char *name;
    int members;
    const char *text;
} ROWS[CAUSES] = {
    [CAUSE_REQUESTED] = {"requested", HAS_BY, "Somebody asked for its end."},
    [CAUSE_TTL] = {"ttl", 0, "Its time to live was over."},
    [CAUSE_IDLE] = {"idle", 0, "Nothing happened in it for longer than its idle time."},
    [CAUSE_OOM] = {"oom", HAS_MEMORY, "Its first process was killed at the memory limit."},
    [CAUSE_EXITED] = {"exited", 0, "Its first process ended."},
    [CAUSE_KILLED] = {"killed", HAS_BY, "Its first process was killed."},
    [CAUSE_BUDGET] = {"budget", 0, "Its owner's budget was used up."},
    [CAUSE_POLICY] = {"policy", 0, "A policy ended it."},
    [CAUSE_NODE_LOST] = {"node_lost", 0, "The node lost it, as at a restart of the machine."},
    [CAUSE_CREATE_FAILED] = {"create_failed", HAS_STAGE, "It never came to run."},
    [CAUSE_INTERNAL] = {"internal", 0, "A fault of bothy."},
};

const char *cause_name(enum cause_kind k)
{
    return k < CAUSES ? ROWS[k].name : "internal";
}

const char *cause_text(enum cause_kind k)
{
    return ROWS[k < CAUSES ? k : CAUSE_INTERNAL].text;
}

enum cause_kind cause_by_name(const char *name)
{
    for (int i = 0; i < CAUSES; i++)
        if (str_eq(name, ROWS[i].name))
            return (enum cause_kind)i;
    return CAUSES;
}

cause cause_of_end(const end_facts *f, char buffer[CAUSE_DETAIL_MAX])
{
    if (f->distrusted)
        return (cause){.kind = CAUSE_KILLED, .by = "bothyd", .detail = f->why};
    if (f->missing)
        return (cause){.kind = CAUSE_NODE_LOST, .detail = "the node does not have it any more"};
    if (!f->told)
        return (cause){.kind = CAUSE_EXITED, .detail = f->why};
    if (f->lost)
        return (cause){.kind = CAUSE_NODE_LOST, .detail = f->why};
    if (*f->by)
        return (cause){.kind = CAUSE_KILLED, .by = f->by, .detail = f->why};
    if (f->has_status && WIFEXITED(f->status)) {
        snprintf(buffer, CAUSE_DETAIL_MAX, "pid 1 exited with status %d", WEXITSTATUS(f->status));
        return (cause){.kind = CAUSE_EXITED, .detail = buffer};
    }
    bool may_be_oom = !f->has_status || WTERMSIG(f->status) == SIGKILL;
    if (may_be_oom && f->ooms > f->ooms_ago)
        return (cause){.kind = CAUSE_OOM, .limit = f->limit, .peak = f->peak};
    if (!f->has_status)
        return (cause){.kind = CAUSE_EXITED,
                       .detail = "pid 1 has ended; this kernel does not tell how"};
    snprintf(buffer, CAUSE_DETAIL_MAX, "signal %d from outside the sandbox", WTERMSIG(f->status));
    return (cause){.kind = CAUSE_KILLED, .by = "host", .detail = buffer};
}

static void write_member(buf *out, const char *name, const char *value)
{
    if (!value)
        return;
    buf_printf(out, ",\"%s\":", name);
    buf_json_string(out, value, strlen(value));
}

void cause_write(buf *out, const cause *c)
{
    int members = ROWS[c->kind < CAUSES ? c->kind : CAUSE_INTERNAL].members;

    buf_printf(out, "{\"kind\":\"%s\"", cause_name(c->kind));
    if (members & HAS_BY)
        write_member(out, "by", c->by);
    if (members & HAS_STAGE)
        write_member(out, "stage", c->stage);
    if (members & HAS_MEMORY)
        buf_printf(out, ",\"limit\":%llu,\"peak\":%llu", (unsigned long long)c->limit,
                   (unsigned long long)c->peak);
    write_member(out, "detail", c->detail);
    buf_char(out, '}');
}
