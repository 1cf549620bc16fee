#include "base/filter.h"

static void filter_step(filter *f, int r)
{
    if (r && !f->failed)
        f->failed = -r;
}

filter filter_new(uint32_t otherwise)
{
    filter f = {.ctx = seccomp_init(otherwise)};

    if (!f.ctx) {
        f.failed = ENOMEM;
        return f;
    }
    filter_step(&f, seccomp_attr_set(f.ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS));
    filter_step(
        &f, seccomp_attr_set(f.ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2)); /* a binary tree, not a chain */
    return f;
}

static const uint32_t SMALL[] = {
#if defined(__x86_64__)
    SCMP_ARCH_X86, SCMP_ARCH_X32
#elif defined(__aarch64__)
    SCMP_ARCH_ARM
#endif
};

void filter_foreign(filter *f)
{
    for (size_t i = 0; i < ARRAY_LEN(SMALL) && !f->failed; i++)
        filter_step(f, seccomp_arch_add(f->ctx, SMALL[i]));
}

void filter_add(filter *f, uint32_t action, const int *calls, size_t n)
{
    for (size_t i = 0; i < n && !f->failed; i++)
        if (calls[i] >= 0)
            filter_step(f, seccomp_rule_add(f->ctx, action, calls[i], 0));
}

void filter_add_if(filter *f, uint32_t action, int call, unsigned n, uint64_t mask, uint64_t value)
{
    if (call >= 0 && !f->failed)
        filter_step(f, seccomp_rule_add(f->ctx, action, call, 1,
                                        SCMP_CMP(n, SCMP_CMP_MASKED_EQ, mask, value)));
}

err *filter_load(filter *f, bool gain)
{
    if (!f->failed && gain)
        filter_step(f, seccomp_attr_set(f->ctx, SCMP_FLTATR_CTL_NNP, 0));
    if (!f->failed)
        filter_step(f, seccomp_load(f->ctx));
    seccomp_release(f->ctx);
    f->ctx = NULL;
    return f->failed ? err_sys(ERR_WALL_FAILED, f->failed, "cannot load a system call filter")
                     : NULL;
}
