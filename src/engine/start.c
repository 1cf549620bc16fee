/* The start command: an exec that the sandbox begins with, and that does not keep it from being
 * idle. The journal says whether it was begun. So if bothyd is killed between a create and its
 * BEGIN, the command is begun when the box is attached, and it never runs twice. A command that was
 * never forked is retried, with growing delays; if that is not known, it is not. */
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

#define AGAIN_NS  NS_PER_S
#define AGAIN_MAX 8u /* doublings of that */

json_t *start_json(const start_spec *s)
{
    if (!s->argv)
        return NULL;
    return json_pack("{s:o,s:s?,s:s?}", "argv", strv_json(s->argv), "user", s->user, "cwd", s->cwd);
}

json_t *start_of_row(const json_t *start, const char *id)
{
    CLEANUP(strv_freep) char **argv = strv_of_json(json_object_get(start, "argv"));

    if (argv && *argv)
        return json_deep_copy(start);
    if (start)
        log_error("start",
                  "the start command of sandbox %s in the store names no program: it is "
                  "taken as none",
                  id);
    return NULL;
}

/* Returns true if the start command may be tried now. Lock held. */
static bool may_start(const sandbox *sb)
{
    return sb->start && sb->table && sb->state == LIFE_RUNNING && !sb->cause && !sb->deleting &&
           clock_mono(sb->engine->o.clock) >= sb->start_again_ns;
}

static bool is_due(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    return may_start(sb);
}

/* Takes a try, so that only one thread makes it. Returns false if none is due. */
static bool take_turn(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    if (!may_start(sb))
        return false;
    sb->start_again_ns = clock_mono(sb->engine->o.clock) + (AGAIN_NS << sb->start_tries);
    sb->start_tries += sb->start_tries < AGAIN_MAX;
    return true;
}

/* Logs why the start command was not begun, unless the last log line gave the same reason. */
static void start_tell(sandbox *sb, int code, const char *why)
{
    bool same;

    {
        LOCK_SCOPE(&sb->lock);
        same = sb->start_told == code;
        sb->start_told = code;
    }
    if (same)
        return;
    LOG_ABOUT(sb->id, NULL, 0);
    log_warn("start", "the start command of sandbox %s was not begun: %s", sb->id, why);
}

static void start_begin(sandbox *sb)
{
    exec *x = NULL;
    bool replay;
    CLEANUP(strv_freep) char **argv = strv_of_json(json_object_get(sb->start, "argv"));
    exec_spec spec = {.argv = argv,
                      .user = (char *)json_str(sb->start, "user"),
                      .cwd = (char *)json_str(sb->start, "cwd"),
                      .exec_fd = -1,
                      .setuid = sb->setuid,
                      .start = true};

    FAULT_KILL("start.due");
    sandbox_files(sb, &spec.nofile, &spec.nofile_hard);
    err *failure = exec_start(sb->table, &spec, NULL, &x, &replay);
    if (failure) {
        start_tell(sb, (int)failure->code, failure->message);
        err_free(failure);
        return;
    }
    exec_unref(x);
    FAULT_KILL("start.begun");
}

void sandbox_start(sandbox *sb, bool made)
{
    if (!is_due(sb))
        return;
    switch (exec_table_start(sb->table, made)) {
    case EXEC_START_DUE:
        if (take_turn(sb))
            start_begin(sb);
        break;
    case EXEC_START_UNSURE:
        start_tell(sb, -1, "records of its commands are lost, it may have run already");
        break;
    case EXEC_START_EARLY:
    case EXEC_START_BEGUN:
        break;
    }
}

/* Begins start commands that are due. The engine's lock is not held: the exec tables have locks of
 * their own, which a slow disk may hold. */
void start_look(engine *e)
{
    size_t n = 0;
    CLEANUP(freep) sandbox **all = engine_live_where(e, is_due, &n);

    for (size_t i = 0; i < n; i++) {
        sandbox_start(all[i], false);
        sandbox_unref(all[i]);
    }
}
