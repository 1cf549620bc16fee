/* Warden frames: four bytes of type, then the body. What a check lets through is then read the way
 * the warden and bothyd read it, so that a wrong length shows under the sanitizer. */
#include "wire/wardenp.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_claim(const uint8_t *body)
{
    struct wp_claim c;
    struct wp_tmpfs t;

    memcpy(&c, body, sizeof c);
    if (strlen(c.sandbox.id) != 20)
        abort();
    for (uint32_t i = 0; i < c.ntmpfs; i++) {
        memcpy(&t, body + sizeof c + i * sizeof t, sizeof t);
        if (t.path[0] != '/' || strstr(t.path, "/../"))
            abort();
    }
    if (c.flags & WP_CLAIM_NAMED) {
        struct wp_id name;
        memcpy(&name, body + sizeof c + c.ntmpfs * sizeof t, sizeof name);
        if (strlen(name.id) != 20)
            abort();
    }
}

static void read_stats(const uint8_t *body)
{
    struct wp_stats s;
    struct wp_id id;

    memcpy(&s, body, sizeof s);
    for (uint32_t i = 0; i < s.n; i++) {
        memcpy(&id, body + sizeof s + i * sizeof id, sizeof id);
        if (strlen(id.id) != 20)
            abort();
    }
}

static void read_snapshot(const uint8_t *body)
{
    struct wp_snapshot s;

    memcpy(&s, body, sizeof s);
    if (strlen(s.sandbox.id) != 20 || !s.deadline_ms || s.deadline_ms > WP_SNAPSHOT_MS_MAX)
        abort();
}

static void read_snapshotted(const uint8_t *body)
{
    struct wp_snapshotted s;

    memcpy(&s, body, sizeof s); /* every number is one to be shown */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t type;

    if (size < sizeof type)
        return 0;
    memcpy(&type, data, sizeof type);
    size_t n = size - sizeof type;
    /* An exact copy: a read behind the frame is a read behind the allocation. */
    uint8_t *body = malloc(n ? n : 1);
    if (!body)
        return 0;
    memcpy(body, data + sizeof type, n);
    if (wp_request_ok(type, body, n)) {
        if (type == WP_CLAIM)
            read_claim(body);
        if (type == WP_STATS)
            read_stats(body);
        if (type == WP_SNAPSHOT)
            read_snapshot(body);
    }
    if (wp_answer_ok(type, body, n) && type == WP_SNAPSHOT)
        read_snapshotted(body);
    (void)wp_error_ok(body, n);
    (void)wp_request_fds(type);
    (void)wp_type_name(type);
    free(body);
    return 0;
}
