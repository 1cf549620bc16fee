#include <string.h>
#include <unistd.h>

#include "base/log.h"

#include "../unit.h"

/* What a line looks like: stderr goes to a pipe for a moment. */
static char *line_of(void (*say)(void))
{
    static char text[4096];
    int p[2], was = dup(STDERR_FILENO);

    assert_int_equal(pipe(p), 0);
    dup2(p[1], STDERR_FILENO);
    close(p[1]);
    say();
    dup2(was, STDERR_FILENO);
    close(was);
    ssize_t n = read(p[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    close(p[0]);
    return text;
}

static void plain_line(void)
{
    log_warn("test", "a \"quoted\" word");
}

static void fields_line(void)
{
    log_field f[] = {{.key = "status", .number = 404}, {.key = "code", .text = "not_found"}};
    log_write_fields(LOG_WARN, "http", f, 2, "x");
}

static void scoped_line(void)
{
    LOG_ABOUT("sb2", NULL, 7);
    log_warn("test", "inside");
}

static void ids_are_carried(void **state)
{
    (void)state;
    log_init("unit", LOG_INFO);
    char longest[LOG_REQUEST_MAX + 1];
    memset(longest, 'r', LOG_REQUEST_MAX);
    longest[LOG_REQUEST_MAX] = 0;
    log_id(LOG_REQUEST, longest);
    log_id(LOG_SANDBOX, "sb1");
    log_id_number(LOG_SESSION, 3);
    const char *t = line_of(plain_line);
    assert_non_null(strstr(t, longest));
    assert_non_null(strstr(t, "\"msg\":\"a \\\"quoted\\\" word\",\"request\":\"rrr"));
    assert_non_null(strstr(t, "\"sandbox\":\"sb1\",\"session\":\"3\"}\n"));

    t = line_of(scoped_line);
    assert_non_null(strstr(t, "\"sandbox\":\"sb2\",\"exec\":\"7\""));
    assert_non_null(strstr(t, longest));
    assert_non_null(strstr(line_of(plain_line), "\"sandbox\":\"sb1\""));

    log_ids other = {.request = "r2"};
    log_lend(&other);
    assert_non_null(strstr(line_of(plain_line), "\"request\":\"r2\"}"));
    log_lend(NULL);
    log_ids_clear();
    t = line_of(fields_line);
    assert_null(strstr(t, "request"));
    assert_non_null(strstr(t, "\"status\":404,\"code\":\"not_found\"}\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ids_are_carried)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
