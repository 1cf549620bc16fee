#include "warden/privs.h"

#include <cap-ng.h>
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/confine.h"
#include "base/filter.h"
#include "base/log.h"

/* Kept only where faults can be injected: the rest of a slot's own set, which crun needs to start a
 * slot that is left without a user namespace. */
#ifdef BOTHY_FAULTS
#    define FOR_FAULTS CAP_KILL, CAP_MKNOD, CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_AUDIT_WRITE,
#else
#    define FOR_FAULTS
#endif
static const int KEPT[] = {CAP_CHOWN,        CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,
                           CAP_FSETID,       CAP_SETGID,       CAP_SETUID,          CAP_SETPCAP,
                           CAP_SYS_CHROOT,   CAP_SYS_PTRACE,   CAP_SYS_ADMIN,       CAP_SYS_NICE,
                           CAP_SYS_RESOURCE, CAP_SETFCAP,      CAP_NET_ADMIN,       FOR_FAULTS};

static bool may_renice;

bool privs_may_renice(void)
{
    return may_renice;
}

err *privs_close_memory(void)
{
    TRY(confine_no_core());
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
        return err_sys(ERR_WALL_FAILED, errno, "cannot close our memory to others");
    if (!confine_no_new_code(false) && !CONFINE_SANITIZED)
        log_warn("privs", "this kernel cannot refuse new code in memory (PR_SET_MDWE, 6.6)");
    return NULL;
}

err *privs_drop_caps(void)
{
    bool have[ARRAY_LEN(KEPT)];

    /* A host may withhold some (SYS_RESOURCE in a container); the code that needs one reports that
     * itself. */
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
    SCMP_SYS(_sysctl),
    SCMP_SYS(acct),
    SCMP_SYS(add_key),
    SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(clock_settime),
    SCMP_SYS(create_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(get_kernel_syms),
    SCMP_SYS(init_module),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(io_uring_setup),
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
    SCMP_SYS(query_module),
    SCMP_SYS(reboot),
    SCMP_SYS(request_key),
    SCMP_SYS(settimeofday),
    SCMP_SYS(swapoff),
    SCMP_SYS(swapon),
    SCMP_SYS(sysfs),
    SCMP_SYS(syslog),
    SCMP_SYS(uselib),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(ustat),
    SCMP_SYS(vhangup),
};

err *privs_filter_all(void)
{
    filter f = filter_new(SCMP_ACT_ALLOW);

    filter_foreign(&f); /* sandboxes may have such programs */
    filter_add(&f, SCMP_ACT_ERRNO(EPERM), DENIED, ARRAY_LEN(DENIED));
    /* no-new-privileges is not set: it would be inherited, too, and sandboxes may be granted
     * set-uid programs. */
    return filter_load(&f, true);
}

/* ---- threads ---- */

static void load_or_abort(filter *f, uint32_t action, const int *calls, size_t n)
{
    if (CONFINE_SANITIZED) {
        seccomp_release(f->ctx);
        return;
    }
    filter_add(f, action, calls, n);
    err *e = filter_load(f, false);
    if (e) {
        log_error("privs", "cannot load the filter of a thread: errno %d", e->errnum);
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
    SCMP_SYS(chroot),
    SCMP_SYS(mknodat), /* the last: see privs_copier() */
};

void privs_thread(const char *name)
{
    pthread_setname_np(pthread_self(), name);
    filter f = filter_new(SCMP_ACT_ALLOW);
    load_or_abort(&f, SCMP_ACT_ERRNO(EPERM), NO_PROGRAMS, ARRAY_LEN(NO_PROGRAMS));
}

void privs_copier(void)
{
    pthread_setname_np(pthread_self(), "copier");
    filter f = filter_new(SCMP_ACT_ALLOW);
    load_or_abort(&f, SCMP_ACT_ERRNO(EPERM), NO_PROGRAMS, ARRAY_LEN(NO_PROGRAMS) - 1);
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

static const int NETWORK[] = {
    SCMP_SYS(recvmsg),
    SCMP_SYS(recvfrom),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(close),
    SCMP_SYS(ioctl), /* the number of an interface by its name */
    SCMP_SYS(write), /* logs */
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(tgkill),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
#ifdef BOTHY_FAULTS
    SCMP_SYS(access), /* to see whether a fault is armed */
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
#endif
};

err *privs_network(void)
{
    filter f = filter_new(SCMP_ACT_ALLOW);

    capng_clear(CAPNG_SELECT_BOTH);
    if (capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET,
                     CAP_NET_ADMIN))
        return err_new(ERR_INTERNAL, "cannot choose CAP_NET_ADMIN");
    int r = capng_apply(CAPNG_SELECT_BOTH);
    if (r)
        return err_sys(ERR_WALL_FAILED, errno, "cannot drop capabilities (step %d)", r);
    filter_add(&f, SCMP_ACT_ERRNO(EPERM), DENIED, ARRAY_LEN(DENIED));
    return filter_load(&f, false);
}

/* Allows sockets of two families: the C library asks for an interface's number through one of
 * them. */
void privs_network_loaded(void)
{
    filter f = filter_new(SCMP_ACT_ERRNO(EPERM));

    filter_add_if(&f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 0, UINT32_MAX, AF_UNIX);
    filter_add_if(&f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 0, UINT32_MAX, AF_INET);
    load_or_abort(&f, SCMP_ACT_ALLOW, NETWORK, ARRAY_LEN(NETWORK));
}

void privs_reader(void)
{
    filter f = filter_new(SCMP_ACT_ERRNO(EPERM));

    load_or_abort(&f, SCMP_ACT_ALLOW, READER, ARRAY_LEN(READER));
}
