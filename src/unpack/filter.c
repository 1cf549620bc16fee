#include "unpack/filter.h"

#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/filter.h"

/* Listed by libseccomp's names, so that the list is the same on x86-64 and aarch64. */
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

/* Allows mmap of anonymous memory only: no file is mapped, nothing becomes executable. glibc passes
 * the descriptor -1 as int, which arrives as 32 or 64 bits of ones. */
static void allow_mmap(filter *f)
{
    static const scmp_datum_t NO_FILE[] = {0xffffffffu, ~(scmp_datum_t)0};
    int r = f->failed;

    for (size_t i = 0; i < ARRAY_LEN(NO_FILE) && !r; i++)
        r = seccomp_rule_add(f->ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
                             SCMP_A4(SCMP_CMP_EQ, NO_FILE[i]));
    if (r && !f->failed)
        f->failed = -r;
}

err *role_filter_load(enum box_role role)
{
    filter f = filter_new(SCMP_ACT_KILL_PROCESS);

    filter_add(&f, SCMP_ACT_ALLOW, COMMON, ARRAY_LEN(COMMON));
    filter_add(&f, SCMP_ACT_ALLOW, ROLES[role].list, ROLES[role].n);
    allow_mmap(&f);
    return filter_load(&f, false);
}
