/* Which templates and pools a sandbox may have pods of: allowedNamespaces and tenant hold for
 * Sandbox objects and for creates through the API alike. */
#include "operator/operator.h"

#include "fake_api.h"

#define FOR_ANOTHER "{'image':'i','allowedNamespaces':['other'],'network':{'egress':'All'}}"

static const char *ready_of(fake *f)
{
    return condition_of(fake_status_of(f, SANDBOX_S), "Ready", "reason");
}

static bool source_for(fake *f, const char *owner, bool object, operator_source *ret)
{
    CLEANUP(freep)
    char *uid = object ? xstrdup(json_str(fake_meta(fake_get(f, SANDBOX_S)), "uid")) : NULL;
    const operator_wish w = {.image = "i", .network = true, .owner = owner, .object_uid = uid};
    bool found = operator_source_of(f->op, &w, ret);

    if (found)
        json_decref(ret->pod_spec);
    return found;
}

static void a_template_of_another_namespace_makes_no_sandbox(void **state)
{
    operator_source s;
    fake f;

    (void)state;
    fake_begin(&f, true);
    fake_make_template(&f, FOR_ANOTHER);
    fake_make_sandbox(&f, "s", "{'templateRef':'t'}");
    fake_settle(&f);
    assert_int_equal(f.engine_creates, 0);
    assert_string_equal(ready_of(&f), "NamespaceNotAllowed");
    assert_false(source_for(&f, "ns", true, &s));
    assert_true(s.refused);
    fake_end_all(&f);
}

static void it_is_made_once_the_template_allows_the_namespace(void **state)
{
    operator_source s;
    fake f;

    (void)state;
    fake_begin(&f, true);
    fake_make_template(&f, FOR_ANOTHER);
    fake_make_sandbox(&f, "s", "{'templateRef':'t'}");
    fake_settle(&f);
    fake_edit(&f, OURS "sandboxtemplates/t", "{'spec':{'allowedNamespaces':['other','ns']}}");
    fake_settle(&f);
    assert_int_equal(f.engine_creates, 1);
    assert_string_equal(ready_of(&f), "Running");
    assert_true(source_for(&f, "ns", true, &s));
    fake_end_all(&f);
}

static void a_pool_of_such_a_template_serves_nobody(void **state)
{
    operator_source s;
    fake f;

    (void)state;
    fake_begin(&f, true);
    fake_make_template(&f, FOR_ANOTHER);
    fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    assert_int_equal(f.engine_creates, 0);
    assert_string_equal(ready_of(&f), "NamespaceNotAllowed");
    assert_false(source_for(&f, "ns", true, &s));
    assert_true(s.refused);
    assert_false(source_for(&f, "ns", false, &s)); /* a create through the API gets a plain pod */
    assert_false(s.refused);
    fake_end_all(&f);
}

static void a_pool_serves_its_tenant_alone(void **state)
{
    operator_source s;
    fake f;

    (void)state;
    fake_begin(&f, true);
    fake_make_template(&f, "{'image':'i','network':{'egress':'All'}}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':2,'tenant':'alice'}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p','tenant':'mallory'}");
    fake_settle(&f);
    assert_int_equal(f.engine_creates, 0);
    assert_string_equal(ready_of(&f), "TenantNotAllowed");
    assert_false(source_for(&f, "mallory", true, &s));
    assert_false(source_for(&f, "mallory", false, &s));
    assert_true(source_for(&f, "alice", false, &s));
    fake_make_sandbox(&f, "s2", "{'poolRef':'p','tenant':'alice'}");
    fake_settle(&f);
    assert_int_equal(f.engine_creates, 1);
    fake_end_all(&f);
}

/* A hibernated sandbox stays asleep while its template is not allowed in its namespace. */
static void a_template_that_was_taken_away_wakes_nobody(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, true);
    fake_make_template(&f, "{'image':'i','workspace':{'mountPath':'/w','size':'1Gi'}}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    fake_edit(&f, SANDBOX_S, "{'spec':{'desiredState':'Hibernated'}}");
    fake_settle(&f);
    assert_int_equal(f.sleeps, 1);
    fake_edit(&f, OURS "sandboxtemplates/t", "{'spec':{'allowedNamespaces':['other']}}");
    fake_edit(&f, SANDBOX_S, "{'spec':{'desiredState':'Running'}}");
    fake_settle(&f);
    assert_int_equal(f.resumes, 0);
    fake_end_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_of_another_namespace_makes_no_sandbox),
        cmocka_unit_test(it_is_made_once_the_template_allows_the_namespace),
        cmocka_unit_test(a_pool_of_such_a_template_serves_nobody),
        cmocka_unit_test(a_pool_serves_its_tenant_alone),
        cmocka_unit_test(a_template_that_was_taken_away_wakes_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
