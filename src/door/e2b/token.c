/* Access tokens, signed URLs and the node's secret. A sandbox's access token is derived from its id
 * and the secret, and stored nowhere:
 *
 *     <id><the first 40 hexadecimal digits of HMAC-SHA256(secret, "envd:" id)>
 *
 * The token for its ports alone has "traffic:" instead. After a key of the owner was removed, ":"
 * and the owner's epoch (engine_key_epoch) follow the id: earlier tokens become invalid. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "base/fs.h"
#include "base/log.h"
#include "door/e2b/internal.h"

#define SECRET_FILE   "secret"
#define SIGNATURE_LEN (strlen("v1_") + 43)

static err *make_secret(int state_dir, uint8_t ret_secret[E2B_SECRET_LEN])
{
    random_bytes(ret_secret, E2B_SECRET_LEN);
    TRY(fs_write(state_dir, SECRET_FILE, ret_secret, E2B_SECRET_LEN, 0600, true));
    log_info("start", "a secret for access tokens was made");
    return NULL;
}

err *e2b_secret_load(int state_dir, uint8_t ret_secret[E2B_SECRET_LEN])
{
    CLEANUP(buf_done) buf text = {0};
    err *e = fs_read(state_dir, SECRET_FILE, E2B_SECRET_LEN, &text);

    if (e && e->errnum == ENOENT) {
        err_free(e);
        return make_secret(state_dir, ret_secret);
    }
    if (!e && text.len != E2B_SECRET_LEN)
        e = err_new(ERR_INTERNAL, "the node's secret has %zu bytes, not %d", text.len,
                    E2B_SECRET_LEN);
    TRY(err_remedy(e, "Remove the file 'secret' of the state directory: a new one is made, and "
                      "access tokens of sandboxes that live have to be asked for again."));
    memcpy(ret_secret, text.p, E2B_SECRET_LEN);
    secret_wipe(text.p, text.cap);
    return NULL;
}

void e2b_mac(const e2b *d, const char *text, uint64_t epoch, char ret_hex[2 * SHA256_LEN + 1])
{
    CLEANUP(freep) char *full = epoch ? str_printf("%s:%lu", text, epoch) : xstrdup(text);
    uint8_t mac[SHA256_LEN];

    hmac_sha256(d->secret, sizeof d->secret, full, strlen(full), mac);
    hex_encode(mac, sizeof mac, ret_hex);
}

void e2b_token(const e2b *d, const char *id, uint64_t epoch, enum e2b_purpose purpose,
               char ret_token[E2B_TOKEN_LEN + 1])
{
    char text[16 + SANDBOX_ID_LEN], hex[2 * SHA256_LEN + 1];

    snprintf(text, sizeof text, "%s:%s", purpose == E2B_FOR_ENVD ? "envd" : "traffic", id);
    e2b_mac(d, text, epoch, hex);
    snprintf(ret_token, E2B_TOKEN_LEN + 1, "%s%.40s", id, hex);
}

bool e2b_token_is(const e2b *d, const char *id, uint64_t epoch, enum e2b_purpose purpose,
                  const char *token)
{
    char right[E2B_TOKEN_LEN + 1];

    e2b_token(d, id, epoch, purpose, right);
    return strlen(token) == E2B_TOKEN_LEN && bytes_equal_ct(right, token, E2B_TOKEN_LEN);
}

/* ---- signed URLs ---- */

bool e2b_signature_formed(const char *signature)
{
    return str_starts(signature, "v1_") && strlen(signature) == SIGNATURE_LEN;
}

bool e2b_signature_is(const e2b_signed *s, const char *token)
{
    CLEANUP(buf_done) buf text = {0};
    uint8_t digest[SHA256_LEN];

    buf_printf(&text, "%s:%s:%s:%s", s->path, s->operation, s->user, token);
    if (s->expiry)
        buf_printf(&text, ":%s", s->expiry);
    sha256(text.p, text.len, digest);
    CLEANUP(freep) char *base64 = base64_encode(digest, sizeof digest);
    base64[strcspn(base64, "=")] = 0;
    CLEANUP(freep) char *right = str_printf("v1_%s", base64);
    return strlen(right) == strlen(s->signature) &&
           bytes_equal_ct(right, s->signature, strlen(right));
}

bool e2b_signature_expired(const e2b_signed *s, uint64_t now_s)
{
    uint64_t until;

    return s->expiry && (!str_to_u64(s->expiry, UINT64_MAX, &until) || until < now_s);
}
