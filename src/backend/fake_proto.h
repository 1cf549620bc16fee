/* The protocol between backend_fake and bothy-fake-node: the stream form of the spine
 * (wire/spine_stream.h), one connection per box, and the records below. The first record of a
 * connection says what it is for. Both programs come from one build, so there are no versions. */
#pragma once

#include <stdint.h>

#include "base/id.h"
#include "wire/spine_stream.h"

enum fake_type {
    FAKE_OPEN = SPS_PRIVATE, /* answered by HELLO, or by REPLY with an error */
    FAKE_DESTROY,            /* answered by REPLY */
    FAKE_LIST,               /* answered by REPLY with struct fake_box[] as extra bytes */
    FAKE_REPLY,
};

struct fake_request {
    struct sp_hdr h;
    char id[SANDBOX_ID_LEN + 1];
    uint8_t create; /* OPEN: make the box if it does not exist */
    uint8_t zero[2];
};

struct fake_box {
    char id[SANDBOX_ID_LEN + 1];
    uint8_t zero[3];
};

#define FAKE_SOCKET "node.sock"
#define FAKE_LOCK   "node.lock"
