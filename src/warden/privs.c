#include "warden/privs.h"

#include <cap-ng.h>
#include <errno.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stdbool.h>

#include "base/cleanup.h"

static const int KEPT[] = {
    CAP_CHOWN,      CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,   CAP_FSETID,
    CAP_KILL,       CAP_SETGID,       CAP_SETUID,          CAP_SETPCAP,  CAP_NET_ADMIN,
    CAP_SYS_CHROOT, CAP_SYS_PTRACE,   CAP_SYS_ADMIN,       CAP_SYS_NICE, CAP_SYS_RESOURCE,
    CAP_SETFCAP,    CAP_MKNOD,
};

err *privs_drop_caps(void)
{
    bool have[ARRAY_LEN(KEPT)];

    /* A host may withhold some (SYS_RESOURCE in a container); what needs them says so itself. */
    if (capng_get_caps_process())
        return err_new(ERR_INTERNAL, "cannot read our own capabilities");
    for (size_t i = 0; i < ARRAY_LEN(KEPT); i++)
        have[i] = capng_have_capability(CAPNG_PERMITTED, (unsigned)KEPT[i]);
    capng_clear(CAPNG_SELECT_BOTH);
    for (size_t i = 0; i < ARRAY_LEN(KEPT); i++)
        if (have[i] &&
            capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET,
                         (unsigned)KEPT[i]))
            return err_new(ERR_INTERNAL, "cannot choose capability %d", KEPT[i]);
    int r = capng_apply(CAPNG_SELECT_BOTH);
    return r ? err_sys(ERR_WALL_FAILED, errno, "cannot drop capabilities (step %d)", r) : NULL;
}

static const int DENIED[] = {
    SCMP_SYS(acct),
    SCMP_SYS(add_key),
    SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(clock_settime),
    SCMP_SYS(delete_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(get_kernel_syms),
    SCMP_SYS(init_module),
    SCMP_SYS(ioperm),
    SCMP_SYS(iopl),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(kexec_load),
    SCMP_SYS(keyctl),
    SCMP_SYS(lookup_dcookie),
    SCMP_SYS(migrate_pages),
    SCMP_SYS(move_pages),
    SCMP_SYS(nfsservctl),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(reboot),
    SCMP_SYS(request_key),
    SCMP_SYS(settimeofday),
    SCMP_SYS(swapoff),
    SCMP_SYS(swapon),
    SCMP_SYS(syslog),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(vhangup),
};

err *privs_filter_all(void)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    int r = ctx ? 0 : -ENOMEM;

    /* No new privileges would be inherited too, and sandboxes may be granted set-uid programs. */
    if (!r)
        r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0);
    for (size_t i = 0; i < ARRAY_LEN(DENIED) && !r; i++)
        if (DENIED[i] >= 0) /* a call this architecture does not have */
            r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), DENIED[i], 0);
    if (!r)
        r = seccomp_load(ctx);
    seccomp_release(ctx);
    return r ? err_sys(ERR_WALL_FAILED, -r, "cannot load the system call filter") : NULL;
}
