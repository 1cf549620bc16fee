/* Messages of process.Process: what is taken is within its ranges and can become a command; a note
 * of it is one bounded JSON object; an error is invalid_request with a message. */
#include <signal.h>

#include "base/cleanup.h"
#include "core/spec.h"
#include "door/e2b/process.h"
#include "wire/connect.h"

#include "fuzz.h"

static bool taken(err *e)
{
    if (!e)
        return true;
    MUST(e->code == ERR_INVALID_REQUEST && e->message[0]);
    err_free(e);
    return false;
}

static void try_start(const char *p, size_t n)
{
    CLEANUP(process_start_done) process_start s = {0};
    CLEANUP(json_decrefp) json_t *o = NULL;

    if (!taken(process_start_decode(p, n, &s)))
        return;
    MUST(s.argv && s.argv[0] && s.argv[0][0]);
    for (char **v = s.env; v && *v; v++)
        MUST(**v != '=' && strchr(*v, '='));
    CLEANUP(freep) char *note = process_note(&s);
    MUST(!json_parse(note, strlen(note), &o));
    MUST(json_is_object(json_object_get(o, "config")));
    /* What its strings come to, six bytes for one at most, and the quotes of many empty ones. */
    MUST(strlen(note) <= 8 * 65536 + 8 * n + 1024);
    exec_spec spec = {.argv = s.argv, .env = s.env, .cwd = s.cwd, .exec_fd = -1};
    err_free(exec_spec_check(&spec));
}

static void try_request(const char *p, size_t n, bool input)
{
    CLEANUP(process_request_done) process_request r = {0};

    if (!taken(input ? process_input_decode(p, n, &r) : process_request_decode(p, n, &r)))
        return;
    MUST(input || r.has_process);
    MUST(r.process.pid <= INT32_MAX);
    MUST(r.signo == 0 || r.signo == SIGKILL || r.signo == SIGTERM);
    MUST(r.input != INPUT_NONE || !r.bytes.len);
    MUST(r.bytes.len <= n);
}

static void try_events(fuzz_in *in)
{
    CLEANUP(buf_done) buf b = {0};
    CLEANUP(json_decrefp) json_t *o = NULL;
    exec_end end = {.how = EXEC_EXITED + fuzz_byte(in) % 4,
                    .exit_code = fuzz_byte(in),
                    .signal = fuzz_byte(in) % 65};
    const char *p = NULL;
    size_t n = 0;

    process_event_end(&b, &end);
    MUST(!connect_single(b.p, b.len, &p, &n));
    MUST(!json_parse(p, n, &o));
    const json_t *e = json_object_get(json_object_get(o, "event"), "end");
    /* Nobody succeeds who was killed or was out of time. */
    if (end.signal || end.how == EXEC_TIMED_OUT)
        MUST(json_int(e, "exitCode", 0) == -1);
    else
        MUST(json_int(e, "exitCode", -2) == end.exit_code);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size}, again = in;
    size_t n = 0;
    CLEANUP(freep) char *p = fuzz_bytes(&in, size, &n);

    try_start(p, n);
    try_request(p, n, false);
    try_request(p, n, true);
    try_events(&again);
    return 0;
}
