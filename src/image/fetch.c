/* One pull: skopeo into staging, digests checked, layers handed to the backend. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/spawn.h"
#include "base/str.h"
#include "image/images.h"

#define OUTPUT_MAX (16u << 10)
#define STOP_MS    1

/* ---- skopeo ---- */

/* Registries take a digest or a tag, not both; the digest is the stronger. */
static char *source_of(const char *reference)
{
    if (image_is_local_source(reference))
        return xstrdup(reference);
    const char *at = strchr(reference, '@'),
               *colon = at ? memrchr(reference, ':', (size_t)(at - reference)) : NULL;
    if (colon && !memchr(colon, '/', (size_t)(at - colon)))
        return str_printf("docker://%.*s%s", (int)(colon - reference), reference, at);
    return str_printf("docker://%s", reference);
}

/* Reads until the end, the deadline or the stop; false when it was one of the latter two. */
static bool read_to_end(int fd, int stop_fd, uint64_t until, buf *out)
{
    for (;;) {
        struct pollfd p[] = {{fd, POLLIN, 0}, {stop_fd, POLLIN, 0}};
        uint64_t now = now_mono_ns();
        char block[4096];
        if (now >= until)
            return false;
        if (poll(p, 2, (int)((until - now) / NS_PER_MS + 1)) < 0 && errno != EINTR)
            return false;
        if (p[1].revents)
            return false;
        if (!p[0].revents)
            continue;
        ssize_t n = read(fd, block, sizeof block);
        if (n == 0 || (n < 0 && errno != EINTR))
            return true;
        if (n > 0 && out->len + (size_t)n <= OUTPUT_MAX)
            buf_append(out, block, (size_t)n);
    }
}

/* skopeo logs 'time="..." level=fatal msg="..."'; the message is what people want. */
static char *reason_of(buf *output)
{
    const char *text = buf_cstr(output), *last = strstr(text, "level=fatal");
    const char *msg = last ? strstr(last, "msg=\"") : NULL;
    buf out = {0};

    if (!msg) {
        while (output->len && output->p[output->len - 1] == '\n')
            output->len--;
        text = buf_cstr(output);
        const char *line = strrchr(text, '\n');
        return xstrdup(line ? line + 1 : text);
    }
    for (msg += strlen("msg=\""); *msg && *msg != '"' && *msg != '\n'; msg++) {
        if (*msg == '\\' && msg[1])
            msg++;
        buf_char(&out, *msg);
    }
    return buf_take(&out);
}

static err *failed(const char *reference, buf *output)
{
    CLEANUP(freep) char *why = reason_of(output);
    bool other = strstr(why, "no image found in") != NULL;

    return err_because(err_new(other ? ERR_IMAGE_UNSUPPORTED : ERR_IMAGE_PULL_FAILED,
                               other ? "image '%.200s' is not for this machine"
                                     : "image '%.200s' cannot be fetched",
                               reference),
                       "%.400s", why);
}

