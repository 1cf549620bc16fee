/* The start command: an exec of its own kind that the sandbox begins with and that does not keep it
 * from being idle. The journal tells whether it was begun, so that a kill of ours between a create
 * and its BEGIN is made good when the box is attached, and nothing runs twice. */
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

json_t *start_json(const start_spec *s)
{
    if (!s->argv)
        return NULL;
    return json_pack("{s:o,s:s?,s:s?}", "argv", strv_json(s->argv), "user", s->user, "cwd", s->cwd);
}

static bool is_due(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    return sb->start && sb->table && sb->state == LIFE_RUNNING && !sb->cause && !sb->deleting;
}

void start_look(engine *e)
{
    size_t n = 0;
    CLEANUP(freep) sandbox **all = NULL;

    {
        LOCK_SCOPE(&e->lock);
        map_iter it = {0};
        while (map_next(&e->live, &it)) {
            sandbox *sb = it.entry->value;
            if (!sb->start || !is_due(sb) || exec_table_start_id(sb->table))
                continue;
            all = xrealloc(all, (n + 1) * sizeof(sandbox *));
            all[n++] = sandbox_ref(sb);
        }
    }
    for (size_t i = 0; i < n; i++) {
        sandbox_start(all[i]);
        sandbox_unref(all[i]);
    }
}

void sandbox_start(sandbox *sb)
{
    exec *x = NULL;
    bool replay;

    if (!is_due(sb) || exec_table_start_id(sb->table))
        return;
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
        LOG_ABOUT(sb->id, NULL, 0);
        log_warn("start", "the start command of sandbox %s was not begun: %s", sb->id,
                 failure->message);
        err_free(failure);
        return;
    }
    exec_unref(x);
    FAULT_KILL("start.begun");
}
