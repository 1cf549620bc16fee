/* Kubeconfigs: what is taken, where relative paths lead, what is refused and with which advice. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/kubernetes/kube_config.h"
#include "base/str.h"

#include "../../unit.h"

#define CLUSTERS                                                                 \
    "clusters:\n- name: c\n  cluster: {server: \"https://10.0.0.1:6443/\", "     \
    "certificate-authority: pki/ca.crt}\n"                                       \
    "contexts:\n- name: x\n  context: {cluster: c, user: u, namespace: boxes}\n" \
    "- {name: plain, context: {cluster: c}}\ncurrent-context: x\n"

static err *parse(const char *text, const char *context, kube_config *c)
{
    return kube_config_parse("file", text, strlen(text), "/etc/k", context, c);
}

static void files_and_paths(void **state)
{
    CLEANUP(kube_config_done) kube_config c = {0};

    (void)state;
    assert_ok(parse(CLUSTERS "users: [{name: u, user: {client-certificate: a.crt, "
                             "client-key: /abs/a.key, as: someone, as-groups: [g]}}]\n",
                    NULL, &c));
    assert_string_equal(c.server, "https://10.0.0.1:6443");
    assert_string_equal(c.ca_file, "/etc/k/pki/ca.crt");
    assert_string_equal(c.cert_file, "/etc/k/a.crt");
    assert_string_equal(c.key_file, "/abs/a.key");
    assert_string_equal(c.ns, "boxes");
    assert_string_equal(c.as[0], "Impersonate-User: someone");
    assert_string_equal(c.as[1], "Impersonate-Group: g");
}

static void data_is_base64(void **state)
{
    CLEANUP(kube_config_done) kube_config c = {0};

    (void)state;
    assert_ok(parse(CLUSTERS "users:\n- name: u\n  user:\n    client-certificate-data: |\n"
                             "      Q0VS\n      VA==\n    client-key-data: S0VZ\n",
                    NULL, &c));
    assert_string_equal(c.cert, "CERT");
    assert_string_equal(c.key, "KEY");
    assert_err(parse(CLUSTERS "users: [{name: u, user: {client-key-data: '?'}}]\n", NULL, &c),
               ERR_INVALID_REQUEST);
}

static void a_context_by_name(void **state)
{
    CLEANUP(kube_config_done) kube_config c = {0};

    (void)state;
    assert_ok(parse(CLUSTERS, "plain", &c));
    assert_null(c.ns);
    assert_err(parse(CLUSTERS, "none", &c), ERR_INVALID_REQUEST);
    assert_err(parse(CLUSTERS, NULL, &c), ERR_INVALID_REQUEST); /* its user is missing */
}

static void token_file_before_token(void **state)
{
    CLEANUP(kube_config_done) kube_config c = {0};

    (void)state;
    assert_ok(parse(CLUSTERS "users: [{name: u, user: {token: abc, tokenFile: t}}]", NULL, &c));
    assert_string_equal(c.token_file, "/etc/k/t");
    assert_null(c.token);
}

