#include "cli/tty.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"

static const int WATCHED[] = {SIGWINCH, SIGCONT, SIGTSTP, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const int FATAL[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};

static struct {
    struct termios was;
    volatile sig_atomic_t raw;
    int pipe[2];
    struct sigaction before[ARRAY_LEN(WATCHED)];
    sigset_t mask;
    bool registered;
} self = {.pipe = {-1, -1}};

bool tty_size(uint16_t *ret_rows, uint16_t *ret_cols)
{
    for (int fd = 0; fd <= 2; fd++) {
        struct winsize ws;
        if (ioctl(fd, TIOCGWINSZ, &ws) || !ws.ws_row || !ws.ws_col)
            continue;
        /* The API's maximum. */
        *ret_rows = ws.ws_row < 1000 ? ws.ws_row : 1000;
        *ret_cols = ws.ws_col < 1000 ? ws.ws_col : 1000;
        return true;
    }
    return false;
}

/* ---- modes; async-signal-safe, except the first line of tty_raw ---- */

static void go_raw(void)
{
    struct termios raw = self.was;

    cfmakeraw(&raw);
    while (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) && errno == EINTR)
        continue;
    self.raw = 1;
}

void tty_restore(void)
{
    if (!self.raw)
        return;
    self.raw = 0;
    while (tcsetattr(STDIN_FILENO, TCSADRAIN, &self.was) && errno == EINTR)
        continue;
}

void tty_again(void)
{
    if (self.raw)
        go_raw();
}

static void on_fatal(int signo)
{
    tty_restore();
    raise(signo); /* the handler was reset, so this kills */
}

err *tty_raw(void)
{
    if (tcgetattr(STDIN_FILENO, &self.was))
        return err_sys(ERR_INVALID_REQUEST, errno, "stdin is no terminal");
    if (!self.registered) {
        struct sigaction sa = {.sa_handler = on_fatal, .sa_flags = (int)SA_RESETHAND};
        for (size_t i = 0; i < ARRAY_LEN(FATAL); i++)
            sigaction(FATAL[i], &sa, NULL);
        atexit(tty_restore);
        self.registered = true;
    }
    go_raw();
    return NULL;
}

/* ---- signals ---- */

static void on_signal(int signo)
{
    int saved = errno;
    unsigned char c = (unsigned char)signo;

    (void)!write(self.pipe[1], &c, 1); /* if the pipe is full, enough signals wait already */
    errno = saved;
}

/* The main thread takes these signals. If a thread of interrupt.c waits for some of them, the
 * kernel prefers the main thread as long as it does not block them. */
int tty_signals_start(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigset_t set;

    if (pipe2(self.pipe, O_CLOEXEC | O_NONBLOCK))
        abort();
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(WATCHED); i++) {
        sigaction(WATCHED[i], NULL, &self.before[i]);
        if (self.before[i].sa_handler == SIG_IGN)
            continue;
        sigaction(WATCHED[i], &sa, NULL);
        sigaddset(&set, WATCHED[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, &self.mask);
    return self.pipe[0];
}

int tty_signal(void)
{
    unsigned char c;

    return read(self.pipe[0], &c, 1) == 1 ? c : 0;
}

void tty_signals_stop(void)
{
    if (self.pipe[0] < 0)
        return;
    pthread_sigmask(SIG_SETMASK, &self.mask, NULL);
    for (size_t i = 0; i < ARRAY_LEN(WATCHED); i++)
        sigaction(WATCHED[i], &self.before[i], NULL);
    close(TAKE_FD(self.pipe[0]));
    close(TAKE_FD(self.pipe[1]));
}

void tty_suspend(void)
{
    bool raw = self.raw;

    tty_restore();
    raise(SIGSTOP);
    if (raw)
        go_raw();
}
