/* File verbs: each is one run of the kit in a sandbox, read as a stream of records.
 *
 * A kit_call is one verb under way. Its answers come from inside the sandbox; their form, their
 * order and the size of each record are checked here, the caller limits how many it takes. Nothing
 * waits: kit_call_next() reports that there is no record yet, and `notify` is called when it is
 * worth to try again. One thread at a time uses a call. It needs little memory while it waits.
 *
 *     TRY(engine_kit(e, caller, sb, &rq, user, &k));
 *     kit_call_watch(k, wake, job);
 *     TRY(kit_call_next(k, now, &next, &record));      until KIT_OVER
 *     kit_call_free(k);                                kills the run, removes its streams
 *
 * Where the kit cannot run (caps.files is `emulated`), the image's sh and its tools do stat, read,
 * write, list, mkdir, move, remove, pack and unpack, and answer in the same records. */
#pragma once

#include "engine/engine.h"
#include "wire/kit.h"

typedef struct kit_call kit_call;

/* Starts a verb. user NULL: the sandbox's. Relative paths begin at the sandbox's working directory.
 * Verbs that change something need the role user, the others read. */
err *engine_kit(engine *e, const caller *c, sandbox *sb, const kit_request *rq, const char *user,
                kit_call **ret_call) ERR_MUST;
enum cap_level engine_files_cap(const engine *e);

/* Sets a function that is called from any thread when something has come; it must not block. Call
 * before the first kit_call_next(). */
void kit_call_watch(kit_call *k, void (*notify)(void *arg), void *arg);

enum kit_next {
    KIT_WAIT,   /* no record yet: call again after notify, or at kit_call_deadline() */
    KIT_RECORD, /* ret_record is valid until the next call */
    KIT_OVER,   /* ret_record is END; nothing follows */
};
/* Reads the next record. now: monotonic ns. An error ends the verb: a fatal ERROR of the kit, the
 * kit was killed, it was silent for 30 s while it was waited for, or its answer is malformed. ERROR
 * records that are not fatal are returned as records. */
err *kit_call_next(kit_call *k, uint64_t now, enum kit_next *ret_next,
                   kit_record *ret_record) ERR_MUST;
uint64_t kit_call_deadline(const kit_call *k);

/* Appends a record for the verb's stdin to a batch (END is the last one), in the form that the kit,
 * or the shell in its place, reads. */
void kit_call_add(const kit_call *k, const kit_record *r, buf *batch);
/* Sends a batch of at most 1 MiB. Waits on this thread for room; ERR_TIMEOUT if the kit reads
 * nothing for 30 s. last: stdin ends after it. Only for handlers that stream a body: threads are
 * few, and code in the sandbox decides how long this takes. `wait` waits for fd, at most ms, and
 * may refuse with an error. */
typedef err *kit_wait(void *arg, int fd, int ms);
void kit_call_wait_by(kit_call *k, kit_wait *wait, void *arg);
err *kit_call_send_bytes(kit_call *k, const void *p, size_t n, bool last) ERR_MUST;

/* Returns true if the verb has ended, or reads no more input: further input is dropped. Known after
 * the last send. */
bool kit_call_is_over(const kit_call *k);

/* Returns the error for an errno of the kit, for this verb and path. */
err *kit_error(enum kit_verb verb, int errnum, const char *path) ERR_MUST;

void kit_call_free(kit_call *k);
static inline void kit_call_freep(kit_call **k)
{
    kit_call_free(*k);
}
