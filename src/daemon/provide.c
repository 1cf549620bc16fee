/* Makes the backend, and keeps the key for the secrets of containers and pods. */
#include "daemon/provide.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/fs.h"
#include "base/home.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/boot.h"
#include "operator/operator_engine.h"

#define KEY_FILE "attach.key"

/* ---- the key of what cannot be reached but through others ---- */

static err *make_key(int state_dir, uint8_t ret_key[BACKEND_KEY_LEN])
{
    random_bytes(ret_key, BACKEND_KEY_LEN);
    return fs_write(state_dir, KEY_FILE, ret_key, BACKEND_KEY_LEN, 0600, true);
}

/* Loads the key, or makes it. Live sandboxes have secrets derived from it: if the file is lost,
 * they cannot be reached. */
static err *load_key(int state_dir, uint8_t ret_key[BACKEND_KEY_LEN])
{
    CLEANUP(buf_done) buf text = {0};
    err *e = fs_read(state_dir, KEY_FILE, BACKEND_KEY_LEN, &text);

    if (e && e->errnum == ENOENT) {
        err_free(e);
        return make_key(state_dir, ret_key);
    }
    if (!e && text.len != BACKEND_KEY_LEN)
        e = err_new(ERR_INTERNAL, "the key of sandboxes has %zu bytes, not %d", text.len,
                    BACKEND_KEY_LEN);
    TRY(err_remedy(e,
                   "Put the file '%s' of the state directory back, or remove it: a new one is "
                   "made, and sandboxes that live are lost.",
                   KEY_FILE));
    memcpy(ret_key, text.p, BACKEND_KEY_LEN);
    secret_wipe(text.p, text.cap);
    return NULL;
}

/* Returns the label of our containers. Two users of one engine may both have the cell b000, so it
 * contains a hash of our key. */
static char *label_of(const config *c, const uint8_t key[BACKEND_KEY_LEN])
{
    uint8_t mac[SHA256_LEN];
    char hex[2 * SHA256_LEN + 1];

    hmac_sha256(key, BACKEND_KEY_LEN, "owner", strlen("owner"), mac);
    hex_encode(mac, sizeof mac, hex);
    return str_printf("%s.%.12s", c->node_cell, hex);
}

/* ---- each of them ---- */

static err *provide_oci(const config *c, backend **ret_backend)
{
    const pool_marks marks = {.low = (uint32_t)c->pool_low, .high = (uint32_t)c->pool_high};

    return backend_oci_new(c->warden_socket, marks.high ? &marks : NULL, ret_backend);
}

static err *provide_fake(const config *c, int kit, backend **ret_backend)
{
    TRY(fs_mkdirs(c->backend_fake_dir, 0700));
    return backend_fake_new(&(fake_options){.dir = c->backend_fake_dir,
                                            .node_program = c->backend_fake_program,
                                            .kit = kit < 0 ? NULL : c->files_kit,
                                            .cut_every = (unsigned)c->backend_fake_cut_every,
                                            .repeat_every = (unsigned)c->backend_fake_repeat_every},
                            ret_backend);
}

static const char *or_null(const char *s)
{
    return *s ? s : NULL;
}

static err *provide_docker(const config *c, int state_dir, int kit, backend **ret_backend)
{
    CLEANUP(freep) char *socket = NULL;
    uint8_t key[BACKEND_KEY_LEN];

    TRY(home_engine(c->backend_socket, &socket));
    TRY(load_key(state_dir, key));
    CLEANUP(freep) char *label = label_of(c, key);
    log_info("start", "containers of the engine at %s, labelled %s", socket, label);
    err *e = backend_docker_new(&(docker_options){.socket = socket,
                                                  .cell = label,
                                                  .init = c->backend_init,
                                                  .kit = kit < 0 ? NULL : c->files_kit,
                                                  .key = key,
                                                  .state_dir = state_dir,
                                                  .network = or_null(c->backend_network),
                                                  .warm = (uint32_t)c->backend_warm,
                                                  .max = (uint32_t)c->backend_max},
                                ret_backend);
    secret_wipe(key, sizeof key);
    return e;
}

static err *provide_kubernetes(const config *c, int state_dir, backend **ret_backend)
{
    CLEANUP(freep) char *holder = NULL;
    uint8_t key[BACKEND_KEY_LEN];

    TRY(boot_holder(state_dir, &holder));
    TRY(load_key(state_dir, key));
    err *e = backend_kubernetes_new(
        &(kubernetes_options){.kubeconfig = or_null(c->kubernetes_kubeconfig),
                              .namespace = or_null(c->kubernetes_namespace),
                              .cell = c->node_cell,
                              .key = key,
                              .bothy_image = c->kubernetes_image,
                              .runtime_class = or_null(c->kubernetes_runtime_class),
                              .identity = holder,
                              .warm = (uint32_t)c->backend_warm,
                              .max = (uint32_t)c->backend_max,
                              .baseline = str_eq(c->kubernetes_security, "baseline"),
                              .image_volume = c->kubernetes_image_volume,
                              .unfenced = c->kubernetes_unfenced,
                              .vouched = str_eq(c->kubernetes_policies, "vouched")},
        ret_backend);
    secret_wipe(key, sizeof key);
    return e;
}

err *provide_backend(const config *c, int state_dir, int kit, backend **ret_backend)
{
    if (str_eq(c->backend_name, "fake"))
        return provide_fake(c, kit, ret_backend);
    if (str_eq(c->backend_name, "docker"))
        return provide_docker(c, state_dir, kit, ret_backend);
    if (str_eq(c->backend_name, "kubernetes"))
        return provide_kubernetes(c, state_dir, ret_backend);
    return provide_oci(c, ret_backend);
}

err *provide_operator(const config *c, int state_dir, engine *e, backend *b)
{
    uint8_t key[BACKEND_KEY_LEN];

    if (!str_eq(c->backend_name, "kubernetes") || !c->kubernetes_operator)
        return NULL;
    TRY(load_key(state_dir, key));
    operator_daemon_new(
        &(operator_daemon_options){.engine = e,
                                   .backend = b,
                                   .cell = c->node_cell,
                                   .defaults = config_limits(c),
                                   .key = key,
                                   .vouched = str_eq(c->kubernetes_policies, "vouched")});
    secret_wipe(key, sizeof key);
    return NULL;
}
