/* Disk limits: project quotas of the file system that the uppers lie on: XFS mounted with pquota.
 * Those of ext4 do not hold who has CAP_SYS_RESOURCE, and overlayfs writes with the warden's
 * rights: the probe finds that out.
 *
 * Every upper has a project of its own, which everything below it inherits and a tenant cannot
 * leave. A project is used again when nothing on the disk belongs to it any more: what a destroyed
 * sandbox wrote may wait in the trash for long. Where there are no quotas all this does nothing,
 * and claims with a disk limit are refused. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct warden;

#define QUOTA_PROBE "quota-probe" /* below uppers/ */

/* Sets warden.quota, by running into a limit. */
err *quota_probe(struct warden *w) ERR_MUST;
/* A project nobody has; 0 where there are no quotas. */
err *quota_take(struct warden *w, uint32_t *ret_project) ERR_MUST;
/* An empty directory, and what will be made in it. 0: as it is. */
err *quota_mark(int dirfd, uint32_t project) ERR_MUST;
/* Bytes, and as many files as fit into them (one for each 8 KiB, at least 4,096). 0: no limit. */
err *quota_limit(const struct warden *w, uint32_t project, uint64_t bytes) ERR_MUST;
/* What its upper takes; nothing where it is not known. */
void quota_used(const struct warden *w, uint32_t project, uint64_t *ret_bytes,
                uint64_t *ret_inodes);
/* That of a slot's upper, from the disk; 0: none. */
uint32_t quota_project(const struct warden *w, uint32_t n);
/* Its upper goes: no limit of a project is left behind. */
void quota_forget(const struct warden *w, uint32_t project);
