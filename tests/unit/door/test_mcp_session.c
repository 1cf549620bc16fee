/* The sessions that the MCP door knows: each owner's share of their table. */
#include "door/mcp/internal.h"

#include "../unit.h"

#define MANY 4200 /* more than there is room for */

static bool is_known(mcp *d, const char *id)
{
    map_iter it = {0};

    while (map_next(&d->sessions, &it))
        if (str_eq(mcp_session_id(it.entry->value), id))
            return true;
    return false;
}

static char *issue(mcp *d, const char *owner)
{
    const caller c = {.owner = (char *)owner, .role = CALLER_USER};
    mcp_session *s = mcp_session_issue(d, &c);
    char *id = xstrdup(mcp_session_id(s));

    mcp_session_unref(s);
    return id;
}

static void begin(mcp *d)
{
    pthread_mutex_init(&d->lock, NULL);
}

static void end(mcp *d)
{
    map_iter it = {0};

    while (map_next(&d->sessions, &it))
        mcp_session_unref(it.entry->value);
    map_done(&d->sessions);
    map_done(&d->owners);
    pthread_mutex_destroy(&d->lock);
}

static void an_owner_with_many_sessions_pushes_out_its_own(void **state)
{
    mcp d = {0};

    (void)state;
    begin(&d);
    CLEANUP(freep) char *hers = issue(&d, "ann");
    CLEANUP(freep) char *first = issue(&d, "ben");
    for (int i = 0; i < MANY; i++)
        free(issue(&d, "ben"));
    CLEANUP(freep) char *last = issue(&d, "ben");
    assert_true(is_known(&d, hers));
    assert_true(is_known(&d, last));
    assert_false(is_known(&d, first));
    assert_true(d.sessions.count < MANY);
    end(&d);
}

static void a_session_in_use_is_kept(void **state)
{
    const caller ben = {.owner = "ben", .role = CALLER_USER};
    mcp d = {0};

    (void)state;
    begin(&d);
    mcp_session *used = mcp_session_issue(&d, &ben);
    for (int i = 0; i < MANY; i++)
        free(issue(&d, "ben"));
    assert_true(is_known(&d, mcp_session_id(used)));
    mcp_session_unref(used);
    end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_with_many_sessions_pushes_out_its_own),
        cmocka_unit_test(a_session_in_use_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
