#include "tests/k8s/client/client.h"

#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/log.h"

static const struct {
    const char *name;
    err *(*run)(world *w);
} CASES[] = {
    {"watch_equals_server", case_watch_equals_server},
    {"watch_survives_cuts", case_watch_survives_cuts},
    {"list_expired", case_list_expired},
    {"watch_expired", case_watch_expired},
    {"watch_list", case_watch_list},
    {"patches", case_patches},
    {"name_reuse", case_name_reuse},
    {"refusals", case_refusals},
    {"token_rotation", case_token_rotation},
    {"ca_rotation", case_ca_rotation},
    {"lease", case_lease},
    {"lease_stopped", case_lease_stopped},
    {"exec_basic", case_exec_basic},
    {"exec_bytes_v5", case_exec_bytes_v5},
    {"exec_bytes_v4", case_exec_bytes_v4},
    {"exec_cut", case_exec_cut},
};

/* ---- the program ---- */

static err *make_namespace(world *w)
{
    CLEANUP(freep) char *list = kube_path(&NAMESPACES, NULL, NULL, NULL);
    CLEANUP(json_decrefp)
    json_t *o = json_pack("{s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind", "Namespace",
                          "metadata", "name", w->ns);

    TRY(kube_create(w->k, list, o, NULL));
    /* Pods need the default service account, which comes a moment later. */
    CLEANUP(freep) char *account = in_ns(w, &SERVICE_ACCOUNTS, "default");
    for (int i = 0; i < 200; i++) {
        err *e = kube_get(w->k, account, NULL);
        if (!e)
            return NULL;
        err_free(e);
        nap_ms(100);
    }
    FAIL("the namespace %s has no service account after 20 s", w->ns);
}

static void drop_namespace(world *w)
{
    CLEANUP(freep) char *path = kube_path(&NAMESPACES, NULL, w->ns, NULL);

    err_drop(kube_delete(w->k, path, NULL, -1, NULL), "the namespace stays");
}

static int report(const char *name, err *said, uint64_t began)
{
    CLEANUP(err_freep) err *e = said;
    unsigned ms = (unsigned)((now_mono_ns() - began) / NS_PER_MS);

    if (!e) {
        printf("  ok       %s (%u ms)\n", name, ms);
        return 0;
    }
    bool skipped = kube_is(e, "skip");
    printf("  %s %s: %s%s%s\n", skipped ? "skipped " : "FAILED  ", name, e->message,
           e->cause ? ": " : "", str_or(e->cause, ""));
    return skipped ? 2 : 1;
}

static bool chosen(const char *name, char **names)
{
    for (; *names; names++)
        if (strstr(name, *names))
            return true;
    return false;
}

static int run_cases(world *w, char **names)
{
    unsigned counts[3] = {0};
    err *e = make_namespace(w);

    if (e)
        return report("namespace", e, now_mono_ns());
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        uint64_t began = now_mono_ns();
        if (*names && !chosen(CASES[i].name, names))
            continue;
        counts[report(CASES[i].name, CASES[i].run(w), began)]++;
        fflush(stdout);
    }
    drop_namespace(w);
    printf("%u passed, %u failed, %u skipped\n", counts[0], counts[1], counts[2]);
    return counts[1] ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"kubeconfig", 1, NULL, 'k'}, {"namespace", 1, NULL, 'n'},
        {"image", 1, NULL, 'i'},      {"etcd", 1, NULL, 'e'},
        {"dir", 1, NULL, 'd'},        {"writer", 1, NULL, 'w'},
        {"long", 0, NULL, 'l'},       {0}};
    char random[7], ns[32];
    world w = {.self = "/proc/self/exe", .image = "localhost/busybox:a", .dir = "/tmp"};
    const char *writer = NULL;

    signal(SIGPIPE, SIG_IGN);
    log_init("kube-client", LOG_ERROR);
    id_random(random, 6);
    snprintf(ns, sizeof ns, "kube-test-%s", random);
    w.ns = ns;
    for (int c; (c = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        switch (c) {
        case 'k':
            w.kubeconfig = optarg;
            break;
        case 'n':
            w.ns = optarg;
            break;
        case 'i':
            w.image = optarg;
            break;
        case 'e':
            w.etcd = optarg;
            break;
        case 'd':
            w.dir = optarg;
            break;
        case 'w':
            writer = optarg;
            break;
        case 'l':
            w.long_run = true;
            break;
        default:
            return 2;
        }
    }
    if (!w.kubeconfig) {
        fputs(
            "usage: kube-client --kubeconfig FILE [--etcd URL] [--image NAME] [--dir DIR] [--long] "
            "[CASE...]\n",
            stderr);
        return 2;
    }
    err *e = kube_config_load(w.kubeconfig, NULL, &w.config);
    if (!e)
        e = kube_new(&w.config, &w.k);
    if (e)
        return report("kubeconfig", e, now_mono_ns());
    int status = writer ? lease_writer(&w, writer) : run_cases(&w, argv + optind);
    kube_free(w.k);
    kube_config_done(&w.config);
    return status;
}
