/* What every unit test includes: cmocka and its needs, and a check for err * results. */
#pragma once

/* cmocka.h needs the others before it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
/* clang-format on */

#include "base/cleanup.h"
#include "base/err.h"

static inline void check_ok(err *e, const char *file, int line)
{
    if (!e)
        return;
    print_error("%s: %s (%s)\n", err_info_of(e->code)->name, e->message, e->cause ? e->cause : "-");
    err_free(e);
    _fail(file, line);
}
#define assert_ok(x) check_ok((x), __FILE__, __LINE__)

static inline void check_err(err *e, err_code code, const char *file, int line)
{
    if (!e || e->code != code) {
        print_error("expected %s, got %s (%s)\n", err_info_of(code)->name,
                    e ? err_info_of(e->code)->name : "success", e ? e->message : "");
        err_free(e);
        _fail(file, line);
    }
    err_free(e);
}
#define assert_err(x, code) check_err((x), (code), __FILE__, __LINE__)
