/* Reads the record stream on stdin. */
#include "kit/kit.h"

static char room[4 * KIT_RECORD_MAX];
static size_t from, to; /* bytes [from, to) are not parsed yet */
static kit_order order;

static long in_fill(void)
{
    for (size_t i = from; from && i < to; i++)
        room[i - from] = room[i];
    to -= from;
    from = 0;
    for (;;) {
        long n = SYS(read, 0, room + to, sizeof room - to);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n ? n : -EPIPE;
        to += (size_t)n;
        return 0;
    }
}

long in_record(kit_record *ret)
{
    for (;;) {
        size_t used = 0;
        enum kit_verdict v = kit_decode(room + from, to - from, ret, &used);
        if (v == KIT_BAD)
            return -EPROTO;
        if (v == KIT_OK) {
            from += used;
            return kit_order_check(&order, ret) ? 0 : -EPROTO;
        }
        long r = in_fill();
        if (r)
            return r;
    }
}
