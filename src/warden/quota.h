/* Disk limits: project quotas of the file system that the uppers lie on, which is XFS mounted with
 * pquota. Those of ext4 do not hold a process with CAP_SYS_RESOURCE, and overlayfs writes with the
 * warden's rights: the probe finds that out.
 *
 * Every upper has a project of its own, which everything below it inherits and a tenant cannot
 * leave. A project is used again when nothing on the disk belongs to it any more: files of a
 * destroyed sandbox may wait in the trash for long. Where there are no quotas these functions do
 * nothing, and claims with a disk limit are refused. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct warden;

#define QUOTA_PROBE "quota-probe" /* below uppers/ */

/* Sets warden.quota, by trying to exceed a limit. */
err *quota_probe(struct warden *w) ERR_MUST;
/* Takes a project that has no files; 0 where there are no quotas. */
err *quota_take(struct warden *w, uint32_t *ret_project) ERR_MUST;
/* Puts an empty directory, and everything that will be made in it, into a project. 0: leaves it. */
err *quota_mark(int dirfd, uint32_t project) ERR_MUST;
/* Limits a project to bytes, and to as many files as fit into them (one for each 8 KiB, at least
 * 4,096). 0: no limit. */
err *quota_limit(const struct warden *w, uint32_t project, uint64_t bytes) ERR_MUST;
/* Reads what a project uses; sets nothing where that is not known. */
void quota_used(const struct warden *w, uint32_t project, uint64_t *ret_bytes,
                uint64_t *ret_inodes);
/* Returns the project of a slot's upper, from the disk; 0: none. */
uint32_t quota_project(const struct warden *w, uint32_t n);
/* Removes the limit of a project whose upper is removed. */
void quota_forget(const struct warden *w, uint32_t project);
