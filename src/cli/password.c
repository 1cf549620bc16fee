#include "cli/password.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/confine.h"
#include "base/fs.h"
#include "base/str.h"

#define LINE_LEN 16384

static volatile sig_atomic_t caught;

static void on_signal(int signo)
{
    caught = signo;
}

static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/* Reads one line, or less if a signal comes. */
static ssize_t read_line(int tty, char *line, size_t size)
{
    size_t n = 0;

    while (n + 1 < size && !caught) {
        ssize_t got = read(tty, line + n, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || line[n] == '\n')
            break;
        n++;
    }
    line[n] = 0;
    return (ssize_t)n;
}

/* Reads a line, without echo unless `echo`. Catches signals, so that none leaves the terminal
 * without echo, and raises them again afterwards. */
static void read_hidden(int tty, const char *question, bool echo, char *line, size_t size)
{
    struct sigaction act = {.sa_handler = on_signal}, before[ARRAY_LEN(SIGNALS)];
    struct termios was;
    bool changed = !echo && !tcgetattr(tty, &was);

    caught = 0;
    for (size_t i = 0; i < ARRAY_LEN(SIGNALS); i++)
        sigaction(SIGNALS[i], &act, &before[i]);
    if (changed) {
        struct termios quiet = was;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        tcsetattr(tty, TCSAFLUSH, &quiet);
    }
    (void)fs_write_all(tty, question, strlen(question)); /* only after the echo is off */
    read_line(tty, line, size);
    if (changed) {
        tcsetattr(tty, TCSAFLUSH, &was);
        (void)!write(tty, "\n", 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(SIGNALS); i++)
        sigaction(SIGNALS[i], &before[i], NULL);
    if (caught)
        raise(caught);
}

err *prompt_line(const char *question, bool echo, char **ret_text)
{
    CLEANUP(closep) int tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    CLEANUP(secret_freep) char *line = NULL;

    if (tty < 0)
        return err_remedy(err_sys(ERR_INVALID_REQUEST, errno, "there is no terminal to ask on"),
                          "Give the name with --username and the password with --password-stdin.");
    TRY(confine_no_core()); /* the text stays in our memory until we end */
    line = xcalloc(1, LINE_LEN + 1);
    read_hidden(tty, question, echo, line, LINE_LEN + 1);
    *ret_text = xstrdup(line);
    return NULL;
}

err *password_from_stdin(size_t max, char **ret_text)
{
    CLEANUP(secret_freep) char *text = xcalloc(1, max + 3);
    size_t n = 0;

    TRY(confine_no_core());
    while (n < max + 2) {
        ssize_t got = read(STDIN_FILENO, text + n, max + 2 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (n && text[n - 1] == '\n')
        text[--n] = 0;
    if (n && text[n - 1] == '\r')
        text[--n] = 0;
    if (!n || n > max || strlen(text) != n)
        return err_remedy(
            err_new(ERR_INVALID_REQUEST, "stdin has no password of 1 to %zu bytes", max),
            "Pipe it in: bothy login --username NAME --password-stdin HOST <FILE");
    *ret_text = TAKE_PTR(text);
    return NULL;
}
