/* The command line against a daemon that answers whatever the input says: the real client with
 * libcurl's calls replaced, and what it prints to people looked at. One target includes this. */
#pragma once

#include <curl/curl.h>
#include <fcntl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/interrupt.h"

#include "fuzz.h"

static struct {
    fuzz_in answers; /* each: a letter for the status, the body, and 0x1e */
    size_t piece;    /* bytes given at a time */
    int requests;
    long status;
    uintptr_t data; /* of the write callback */
} fake;

static void fake_setopt(CURLoption o, uintptr_t v)
{
    if (o == CURLOPT_WRITEDATA)
        fake.data = v;
}

static void fake_getinfo(CURLINFO i, void *ret)
{
    if (i == CURLINFO_RESPONSE_CODE)
        *(long *)ret = fake.status;
    else if (i == CURLINFO_OS_ERRNO)
        *(long *)ret = 2; /* nobody is there */
    else
        *(double *)ret = 0;
}

static CURLcode fake_perform(void);

#undef curl_easy_setopt
#undef curl_easy_getinfo
#define curl_easy_setopt(h, o, v)  ((void)(h), fake_setopt((o), (uintptr_t)(v)))
#define curl_easy_getinfo(h, i, p) ((void)(h), fake_getinfo((i), (p)))
#define curl_easy_perform(h)       fake_perform()
#define curl_easy_init()           ((CURL *)&fake)
#define curl_easy_cleanup(h)       ((void)(h))
#define curl_easy_reset(h)         ((void)(h))
#include "../../src/net/client.c"

static CURLcode fake_perform(void)
{
    static const struct {
        char letter;
        long status;
    } STATUS[] = {{'2', 200}, {'1', 201}, {'0', 204}, {'3', 302},
                  {'4', 404}, {'9', 409}, {'5', 503}};
    char replay[] = "Idempotent-Replay: true\r\n";

    fake.status = 0;
    if (!fake.answers.n || ++fake.requests > 64)
        return CURLE_COULDNT_CONNECT;
    CLEANUP(freep) char *body = fuzz_word(&fake.answers, 0x1e);
    for (size_t i = 0; i < ARRAY_LEN(STATUS); i++)
        if (*body == STATUS[i].letter)
            fake.status = STATUS[i].status;
    if (!fake.status)
        return CURLE_COULDNT_CONNECT;
    on_header(replay, 1, strlen(replay), (void *)fake.data);
    for (size_t n = strlen(body), at = 1; at < n; at += fake.piece) {
        size_t k = n - at < fake.piece ? n - at : fake.piece;
        if (on_write(body + at, 1, k, (void *)fake.data) != k)
            return CURLE_WRITE_ERROR;
    }
    return CURLE_OK;
}

/* No thread and no signal handler: there is nobody to interrupt. */
err *interrupt_start(const cli *c, bool remove)
{
    (void)c, (void)remove;
    return NULL;
}

void interrupt_sandbox(const char *sandbox)
{
    (void)sandbox;
}

void interrupt_exec(const char *exec)
{
    (void)exec;
}

int interrupt_pending(void)
{
    return 0;
}

void interrupt_stop(void)
{
}

/* A command's own output goes to a descriptor and is passed on as it is; everything else must not
 * drive a terminal. */
static int fake_cli(int argc, char **argv)
{
    static FILE *real_out, *real_err;
    char *text[2] = {NULL, NULL};
    size_t n[2] = {0, 0};

    if (!real_out) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, 0);
        dup2(null, 1);
        real_out = stdout;
        real_err = stderr;
        setenv("BOTHY_PATIENCE", "0", 1);
    }
    stdout = open_memstream(&text[0], &n[0]);
    stderr = open_memstream(&text[1], &n[1]);
    int status = cli_main(argc, argv);
    fclose(stdout);
    fclose(stderr);
    stdout = real_out;
    stderr = real_err;
    for (int i = 0; i < 2; i++) {
        fuzz_harmless(text[i], n[i]);
        free(text[i]);
    }
    MUST(status >= 0 && status <= 255);
    return status;
}