/* What of a user is refused, and a word of the advice. */
static void refused_users(void **state)
{
    static const struct {
        const char *user, *advice;
    } ROWS[] = {
        {"exec: {command: aws}", "tokenFile"},
        {"auth-provider: {name: gcp}", "tokenFile"},
        {"username: a", "certificate"},
        {"password: a", "certificate"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        CLEANUP(kube_config_done) kube_config c = {0};
        CLEANUP(freep)
        char *text = str_printf(CLUSTERS "users: [{name: u, user: {%s}}]", ROWS[i].user);
        CLEANUP(err_freep) err *e = parse(text, NULL, &c);
        assert_non_null(e);
        assert_int_equal(e->code, ERR_INVALID_REQUEST);
        assert_non_null(strstr(err_remedy_of(e), ROWS[i].advice));
    }
}

static void refused_files(void **state)
{
    static const char *const ROWS[] = {
        "",
        "[]",
        "a: &x 1\nb: *x",
        "a: !!str b",
        "a: 1\na: 2",
        "a: 1\n---\nb: 2",
        "{unclosed",
        CLUSTERS "users: [{name: u, user: {client-certificate: only}}]",
        CLUSTERS "users: [{name: u, user: {as-groups: [g]}}]",
        CLUSTERS "users: [{name: u, user: {token: \"two words\"}}]",
        "clusters: [{name: c, cluster: {server: ftp://x}}]\ncontexts: [{name: x, context: "
        "{cluster: c}}]\ncurrent-context: x",
        "clusters: [{name: c, cluster: {server: \"http://x\"}}]\nusers: [{name: u, user: {token: "
        "t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        CLEANUP(kube_config_done) kube_config c = {0};
        err *e = parse(ROWS[i], NULL, &c);
        if (!e)
            print_error("taken: %s\n", ROWS[i]);
        assert_err(e, ERR_INVALID_REQUEST);
    }
}

static void deep_nesting_is_refused(void **state)
{
    CLEANUP(kube_config_done) kube_config c = {0};
    char text[201] = {0};

    (void)state;
    memset(text, '[', 100);
    memset(text + 100, ']', 100);
    CLEANUP(err_freep) err *e = parse(text, NULL, &c);
    assert_non_null(e);
    assert_non_null(strstr(e->message, "deeply"));
}

static void put(const char *dir, const char *name, const char *text)
{
    CLEANUP(freep) char *path = str_printf("%s/%s", dir, name);
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* The first file that defines a name has it; what is missing is passed over. */
static void several_files(void **state)
{
    CLEANUP(kube_config_done) kube_config c = {0};
    char dir[] = "/tmp/kube-config-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(dir));
    put(dir, "a", "users: [{name: u, user: {tokenFile: first}}]\n");
    put(dir, "b", CLUSTERS "users: [{name: u, user: {tokenFile: second}}]\n");
    CLEANUP(freep) char *paths = str_printf("%s/none::%s/a:%s/b", dir, dir, dir);
    CLEANUP(freep) char *want = str_printf("%s/first", dir);
    CLEANUP(freep) char *rm = str_printf("%s/none", dir);
    assert_ok(kube_config_load(paths, NULL, &c));
    assert_string_equal(c.token_file, want);
    assert_err(kube_config_load(rm, NULL, &c), ERR_INVALID_REQUEST);
    for (const char *name = "ab"; *name; name++) {
        CLEANUP(freep) char *path = str_printf("%s/%c", dir, *name);
        unlink(path);
    }
    rmdir(dir);
}

static void in_cluster(void **state)
{
    CLEANUP(kube_config_done) kube_config c = {0}, six = {0};
    char dir[] = "/tmp/kube-config-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_err(kube_config_in_cluster(NULL, NULL, dir, &c), ERR_INVALID_REQUEST);
    put(dir, "there", "boxes\n");
    CLEANUP(freep) char *path = str_printf("%s/namespace", dir);
    CLEANUP(freep) char *there = str_printf("%s/there", dir);
    assert_int_equal(symlink("there", path), 0); /* as a kubelet mounts it */
    assert_ok(kube_config_in_cluster("10.0.0.1", "443", dir, &c));
    assert_string_equal(c.server, "https://10.0.0.1:443");
    assert_string_equal(c.ns, "boxes");
    assert_true(str_ends(c.token_file, "/token"));
    assert_true(str_ends(c.ca_file, "/ca.crt"));
    assert_ok(kube_config_in_cluster("fd00::1", "443", dir, &six));
    assert_string_equal(six.server, "https://[fd00::1]:443");
    unlink(path);
    unlink(there);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_and_paths),   cmocka_unit_test(data_is_base64),
        cmocka_unit_test(a_context_by_name), cmocka_unit_test(token_file_before_token),
        cmocka_unit_test(refused_users),     cmocka_unit_test(refused_files),
        cmocka_unit_test(several_files),     cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(in_cluster),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
