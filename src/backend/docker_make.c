/* Making containers, and the volume that provides init and kit in them. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <string.h>

#include "backend/docker.h"
#include "base/digest.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/release.h"
#include "base/str.h"
#include "base/thread.h"

#define PROGRAM_MAX (16u << 20)
#define INIT        DOCKER_AT "/bothy-init"
#define COMPLETE    "complete" /* written last: its presence proves that the volume is complete */

/* ---- shapes ---- */

docker_shape docker_shape_of(const box_spec *s)
{
    const sandbox_spec *spec = s->spec;
    docker_shape r = {.read_only = spec->read_only,
                      .setuid = spec->setuid,
                      .network = spec->network == NETWORK_OPEN,
                      .shm_mib = spec->limits.shm_mib,
                      .tmpfs = spec->tmpfs,
                      .ntmpfs = spec->ntmpfs};

    hex_encode(s->image, sizeof s->image, r.image);
    return r;
}

void docker_shape_copy(docker_shape *to, const docker_shape *from)
{
    *to = *from;
    to->tmpfs = xcalloc(from->ntmpfs + 1, sizeof *to->tmpfs);
    for (size_t i = 0; i < from->ntmpfs; i++) {
        to->tmpfs[i] = from->tmpfs[i];
        to->tmpfs[i].path = xstrdup(from->tmpfs[i].path);
    }
}

void docker_shape_done(docker_shape *s)
{
    for (size_t i = 0; i < s->ntmpfs; i++)
        free(s->tmpfs[i].path);
    free(s->tmpfs);
    *s = (docker_shape){0};
}

void docker_shape_key(const docker_shape *s, char ret_key[DOCKER_KEY_LEN + 1])
{
    CLEANUP(buf_done) buf text = {0};
    uint8_t digest[SHA256_LEN];

    buf_printf(&text, "%s %d%d%d %u", s->image, s->read_only, s->setuid, s->network, s->shm_mib);
    for (size_t i = 0; i < s->ntmpfs; i++)
        buf_printf(&text, " %zu:%s %llu %o %d", strlen(s->tmpfs[i].path), s->tmpfs[i].path,
                   (unsigned long long)s->tmpfs[i].size, s->tmpfs[i].mode, s->tmpfs[i].exec);
    sha256(text.p, text.len, digest);
    hex_encode(digest, DOCKER_KEY_LEN / 2, ret_key);
}

/* ---- limits ---- */

bool docker_can_update(const docker *d)
{
    const docker_engine *e = docker_api_engine(d->api);

    return !e->podman && (e->memory_limit || e->cpu_limit || e->pids_limit);
}

static void docker_make_put(json_t *o, const char *key, uint64_t value)
{
    json_object_set_new(o, key, json_integer((json_int_t)value));
}

/* Leaves out limits that the engine cannot enforce: it would refuse them or silently ignore
 * them. */
json_t *docker_limits_json(const docker_engine *e, const limits *l)
{
    json_t *o = json_object();

    if (l->memory && e->memory_limit) {
        docker_make_put(o, "Memory", l->memory);
        if (e->swap_limit)
            docker_make_put(o, "MemorySwap", l->memory); /* includes swap, so this means no swap */
    }
    if (l->cpu_milli && e->cpu_limit)
        docker_make_put(o, "NanoCpus", (uint64_t)l->cpu_milli * 1000000);
    if (l->pids && e->pids_limit)
        docker_make_put(o, "PidsLimit", l->pids);
    return o;
}

/* ---- a container ---- */

static json_t *mount_of(const docker *d, bool read_only)
{
    /* NoCopy: files that the image has at this path are not copied into the volume. */
    return json_pack("{s:s,s:s,s:s,s:b,s:{s:b}}", "Type", "volume", "Source", d->volume, "Target",
                     DOCKER_AT, "ReadOnly", read_only, "VolumeOptions", "NoCopy", 1);
}

static json_t *tmpfs_of(const docker_shape *s)
{
    json_t *o = json_object();

    for (size_t i = 0; i < s->ntmpfs; i++) {
        const tmpfs_spec *t = &s->tmpfs[i];
        CLEANUP(freep)
        char *options =
            str_printf("rw,nosuid,nodev,%s,size=%llu,mode=%o", t->exec ? "exec" : "noexec",
                       (unsigned long long)t->size, t->mode);
        json_object_set_new(o, t->path, json_string(options));
    }
    return o;
}

static json_t *docker_make_ulimit(const char *name, uint64_t value)
{
    return json_pack("{s:s,s:I,s:I}", "Name", name, "Soft", (json_int_t)value, "Hard",
                     (json_int_t)value);
}

