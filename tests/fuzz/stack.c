/* The main() of every fuzz program and of every replay, on a stack of the size that parsers have.
 *
 * Requests, the relay's lanes, pulls and the warden's work run on threads of THREAD_STACK bytes. On
 * the 8 MiB of a process's first thread a parser that goes down as deep as its input likes is not
 * found. The fuzz programs have frames that are larger, by their sanitizers, and no more room.
 * The linker gives the program this function in the place of main (--wrap=main). */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"

/* The unit tests' build with a sanitizer is not optimised: its frames are several times as large. */
#ifdef __SANITIZE_ADDRESS__ /* of gcc alone: the fuzz programs are clang's */
#    define STACK (4 * THREAD_STACK)
#else
#    define STACK THREAD_STACK
#endif

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

static struct {
    int argc;
    char **argv;
    int status;
} program;

static void *stack_run(void *unused)
{
    program.status = __real_main(program.argc, program.argv);
    return unused;
}

/* libFuzzer's alarm must come to the thread that fuzzes: the first one takes no signal. */
int __wrap_main(int argc, char **argv)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;

    program.argc = argc;
    program.argv = argv;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    pthread_attr_setsigmask_np(&attr, &before);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    if (pthread_create(&thread, &attr, stack_run, NULL)) {
        fputs("cannot start a thread\n", stderr);
        return 2;
    }
    pthread_attr_destroy(&attr);
    pthread_join(thread, NULL);
    return program.status;
}
