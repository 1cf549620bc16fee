/* Credentials that change, and the lease: k8s-design's tests 4 and 5. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/spawn.h"
#include "tests/k8s/client/client.h"

static const kube_resource BINDINGS = {"rbac.authorization.k8s.io", "v1", "rolebindings"};

/* ---- tokens ---- */

static err *make_account(world *w)
{
    CLEANUP(freep) char *accounts = in_ns(w, &SERVICE_ACCOUNTS, NULL);
    CLEANUP(freep) char *bindings = in_ns(w, &BINDINGS, NULL);
    CLEANUP(json_decrefp)
    json_t *account = json_pack("{s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind", "ServiceAccount",
                                "metadata", "name", "rotated");
    CLEANUP(json_decrefp)
    json_t *binding = json_pack(
        "{s:s, s:s, s:{s:s}, s:{s:s, s:s, s:s}, s:[{s:s, s:s, s:s}]}", "apiVersion",
        "rbac.authorization.k8s.io/v1", "kind", "RoleBinding", "metadata", "name", "rotated",
        "roleRef", "apiGroup", "rbac.authorization.k8s.io", "kind", "ClusterRole", "name", "view",
        "subjects", "kind", "ServiceAccount", "name", "rotated", "namespace", w->ns);

    TRY(kube_create(w->k, accounts, account, NULL));
    return kube_create(w->k, bindings, binding, NULL);
}

static err *new_token(world *w, char **ret_token)
{
    CLEANUP(freep) char *path = kube_path(&SERVICE_ACCOUNTS, w->ns, "rotated", "token");
    CLEANUP(json_decrefp)
    json_t *ask = json_pack("{s:s, s:s, s:{s:i}}", "apiVersion", "authentication.k8s.io/v1", "kind",
                            "TokenRequest", "spec", "expirationSeconds", 600);
    CLEANUP(json_decrefp) json_t *answer = NULL;

    TRY(kube_create(w->k, path, ask, &answer));
    *ret_token = xstrdup(str_or(json_str(json_object_get(answer, "status"), "token"), ""));
    return NULL;
}

static err *put_file(const char *path, const char *text)
{
    CLEANUP(freep) char *new = str_printf("%s.new", path);
    CLEANUP(closep) int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || fs_write_all(fd, text, strlen(text)) || rename(new, path))
        FAIL("cannot write %s", path);
    return NULL;
}

static err *rotate(world *w, kube *k, const char *file, const char *maps)
{
    CLEANUP(freep) char *first = NULL;
    CLEANUP(freep) char *second = NULL;

    TRY(new_token(w, &first));
    nap_ms(1100); /* tokens of one second are alike */
    TRY(new_token(w, &second));
    MUST(!str_eq(first, second));
    TRY(put_file(file, "no-such-token"));
    TRY(expect_kind(kube_get(k, maps, NULL), "Unauthorized"));
    TRY(put_file(file, first));
    TRY(kube_get(k, maps, NULL));
    for (int i = 0; i < 60; i++) { /* under load it is replaced, and never refused */
        if (i % 10 == 5)
            TRY(put_file(file, i % 20 == 5 ? second : first));
        TRY(kube_get(k, maps, NULL));
    }
    return NULL;
}

err *case_token_rotation(world *w)
{
    kube_config c = w->config; /* borrowed */
    CLEANUP(kube_freep) kube *k = NULL;
    CLEANUP(freep) char *file = str_printf("%s/token.%d", w->dir, (int)getpid());
    CLEANUP(freep) char *maps = in_ns(w, &CONFIG_MAPS, NULL);

    TRY(make_account(w));
    c.cert = c.cert_file = c.key = c.key_file = c.token = NULL;
    c.token_file = file;
    TRY(kube_new(&c, &k));
    err *e = rotate(w, k, file, maps);
    unlink(file);
    return e;
}