static err *start_skopeo(const image_store *s, const char *reference, const char *dir, int out,
                         pid_t *ret_pid)
{
    CLEANUP(freep) char *from = source_of(reference);
    CLEANUP(freep) char *to = str_printf("oci:%s/oci:image", dir);
    CLEANUP(freep) char *tmp = str_printf("TMPDIR=%s/tmp", dir);
    CLEANUP(freep) char *home = str_printf("HOME=%s/tmp", dir);
    char *const argv[] = {(char *)s->o.skopeo,
                          "--insecure-policy",
                          "copy",
                          "--quiet",
                          "--dest-oci-accept-uncompressed-layers",
                          from,
                          to,
                          NULL};
    char *const envp[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", tmp, home, NULL};
    const int fds[] = {-1, out, out};

    return spawn_start(
        &(spawn_spec){.argv = argv, .envp = envp, .fds = fds, .nfds = ARRAY_LEN(fds)}, ret_pid);
}

static err *run_skopeo(const image_store *s, const char *reference, const char *dir)
{
    uint64_t until = now_mono_ns() + s->o.pull_timeout_ms * NS_PER_MS;
    CLEANUP(buf_done) buf output = {0};
    int p[2], status;
    pid_t pid;

    if (pipe2(p, O_CLOEXEC))
        return err_sys(ERR_INTERNAL, errno, "cannot make a pipe");
    CLEANUP(closep) int rd = p[0];
    CLEANUP(closep) int wr = p[1];
    TRY(start_skopeo(s, reference, dir, wr, &pid));
    close(TAKE_FD(wr));
    bool ended = read_to_end(rd, s->stop_fd, until, &output);
    err *e = spawn_wait(pid, ended ? 10000 : STOP_MS, &status);
    if (e) {
        err_free(e);
        return now_mono_ns() >= until
                   ? err_new(ERR_TIMEOUT, "image '%.200s' did not come in time", reference)
                   : err_new(ERR_DRAINING, "the node is going down");
    }
    return status ? failed(reference, &output) : NULL;
}

/* ---- what came ---- */

static err *open_blob(int oci, const descriptor *d, int *ret_fd)
{
    char name[80] = "blobs/sha256/";
    unsigned char digest[32];
    struct stat st;

    hex_encode(d->sha256, 32, name + strlen(name));
    CLEANUP(closep) int fd = openat(oci, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
        return err_new(ERR_IMAGE_PULL_FAILED, "a part of the image is missing: %.25s", name + 13);
    if ((uint64_t)st.st_size != d->size)
        return err_new(ERR_IMAGE_PULL_FAILED, "a part of the image has the wrong size: %.25s",
                       name + 13);
    if (!sha256_fd(fd, digest) || memcmp(digest, d->sha256, 32) != 0)
        return err_new(ERR_IMAGE_PULL_FAILED, "a part of the image has the wrong digest: %.25s",
                       name + 13);
    *ret_fd = TAKE_FD(fd);
    return NULL;
}

static err *read_blob(int oci, const descriptor *d, buf *ret_bytes)
{
    CLEANUP(closep) int fd = -1;
    char name[80] = "blobs/sha256/";

    TRY(open_blob(oci, d, &fd));
    hex_encode(d->sha256, 32, name + strlen(name));
    return fs_read(oci, name, MANIFEST_MAX, ret_bytes);
}

typedef struct got {
    manifest manifest;
    image_config config;
} got;

static void got_freep(got **g)
{
    if (*g)
        image_config_done(&(*g)->config);
    free(*g);
}

/* index.json -> (index ->) manifest -> config. */
static err *read_parts(const image_store *s, int oci, got *g)
{
    CLEANUP(buf_done) buf index = {0};
    CLEANUP(buf_done) buf inner = {0};
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(buf_done) buf config = {0};
    descriptor at;
    bool again;

    TRY(fs_read(oci, "index.json", MANIFEST_MAX, &index));
    TRY(index_parse(index.p, index.len, &s->here, &at, &again));
    if (again) {
        TRY(read_blob(oci, &at, &inner));
        TRY(index_parse(inner.p, inner.len, &s->here, &at, &again));
    }
    TRY(read_blob(oci, &at, &text));
    TRY(manifest_parse(text.p, text.len, &g->manifest));
    TRY(read_blob(oci, &g->manifest.config, &config));
    TRY(image_config_parse(config.p, config.len, &s->here, &g->config));
    if (g->config.ndiff_ids != g->manifest.nlayers)
        return err_because(err_new(ERR_IMAGE_UNSUPPORTED, "the image cannot be used"),
                           "%zu layers, but %zu diff ids", g->manifest.nlayers,
                           g->config.ndiff_ids);
    return NULL;
}

/* ---- layers to the backend ---- */

static bool is_stopping(image_store *s)
{
    LOCK_SCOPE(&s->lock);
    return s->stopping;
}

static err *unpack_layer(image_store *s, int oci, const got *g, size_t i)
{
    CLEANUP(closep) int fd = -1;

    TRY(open_blob(oci, &g->manifest.layer[i], &fd));
    if (s->o.backend->caps.images == CAP_ABSENT)
        return NULL;
    return s->o.backend->ops->unpack(s->o.backend, g->config.diff_ids[i],
                                     (int)g->manifest.format[i], fd);
}

static err *unpack_layers(image_store *s, int oci, const got *g, const fetch_progress *progress)
{
    pull_progress p = {.stage = "unpack", .layers = (unsigned)g->manifest.nlayers};

    for (; p.layers_done < p.layers; p.layers_done++) {
        progress->tell(progress->arg, &p);
        if (is_stopping(s))
            return err_new(ERR_DRAINING, "the node is going down");
        TRY(unpack_layer(s, oci, g, p.layers_done));
    }
    p.stage = "done";
    progress->tell(progress->arg, &p);
    return NULL;
}

static uint64_t size_of(const manifest *m)
{
    uint64_t size = 0;

    for (size_t i = 0; i < m->nlayers; i++)
        size += m->layer[i].size;
    return size;
}

static err *take_in(image_store *s, int dir, const char *name, const fetch_progress *progress,
                    image **ret_image)
{
    CLEANUP(closep) int oci = openat(dir, "oci", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    CLEANUP(got_freep) got *g = xcalloc(1, sizeof *g);
    CLEANUP(image_unrefp) image *i = NULL;

    if (oci < 0)
        return err_sys(ERR_IMAGE_PULL_FAILED, errno, "the fetched image is not there");
    TRY(read_parts(s, oci, g));
    TRY(unpack_layers(s, oci, g, progress));
    i = image_new(g->manifest.config.sha256, name, &g->config, size_of(&g->manifest),
                  now_real_ns());
    TRY(image_commit(s, i));
    *ret_image = TAKE_PTR(i);
    return NULL;
}

static err *fetch_into(image_store *s, const char *place, int dir, const char *reference)
{
    CLEANUP(freep) char *path = str_printf("%s/%s", s->o.staging_path, place);
    CLEANUP(closep) int tmp = -1;

    TRY(fs_dir(dir, "tmp", 0700, &tmp));
    return run_skopeo(s, reference, path);
}

err *fetch_image(image_store *s, const char *reference, const char *name,
                 const fetch_progress *progress, image **ret_image)
{
    char place[17];
    CLEANUP(closep) int dir = -1;

    id_random(place, sizeof place - 1);
    progress->tell(progress->arg, &(pull_progress){.stage = "fetch"});
    TRY(fs_dir(s->o.staging_dir, place, 0700, &dir));
    err *e = fetch_into(s, place, dir, reference);
    if (!e)
        e = take_in(s, dir, name, progress, ret_image);
    err_drop(fs_remove(s->o.staging_dir, place), "image staging");
    return e;
}
