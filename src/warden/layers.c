#include "warden/layers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/copy.h"
#include "warden/layers_priv.h"
#include "warden/meta.h"

#define TIMEOUT_MS (UINT64_C(30) * 60 * 1000)
#define PENDING_NS (UINT64_C(3600) * NS_PER_S)

static const char *const FORMATS[] = {"plain", "gzip", "zstd"}; /* by enum wp_format */

hex hex_of(const uint8_t digest[32])
{
    hex h;

    hex_encode(digest, 32, h.text);
    return h;
}

/* ---- life ---- */

static void free_values(map *m)
{
    map_iter it = {0};

    while (map_next(m, &it))
        free(it.entry->value);
    map_done(m);
}

void layers_free(layers *l)
{
    if (!l)
        return;
    const int dirs[] = {l->dir,     l->layers_dir,    l->images_dir,
                        l->fix_dir, l->forgotten_dir, l->tmp_dir};
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        closep(&dirs[i]);
    map_done(&l->busy);
    free_values(&l->pending);
    free_values(&l->held);
    image_def_done(&l->last);
    pthread_mutex_destroy(&l->shape);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l->unpack);
    free(l);
}
DEFINE_CLEANUP(layers, layers_free)

static err *open_dirs(layers *l)
{
    const struct {
        const char *name;
        int *fd;
    } dirs[] = {
        {"layers", &l->layers_dir},       {"images", &l->images_dir}, {"fix", &l->fix_dir},
        {"forgotten", &l->forgotten_dir}, {"tmp", &l->tmp_dir},
    };

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        TRY(fs_dir(l->dir, dirs[i].name, 0700, dirs[i].fd));
    return NULL;
}

static void read_boot(layers *l)
{
    CLEANUP(buf_done) buf text = {0};
    err *e = fs_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", sizeof l->boot, &text);

    if (!e)
        snprintf(l->boot, sizeof l->boot, "%.*s", (int)strcspn(text.p, "\n"), text.p);
    err_free(e);
}

/* Adds to named the layers that the images of a directory name. */
static err *mark_images(int dir, map *named)
{
    CLEANUP(freep) hex *image = NULL;
    size_t n = 0;

    TRY(list_hex(dir, &image, &n));
    for (size_t i = 0; i < n; i++) {
        CLEANUP(image_def_done) image_def d = {0};
        TRY(image_def_read(dir, image[i].text, &d));
        for (size_t k = 0; k < d.n; k++)
            map_put_str(named, d.layer[k].text, named);
    }
    return NULL;
}

