#include "warden/privs.h"

#include <cap-ng.h>
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/log.h"

static const int KEPT[] = {
    CAP_CHOWN,      CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,   CAP_FSETID,
    CAP_KILL,       CAP_SETGID,       CAP_SETUID,          CAP_SETPCAP,  CAP_NET_ADMIN,
    CAP_SYS_CHROOT, CAP_SYS_PTRACE,   CAP_SYS_ADMIN,       CAP_SYS_NICE, CAP_SYS_RESOURCE,
    CAP_SETFCAP,    CAP_MKNOD,
};

static bool may_renice;

bool privs_may_renice(void)
{
    return may_renice;
}

err *privs_drop_caps(void)
{
    bool have[ARRAY_LEN(KEPT)];

    /* A host may withhold some (SYS_RESOURCE in a container); what needs them says so itself. */
    if (capng_get_caps_process())
        return err_new(ERR_INTERNAL, "cannot read our own capabilities");
    for (size_t i = 0; i < ARRAY_LEN(KEPT); i++)
        have[i] = capng_have_capability(CAPNG_PERMITTED, (unsigned)KEPT[i]);
    may_renice = capng_have_capability(CAPNG_EFFECTIVE, CAP_SYS_NICE);
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

/* ---- threads ---- */

/* The sanitizers' runtimes call what they like. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define SANITIZED 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define SANITIZED 1
#    endif
#endif

static void load_or_abort(scmp_filter_ctx ctx, uint32_t action, const int *calls, size_t n)
{
    int r = ctx ? 0 : -ENOMEM;

    for (size_t i = 0; i < n && !r; i++)
        if (calls[i] >= 0)
            r = seccomp_rule_add(ctx, action, calls[i], 0);
    if (!r)
        r = seccomp_load(ctx); /* sets no-new-privileges as well */
    seccomp_release(ctx);
    if (r) {
        log_error("privs", "cannot load the filter of a thread: errno %d", -r);
        abort();
    }
}

static const int NO_PROGRAMS[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(bpf),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(name_to_handle_at),
    SCMP_SYS(personality),
    SCMP_SYS(quotactl),
    SCMP_SYS(mknodat),
    SCMP_SYS(chroot),
};

void privs_thread(const char *name)
{
    pthread_setname_np(pthread_self(), name);
#ifndef SANITIZED
    load_or_abort(seccomp_init(SCMP_ACT_ALLOW), SCMP_ACT_ERRNO(EPERM), NO_PROGRAMS,
                  ARRAY_LEN(NO_PROGRAMS));
#else
    (void)NO_PROGRAMS;
    (void)load_or_abort;
#endif
}

static const int READER[] = {
    /* the sockets and signals */
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(accept4),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    SCMP_SYS(close),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    /* an image's record, read at a claim; logs */
    SCMP_SYS(openat),
    SCMP_SYS(openat2),
    SCMP_SYS(read),
    SCMP_SYS(pread64),
    SCMP_SYS(lseek),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(statx),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(getdents64),
    SCMP_SYS(fcntl),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    /* memory, locks, time */
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(sched_yield),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(getrandom),
    /* the end, ordered or not */
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(tgkill),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

void privs_reader(void)
{
#ifndef SANITIZED
    load_or_abort(seccomp_init(SCMP_ACT_ERRNO(EPERM)), SCMP_ACT_ALLOW, READER, ARRAY_LEN(READER));
#else
    (void)READER;
#endif
}
