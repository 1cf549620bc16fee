/* bothyd's end of the link, for tests of init's container mode: what was asked for is repeated on
 * the next connection, what came is kept and must come once. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "wire/spine_codec.h"
#include "wire/spine_link.h"

#include "guest.h"

typedef struct lproc {
    uint64_t id;
    spine_out spawn; /* sent again until it is answered */
    bool answered;
    bool fetching; /* FDS is awaited: what flows before it is of the time before */
    struct sp_started st;
    buf out[2]; /* all that came */
    spl_window win[2];
    bool eof[2];
    uint32_t credit; /* given with each RECEIVED; 0: this client does not say RECEIVED */
    bool exited;
    struct sp_rec rec;
    uint64_t taken, in_limit;
} lproc;

#define LPROCS 80
typedef struct lclient {
    const guest *g;
    guest_serve as;
    uint8_t secret[SPL_SECRET];
    int fd;
    spl_end end;
    buf in;
    bool open;
    int refused; /* REFUSED's err, or 0 */
    struct spl_greeting greeting;
    struct sp_hello hello;
    struct sp_rec recs[SP_MAX_EXEC];
    lproc procs[LPROCS];
    size_t nprocs;
    uint64_t forgotten; /* ids up to this one */
    uint64_t next_id;
    uint64_t done, pongs;
    struct sp_hdr last_done;
    struct sps_data last_pong;
    long cut_after; /* bytes to read before the connection is cut; -1: never */
    unsigned cuts;
} lclient;

void lc_init(lclient *c, const guest *g, const guest_serve *as);
void lc_free(lclient *c);
/* Runs `/init attach` inside and shakes hands. True when HELLO came; then what is known is asked
 * for again. */
bool lc_dial(lclient *c);
void lc_cut(lclient *c);
/* Takes what comes within ms; false when the connection has ended. */
bool lc_pump(lclient *c, int ms);
void lc_send(lclient *c, const void *record, size_t size, const void *extra, size_t nextra);

int lc_claim(lclient *c, const spine_claim *q);
int lc_signal(lclient *c, uint64_t id, int signo, uint32_t scope);
lproc *lc_spawn(lclient *c, const spine_spawn *s);
lproc *lc_sh(lclient *c, const char *user, uint32_t flags, const char *script);
void lc_stdin(lclient *c, lproc *p, uint64_t offset, const void *bytes, size_t n, bool eof);
void lc_ack(lclient *c, lproc *p, uint32_t mask);
void lc_forget_all(lclient *c); /* acknowledged; whatever still comes of them is dropped */
/* Wait, dialling again whenever the connection is lost; fail the test after twenty seconds. */
void lc_until_started(lclient *c, lproc *p);
void lc_until_exit(lclient *c, lproc *p);
void lc_until_bytes(lclient *c, lproc *p, int stream, size_t n);
void lc_until_text(lclient *c, lproc *p, const char *text);
