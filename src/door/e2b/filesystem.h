/* What the files of filesystem.Filesystem and /files share. */
#pragma once

#include "door/e2b/entry.h"
#include "door/e2b/internal.h"
#include "door/shared/files.h"

/* What the kit is to know of every path of E2B's. */
#define FS_FLAGS (KIT_F_HOME | KIT_F_DETAIL)

/* A call's place inside, with its user. ERR_* as e2b_user. */
err *fs_place(envd_call *c, request *rq, file_place *ret_place) ERR_MUST;
/* ERR_INVALID_REQUEST for what the kit would not understand; "" is home. Its text or "~". */
err *fs_check_path(const char *path, const char **ret_path) ERR_MUST;
/* Clients so old that a member they do not know is an error to them. */
bool fs_is_brief(const request *rq);
/* What the kernel said of the path; 0: the error is another. */
int fs_errno(const err *e);
/* An error of a kit's verb in E2B's words, with the path as the kit understood it. */
err *fs_refused(file_job *f, relay_io *io, err *e);

/* ---- watch.c; in: the request's message ---- */
err *fs_watch_dir(envd_call *c, request *rq, response *rs, const json_t *in) ERR_MUST;
err *fs_create_watcher(envd_call *c, request *rq, response *rs, const json_t *in) ERR_MUST;
err *fs_watcher_events(envd_call *c, request *rq, response *rs, const json_t *in) ERR_MUST;
err *fs_remove_watcher(envd_call *c, request *rq, response *rs, const json_t *in) ERR_MUST;

/* Members by either of the two names that JSON of a protobuf may have; NULL, 0, false if absent. */
err *fs_text(const json_t *in, const char *name, const char *camel, const char **ret_text) ERR_MUST;
err *fs_number(const json_t *in, const char *name, uint32_t *ret_number) ERR_MUST;
err *fs_flag(const json_t *in, const char *name, const char *camel, bool *ret_flag) ERR_MUST;