static json_t *host_of(const docker *d, const docker_shape *s, const limits *l)
{
    const docker_engine *e = docker_api_engine(d->api);
    json_t *o = docker_limits_json(e, l);

    json_object_set_new(o, "NetworkMode", json_string(s->network ? d->network : "none"));
    json_object_set_new(o, "Mounts", json_pack("[o]", mount_of(d, true)));
    json_object_set_new(o, "RestartPolicy", json_pack("{s:s}", "Name", "no"));
    json_object_set_new(o, "LogConfig", json_pack("{s:s}", "Type", "none"));
    json_object_set_new(o, "ReadonlyRootfs", json_boolean(s->read_only));
    json_object_set_new(o, "Tmpfs", tmpfs_of(s));
    if (s->shm_mib)
        docker_make_put(o, "ShmSize", (uint64_t)s->shm_mib << 20);
    if (!s->setuid)
        json_object_set_new(o, "SecurityOpt", json_pack("[s]", "no-new-privileges"));
    /* init limits open files for each command, below the engine's own limit. */
    if (!e->rootless)
        json_object_set_new(o, "Ulimits", json_pack("[o]", docker_make_ulimit("core", 0)));
    return o;
}

/* Makes the body of a create call. init is pid 1 instead of the image's command; health checks are
 * off, because they would run outside of any exec. */
static json_t *body_of(const docker *d, const docker_shape *s, const limits *l)
{
    CLEANUP(freep) char *image = str_printf("sha256:%s", s->image);
    json_t *o = json_pack("{s:s,s:[s,s],s:[],s:s,s:{s:[s]},s:b,s:i}", "Image", image, "Entrypoint",
                          INIT, "serve", "Cmd", "User", "0", "Healthcheck", "Test", "NONE", "Tty",
                          0, "StopTimeout", 0);

    json_object_set_new(o, "HostConfig", host_of(d, s, l));
    return o;
}

static json_t *labels_of(const docker *d, const docker_shape *s, const docker_made *m)
{
    char nonce[2 * LINK_NONCE_LEN + 1], key[DOCKER_KEY_LEN + 1];

    hex_encode(m->nonce, sizeof m->nonce, nonce);
    docker_shape_key(s, key);
    return json_pack("{s:s,s:s,s:s}", DOCKER_LABEL_CELL, d->cell, DOCKER_LABEL_NONCE, nonce,
                     DOCKER_LABEL_POOL, key);
}

bool docker_nonce_of(char *const *labels, uint8_t ret_nonce[LINK_NONCE_LEN])
{
    const char *hex = docker_label(labels, DOCKER_LABEL_NONCE);

    return hex && hex_decode(hex, ret_nonce, LINK_NONCE_LEN);
}

/* ---- the volume ---- */

static err *read_program(const char *path, buf *ret_bytes)
{
    return err_remedy(fs_read(AT_FDCWD, path, PROGRAM_MAX, ret_bytes),
                      "Install bothy's programs, or correct backend.init and files.kit.");
}

/* Derives the volume's name from its content: releases and builds do not share a volume. */
err *docker_volume_name(const char *init, const char *kit, char **ret_name)
{
    CLEANUP(buf_done) buf all = {0};
    uint8_t digest[SHA256_LEN];
    char hex[2 * SHA256_LEN + 1];

    TRY(read_program(init, &all));
    if (kit) {
        CLEANUP(buf_done) buf more = {0};
        TRY(read_program(kit, &more));
        buf_append(&all, more.p, more.len);
    }
    sha256(all.p, all.len, digest);
    hex_encode(digest, sizeof digest, hex);
    *ret_name = str_printf("bothy-%s-%.12s", BOTHY_RELEASE, hex);
    return NULL;
}

static la_ssize_t docker_make_append(struct archive *a, void *arg, const void *p, size_t n)
{
    (void)a;
    buf_append(arg, p, n);
    return (la_ssize_t)n;
}

static void add_file(struct archive *a, const char *name, mode_t mode, const buf *bytes)
{
    struct archive_entry *e = archive_entry_new();

    archive_entry_set_pathname(e, name);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, mode);
    archive_entry_set_size(e, (la_int64_t)bytes->len);
    archive_write_header(a, e);
    archive_write_data(a, bytes->p, bytes->len);
    archive_entry_free(e);
}

err *docker_volume_tar(const char *init_path, const char *kit_path, buf *ret_tar)
{
    CLEANUP(buf_done) buf init = {0};
    CLEANUP(buf_done) buf kit = {0};

    TRY(read_program(init_path, &init));
    if (kit_path)
        TRY(read_program(kit_path, &kit));
    struct archive *a = archive_write_new();
    archive_write_set_format_ustar(a);
    /* No padding after the end: Podman stops reading there, and its writer then fails with
     * EPIPE. */
    archive_write_set_bytes_in_last_block(a, 1);
    archive_write_open(a, ret_tar, NULL, docker_make_append, NULL);
    add_file(a, "bothy-init", 0555, &init);
    if (kit_path)
        add_file(a, "bothy-kit", 0555, &kit);
    add_file(a, COMPLETE, 0444, &(buf){0});
    int bad = archive_write_close(a);
    archive_write_free(a);
    return bad ? err_new(ERR_INTERNAL, "cannot write an archive") : NULL;
}

#define WARM_LEN 32

static void warm_name(char ret_name[WARM_LEN])
{
    str_copy(ret_name, WARM_LEN, "bothy-warm-");
    id_random(ret_name + strlen(ret_name), 12);
}

