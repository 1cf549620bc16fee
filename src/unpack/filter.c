#include "unpack/filter.h"

#include <errno.h>
#include <seccomp.h>
#include <sys/mman.h>

#include "base/cleanup.h"

/* By libseccomp's names, so that the list is the same on x86-64 and aarch64. */
static const int COMMON[] = {
    SCMP_SYS(read),         SCMP_SYS(write), SCMP_SYS(close),  SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),   SCMP_SYS(brk),   SCMP_SYS(munmap), SCMP_SYS(mremap),
    SCMP_SYS(madvise),      SCMP_SYS(futex), SCMP_SYS(exit),   SCMP_SYS(exit_group),
    SCMP_SYS(rt_sigreturn),
};
static const int OUTER[] = {
    SCMP_SYS(openat2),
    SCMP_SYS(fsetxattr),
    SCMP_SYS(wait4),
    SCMP_SYS(waitid),
};
static const int WRITER[] = {
    SCMP_SYS(openat),    SCMP_SYS(openat2),   SCMP_SYS(mkdirat),
    SCMP_SYS(mknodat),   SCMP_SYS(symlinkat), SCMP_SYS(linkat),
    SCMP_SYS(unlinkat),  SCMP_SYS(fchown),    SCMP_SYS(fchownat),
    SCMP_SYS(fchmod),    SCMP_SYS(fchmodat),  SCMP_SYS(fsetxattr),
    SCMP_SYS(utimensat), SCMP_SYS(pwrite64),  SCMP_SYS(ftruncate),
    SCMP_SYS(sysinfo), /* glibc's qsort asks how much memory there is */
};

static const struct {
    const int *list;
    size_t n;
} ROLES[] = {
    [BOX_OUTER] = {OUTER, ARRAY_LEN(OUTER)},
    [BOX_WRITER] = {WRITER, ARRAY_LEN(WRITER)},
    [BOX_DECOMPRESSOR] = {NULL, 0},
};

static int allow(scmp_filter_ctx f, const int *list, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n && !r; i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, list[i], 0);
    return r;
}

/* Memory only: no file is mapped, nothing becomes executable. glibc passes the descriptor as int,
 * which arrives as 32 or 64 bits of ones. */
static int allow_mmap(scmp_filter_ctx f)
{
    static const scmp_datum_t NO_FILE[] = {0xffffffffu, ~(scmp_datum_t)0};
    int r = 0;

    for (size_t i = 0; i < ARRAY_LEN(NO_FILE) && !r; i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
                             SCMP_A4(SCMP_CMP_EQ, NO_FILE[i]));
    return r;
}

err *filter_load(enum box_role role)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int r = f ? 0 : -ENOMEM;

    if (!r)
        r = allow(f, COMMON, ARRAY_LEN(COMMON));
    if (!r)
        r = allow(f, ROLES[role].list, ROLES[role].n);
    if (!r)
        r = allow_mmap(f);
    if (!r)
        r = seccomp_load(f);
    seccomp_release(f);
    return r ? err_sys(ERR_WALL_FAILED, -r, "cannot load the system call filter") : NULL;
}
