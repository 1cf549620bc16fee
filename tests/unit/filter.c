/* Lets one case of a unit test run alone: BOTHY_ONLY=TEXT leaves out each case whose name does not
 * contain TEXT (tools/dev test unit --only TEXT). */
#include <stdlib.h>
#include <string.h>

/* cmocka.h needs the others before it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
/* clang-format on */

__attribute__((constructor)) static void filter_set(void)
{
    static char pattern[256];
    const char *only = getenv("BOTHY_ONLY");
    if (!only || strlen(only) > sizeof(pattern) - 3)
        return;
    snprintf(pattern, sizeof(pattern), "*%s*", only);
    cmocka_set_test_filter(pattern);
}
