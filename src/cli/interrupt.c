#include "cli/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define REMOVE_TIMEOUT_MS 10000

static struct {
    pthread_mutex_t lock; /* guards everything below */
    client *client;       /* the thread's own */
    char *sandbox, *exec;
    bool remove, leaving, stopped;
    int first; /* the first signal received */
    sigset_t set;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void interrupt_say(const char *text)
{
    fprintf(stderr, "bothy: %s\n", text);
}

/* Sends a request and ignores its result: the user does not wait for it. */
static void call_and_forget(const char *method, const char *path, json_t *body)
{
    client_call call = {
        .method = method, .path = path, .json = body, .timeout_ms = REMOVE_TIMEOUT_MS};
    CLEANUP(client_answer_done) client_answer answer = {0};

    err_drop(client_do(self.client, &call, &answer), "interrupt");
    json_decref(body);
}

static void interrupt_forward(int signo)
{
    const char *name = sigabbrev_np(signo);
    CLEANUP(freep)
    char *path = str_printf("/v1/sandboxes/%s/processes/%s/signal", self.sandbox, self.exec);

    call_and_forget("POST", path, json_pack("{s:s,s:s}", "signal", name, "scope", "group"));
}

static void end_everything(void)
{
    CLEANUP(freep) char *path = NULL;

    if (self.sandbox && self.remove)
        path = str_printf("/v1/sandboxes/%s", self.sandbox);
    else if (self.sandbox && self.exec)
        path = str_printf("/v1/sandboxes/%s/processes/%s", self.sandbox, self.exec);
    if (path)
        call_and_forget("DELETE", path, NULL);
    else
        interrupt_say(
            "left while the sandbox was being made; 'bothy ls' shows whether it came to be");
}

/* Returns true if the program must end now. Lock held. */
static bool take_signal(int signo)
{
    bool again = self.first;

    if (self.stopped)
        return false;
    if (!again) {
        self.first = signo;
        if (self.exec)
            interrupt_forward(signo);
        else if (self.remove)
            interrupt_say(
                "interrupted; waiting for the sandbox to remove it (once more: leave at once)");
        return false;
    }
    self.leaving = true;
    return true;
}

static void *interrupt_watch(void *arg)
{
    (void)arg;
    for (;;) {
        int signo = 0;
        if (sigwait(&self.set, &signo))
            continue;
        pthread_mutex_lock(&self.lock);
        bool leave = take_signal(signo);
        pthread_mutex_unlock(&self.lock);
        if (!leave)
            continue;
        end_everything();
        _exit(CLI_SIGNAL + signo);
    }
    return NULL;
}

/* Leaves out signals that nohup or a shell's & made us ignore. */
static void fill_set(sigset_t *set)
{
    static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

    sigemptyset(set);
    for (size_t i = 0; i < ARRAY_LEN(SIGNALS); i++) {
        struct sigaction now;
        if (!sigaction(SIGNALS[i], NULL, &now) && now.sa_handler != SIG_IGN)
            sigaddset(set, SIGNALS[i]);
    }
}

err *interrupt_start(const cli *c, bool remove)
{
    pthread_t thread;

    TRY(cli_client(c, &self.client));
    self.remove = remove;
    fill_set(&self.set);
    pthread_sigmask(SIG_BLOCK, &self.set, NULL);
    int rc = pthread_create(&thread, NULL, interrupt_watch, NULL);
    if (rc)
        return err_sys(ERR_INTERNAL, rc, "cannot start a thread");
    pthread_detach(thread);
    return NULL;
}

void interrupt_sandbox(const char *sandbox)
{
    pthread_mutex_lock(&self.lock);
    self.sandbox = xstrdup(sandbox);
    pthread_mutex_unlock(&self.lock);
}

/* Sets the command. Forwards a signal that came before there was one. */
void interrupt_exec(const char *exec)
{
    pthread_mutex_lock(&self.lock);
    self.exec = xstrdup(exec);
    if (self.first)
        interrupt_forward(self.first);
    pthread_mutex_unlock(&self.lock);
}

int interrupt_pending(void)
{
    pthread_mutex_lock(&self.lock);
    int signo = self.exec ? 0 : self.first;
    pthread_mutex_unlock(&self.lock);
    return signo;
}

void interrupt_stop(void)
{
    pthread_mutex_lock(&self.lock);
    bool leaving = self.leaving;
    self.stopped = true;
    pthread_mutex_unlock(&self.lock);
    while (leaving)
        pause();
}
