/* The API server's client (src/backend/kubernetes) against a real server. One program, many cases;
 * each works in a namespace of the program's own. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "backend/kubernetes/kube_exec.h"
#include "backend/kubernetes/kube_http.h"
#include "backend/kubernetes/kube_lease.h"
#include "backend/kubernetes/kube_watch.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

extern const kube_resource CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS;

typedef struct world {
    kube_config config;
    kube *k;
    const char *self; /* this program */
    const char *kubeconfig;
    const char *ns;
    const char *image; /* with sh, seq, cat, sha256sum */
    const char *etcd;  /* its address, or NULL */
    const char *dir;   /* for files */
    bool long_run;
} world;

/* A case says why it failed by one of these, and returns. */
err *fail_at(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))) ERR_MUST;
#define FAIL(...) return fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define MUST(what)             \
    do {                       \
        if (!(what))           \
            FAIL("%s", #what); \
    } while (0)
/* The error must be there and have this kind; it is freed. */
err *expect_kind(err *e, const char *kind) ERR_MUST;
err *skip(const char *why) ERR_MUST;

char *in_ns(const world *w, const kube_resource *r, const char *name);
err *make_map(world *w, const char *name, int value, json_t **ret_object) ERR_MUST;
/* A pod of the image that waits; returns when it runs. */
err *make_pod(world *w, const char *name, json_t **ret_object) ERR_MUST;
err *wait_gone(world *w, const char *path, const char *uid) ERR_MUST;
void nap_ms(unsigned ms);

/* ---- a proxy that misbehaves ---- raw TCP to the server; address() is what to connect to */
typedef struct proxy proxy;
proxy *proxy_new(const char *server);
int proxy_port(const proxy *p);
/* Every connection is cut after this many bytes of answers (0: never), and at once if it is open.
 */
void proxy_cut_after(proxy *p, size_t bytes);
void proxy_cut_now(proxy *p);
/* Who has sent more than this (0: as much as they like) is not answered: the connection is cut when
 * the answer comes. */
void proxy_lose_after(proxy *p, size_t bytes);
void proxy_refuse(proxy *p, bool refuses); /* new ones and those that are open */
unsigned proxy_connections(proxy *p);
void proxy_free(proxy *p);
/* A client through it: certificates are checked for the server's own address. */
err *proxy_client(const world *w, const proxy *p, kube **ret_kube) ERR_MUST;

/* ---- cases ---- */
err *case_watch_equals_server(world *w);
err *case_watch_survives_cuts(world *w);
err *case_list_expired(world *w);
err *case_watch_expired(world *w);
err *case_watch_list(world *w);
err *case_patches(world *w);
err *case_name_reuse(world *w);
err *case_refusals(world *w);
err *case_token_rotation(world *w);
err *case_ca_rotation(world *w);
err *case_lease(world *w);
err *case_lease_stopped(world *w);
err *case_exec_basic(world *w);
err *case_exec_bytes_v5(world *w);
err *case_exec_bytes_v4(world *w);
err *case_exec_cut(world *w);
/* The child of case_lease_stopped. */
int lease_writer(world *w, const char *identity);
