/* Moves decoded limits, tmpfs mounts and start commands into a spec (spec.h). */
#include "door/rest/spec.h"

#include "base/cleanup.h"
#include "base/str.h"

void spec_take_limits(const sandbox_limits *in, limits *out)
{
    out->memory = in->has_memory ? in->memory : 0;
    out->cpu_milli = in->has_cpu ? (uint32_t)(in->cpu * 1000 + 0.5) : 0;
    out->pids = in->has_pids ? (uint32_t)in->pids : 0;
    out->disk = in->has_disk ? in->disk : 0;
    out->nofile = in->has_nofile ? (uint32_t)in->nofile : 0;
    out->nofile_hard = in->has_nofile_hard ? (uint32_t)in->nofile_hard : 0;
    out->shm_mib = in->has_shm ? (uint32_t)((in->shm + (1 << 20) - 1) >> 20) : 0;
    out->execs = in->has_execs ? (uint32_t)in->execs : 0;
}

void spec_take_tmpfs(tmpfs_mount *in, size_t n, sandbox_spec *out)
{
    out->tmpfs = xcalloc(n, sizeof *out->tmpfs);
    out->ntmpfs = n;
    for (size_t i = 0; i < n; i++)
        out->tmpfs[i] = (tmpfs_spec){.path = TAKE_PTR(in[i].path),
                                     .size = in[i].size,
                                     .mode = in[i].has_mode ? in[i].mode : 01777,
                                     .exec = in[i].exec};
}

void spec_take_start(start_command *in, sandbox_spec *out)
{
    out->start = (start_spec){
        .argv = TAKE_PTR(in->argv), .user = TAKE_PTR(in->user), .cwd = TAKE_PTR(in->cwd)};
}
