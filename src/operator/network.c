/* Makes a NetworkPolicy from a template's network, and evaluates the self-test of policies. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "operator/manifest.h"
#include "operator/text.h"

/* Ranges that are not public, among them carrier-grade NAT and link-local addresses,
 * where clouds serve their metadata. */
static const char *const PRIVATE_V4[] = {
    "0.0.0.0/8",      "10.0.0.0/8",    "100.64.0.0/10", "127.0.0.0/8",
    "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",  "192.168.0.0/16",
    "198.18.0.0/15",  "224.0.0.0/4",   "240.0.0.0/4",
};
/* The same for IPv6, with ranges that embed such IPv4 addresses. ::/80 includes the IPv4-mapped
 * ones: API servers refuse their own prefix, ::ffff:0:0/96. */
static const char *const PRIVATE_V6[] = {
    "::/80", "64:ff9b::/96", "2002::/16", "fc00::/7", "fe80::/10", "ff00::/8",
};

static void network_name(const char hash[HASH_TEXT_LEN + 1], char ret_name[KUBE_LABEL_MAX + 1])
{
    snprintf(ret_name, KUBE_LABEL_MAX + 1, "bothy-%.*s", HASH_TEXT_LEN, hash);
}

static json_t *all_but(const char *all, const char *const *but, size_t n)
{
    json_t *except = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(except, json_string(but[i]));
    return json_pack("{s:{s:s, s:o}}", "ipBlock", "cidr", all, "except", except);
}

static json_t *public_rule(void)
{
    return json_pack("{s:[o, o]}", "to", all_but("0.0.0.0/0", PRIVATE_V4, ARRAY_LEN(PRIVATE_V4)),
                     all_but("::/0", PRIVATE_V6, ARRAY_LEN(PRIVATE_V6)));
}

static json_t *list_rule(char *const *cidrs)
{
    json_t *to = json_array();

    for (size_t i = 0; cidrs[i]; i++)
        json_array_append_new(to, json_pack("{s:{s:s}}", "ipBlock", "cidr", cidrs[i]));
    return json_pack("{s:o}", "to", to);
}

static json_t *dns_rule(void)
{
    return json_pack("{s:[{s:{s:{s:s}}, s:{s:{s:s}}}], s:[{s:s, s:i}, {s:s, s:i}]}", "to",
                     "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name",
                     "kube-system", "podSelector", "matchLabels", "k8s-app", "kube-dns", "ports",
                     "protocol", "UDP", "port", 53, "protocol", "TCP", "port", 53);
}

static json_t *egress_rules(const network_spec *n)
{
    json_t *rules = json_array();

    if (n->egress == EGRESS_ALL)
        json_array_append_new(rules, json_object());
    if (n->egress == EGRESS_PUBLIC)
        json_array_append_new(rules, public_rule());
    /* A rule without a destination would allow all of them. */
    if (n->egress == EGRESS_LIST && n->cidrs && *n->cidrs)
        json_array_append_new(rules, list_rule(n->cidrs));
    if (n->dns && (n->egress == EGRESS_PUBLIC || n->egress == EGRESS_LIST))
        json_array_append_new(rules, dns_rule());
    return rules;
}

json_t *manifest_network(const crd_template *t, const manifest_options *o, const char *namespace,
                         const char hash[HASH_TEXT_LEN + 1])
{
    char name[KUBE_LABEL_MAX + 1];

    network_name(hash, name);
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s, s:s, s:s}}, s:{s:{s:{s:s, s:s}}, s:[s, s], "
                     "s:[], s:o}}",
                     "apiVersion", "networking.k8s.io/v1", "kind", "NetworkPolicy", "metadata",
                     "name", name, "namespace", namespace, "labels", LABEL_MANAGED, "1", LABEL_CELL,
                     o->cell, LABEL_TEMPLATE_HASH, hash, "spec", "podSelector", "matchLabels",
                     LABEL_CELL, o->cell, LABEL_TEMPLATE_HASH, hash, "policyTypes", "Ingress",
                     "Egress", "ingress", "egress", egress_rules(&t->spec.network));
}

static void no_network_name(const char *cell, char ret_name[KUBE_NAME_MAX + 1])
{
    snprintf(ret_name, KUBE_NAME_MAX + 1, "bothy-none-%s", cell);
}

json_t *manifest_no_network(const manifest_options *o, const char *namespace)
{
    char name[KUBE_NAME_MAX + 1];

    no_network_name(o->cell, name);
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s, s:s}}, s:{s:{s:{s:s, s:s}}, s:[s, s], s:[], "
                     "s:[]}}",
                     "apiVersion", "networking.k8s.io/v1", "kind", "NetworkPolicy", "metadata",
                     "name", name, "namespace", namespace, "labels", LABEL_MANAGED, "1", LABEL_CELL,
                     o->cell, "spec", "podSelector", "matchLabels", LABEL_CELL, o->cell,
                     LABEL_NETWORK, "none", "policyTypes", "Ingress", "Egress", "ingress",
                     "egress");
}

/* Compares two lists. The API server omits empty ones. */
static bool is_same_list(const json_t *a, const json_t *b)
{
    return (!json_array_size(a) && !json_array_size(b)) || json_equal(a, b);
}

static const json_t *network_labels(const json_t *policy)
{
    return json_object_get(json_object_get(policy, "metadata"), "labels");
}

/* Compares the operator's labels, by which its sweep finds the policy; there may be others. */
static bool has_labels(const json_t *policy, const json_t *wanted)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)network_labels(wanted), name, v)
    {
        if (!json_equal(json_object_get(network_labels(policy), name), v))
            return false;
    }
    return true;
}

/* Compares labels and all rules: a user may have added or removed some. */
bool network_is(const json_t *policy, const json_t *wanted)
{
    const json_t *is = json_object_get(policy, "spec"), *want = json_object_get(wanted, "spec");

    return has_labels(policy, wanted) &&
           json_equal(json_object_get(is, "podSelector"), json_object_get(want, "podSelector")) &&
           json_equal(json_object_get(is, "policyTypes"), json_object_get(want, "policyTypes")) &&
           is_same_list(json_object_get(is, "ingress"), json_object_get(want, "ingress")) &&
           is_same_list(json_object_get(is, "egress"), json_object_get(want, "egress"));
}

/* ---- does it hold? ---- */

enum policy_state policy_of_dials(enum dial_outcome forbidden, enum dial_outcome free)
{
    /* If even the free pod does not reach the target, the test proves nothing. */
    if (free != DIAL_REACHED || forbidden == DIAL_NOT_TRIED)
        return POLICY_UNKNOWN;
    return forbidden == DIAL_REACHED ? POLICY_NOT_ENFORCED : POLICY_HOLDS;
}

bool policy_allows(const network_spec *n, enum policy_state s)
{
    return n->egress == EGRESS_ALL || s != POLICY_NOT_ENFORCED;
}
