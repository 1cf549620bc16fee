/* A file of logins, as a crash or a hand left it: what is read as sound gives one well-formed file
 * for skopeo, and lists only what a login may be. */
#include "base/json.h"

#include "../../src/image/login.c" /* its file's reader */
#include "fuzz.h"

static void check_list(const buf *text)
{
    login *list = NULL;
    size_t n = 0;

    add_logins(text, false, &list, &n);
    for (size_t i = 0; i < n; i++) {
        MUST(registry_host_ok(list[i].host));
        MUST(ascii_visible(list[i].username) && strlen(list[i].username) <= LOGIN_USERNAME_MAX);
        login_done(&list[i]);
    }
    free(list);
}

static void check_auth(const buf *text)
{
    buf none = {0};
    line l = {0};

    while (next_line(text, &l)) {
        CLEANUP(freep) char *host = xstrndup(l.host, l.nhost);
        CLEANUP(buf_done) buf out = {0};
        CLEANUP(buf_done) buf whole = {0};
        CLEANUP(json_decrefp) json_t *j = NULL;
        add_auth(&out, text, &none, host);
        MUST(out.len);
        buf_printf(&whole, "{\"auths\":{%s}}", buf_cstr(&out));
        MUST(!json_parse(whole.p, whole.len, &j));
        MUST(json_object_size(json_object_get(j, "auths")) == 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    buf text = {0};

    if (size)
        buf_append(&text, data, size);
    err *e = check_file("fuzz", &text);
    if (!e) {
        check_list(&text);
        check_auth(&text);
    }
    err_free(e);
    buf_done(&text);
    return 0;
}