/* A file with another authority is refused; the right one counts for the next connection. */
err *case_ca_rotation(world *w)
{
    kube_config c = w->config; /* borrowed */
    CLEANUP(kube_freep) kube *k = NULL;
    CLEANUP(freep) char *file = str_printf("%s/ca.%d", w->dir, (int)getpid());
    CLEANUP(freep) char *key = str_printf("%s/ca.%d.key", w->dir, (int)getpid());
    CLEANUP(freep) char *maps = in_ns(w, &CONFIG_MAPS, NULL);
    CLEANUP(buf_done) buf right = {0};

    if (!w->config.ca_file)
        return skip("the kubeconfig's authority is not in a file");
    TRY(fs_read(AT_FDCWD, w->config.ca_file, 1 << 20, &right));
    char *argv[] = {
        "openssl", "req",   "-x509",     "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes",  "-subj", "/CN=other", "-keyout", key,  "-out",     file,
        NULL};
    TRY(spawn_run(argv, 30000, NULL));
    c.ca_file = file;
    err *e = kube_new(&c, &k);
    err *refused = e ? NULL : kube_get(k, maps, NULL);
    if (!e)
        e = put_file(file, buf_cstr(&right));
    if (!e)
        e = kube_get(k, maps, NULL);
    unlink(file);
    unlink(key);
    CLEANUP(err_freep) err *mine = refused;
    TRY(e);
    MUST(mine && mine->code == ERR_UNAVAILABLE && mine->remedy);
    MUST(strstr(mine->remedy, "certificate"));
    return NULL;
}

/* ---- the lease ---- */

static kube_lease *candidate(world *w, kube *k, const char *lease, const char *identity)
{
    return kube_lease_new(k, &(kube_lease_options){.ns = w->ns,
                                                   .name = lease,
                                                   .identity = identity,
                                                   .duration_ms = 3000,
                                                   .renew_ms = 2000,
                                                   .retry_ms = 300});
}

static bool held_within(kube_lease *l, unsigned ms)
{
    uint64_t until = now_mono_ns() + ms * NS_PER_MS;

    while (now_mono_ns() < until) {
        if (kube_lease_held(l, NULL))
            return true;
        nap_ms(10);
    }
    return false;
}

/* ret_late: a could not renew in time, and lost it as it has to. */
static err *hand_over(world *w, const char *name, bool *ret_late)
{
    kube_lease *a = candidate(w, w->k, name, "a");
    uint64_t first = 0, second = 0;
    bool got = held_within(a, 5000);
    kube_lease *b = candidate(w, w->k, name, "b");
    bool both = held_within(b, 4000); /* longer than a's duration: a renews */
    bool still = kube_lease_held(a, &first);
    CLEANUP(freep) char *holder = kube_lease_holder(b);

    kube_lease_free(a); /* gives it back */
    uint64_t began = now_mono_ns();
    bool next = held_within(b, 5000);
    unsigned ms = (unsigned)((now_mono_ns() - began) / NS_PER_MS);
    kube_lease_held(b, &second);
    kube_lease_free(b);
    *ret_late = !still;
    if (*ret_late)
        return NULL;
    MUST(got && !both && next);
    MUST(str_eq(holder, "a"));
    MUST(second == first + 1);
    printf("           given back, taken after %u ms\n", ms);
    return NULL;
}

/* Once with a server that answers in time. */
err *case_lease(world *w)
{
    static const char *const NAMES[] = {"one", "one-again", "one-more"};
    bool late = true;

    for (size_t i = 0; i < ARRAY_LEN(NAMES) && late; i++)
        TRY(hand_over(w, NAMES[i], &late));
    MUST(!late);
    return NULL;
}

/* One write, of what is there now: who is stopped between the question whether it holds the lease
 * and its write comes too late, and finds that another has written. */
static err *write_epoch(world *w, kube_lease *l, const char *identity, unsigned turn)
{
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, "fenced");
    CLEANUP(freep) char *turns = str_printf("%u", turn);
    CLEANUP(json_decrefp) json_t *there = NULL;
    uint64_t epoch = 0;

    TRY(kube_get(w->k, path, &there));
    const char *version = json_str(json_object_get(there, "metadata"), "resourceVersion");
    MUST(version);
    if (!kube_lease_held(l, &epoch))
        return NULL;
    CLEANUP(freep) char *text = str_printf("%llu", (unsigned long long)epoch);
    CLEANUP(json_decrefp)
    json_t *patch = json_pack("{s:{s:s}, s:{s:s, s:s, s:s}}", "metadata", "resourceVersion",
                              version, "data", "value", text, "who", identity, "turn", turns);
    return kube_patch(w->k, path, KUBE_PATCH_MERGE, patch, NULL);
}

/* Writes its epoch as long as it holds the lease, for the parent to look at. */
int lease_writer(world *w, const char *identity)
{
    kube_lease *l = candidate(w, w->k, "two", identity);

    for (unsigned n = 1;; n++) {
        if (kube_lease_held(l, NULL))
            err_free(write_epoch(w, l, identity, n));
        else
            nap_ms(5);
    }
}

