/* Compares the kernel's boot id with the one stored in the state directory. */
#include "daemon/boot.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/str.h"

#define FILE_NAME   "boot"
#define HOLDER_NAME "holder"
#define HOLDER_MAX  512

static bool read_id(int dirfd, const char *name, buf *out)
{
    err *e = fs_read(dirfd, name, 256, out);

    err_free(e);
    return !e && out->len;
}

static bool read_now(buf *out)
{
    return read_id(AT_FDCWD, "/proc/sys/kernel/random/boot_id", out);
}

bool boot_is_new(int state)
{
    CLEANUP(buf_done) buf now = {0}, then = {0};

    return read_now(&now) && read_id(state, FILE_NAME, &then) &&
           !str_eq(buf_cstr(&now), buf_cstr(&then));
}

bool boot_is_same(int state)
{
    CLEANUP(buf_done) buf now = {0}, then = {0};

    return read_now(&now) && read_id(state, FILE_NAME, &then) &&
           str_eq(buf_cstr(&now), buf_cstr(&then));
}

void boot_remember(int state)
{
    CLEANUP(buf_done) buf now = {0};

    if (read_now(&now))
        err_drop(fs_write(state, FILE_NAME, now.p, now.len, 0600, true), "boot");
}

/* ---- who works on it ---- */

/* Returns an identity of this directory under this kernel. A copy differs, because its lock does
 * not exclude a bothyd on this one. NULL: unknown. */
static char *place_of(int state)
{
    CLEANUP(buf_done) buf now = {0};
    struct stat st;

    if (!read_now(&now) || fstat(state, &st))
        return NULL;
    return str_printf("%.*s %llu:%llu ", (int)strcspn(buf_cstr(&now), "\n"), now.p,
                      (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
}

static char *new_name(void)
{
    char host[65] = "", random[9];

    if (gethostname(host, sizeof host - 1))
        str_copy(host, sizeof host, "bothyd");
    id_random(random, 8);
    return str_printf("%s_%s", host, random);
}

err *boot_holder(int state, char **ret_name)
{
    CLEANUP(freep) char *place = place_of(state), *name = NULL;
    CLEANUP(buf_done) buf line = {0};

    err_free(fs_read(state, HOLDER_NAME, HOLDER_MAX, &line)); /* a missing file does not match */
    if (place && str_starts(buf_cstr(&line), place)) {
        const char *from = buf_cstr(&line) + strlen(place);
        *ret_name = xstrndup(from, strcspn(from, "\n"));
        return NULL;
    }
    name = new_name();
    if (place) {
        CLEANUP(freep) char *text = str_printf("%s%s\n", place, name);
        TRY(fs_write(state, HOLDER_NAME, text, strlen(text), 0600, true));
    }
    *ret_name = TAKE_PTR(name);
    return NULL;
}
