/* Pid 1 of a slot as a later release may have it: it greets with a version of the spine that is one
 * above today's. */
#include <sys/socket.h>
#include <unistd.h>

#include "wire/spine.h"

int main(void)
{
    const struct sp_hello h = {
        .h = {.type = SP_HELLO}, .version = SP_VERSION + 1, .capacity = SP_MAX_EXEC};

    listen(0, 8); /* the socket's owner is whoever listened last */
    for (;;) {
        int c = accept(0, 0, 0);
        if (c >= 0)
            send(c, &h, sizeof h, 0);
    }
}
