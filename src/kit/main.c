/* The entry point and the table of verbs. Exit status 0: END was written; 2: a request of another
 * version. bothyd and the kit it provides come from one build, so the latter is a bug. */
#include "kit/kit.h"

static verb_fn *const VERBS[KIT_VERBS] = {
    [KIT_STAT] = verb_stat,   [KIT_READ] = verb_read,     [KIT_WRITE] = verb_write,
    [KIT_LIST] = verb_list,   [KIT_SEARCH] = verb_search, [KIT_MKDIR] = verb_mkdir,
    [KIT_MOVE] = verb_move,   [KIT_REMOVE] = verb_remove, [KIT_WATCH] = verb_watch,
    [KIT_PACK] = verb_pack,   [KIT_UNPACK] = verb_unpack, [KIT_DIAL] = verb_dial,
    [KIT_USAGE] = verb_usage,
};

u64 clock_ms(void)
{
    struct __kernel_timespec t = {0};

    SYS(clock_gettime, K_CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * 1000 + (u64)t.tv_nsec / 1000000;
}

void kit_exit(int status)
{
    for (;;)
        SYS(exit_group, status);
}

static void kit_main_run(int argc, char **argv)
{
    kit_request rq;

#ifndef HOSTED
    /* The file has mode 0111, but a container's root can read it anyway, and could trace the kit.
     */
    SYS(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
    if (!kit_request_read(argc, argv, &rq))
        kit_exit(2);
    who_begin(&rq);
    if (!*rq.path || text_len(rq.path) > KIT_PATH_MAX)
        out_fail(*rq.path ? -ENAMETOOLONG : -ENOENT);
    if (!VERBS[rq.verb])
        out_fail(-ENOSYS);
    VERBS[rq.verb](&rq);
    out_end();
}

#ifdef HOSTED
int main(int argc, char **argv)
{
    kit_main_run(argc, argv);
}
#else
/* The kernel leaves argc and argv on the stack. It is aligned by hand, because the entry is not a
 * call. */
#    if defined(__x86_64__)
__asm__(".globl _start\n_start:\n xor %ebp,%ebp\n mov %rsp,%rdi\n and $-16,%rsp\n"
        " call kit_main\n ud2\n");
#    else
__asm__(".globl _start\n_start:\n mov x29,#0\n mov x30,#0\n mov x0,sp\n bl kit_main\n brk #1\n");
#    endif
void kit_main(long *stack);
void kit_main(long *stack)
{
    kit_main_run((int)stack[0], (char **)(stack + 1));
}
#endif
