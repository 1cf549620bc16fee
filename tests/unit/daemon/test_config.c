#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/str.h"
#include "daemon/config.h"

#include "../unit.h"

static void parse_ok(const char *text, config *c)
{
    config_init(c);
    assert_ok(config_parse("t.yaml", text, strlen(text), c));
    assert_ok(config_check(c));
}

/* The error must have all the parts, separated by '|'. */
static void parse_refused(const char *text, const char *parts)
{
    CLEANUP(config_done) config c = {0};

    config_init(&c);
    err *e = config_parse("t.yaml", text, strlen(text), &c);
    if (!e)
        e = config_check(&c);
    if (!e)
        print_error("taken: %s\n", text);
    assert_non_null(e);
    for (const char *p = parts; *p;) {
        size_t n = strcspn(p, "|");
        CLEANUP(freep) char *part = xstrndup(p, n);
        if (!strstr(e->message, part))
            print_error("'%s' is not in: %s\n", part, e->message);
        assert_non_null(strstr(e->message, part));
        p += n + (p[n] == '|');
    }
    err_free(e);
}

static void defaults_hold_without_a_file(void **state)
{
    CLEANUP(config_done) config c = {0};

    (void)state;
    assert_ok(config_load("/nonexistent/bothy.yaml", false, NULL, &c));
    assert_string_equal(c.node_cell, "b000");
    assert_string_equal(c.listen_socket, "/run/bothy/bothyd.sock");
    assert_string_equal(c.listen_tcp, "");
    assert_string_equal(c.store_sync, "full");
    assert_int_equal(c.exec_stream_max, 64u << 20);
    assert_int_equal(c.limits_ttl, 3600 * 1000);
    assert_int_equal(c.limits_cpu, 1000);
    assert_int_equal(c.retention_record, 86400 * 1000);
    assert_int_equal(c.http_threads, 512);
    assert_int_equal(c.images_pull_timeout, 1800 * 1000);
    assert_int_equal(config_log_level(&c), LOG_INFO);
    assert_err(config_load("/nonexistent/bothy.yaml", true, NULL, &c), ERR_NOT_FOUND);
}

