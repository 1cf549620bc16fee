/* The kernel's text files, as the warden reads them: mountinfo, cgroup files, meminfo, a process's
 * stat and children. Names in them are a tenant's or an administrator's. The first byte chooses. */
#include <sys/resource.h>

#include "base/buf.h"
#include "base/err.h"

static err *file_read(int dir, const char *name, size_t max, buf *ret_bytes);
static int note_priority(__priority_which_t which, id_t who, int value);
#define fs_read     file_read
#define setpriority note_priority
#include "../../src/warden/cgroup.c"
#include "../../src/warden/cgroup_usage.c"
#include "../../src/warden/fifo.c"
#include "../../src/warden/pace.c"
#undef fs_read
#undef setpriority

#include <sys/mman.h>

#include "base/fs.h"

#include "fuzz.h"

static const char *file_text = "";

static err *file_read(int dir, const char *name, size_t max, buf *ret_bytes)
{
    buf b = {0};

    (void)dir;
    if (strlen(file_text) > max)
        return err_new(ERR_TOO_LARGE, "%s is larger than %zu bytes", name, max);
    buf_str(&b, file_text);
    buf_cstr(&b);
    *ret_bytes = b;
    return NULL;
}

static int note_priority(__priority_which_t which, id_t who, int value)
{
    (void)who;
    MUST(which == PRIO_PROCESS && !value);
    return 0;
}

/* Directories that do not exist are not opened: every hierarchy found is a real one of ours. */
static void mounts(void)
{
    cgroups cg = {0};
    err *e = find_hierarchies(&cg);

    MUST(cg.nhier <= CG_HIERARCHIES_MAX);
    for (size_t c = 0; !e && c < CG_CONTROLLERS; c++) {
        bool known = false;
        for (size_t i = 0; i < cg.nhier; i++)
            known |= cg.hier[i] == cg.of[c];
        MUST(known);
    }
    for (size_t i = 0; i < cg.nhier; i++)
        close(cg.hier[i]);
    err_free(e);
}

/* "key value" lines: the value of a key that stands at a line's beginning, and no other's. */
static void counters(void)
{
    static const char *const KEYS[] = {"usage_usec", "oom_kill", "frozen"};

    for (size_t i = 0; i < ARRAY_LEN(KEYS); i++) {
        CLEANUP(freep) char *line = str_printf("%s 7\n%s", KEYS[i], file_text);
        MUST(cgroup_keyed(line, KEYS[i]) == 7);
        CLEANUP(freep) char *other = str_printf("x%s 7", KEYS[i]);
        MUST(!cgroup_keyed(other, KEYS[i]));
        (void)cgroup_keyed(file_text, KEYS[i]);
    }
    struct wp_usage u = {0};
    io_v1(file_text, &u);
    io_v2(file_text, &u);
}

/* Whoever names a cgroup cannot make a process seem to be in another slot's. */
static void membership(void)
{
    cgroups cg = {.path = "/bothy", .v2 = true};
    CLEANUP(freep) char *twice = str_printf("%s\n", file_text);
    bool in = cgroup_holds(&cg, -1, 2, 7);

    MUST(!in || strstr(twice, ":/bothy/7\n"));
    CLEANUP(freep) char *ours = str_printf("0::/bothy/7\n%s", file_text);
    file_text = ours;
    MUST(cgroup_holds(&cg, -1, 2, 7));
    cg.v2 = false; /* one hierarchy of many is not enough */
    CLEANUP(freep) char *one = str_printf("2:memory:/bothy/7\n");
    file_text = one;
    MUST(!cgroup_holds(&cg, -1, 2, 7));
    CLEANUP(freep)
    char *all = str_printf("2:memory:/bothy/7\n3:cpu,cpuacct:/bothy/7\n4:pids:/bothy/7\n"
                           "5:freezer:/bothy/7\n%s",
                           ours);
    file_text = all;
    MUST(cgroup_holds(&cg, -1, 2, 7));
}

/* MemAvailable, read through the descriptor that is open for life. */
static void memory(void)
{
    warden w = {.meminfo_fd = memfd_create("meminfo", MFD_CLOEXEC)};
    CLEANUP(freep) char *text = str_printf("MemFree: 1 kB\nMemAvailable:  12 kB\n%s", file_text);

    MUST(!fs_write_all(w.meminfo_fd, file_text, strlen(file_text)));
    (void)memory_available(&w);
    MUST(!ftruncate(w.meminfo_fd, 0) && !lseek(w.meminfo_fd, 0, SEEK_SET));
    MUST(!fs_write_all(w.meminfo_fd, text, strlen(text)));
    w.available_at_ns = 0;
    MUST(memory_available(&w) == 12 * 1024);
    close(w.meminfo_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    uint8_t kind = fuzz_byte(&in);
    CLEANUP(freep) char *text = fuzz_word(&in, 0);

    file_text = text;
    if (kind == 'm')
        mounts();
    else if (kind == 'k')
        counters();
    else if (kind == 'a')
        memory();
    else if (kind == 'c')
        raise_children(-1, 2);
    else
        membership();
    return 0;
}
