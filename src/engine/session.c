/* Sessions: the engine's verbs for them. */
#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

/* Opens the sessions at the first call. Live sandboxes call it at start, so that time limits of
 * their commands run on. */
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
    TRY(engine_wait_awake(sb));
    TRY(sandbox_sessions(sb, &t));
    TRY(sandbox_check_commands(e, c, sb));
    spec->setuid = sb->setuid;
    if (idem->key)
        idempotency_hash(c->owner, "session", sb->id, idem, key.key, key.body);
    metric_add(&ENGINE_METRICS[M_EXECS], 0, 1);
    TRY(sandbox_use_begin(sb));
    sandbox_files(sb, &spec->nofile, &spec->nofile_hard);
    err *failure = session_new(t, spec, idem->key ? &key : NULL, ret_session, ret_replay);
    sandbox_use_end(sb);
    if (!failure)
        log_id_number(LOG_SESSION, session_id(*ret_session));
    return sandbox_told(sb, failure);
}

err *engine_session_find(sandbox *sb, const char *id_or_name, session **ret_session)
{
    session_table *t = NULL;

    TRY(sandbox_sessions(sb, &t));
    TRY(session_find(t, id_or_name, ret_session));
    log_id_number(LOG_SESSION, session_id(*ret_session));
    return NULL;
}

err *engine_session_list(sandbox *sb, session ***ret_sessions, size_t *ret_n)
{
    session_table *t = NULL;

    TRY(sandbox_sessions(sb, &t));
    session_list(t, ret_sessions, ret_n);
    return NULL;
}

bool engine_session_key(const caller *c, sandbox *sb, session *s, const idempotency *idem,
                        exec_key *ret_key)
{
    char scope[SANDBOX_ID_LEN + 32];

    *ret_key = (exec_key){0};
    if (!idem->key)
        return false;
    snprintf(scope, sizeof scope, "%s/%lu", sb->id, session_id(s));
    idempotency_hash(c->owner, "command", scope, idem, ret_key->key, ret_key->body);
    return true;
}

err *engine_session_run(sandbox *sb, session *s, const command_spec *spec, const exec_key *key,
                        uint64_t *ret_seq, bool *ret_replay)
{
    TRY(session_replay(s, key, ret_seq)); /* answered whatever the sandbox's state is now */
    *ret_replay = *ret_seq;
    if (*ret_seq)
        return NULL;
    TRY(sandbox_use_begin(sb));
    err *failure = session_run(s, spec, key, ret_seq, ret_replay);
    sandbox_use_end(sb);
    return sandbox_told(sb, failure);
}
