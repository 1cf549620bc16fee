/* Sessions, as doors ask for them. */
#include <stdio.h>

#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

/* Opened when somebody asks, and at start for what lives: a command's time limit goes on. */
err *sandbox_sessions(sandbox *sb, session_table **ret_table)
{
    exec_table *t = NULL;

    TRY(sandbox_table(sb, &t));
    LOCK_SCOPE(&sb->lock);
    if (!sb->sessions)
        TRY(session_table_open(t, &sb->sessions));
    *ret_table = sb->sessions;
    return NULL;
}

err *engine_session_new(engine *e, const caller *c, sandbox *sb, session_spec *spec,
                        const idempotency *idem, session **ret_session, bool *ret_replay)
{
    session_table *t = NULL;
    exec_key key = {0};

    TRY(caller_require(c, CALLER_USER));
    TRY(sandbox_usable(sb));
    TRY(sandbox_sessions(sb, &t));
    TRY(sandbox_check_commands(e, c, sb));
    spec->setuid = sb->setuid;
    spec->nofile = sb->limits.nofile;
    if (idem->key)
        idempotency_hash(c->owner, "session", sb->id, idem, key.key, key.body);
    metric_add(&ENGINE_METRICS[M_EXECS], 0, 1);
    return session_new(t, spec, idem->key ? &key : NULL, ret_session, ret_replay);
}

err *engine_session_find(sandbox *sb, const char *id_or_name, session **ret_session)
{
    session_table *t = NULL;

    TRY(sandbox_sessions(sb, &t));
    return session_find(t, id_or_name, ret_session);
}

err *engine_session_list(sandbox *sb, session ***ret_sessions, size_t *ret_n)
{
    session_table *t = NULL;

    TRY(sandbox_sessions(sb, &t));
    session_list(t, ret_sessions, ret_n);
    return NULL;
}

err *engine_session_run(engine *e, const caller *c, sandbox *sb, session *s,
                        const command_spec *spec, const idempotency *idem, uint64_t *ret_seq,
                        bool *ret_replay)
{
    char scope[SANDBOX_ID_LEN + 32];
    exec_key key = {0};

    (void)e;
    TRY(caller_require(c, CALLER_USER));
    TRY(sandbox_usable(sb));
    if (idem->key) {
        snprintf(scope, sizeof scope, "%s/%lu", sb->id, session_id(s));
        idempotency_hash(c->owner, "command", scope, idem, key.key, key.body);
    }
    return session_run(s, spec, idem->key ? &key : NULL, ret_seq, ret_replay);
}
