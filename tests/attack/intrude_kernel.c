/* Attempts with system calls of the kernel's own affairs, and with its files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/reboot.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "intruder.h"

static long modules(void)
{
    static char image[64] = "\177ELF";
    say_result("init_module", syscall(SYS_init_module, image, sizeof image, ""));
    say_result("finit_module", syscall(SYS_finit_module, 0, "", 0));
    say_result("delete_module", syscall(SYS_delete_module, "loop", O_NONBLOCK));
    return 0;
}

static long kexec(void)
{
    say_result("kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0));
    say_result("kexec_file_load", syscall(SYS_kexec_file_load, 0, 0, 0, "", 0));
    say_result("reboot", syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2,
                                 LINUX_REBOOT_CMD_CAD_OFF, NULL));
    return 0;
}

static long clocks(void)
{
    struct timespec then = {1, 0};
    struct timex by = {.modes = ADJ_FREQUENCY, .freq = 1};

    say_result("clock_settime", clock_settime(CLOCK_REALTIME, &then));
    say_result("settimeofday", syscall(SYS_settimeofday, &then, NULL));
    say_result("adjtimex", adjtimex(&by));
    return 0;
}

static long names(void)
{
    say_result("sethostname", sethostname("owned", 5));
    say_result("setdomainname", setdomainname("owned", 5));
    return 0;
}

static long keys(void)
{
    say_result("add_key", syscall(SYS_add_key, "user", "intruder", "x", 1, KEY_SPEC_USER_KEYRING));
    say_result("request_key", syscall(SYS_request_key, "user", "intruder", NULL, 0));
    say_result("keyctl", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1));
    return 0;
}

static long observers(void)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr};
    char attributes[128] = {1};

    say_result("bpf", syscall(SYS_bpf, 0, attributes, sizeof attributes));
    say_result("perf_event_open", syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
    say_result("fanotify_init", syscall(SYS_fanotify_init, 0, O_RDONLY));
    say_result("syslog", syscall(SYS_syslog, 3, attributes, sizeof attributes));
    return 0;
}

static long memory_calls(void)
{
    char parameters[120] = {0};

    say_result("userfaultfd", syscall(SYS_userfaultfd, 0));
    say_result("io_uring_setup", syscall(SYS_io_uring_setup, 4, parameters));
    say_result("vmsplice", syscall(SYS_vmsplice, 1, NULL, 0, 0));
    return 0;
}

static long storage(void)
{
    say_result("quotactl", syscall(SYS_quotactl, 0x800002 << 8, "/dev/vda", 0, NULL));
    say_result("swapon", syscall(SYS_swapon, "/tmp/swap", 0));
    say_result("swapoff", syscall(SYS_swapoff, "/tmp/swap"));
    say_result("acct", syscall(SYS_acct, "/tmp/acct"));
    return 0;
}

/* CVE-2014 "shocker": any file of the file system below by its handle. */
static long handles(void)
{
    struct {
        struct file_handle head;
        unsigned char bytes[128];
    } h = {.head.handle_bytes = 128};
    int mount_id, at = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    say_result("name", name_to_handle_at(AT_FDCWD, "/etc", &h.head, &mount_id, 0) < 0 &&
                               errno != ENOSYS && errno != EOPNOTSUPP && errno != EPERM
                           ? -1
                           : 0);
    say_result("open", open_by_handle_at(at, &h.head, O_RDONLY));
    return 0;
}

static long ports(void)
{
#ifdef __x86_64__
    say_result("iopl", iopl(3));
    say_result("ioperm", ioperm(0x80, 1, 1));
#else
    say("iopl:EPERM ioperm:EPERM");
#endif
    return 0;
}

static long odd_calls(void)
{
    say_result("personality", personality(READ_IMPLIES_EXEC));
    say_result("vhangup", vhangup());
    say_result("lookup_dcookie", syscall(SYS_lookup_dcookie, 0, NULL, 0));
    say_result("setns", syscall(SYS_setns, 0, 0));
    return 0;
}

/* ---- files of the kernel ---- */

static long opened;

/* Everything below that can be opened for writing; the first of them is told. */
static void writable_below(const char *path, int depth)
{
    DIR *d = opendir(path);
    struct dirent *e;
    char next[512];

    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(next, sizeof next, "%s/%s", path, e->d_name);
        if (e->d_type == DT_DIR && depth > 0)
            writable_below(next, depth - 1);
        else if (e->d_type == DT_REG && try_open(next, O_WRONLY) >= 0 && !opened++)
            say("%s ", next);
    }
    if (d)
        closedir(d);
}

static long sysctls(void)
{
    writable_below("/proc/sys", 8);
    say("%ld", opened);
    return 0;
}

static long sys_files(void)
{
    writable_below("/sys", 6);
    say("%ld", opened);
    return 0;
}

static long masked_files(void)
{
    static const char *const FILES[] = {"/proc/kcore",
                                        "/proc/kmsg",
                                        "/proc/keys",
                                        "/proc/timer_list",
                                        "/proc/sched_debug",
                                        "/proc/kpagecount",
                                        "/proc/kpageflags",
                                        "/proc/kpagecgroup",
                                        "/sys/firmware/dmi",
                                        "/sys/kernel/debug/x",
                                        "/sys/kernel/security/x",
                                        "/proc/slabinfo",
                                        "/proc/vmallocinfo",
                                        "/proc/pagetypeinfo",
                                        "/proc/key-users"};
    char got[64];

    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        int fd = open(FILES[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && read(fd, got, sizeof got) > 0)
            say_result(FILES[i], 0);
        if (fd >= 0)
            close(fd);
    }
    errno = EACCES;
    return -1;
}

/* Addresses of the kernel read as zero. */
static long kernel_addresses(void)
{
    FILE *f = fopen("/proc/kallsyms", "re");
    char line[256];
    long shown = 0;

    while (f && fgets(line, sizeof line, f))
        shown += strncmp(line, "0000000000000000", 16) != 0;
    if (f)
        fclose(f);
    say("%ld", shown);
    return 0;
}

static long triggers(void)
{
    say_result("sysrq", try_write("/proc/sysrq-trigger", "b"));
    say_result("core_pattern", try_write("/proc/sys/kernel/core_pattern", "|/tmp/x"));
    say_result("modprobe", try_write("/proc/sys/kernel/modprobe", "/tmp/x"));
    say_result("uevent_helper", try_write("/sys/kernel/uevent_helper", "/tmp/x"));
    return 0;
}

/* ---- our own program file, and terminals ---- */

static long own_exe(void)
{
    return try_open("/proc/self/exe", O_WRONLY);
}

static long terminal(void)
{
    char c = 'x';
    char linux_call = 2;

    say_result("TIOCSTI", ioctl(0, TIOCSTI, &c));
    say_result("TIOCLINUX", ioctl(0, TIOCLINUX, &linux_call));
    say_result("TIOCCONS", ioctl(0, TIOCCONS));
    return 0;
}

const attempt KERNEL_ATTEMPTS[] = {
    {"modules", modules},
    {"kexec", kexec},
    {"clocks", clocks},
    {"names", names},
    {"keys", keys},
    {"observers", observers},
    {"memory-calls", memory_calls},
    {"storage", storage},
    {"handles", handles},
    {"ports", ports},
    {"odd-calls", odd_calls},
    {"sysctls", sysctls},
    {"sys-files", sys_files},
    {"masked-files", masked_files},
    {"kernel-addresses", kernel_addresses},
    {"triggers", triggers},
    {"own-exe", own_exe},
    {"terminal", terminal},
    {NULL, NULL},
};
