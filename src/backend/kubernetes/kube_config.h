/* The API server's address and our identity there: from a kubeconfig's context, or from the files
 * in every pod. Plain values. File contents are not stored but read at each use, so that a replaced
 * token or certificate takes effect (kube_http.h).
 *
 * Understood: KUBECONFIG's list (the first definition of a name wins), server,
 * certificate-authority and -data, tls-server-name, insecure-skip-tls-verify, proxy-url,
 * client-certificate and client-key and -data, token, tokenFile, as, as-groups, as-uid. Refused,
 * with what to do instead: programs that make credentials, passwords, auth providers. Aliases,
 * anchors and tags of YAML are refused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json.h"

#define KUBE_CONFIG_MAX (1024 * 1024) /* bytes per file */
#define KUBE_FILES_MAX  16            /* files in KUBECONFIG */
#define KUBE_TOKEN_MAX  (64 * 1024)

typedef struct kube_config {
    char *server;             /* "https://host:port/path", no slash at its end */
    char *ns;                 /* the context's namespace, or NULL */
    char *ca_file, *ca;       /* a path, or PEM; neither: the machine's own CAs */
    char *cert_file, *cert;   /* of the client */
    char *key_file, *key;     /* wiped */
    char *token, *token_file; /* token is wiped */
    char *tls_name;           /* the name in the server's certificate, if not the address */
    char *proxy;
    char **as; /* header lines: "Impersonate-User: x" */
    bool insecure;
} kube_config;
void kube_config_done(kube_config *c);

/* Parses one file's bytes; relative paths in it are below dir. context NULL: the current one.
 * Errors are ERR_INVALID_REQUEST and name the file. */
err *kube_config_parse(const char *file, const void *p, size_t n, const char *dir,
                       const char *context, kube_config *ret_config) ERR_MUST;
/* Loads files. paths: separated by ':', as in KUBECONFIG; missing files are skipped, but at least
 * one must exist. */
err *kube_config_load(const char *paths, const char *context, kube_config *ret_config) ERR_MUST;
/* Makes the configuration of a pod: KUBERNETES_SERVICE_HOST and _PORT as given, and the service
 * account's directory (NULL: the usual one). */
err *kube_config_in_cluster(const char *host, const char *port, const char *dir,
                            kube_config *ret_config) ERR_MUST;

/* Parses one YAML document to JSON: mappings, sequences, scalars (plain nulls and booleans,
 * otherwise strings). */
err *kube_yaml_parse(const char *file, const void *p, size_t n, json_t **ret_root) ERR_MUST;
