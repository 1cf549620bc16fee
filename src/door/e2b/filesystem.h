/* Shared declarations of filesystem.Filesystem and /files. */
#pragma once

#include "door/e2b/entry.h"
#include "door/e2b/internal.h"
#include "door/shared/files.h"

/* Flags of the kit requests that report on paths to E2B's clients. */
#define FS_FLAGS (KIT_F_HOME | KIT_F_DETAIL)

/* Returns where a call's file verbs run: sandbox, caller and user inside. An error if the node has
 * no kit. */
err *fs_place(envd_call *c, request *rq, file_place *ret_place) ERR_MUST;
/* Checks a path and returns it, or "~" for an empty one. ERR_INVALID_REQUEST for paths that the kit
 * does not understand. */
err *fs_check_path(const char *path, const char **ret_path) ERR_MUST;
/* Returns true for clients so old that they fail on a member they do not know. */
bool fs_is_brief(const request *rq);
/* Returns the errno that the kernel gave for the path; 0 if it is another kind of error. */
int fs_errno(const err *e);
/* Rewords a kit error for E2B's clients, with the path as the kit resolved it. Takes the error. */
err *fs_refused(file_job *f, relay_io *io, err *e);

/* ---- watch.c; `in` is the request's message ---- */
err *fs_watch_dir(envd_call *c, request *rq, response *rs, const json_t *in) ERR_MUST;
err *fs_create_watcher(envd_call *c, request *rq, response *rs, const json_t *in) ERR_MUST;
err *fs_watcher_events(envd_call *c, request *rq, response *rs, const json_t *in) ERR_MUST;
err *fs_remove_watcher(envd_call *c, request *rq, response *rs, const json_t *in) ERR_MUST;

/* Read a member by either of its two names: JSON of a protobuf may use snake case or camel case. An
 * absent member is "", 0 or false. */
err *fs_text(const json_t *in, const char *name, const char *camel, const char **ret_text) ERR_MUST;
err *fs_number(const json_t *in, const char *name, uint32_t *ret_number) ERR_MUST;
err *fs_flag(const json_t *in, const char *name, const char *camel, bool *ret_flag) ERR_MUST;