/* Fills the volume through a container that never runs: the engine may be on another machine. */
static err *docker_make_fill(docker *d, const char *helper, bool *ret_fresh)
{
    CLEANUP(buf_done) buf tar = {0};
    bool whole = false;

    TRY(docker_has(d->api, helper, DOCKER_AT "/" COMPLETE, &whole));
    *ret_fresh = !whole;
    if (whole)
        return NULL;
    TRY(docker_volume_tar(d->init, d->kit, &tar));
    return docker_put(d->api, helper, DOCKER_AT, tar.p, tar.len);
}

/* Removes a container that may exist although its create got no answer. Returns e. */
static err *docker_make_lost(docker *d, const char *name, err *e)
{
    if (e && (e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT))
        docker_remove_soon(d, name);
    return e;
}

static err *fill_through(docker *d, const json_t *body, const char *name, bool *ret_fresh)
{
    char helper[DOCKER_ID_LEN + 1];

    TRY(docker_make_lost(d, name, docker_create(d->api, name, body, helper)));
    err *e = docker_make_fill(d, helper, ret_fresh);
    err *left = docker_remove(d->api, helper);
    if (left)
        docker_remove_soon(d, helper);
    err_free(left);
    return e;
}

/* Fills the volume unless it is known to be filled. fresh: it was missing or incomplete. */
static err *volume_ready(docker *d, const docker_shape *s, bool *ret_fresh)
{
    *ret_fresh = false;
    LOCK_SCOPE(&d->volume_lock);
    if (d->volume_filled)
        return NULL;
    CLEANUP(freep) char *image = str_printf("sha256:%s", s->image);
    CLEANUP(json_decrefp)
    json_t *body = json_pack("{s:s,s:[s],s:s,s:{s:s},s:{s:s,s:[o]}}", "Image", image, "Entrypoint",
                             INIT, "User", "0", "Labels", DOCKER_LABEL_CELL, d->cell, "HostConfig",
                             "NetworkMode", "none", "Mounts", mount_of(d, false));
    char name[WARM_LEN];

    TRY(docker_volume_make(d->api, d->volume, DOCKER_LABEL_OURS));
    warm_name(name);
    docker_making_begin(d, name);
    err *e = fill_through(d, body, name, ret_fresh);
    docker_making_end(d, name);
    d->volume_filled = !e;
    return err_wrap(e, "cannot bring bothy-init into the engine's volume %s", d->volume);
}

/* The engine does not remove a volume in use. Another bothyd that needs a removed one fills it
 * again. */
void docker_volumes_sweep(void *arg)
{
    docker *d = arg;
    CLEANUP(strv_freep) char **names = NULL;

    if (atomic_load(&d->closing))
        return;
    err_free(docker_volume_list(d->api, DOCKER_LABEL_OURS, &names)); /* the next start retries */
    for (char **name = names; name && *name; name++)
        if (str_starts(*name, "bothy-") && strcmp(*name, d->volume) != 0)
            err_free(docker_volume_remove(d->api, *name));
}

/* Forgets that the volume is filled: another client may have removed it or made an empty one. */
static void doubt_volume(docker *d)
{
    LOCK_SCOPE(&d->volume_lock);
    d->volume_filled = false;
}

/* ---- making ---- */

static err *docker_make_begin(docker *d, const json_t *body, const char *name, docker_made *m)
{
    TRY(docker_make_lost(d, name, docker_create(d->api, name, body, m->handle)));
    err *e = docker_start(d->api, m->handle);
    if (!e)
        return NULL;
    err *left = docker_remove(d->api, m->handle); /* now, because its name may be needed again */
    if (left)
        docker_remove_soon(d, m->handle);
    err_free(left);
    return e;
}

/* Makes and starts a container. Without init in the volume no container starts: if the volume was
 * lost, fills it again and retries once. */
static err *begin_again(docker *d, const docker_shape *s, const json_t *body, const char *name,
                        docker_made *m)
{
    bool fresh;
    err *e = docker_make_begin(d, body, name, m);

    if (!e || e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT || e->code == ERR_CONFLICT)
        return e;
    doubt_volume(d);
    err_free(volume_ready(d, s, &fresh));
    if (!fresh)
        return e;
    err_free(e);
    return docker_make_begin(d, body, name, m);
}

err *docker_make(docker *d, const docker_shape *s, const limits *l, const char *name,
                 const char *hostname, docker_made *ret_made)
{
    docker_made m = {.limits = *l};
    CLEANUP(json_decrefp) json_t *body = body_of(d, s, l);
    char warm[WARM_LEN];
    bool fresh;

    TRY(volume_ready(d, s, &fresh));
    link_nonce_new(m.nonce);
    warm_name(warm);
    name = name ? name : warm;
    json_object_set_new(body, "Labels", labels_of(d, s, &m));
    if (hostname)
        json_object_set_new(body, "Hostname", json_string(hostname));
    docker_making_begin(d, name);
    err *e = begin_again(d, s, body, name, &m);
    docker_making_end(d, name);
    if (!e)
        *ret_made = m;
    return e;
}
