/* A netlink client with as much as a sandbox's network needs: messages are built in place, sent
 * together, and each is acknowledged by the kernel. Functions return 0 or a negative errno. A batch
 * has one user, its owner. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NL_BATCH_MAX 4096

typedef struct nl_batch {
    _Alignas(8) uint8_t b[NL_BATCH_MAX];
    size_t len;
    size_t at;            /* where the last message begins */
    unsigned expect;      /* acknowledgements */
    uint32_t first, last; /* sequence numbers */
} nl_batch;

/* Opens a socket in the network namespace of the calling thread, for that namespace. It waits no
 * longer than a few seconds for an answer. Returns the descriptor or a negative errno. */
int nl_open(int protocol);

/* Begins a message. flags: besides REQUEST and ACK. head: the family's own header. */
void nl_begin(nl_batch *b, uint16_t type, uint16_t flags, const void *head, size_t n);
void nl_put(nl_batch *b, uint16_t type, const void *p, size_t n);
void nl_put_text(nl_batch *b, uint16_t type, const char *text);
void nl_put_u32(nl_batch *b, uint16_t type, uint32_t v);
size_t nl_nest(nl_batch *b, uint16_t type);
void nl_nest_header(nl_batch *b, const void *head, size_t n); /* the header of a veth peer */
void nl_nest_end(nl_batch *b, size_t at);
/* Asks for no acknowledgement of the message begun last. */
void nl_silent(nl_batch *b);

/* Sends the batch and reads all its acknowledgements. Returns the first error. */
int nl_send(int fd, nl_batch *b);
/* Sends a batch of one question, copies its answer and reads its acknowledgement. */
int nl_ask(int fd, nl_batch *b, void *answer, size_t max, size_t *ret_n);
/* Sends a batch of one question with NLM_F_DUMP. Calls each with the body of every answer. */
int nl_dump(int fd, nl_batch *b, void (*each)(void *arg, const void *body, size_t n), void *arg);

/* Returns the attribute of this type among n bytes of attributes, or NULL. */
const void *nl_find(const void *attrs, size_t n, uint16_t type, size_t *ret_n);