static bool is_of_this_boot(layers *l, const hex *id)
{
    CLEANUP(closep) int dir = openat(l->layers_dir, id->text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(err_freep) err *e = dir < 0 ? NULL : fs_read(dir, "boot", sizeof l->boot, &text);

    return dir >= 0 && !e && *l->boot && str_eq(text.p, l->boot);
}

static void set_pending(layers *l, const hex *id)
{
    waiting *w = map_get_str(&l->pending, id->text);

    if (!w) {
        w = xcalloc(1, sizeof *w);
        map_put_str(&l->pending, id->text, w);
    }
    w->since_ns = now_mono_ns();
}

/* Removes layers that may be torn. A layer without an image was never synced: it is kept only if
 * the machine has run since it was made. */
static err *drop_torn(layers *l)
{
    CLEANUP(map_done) map named = {0};
    CLEANUP(freep) hex *id = NULL;
    size_t n = 0;

    TRY(mark_images(l->images_dir, &named));
    TRY(mark_images(l->forgotten_dir, &named));
    TRY(list_hex(l->layers_dir, &id, &n));
    for (size_t i = 0; i < n; i++) {
        if (map_get_str(&named, id[i].text))
            continue;
        if (is_of_this_boot(l, &id[i]))
            set_pending(l, &id[i]);
        else
            TRY(fs_remove(l->layers_dir, id[i].text));
    }
    return NULL;
}

/* Removes what a kill left of an image that was never defined: its fix layer, its half-written
 * definition. */
static err *drop_half_images(layers *l)
{
    CLEANUP(strv_freep) char **half = NULL;
    CLEANUP(freep) hex *id = NULL;
    size_t n = 0;

    TRY(list_prefixed(l->images_dir, ".", &half));
    for (char **name = half; name && *name; name++)
        if (!str_eq(*name, ".") && !str_eq(*name, ".."))
            TRY(fs_remove(l->images_dir, *name));
    TRY(list_hex(l->fix_dir, &id, &n));
    for (size_t i = 0; i < n; i++)
        if (faccessat(l->images_dir, id[i].text, F_OK, 0) &&
            faccessat(l->forgotten_dir, id[i].text, F_OK, 0))
            TRY(fs_remove(l->fix_dir, id[i].text));
    return NULL;
}

err *layers_open(const layers_options *o, layers **ret_layers)
{
    CLEANUP(layers_freep) layers *l = xcalloc(1, sizeof *l);

    l->layers_dir = l->images_dir = l->fix_dir = l->forgotten_dir = l->tmp_dir = -1;
    pthread_mutex_init(&l->shape, NULL);
    pthread_mutex_init(&l->lock, NULL);
    cond_init(&l->changed);
    l->unpack = xstrdup(o->unpack);
    l->timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
    for (; l->njoin < o->njoin && l->njoin < LAYERS_JOIN_MAX; l->njoin++)
        l->join[l->njoin] = o->join[l->njoin];
    l->dir = openat(o->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->dir < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot open the layer store");
    read_boot(l);
    TRY(fs_remove(l->dir, "tmp"));
    TRY(open_dirs(l));
    TRY(drop_half_images(l));
    TRY(drop_torn(l));
    *ret_layers = TAKE_PTR(l);
    return NULL;
}

/* ---- unpacking ---- */

/* Returns true if the layer is here. Otherwise marks it busy: the caller must make it and call
 * release_layer(). */
static bool claim_layer(layers *l, const hex *id)
{
    LOCK_SCOPE(&l->lock);
    while (map_get_str(&l->busy, id->text))
        pthread_cond_wait(&l->changed, &l->lock);
    if (!faccessat(l->layers_dir, id->text, F_OK, 0)) {
        set_pending(l, id);
        return true;
    }
    map_put_str(&l->busy, id->text, l);
    return false;
}

static void release_layer(layers *l, const hex *id)
{
    LOCK_SCOPE(&l->lock);
    map_take_str(&l->busy, id->text);
    pthread_cond_broadcast(&l->changed);
}

void layers_have(layers *l, const uint8_t (*diff_ids)[32], size_t n, uint8_t *ret_here)
{
    LOCK_SCOPE(&l->lock);
    for (size_t i = 0; i < n; i++) {
        hex id = hex_of(diff_ids[i]);
        ret_here[i] = !faccessat(l->layers_dir, id.text, F_OK, 0);
        if (ret_here[i])
            set_pending(l, &id);
    }
}

static err *check_report(const char *report, size_t n, const uint8_t diff_id[32], meta *ret_meta)
{
    CLEANUP(freep) char *copy = xstrndup(report, n);
    CLEANUP(meta_done) meta m = {0};

    TRY(meta_parse(copy, n, &m));
    if (memcmp(m.diff_id, diff_id, 32) != 0)
        return err_sys(ERR_INTERNAL, EPROTO, "the unpacker speaks of another layer");
    *ret_meta = m;
    m = (meta){0};
    return NULL;
}

static err *unpack_into(layers *l, int dir, const uint8_t diff_id[32], const char *format, int blob,
                        layers_unpacked *ret_what)
{
    CLEANUP(closep) int tree = -1;
    CLEANUP(freep) char *report = NULL;
    CLEANUP(meta_done) meta m = {0};
    size_t n;

    TRY(fs_dir(dir, "tree", 0755, &tree));
    FAULT_KILL("unpack.directory");
    if (fchmod(tree, 0755)) /* whatever the umask is */
        return err_sys(ERR_INTERNAL, errno, "cannot prepare a layer");
    TRY(unpacking_run(&(unpack_job){.program = l->unpack,
                                    .timeout_ms = l->timeout_ms,
                                    .format = format,
                                    .diff_id = hex_of(diff_id),
                                    .blob = blob,
                                    .tree = tree,
                                    .join = l->join,
                                    .njoin = l->njoin},
                      &report, &n));
    TRY(check_report(report, n, diff_id, &m));
    TRY(fs_write(dir, "meta", report, n, 0600, false));
    FAULT_KILL("unpack.unpacked");
    TRY(fs_write(dir, "boot", l->boot, strlen(l->boot), 0600, false));
    FAULT_KILL("unpack.described");
    *ret_what = (layers_unpacked){.bytes = m.bytes, .entries = m.entries};
    return NULL;
}

static err *put_in_place(layers *l, const char *tmp, const hex *id, const void *of)
{
    LOCK_SCOPE(&l->lock);
    if (renameat(l->tmp_dir, tmp, l->layers_dir, id->text))
        return err_sys(ERR_INTERNAL, errno, "cannot put a layer in place");
    FAULT_KILL("unpack.placed");
    set_pending(l, id);
    ((waiting *)map_get_str(&l->pending, id->text))->of = of;
    return NULL;
}

static err *unpack_new(layers *l, const uint8_t diff_id[32], const char *format, int blob,
                       layers_unpacked *ret_what)
{
    char suffix[9];
    hex id = hex_of(diff_id);
    CLEANUP(closep) int dir = -1;

    id_random(suffix, 8);
    CLEANUP(freep) char *tmp = str_printf("%s.%s", id.text, suffix);
    err *e = fs_dir(l->tmp_dir, tmp, 0700, &dir);
    if (!e)
        e = unpack_into(l, dir, diff_id, format, blob, ret_what);
    if (!e)
        e = put_in_place(l, tmp, &id, NULL);
    if (e)
        err_drop(fs_remove(l->tmp_dir, tmp), "unpack");
    return err_wrap(e, "layer %.12s", id.text);
}

err *layers_unpack(layers *l, const uint8_t diff_id[32], unsigned format, int blob_fd,
                   layers_unpacked *ret_what)
{
    hex id = hex_of(diff_id);

    if (format >= ARRAY_LEN(FORMATS))
        return err_sys(ERR_INVALID_REQUEST, EINVAL, "layer format %u", format);
    if (claim_layer(l, &id)) {
        *ret_what = (layers_unpacked){.was_there = true};
        return NULL;
    }
    err *e = unpack_new(l, diff_id, FORMATS[format], blob_fd, ret_what);
    release_layer(l, &id);
    return e;
}

/* ---- copies ---- */

static err *copy_into(layers *l, int dir, const hex *id, const layers_copying *how,
                      layers_unpacked *ret_what)
{
    CLEANUP(closep) int tree = -1;
    CLEANUP(buf_done) buf report = {0};
    struct statvfs fs;
    copy_what what;

    TRY(fs_dir(dir, "tree", 0755, &tree));
    if (fstatvfs(tree, &fs))
        return err_sys(ERR_INTERNAL, errno, "cannot look at the file system");
    TRY(copy_tree(how->tree_fd, tree,
                  &(copy_how){.until_ns = how->until_ns,
                              .keep_free = (uint64_t)fs.f_blocks * fs.f_frsize / LAYERS_KEEP_FREE,
                              .given_up = how->given_up,
                              .arg = how->arg},
                  &what));
    FAULT_KILL("snapshot.copied");
    buf_printf(&report,
               "bothy-unpack=1\ndiff_id=%s\nentries=%" PRIu64 "\nbytes=%" PRIu64
               "\nwhiteouts=%" PRIu64 "\nopaque_root=0\nend=1\n",
               id->text, what.entries, what.bytes, what.whiteouts);
    TRY(fs_write(dir, "meta", report.p, report.len, 0600, false));
    TRY(fs_write(dir, "boot", l->boot, strlen(l->boot), 0600, false));
    *ret_what = (layers_unpacked){.bytes = what.bytes, .entries = what.entries};
    return NULL;
}

static err *copy_new(layers *l, const hex *id, const layers_copying *how, layers_unpacked *ret_what)
{
    char suffix[9];
    CLEANUP(closep) int dir = -1;

    id_random(suffix, 8);
    CLEANUP(freep) char *tmp = str_printf("%s.%s", id->text, suffix);
    err *e = fs_dir(l->tmp_dir, tmp, 0700, &dir);
    if (!e)
        e = copy_into(l, dir, id, how, ret_what);
    err *unwanted = how->copied(how->arg);
    if (unwanted) { /* it says more: the tree was going away during the copy */
        err_free(e);
        e = unwanted;
    }
    if (!e)
        e = put_in_place(l, tmp, id, how->of);
    if (e)
        err_drop(fs_remove(l->tmp_dir, tmp), "snapshot");
    return e;
}

err *layers_copy(layers *l, const uint8_t layer[32], const layers_copying *how,
                 layers_unpacked *ret_what)
{
    hex id = hex_of(layer);

    if (claim_layer(l, &id)) {
        err_free(how->copied(how->arg));
        return err_sys(ERR_CONFLICT, EEXIST, "there is a layer %.12s", id.text);
    }
    err *e = copy_new(l, &id, how, ret_what);
    release_layer(l, &id);
    return e;
}

void layers_let_go(layers *l, const void *of)
{
    map_iter it = {0};

    LOCK_SCOPE(&l->lock);
    while (map_next(&l->pending, &it)) {
        waiting *w = it.entry->value;
        if (w->of == of)
            w->of = NULL;
    }
}

/* ---- stacks ---- */

static void layers_hold(layers *l, const hex *image)
{
    size_t *count = map_get_str(&l->held, image->text);

    if (!count) {
        count = xcalloc(1, sizeof *count);
        map_put_str(&l->held, image->text, count);
    }
    ++*count;
}

static void drop_last(layers *l)
{
    image_def_done(&l->last);
    l->last_id.text[0] = 0;
}

static err *read_last(layers *l, const hex *id)
{
    if (str_eq(l->last_id.text, id->text))
        return NULL;
    drop_last(l);
    TRY(image_def_read(l->images_dir, id->text, &l->last));
    l->last_id = *id;
    return NULL;
}

err *layers_stack_of(layers *l, const uint8_t image[32], layers_stack *ret_stack)
{
    hex id = hex_of(image);
    layers_stack s = {.owner = l};

    LOCK_SCOPE(&l->lock);
    TRY(err_wrap(read_last(l, &id), "image %.12s", id.text));
    const image_def *d = &l->last;
    s.path = xcalloc(d->n + 2, sizeof *s.path);
    if (d->fix)
        s.path[s.n++] = str_printf("fix/%s/tree", id.text);
    for (size_t i = 0; i < d->n; i++)
        s.path[s.n++] = str_printf("layers/%s/tree", d->layer[i].text);
    memcpy(s.image, image, 32);
    layers_hold(l, &id);
    *ret_stack = s;
    return NULL;
}

void layers_stack_done(layers_stack *s)
{
    layers *l = s->owner;

    strv_free(s->path);
    if (l) {
        hex id = hex_of(s->image);
        LOCK_SCOPE(&l->lock);
        size_t *count = map_get_str(&l->held, id.text);
        if (count && !--*count)
            free(map_take_str(&l->held, id.text));
    }
    *s = (layers_stack){0};
}

/* ---- prune ---- */

static void forget_images(layers *l, const uint8_t (*forget)[32], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        hex id = hex_of(forget[i]);
        if (str_eq(l->last_id.text, id.text))
            drop_last(l);
        if (renameat(l->images_dir, id.text, l->forgotten_dir, id.text) && errno != ENOENT)
            log_warn("prune", "cannot forget image %.12s: %s", id.text, strerrordesc_np(errno));
    }
}

/* Collects the images whose layers must stay although they may be forgotten. */
static void images_in_use(layers *l, const uint8_t (*in_use)[32], size_t n, map *ret_set)
{
    map_iter it = {0};

    for (size_t i = 0; i < n; i++)
        map_put_str(ret_set, hex_of(in_use[i]).text, l);
    while (map_next(&l->held, &it))
        map_put(ret_set, it.entry->key, it.entry->len, l);
}

/* Moves a doomed entry out of sight; the slow part is done without the lock. Lock held. */
static void layers_doom(layers *l, int dir, const char *kind, const hex *id)
{
    char suffix[9];

    id_random(suffix, 8); /* an earlier one of the same name may not be removed yet */
    CLEANUP(freep) char *tmp = str_printf("gone.%s.%s.%s", kind, id->text, suffix);

    if (renameat(dir, id->text, l->tmp_dir, tmp) && errno != ENOENT)
        log_warn("prune", "cannot remove %s %.12s: %s", kind, id->text, strerrordesc_np(errno));
}

static err *drop_forgotten(layers *l, const map *used)
{
    CLEANUP(freep) hex *image = NULL;
    size_t n = 0;

    TRY(list_hex(l->forgotten_dir, &image, &n));
    for (size_t i = 0; i < n; i++) {
        if (map_get_str(used, image[i].text))
            continue;
        layers_doom(l, l->forgotten_dir, "image", &image[i]);
        FAULT_KILL("prune.image_gone");
        layers_doom(l, l->fix_dir, "fix", &image[i]);
    }
    return NULL;
}

static uint64_t bytes_of(layers *l, const hex *id)
{
    CLEANUP(freep) char *name = str_printf("%s/meta", id->text);
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(meta_done) meta m = {0};
    err *e = fs_read(l->layers_dir, name, META_MAX, &text);

    if (!e)
        e = meta_parse(text.p, text.len, &m);
    err_free(e);
    return m.bytes;
}

static bool is_awaited(layers *l, const hex *id, bool unclaimed)
{
    const waiting *w = map_get_str(&l->pending, id->text);

    return map_get_str(&l->busy, id->text) ||
           (w && (!unclaimed || w->of) && now_mono_ns() - w->since_ns < PENDING_NS);
}

static err *drop_layers(layers *l, bool unclaimed, layers_pruned *what)
{
    CLEANUP(map_done) map named = {0};
    CLEANUP(freep) hex *id = NULL;
    size_t n = 0;

    TRY(mark_images(l->images_dir, &named));
    TRY(mark_images(l->forgotten_dir, &named));
    TRY(list_hex(l->layers_dir, &id, &n));
    for (size_t i = 0; i < n; i++) {
        if (map_get_str(&named, id[i].text) || is_awaited(l, &id[i], unclaimed))
            continue;
        what->layers++;
        what->bytes += bytes_of(l, &id[i]);
        free(map_take_str(&l->pending, id[i].text));
        layers_doom(l, l->layers_dir, "layer", &id[i]);
        FAULT_KILL("prune.layer_aside");
    }
    return NULL;
}

static err *layers_sweep(layers *l)
{
    CLEANUP(strv_freep) char **names = NULL;

    TRY(list_prefixed(l->tmp_dir, "gone.", &names));
    for (char **name = names; name && *name; name++)
        TRY(fs_remove(l->tmp_dir, *name));
    return NULL;
}

static bool sweep_begin(layers *l)
{
    LOCK_SCOPE(&l->lock);

    l->sweep_again = l->sweeping;
    l->sweeping = true;
    return !l->sweep_again;
}

/* Ends a sweep. Returns false if more came meanwhile. */
static bool sweep_end(layers *l, bool failed)
{
    LOCK_SCOPE(&l->lock);

    l->sweeping = l->sweep_again && !failed;
    l->sweep_again = false;
    return !l->sweeping;
}

/* Removes doomed entries. One thread at a time does it, also for entries that others add, and
 * without a lock, so that no thread waits for the disk. */
static err *remove_doomed(layers *l)
{
    err *e;

    if (!sweep_begin(l))
        return NULL;
    do
        e = layers_sweep(l);
    while (!sweep_end(l, e));
    return e;
}

/* Chooses the entries to be removed and moves them out of sight. */
static err *layers_choose(layers *l, const uint8_t (*forget)[32], size_t nforget,
                          const uint8_t (*in_use)[32], size_t nuse, bool unclaimed,
                          layers_pruned *what)
{
    CLEANUP(map_done) map used = {0};

    LOCK_SCOPE(&l->shape);
    LOCK_SCOPE(&l->lock);
    forget_images(l, forget, nforget);
    FAULT_KILL("prune.forgotten");
    images_in_use(l, in_use, nuse, &used);
    TRY(drop_forgotten(l, &used));
    return drop_layers(l, unclaimed, what);
}

err *layers_prune(layers *l, const uint8_t (*forget)[32], size_t nforget,
                  const uint8_t (*in_use)[32], size_t nuse, bool unclaimed, layers_pruned *ret_what)
{
    layers_pruned what = {0};

    TRY(layers_choose(l, forget, nforget, in_use, nuse, unclaimed, &what));
    TRY(remove_doomed(l));
    FAULT_KILL("prune.removed");
    *ret_what = what;
    return NULL;
}
