/* Why a sandbox ended. Plain values; the text form is the JSON object of the store and of the API:
 * {"kind":"oom","limit":…,"peak":…}. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum cause_kind {
    CAUSE_REQUESTED, /* by */
    CAUSE_TTL,
    CAUSE_IDLE,
    CAUSE_OOM,    /* limit, peak: pid 1 was killed for memory */
    CAUSE_EXITED, /* pid 1 ended by itself */
    CAUSE_KILLED, /* by */
    CAUSE_BUDGET,
    CAUSE_POLICY,
    CAUSE_NODE_LOST,
    CAUSE_CREATE_FAILED, /* stage */
    CAUSE_INTERNAL,
    CAUSES
};

typedef struct cause {
    enum cause_kind kind;
    const char *by;       /* REQUESTED, KILLED: by whom */
    const char *stage;    /* CREATE_FAILED: the failed step */
    const char *detail;   /* any: for people; or NULL */
    uint64_t limit, peak; /* OOM: bytes */
} cause;

const char *cause_name(enum cause_kind k);
/* One sentence for people: "Its time to live was over." */
const char *cause_text(enum cause_kind k);
/* Returns the kind of this name, or CAUSES. */
enum cause_kind cause_by_name(const char *name);
/* The known facts about a sandbox whose pid 1 ended without a request. */
typedef struct end_facts {
    bool distrusted; /* bothyd ended it after invalid data from its pid 1; see `why` */
    bool missing;    /* the node has no such sandbox any more */
    bool told;       /* the node reported how it ended; if not, only `why` of the rest counts */
    bool has_status;
    int status;              /* as of wait(2) */
    uint64_t ooms, ooms_ago; /* out-of-memory kills: in all, and those of commands before */
    uint64_t limit, peak;
    char by[32];     /* the outside agent that ended it; "": none known */
    bool lost;       /* lost together with its machine */
    const char *why; /* the backend's explanation, for people */
} end_facts;
/* Returns the cause that the facts show. detail points into buffer, or at why. */
#define CAUSE_DETAIL_MAX 160
cause cause_of_end(const end_facts *f, char buffer[CAUSE_DETAIL_MAX]);
/* Appends the JSON object: kind, then the members that the kind allows, then detail. */
void cause_write(buf *out, const cause *c);
