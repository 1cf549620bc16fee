/* A configuration file. What is taken must survive being printed and read again. */
#include "daemon/config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(config_done) config c = {0};
    CLEANUP(config_done) config again = {0};
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(buf_done) buf second = {0};

    config_init(&c);
    config_init(&again);
    err *e = config_parse("fuzz", data, size, &c);
    if (e) {
        err_free(e);
        return 0;
    }
    err_free(config_check(&c));
    config_print(&c, &text);
    if (config_parse("printed", text.p, text.len, &again))
        abort();
    config_print(&again, &second);
    if (text.len != second.len || memcmp(text.p, second.p, text.len) != 0)
        abort();
    return 0;
}
