/* File verbs: one run of the kit in a sandbox, seen as a stream of records.
 *
 * A call is one verb under way. Its answers come from inside the sandbox and are checked here
 * (form, order, ceilings of a record); how much is taken of them is the caller's business. Nothing
 * waits: kit_call_next() says that there is nothing yet, and `notify` tells when to look again. One
 * thread at a time uses a call; its memory is small while nothing comes.
 *
 *     TRY(engine_kit(e, caller, sb, &rq, user, &k));
 *     kit_call_watch(k, wake, job);
 *     TRY(kit_call_next(k, now, &next, &record));      until KIT_OVER
 *     kit_call_free(k);                                kills what still runs, removes its streams
 *
 * Where no kit can go (caps.files is `emulated`) stat, read, write, list, mkdir, move and remove
 * are done by the image's sh and its tools, which answer in the same records. */
#pragma once

#include "engine/engine.h"
#include "wire/kit.h"

typedef struct kit_call kit_call;

/* user NULL: the sandbox's. Relative paths begin at the sandbox's working directory. Verbs that
 * change something need the role user, the others read. */
err *engine_kit(engine *e, const caller *c, sandbox *sb, const kit_request *rq, const char *user,
                kit_call **ret_call) ERR_MUST;
enum cap_level engine_files_cap(const engine *e);

/* From any thread, must not block. Before the first kit_call_next(). */
void kit_call_watch(kit_call *k, void (*notify)(void *arg), void *arg);

enum kit_next {
    KIT_WAIT,   /* nothing yet: after notify, or at kit_call_deadline() */
    KIT_RECORD, /* ret_record lives until the next call */
    KIT_OVER,   /* ret_record is END; nothing follows */
};
/* now: monotonic ns. An error is the verb's end: what the kit says (a fatal ERROR as ours), that it
 * was killed, that it has been silent for 30 s while it was waited for, that its answer is none.
 * ERROR records that are not fatal are given as records. */
err *kit_call_next(kit_call *k, uint64_t now, enum kit_next *ret_next,
                   kit_record *ret_record) ERR_MUST;
uint64_t kit_call_deadline(const kit_call *k);

/* Adds a record for its stdin to a batch (END is the last one), in the form that the kit or the
 * shell in its place reads. */
void kit_call_add(const kit_call *k, const kit_record *r, buf *batch);
/* Gives it a batch, at most 1 MiB, when there is room, for which this thread waits; ERR_TIMEOUT
 * when the kit has not read for 30 s. last: its stdin ends behind it. Only for handlers that stream
 * a body; threads are few, and how long this takes is decided inside the sandbox: `wait` (for fd,
 * at most ms) may refuse. */
typedef err *kit_wait(void *arg, int fd, int ms);
void kit_call_wait_by(kit_call *k, kit_wait *wait, void *arg);
err *kit_call_send_bytes(kit_call *k, const void *p, size_t n, bool last) ERR_MUST;

/* It has ended, or wants no more: what is sent is forgotten. Known from the last send on. */
bool kit_call_is_over(const kit_call *k);

/* What the kit's errno means to a caller, for this verb and path. */
err *kit_error(enum kit_verb verb, int errnum, const char *path) ERR_MUST;

void kit_call_free(kit_call *k);
static inline void kit_call_freep(kit_call **k)
{
    kit_call_free(*k);
}