/* Epochs as they were written. */
typedef struct history {
    uint64_t last;
    unsigned writes, backwards, changes;
    char who[16];
} history;

static void on_write(void *arg, const char *uid, const json_t *object)
{
    history *h = arg;
    const json_t *data = json_object_get(object, "data");
    const char *who = json_str(data, "who");
    uint64_t epoch = 0;

    (void)uid;
    if (!who || !str_to_u64(str_or(json_str(data, "value"), ""), UINT64_MAX, &epoch))
        return;
    h->writes++;
    h->backwards += epoch < h->last;
    h->changes += *h->who && strcmp(h->who, who) != 0;
    h->last = epoch;
    str_copy(h->who, sizeof h->who, who);
}

static void on_gone(void *arg, const char *uid, const json_t *object)
{
    (void)arg, (void)uid, (void)object;
}

static const kube_watch_events HISTORY = {on_write, on_gone, NULL};

static err *start_writer(world *w, char *identity, pid_t *ret_pid)
{
    char *self = realpath(w->self, NULL);
    char *argv[] = {self,
                    "--kubeconfig",
                    (char *)w->kubeconfig,
                    "--namespace",
                    (char *)w->ns,
                    "--writer",
                    identity,
                    NULL};
    err *e = spawn_start(&(spawn_spec){.argv = argv, .fds = (int[]){-1, 1, 2}, .nfds = 3}, ret_pid);

    free(self);
    return e;
}

static err *lease_holder(world *w, char *ret_who, size_t n)
{
    CLEANUP(freep) char *path = in_ns(w, &KUBE_LEASES, "two");
    CLEANUP(json_decrefp) json_t *o = NULL;

    *ret_who = 0;
    err *e = kube_get(w->k, path, &o);
    if (e && e->code == ERR_NOT_FOUND) {
        err_free(e);
        return NULL;
    }
    TRY(e);
    str_copy(ret_who, n, str_or(json_str(json_object_get(o, "spec"), "holderIdentity"), ""));
    return NULL;
}

static err *wait_holder(world *w, const char * not, char *ret_who, size_t n, unsigned ms)
{
    uint64_t until = now_mono_ns() + ms * NS_PER_MS;

    while (now_mono_ns() < until) {
        TRY(lease_holder(w, ret_who, n));
        if (*ret_who && !str_eq(ret_who, not ))
            return NULL;
        nap_ms(50);
    }
    FAIL("nobody took the lease within %u ms", ms);
}

static err *stop_and_go(world *w, const pid_t pids[2], unsigned rounds)
{
    char who[16], next[16];

    for (unsigned i = 0; i < rounds; i++) {
        TRY(wait_holder(w, NULL, who, sizeof who, 20000));
        nap_ms(500);
        pid_t pid = pids[str_eq(who, "b")];
        kill(pid, SIGSTOP);
        err *e = wait_holder(w, who, next, sizeof next, 20000);
        nap_ms(500);
        kill(pid, SIGCONT);
        nap_ms(1500);
        TRY(e);
    }
    return NULL;
}

/* The holder is stopped, another takes over, the first goes on: no write of an older epoch. */
err *case_lease_stopped(world *w)
{
    pid_t pids[2] = {0};
    history h = {0};
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, NULL);
    int status;

    TRY(make_map(w, "fenced", 0, NULL));
    kube_watcher *watcher = kube_watcher_new(
        w->k, &(kube_watch_options){
                  .path = path, .fields = "metadata.name=fenced", .events = &HISTORY, .arg = &h});
    err *e = start_writer(w, "a", &pids[0]);
    if (!e)
        e = start_writer(w, "b", &pids[1]);
    if (!e)
        e = stop_and_go(w, pids, w->long_run ? 10 : 3);
    for (int i = 0; i < 2; i++) {
        if (pids[i] > 0) {
            kill(pids[i], SIGKILL);
            waitpid(pids[i], &status, 0);
        }
    }
    nap_ms(500);
    kube_watcher_free(watcher);
    TRY(e);
    printf("           %u writes, %u changes of hand, %u backwards\n", h.writes, h.changes,
           h.backwards);
    MUST(h.writes > 20 && h.changes >= 2);
    MUST(!h.backwards);
    return NULL;
}