/* Dotfiles are links often, and so is what Kubernetes mounts. */
static void a_file_may_be_a_link(void **state)
{
    char dir[] = "/tmp/bothy-config-XXXXXX";
    CLEANUP(config_done) config c = {0};

    (void)state;
    assert_non_null(mkdtemp(dir));
    CLEANUP(freep) char *file = str_printf("%s/file", dir);
    CLEANUP(freep) char *link = str_printf("%s/link", dir);
    CLEANUP(freep) char *loop = str_printf("%s/loop", dir);
    CLEANUP(closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(fs_write(fd, "file", "node: {cell: zzzz}\n", 19, 0600, false));
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(symlink("loop", loop), 0);
    assert_ok(config_load(link, false, NULL, &c));
    assert_string_equal(c.node_cell, "zzzz");
    err *e = config_load(loop, false, NULL, &c); /* there, but not to be read: no defaults for it */
    assert_non_null(e);
    assert_non_null(strstr(e->remedy, "--config"));
    err_free(e);
    unlink(file);
    unlink(link);
    unlink(loop);
    rmdir(dir);
}

static void assert_limits_equal(const limits *a, const limits *b)
{
    assert_int_equal(a->memory, b->memory);
    assert_int_equal(a->disk, b->disk);
    assert_int_equal(a->cpu_milli, b->cpu_milli);
    assert_int_equal(a->pids, b->pids);
    assert_int_equal(a->nofile, b->nofile);
    assert_int_equal(a->nofile_hard, b->nofile_hard);
    assert_int_equal(a->shm_mib, b->shm_mib);
    assert_int_equal(a->execs, b->execs);
}

static void the_default_limits_are_those_of_core(void **state)
{
    CLEANUP(config_done) config c = {0};

    (void)state;
    config_init(&c);
    limits l = config_limits(&c);
    assert_limits_equal(&l, &LIMITS_DEFAULT);
}

static void ceilings_are_the_machine_and_no_default_is_above_one(void **state)
{
    CLEANUP(config_done) config c = {0}, large = {0};
    const uint64_t gib = UINT64_C(1) << 30;

    (void)state;
    config_init(&c);
    limits l = config_limits_most(&c, 8 * gib, 4);
    assert_int_equal(l.memory, 8 * gib);
    assert_int_equal(l.cpu_milli, 4000);
    assert_int_equal(l.pids, 4096);
    assert_int_equal(l.shm_mib, 8192);
    assert_int_equal(l.disk, 0);
    l = config_limits_most(&c, 8 * gib, 1);
    assert_int_equal(l.cpu_milli, 2000);
    l = config_limits_most(&c, 0, 0); /* a cluster */
    assert_int_equal(l.memory, 0);
    assert_int_equal(l.cpu_milli, 0);
    parse_ok(
        "limits:\n  pids: 9000\n  memory: 4g\n  max_memory: 2g\n  max_cpu: 1.5\n  max_disk: 20g\n",
        &large);
    l = config_limits_most(&large, 8 * gib, 4);
    assert_int_equal(l.memory, 4 * gib);
    assert_int_equal(l.pids, 9000);
    assert_int_equal(l.cpu_milli, 1500);
    assert_int_equal(l.disk, 20 * gib);
}

static void a_file_is_read(void **state)
{
    CLEANUP(config_done) config c = {0};

    (void)state;
    parse_ok("# comment\n"
             "node: {cell: x1y2}\n"
             "listen:\n  tcp: '127.0.0.1:7070'\n  group: \"\"\n"
             "limits:\n  memory: 512m\n  cpu: 0.5\n  ttl: 90s\n"
             "http:\n  relay_threads: 0\n  threads: 3\n"
             "log:\n",
             &c);
    assert_string_equal(c.node_cell, "x1y2");
    assert_string_equal(c.listen_tcp, "127.0.0.1:7070");
    assert_string_equal(c.listen_group, "");
    assert_int_equal(c.limits_memory, 512u << 20);
    assert_int_equal(c.limits_cpu, 500);
    assert_int_equal(c.limits_ttl, 90000);
    assert_int_equal(c.http_relay_threads, 0);
    assert_int_equal(c.http_threads, 3);
}

static void empty_files_are_fine(void **state)
{
    static const char *const EMPTY[] = {"", "\n", "# nothing\n", "---\n"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(EMPTY); i++) {
        CLEANUP(config_done) config c = {0};
        parse_ok(EMPTY[i], &c);
    }
}

static void mistakes_are_named_with_their_line(void **state)
{
    (void)state;
    parse_refused("node:\n  cell: b000\nlimit:\n  memory: 1g\n", "t.yaml:3|did you mean 'limits'");
    parse_refused("limits:\n  memroy: 1g\n", "t.yaml:2|did you mean 'memory'");
    parse_refused("limits:\n  memory: lots\n", "t.yaml:2|limits.memory|a size like|'lots'");
    parse_refused("limits:\n  memory: 1k\n", "t.yaml:2|limits.memory|8m");
    parse_refused("limits:\n  cpu: 1s\n", "limits.cpu|a number");
    parse_refused("http:\n  threads: -1\n", "t.yaml:2|http.threads|whole number");
    parse_refused("store:\n  sync: maybe\n", "t.yaml:2|store.sync|full|normal|'maybe'");
    parse_refused("limits:\n  ttl: soon\n", "limits.ttl|a time like");
    parse_refused("limits:\n  memory:\n", "t.yaml:2|limits.memory|has no value");
    parse_refused("limits:\n  memory: ~\n", "has no value");
    parse_refused("limits:\n  memory: [1g]\n", "t.yaml:2|limits.memory|list");
    parse_refused("limits:\n  memory: {a: b}\n", "t.yaml:2|mapping");
    parse_refused("limits: 3\n", "t.yaml:1|limits|mapping");
    parse_refused("- a\n", "t.yaml:1|mapping");
    parse_refused("limits:\n  pids: 9\n  pids: 9\n", "t.yaml:3|limits.pids is there twice");
    parse_refused("limits:\n  pids: 9\nlimits:\n  pids: 9\n", "t.yaml:3|'limits' is there twice");
    parse_refused("limits:\n\tpids: 9\n", "t.yaml:2");
    parse_refused("a: {b: [\n", "t.yaml:");
    parse_refused("node: {cell: b000}\n---\nnode: {cell: b001}\n", "t.yaml:2|one document");
}

static void what_yaml_can_do_too_much_is_refused(void **state)
{
    (void)state;
    parse_refused("node:\n  cell: &x b000\n", "t.yaml:2|anchors");
    parse_refused("node:\n  cell: *x\n", "t.yaml:2|aliases");
    parse_refused("node:\n  cell: !!str b000\n", "t.yaml:2|tags");
    parse_refused("node: &n\n  cell: b000\n", "anchors");
    parse_refused("node: !x\n  cell: b000\n", "tags");
    parse_refused("node:\n  <<: {cell: b000}\n", "t.yaml:2|'<<' is not known");
}

static void rules_between_keys(void **state)
{
    (void)state;
    parse_refused("node: {cell: B000}\n", "node.cell");
    parse_refused("node: {cell: b00}\n", "node.cell");
    parse_refused("listen: {tcp: '7070'}\n", "listen.tcp");
    parse_refused("listen: {tcp: 'a:0'}\n", "listen.tcp");
    parse_refused("listen: {tcp: '::1:7070'}\n", "listen.tcp");
    parse_refused("retention: {record: 1h, spool: 2h}\n", "retention.spool");
    parse_refused("backend: {name: fake}\n", "backend.fake_dir");
    parse_refused("backend: {name: kubernetes}\n", "kubernetes.image");
    CLEANUP(config_done) config c = {0};
    parse_ok("listen: {tcp: '[::1]:7070'}\n", &c);
}

static void registries_have_a_section_of_their_own(void **state)
{
    CLEANUP(config_done) config c = {0};
    CLEANUP(config_done) config again = {0};
    CLEANUP(buf_done) buf text = {0};

    (void)state;
    parse_ok("images: {from: listed}\nregistries:\n  ghcr.io:\n  r.example:5000:\n"
             "    insecure: true\n    ca: /a b/\"c\n    mirrors: [m:1/hub, n]\n",
             &c);
    config_print(&c, &text);
    parse_ok(buf_cstr(&text), &again);
    for (const config *k = &c; k; k = k == &c ? &again : NULL) {
        assert_string_equal(k->images_from, "listed");
        assert_int_equal(k->registries.n, 2);
        const registry *r = registries_find(&k->registries, "r.example:5000");
        assert_true(r->insecure);
        assert_string_equal(r->ca, "/a b/\"c");
        assert_int_equal(strv_len(r->mirrors), 2);
        assert_string_equal(r->mirrors[0], "m:1/hub");
        assert_false(registries_find(&k->registries, "ghcr.io")->insecure);
    }
    parse_refused("registries:\n  a:\n  a:\n", "t.yaml:3|twice");
    parse_refused("registries:\n  Not/Host:\n", "t.yaml:2|no host");
    parse_refused("registries:\n  a:\n    insecure: yes\n", "t.yaml:3|true or false");
    parse_refused("registries:\n  a:\n    mirror: [b]\n", "t.yaml:3|mirrors");
    parse_refused("registries:\n  a:\n    mirrors: b\n", "t.yaml:3|list");
    parse_refused("registries:\n  a:\n    mirrors: ['http://b']\n", "t.yaml:3|mirror");
    parse_refused("registries:\n  a:\n    ca: here.pem\n", "t.yaml:3|absolute");
    parse_refused("registries:\n  a: 7\n", "t.yaml:2|mapping");
    parse_refused("registries: [a]\n", "mapping");
    parse_refused("images:\n  from: some\n", "any|listed");
}

static void the_environment_wins(void **state)
{
    CLEANUP(config_done) config c = {0};
    char *env[] = {(char[]){"BOTHY_LISTEN_TCP=127.0.0.1:1"}, (char[]){"BOTHY_EXEC_STREAM_MAX=8m"},
                   (char[]){"BOTHY_SOCKET=/x"}, (char[]){"PATH=/bin"}, NULL};
    char *typo[] = {(char[]){"BOTHY_LISTEN_TPC=x"}, NULL};
    char *wrong[] = {(char[]){"BOTHY_HTTP_THREADS=x"}, NULL};

    (void)state;
    config_init(&c);
    assert_ok(config_override(env, &c));
    assert_string_equal(c.listen_tcp, "127.0.0.1:1");
    assert_int_equal(c.exec_stream_max, 8u << 20);
    CLEANUP(err_freep) err *e = config_override(typo, &c);
    assert_non_null(e);
    assert_non_null(strstr(e->message, "BOTHY_LISTEN_TPC"));
    assert_non_null(strstr(e->message, "did you mean 'tcp'"));
    assert_err(config_override(wrong, &c), ERR_INVALID_REQUEST);
}

static void preset_docker(config *c)
{
    free(c->backend_name);
    c->backend_name = xstrdup("docker");
    c->user_idle_exit = 5000;
}

static void presets_lie_under_file_and_environment(void **state)
{
    char *none[] = {NULL}, *env[] = {"BOTHY_BACKEND_NAME=oci", NULL};
    config c = {0};

    (void)state;
    assert_ok(config_load_over(preset_docker, NULL, false, none, &c));
    assert_string_equal(c.backend_name, "docker");
    assert_int_equal(c.user_idle_exit, 5000);
    assert_string_equal(c.store_sync, "full"); /* what it does not change */
    config_done(&c);
    assert_ok(config_load_over(preset_docker, NULL, false, env, &c));
    assert_string_equal(c.backend_name, "oci");
    config_done(&c);
}

static void what_is_printed_can_be_read(void **state)
{
    CLEANUP(config_done) config c = {0};
    CLEANUP(config_done) config again = {0};
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(buf_done) buf second = {0};

    (void)state;
    parse_ok(
        "listen: {socket: \"/a \\\"b\\\"\"}\nlimits: {cpu: 1.25, memory: 1536m, ttl: 1500ms}\n",
        &c);
    config_print(&c, &text);
    parse_ok(buf_cstr(&text), &again);
    assert_string_equal(again.listen_socket, "/a \"b\"");
    assert_int_equal(again.limits_cpu, 1250);
    assert_int_equal(again.limits_memory, 1536u << 20);
    assert_int_equal(again.limits_ttl, 1500);
    config_print(&again, &second);
    assert_string_equal(buf_cstr(&text), buf_cstr(&second));
    assert_non_null(strstr(buf_cstr(&text), "  memory: 1536m  # default 1g\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold_without_a_file),
        cmocka_unit_test(a_file_may_be_a_link),
        cmocka_unit_test(the_default_limits_are_those_of_core),
        cmocka_unit_test(ceilings_are_the_machine_and_no_default_is_above_one),
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(empty_files_are_fine),
        cmocka_unit_test(mistakes_are_named_with_their_line),
        cmocka_unit_test(what_yaml_can_do_too_much_is_refused),
        cmocka_unit_test(rules_between_keys),
        cmocka_unit_test(registries_have_a_section_of_their_own),
        cmocka_unit_test(the_environment_wins),
        cmocka_unit_test(presets_lie_under_file_and_environment),
        cmocka_unit_test(what_is_printed_can_be_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
