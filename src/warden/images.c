/* Defines images: which layers, cut and completed, make an image. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/fix.h"
#include "warden/layers_priv.h"

#define DEF_FIRST "bothy-image 1"
#define DEF_MAX   (64u << 10)
#define PATHS_MAX (1u << 18) /* that all layers of an image report: all of them are in memory */

/* ---- the text ---- */

void image_def_done(image_def *d)
{
    free(d->layer);
    *d = (image_def){0};
}

static bool is_hex(const char *s)
{
    return strlen(s) == HEX_LEN && strspn(s, "0123456789abcdef") == HEX_LEN;
}

err *image_def_read(int dir, const char *name, image_def *ret_def)
{
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(image_def_done) image_def d = {0};
    const char *at = NULL;

    TRY(fs_read(dir, name, DEF_MAX, &text));
    /* A definition must have whole lines and the right first one: an image must not lose layers. */
    bool whole = text.len && text.p[text.len - 1] == '\n' && !memchr(text.p, 0, text.len);
    if (!whole || !str_starts(text.p, DEF_FIRST "\n"))
        return err_sys(ERR_INTERNAL, EPROTO, "image %s has an unknown format", name);
    d.layer = xcalloc(LAYERS_MAX, sizeof *d.layer);
    at = text.p + strlen(DEF_FIRST "\n");
    if (str_starts(at, "fix\n")) {
        d.fix = true;
        at += strlen("fix\n");
    }
    for (const char *end; (end = strchr(at, '\n')); at = end + 1) {
        hex *h = &d.layer[d.n];
        if (end - at != HEX_LEN || d.n == LAYERS_MAX)
            return err_sys(ERR_INTERNAL, EPROTO, "image %s has a bad line", name);
        memcpy(h->text, at, HEX_LEN);
        if (!is_hex(h->text))
            return err_sys(ERR_INTERNAL, EPROTO, "image %s has a bad line", name);
        d.n++;
    }
    *ret_def = (image_def){.layer = TAKE_PTR(d.layer), .n = d.n, .fix = d.fix};
    return NULL;
}

static err *image_def_write(int dir, const char *name, const image_def *d)
{
    CLEANUP(buf_done) buf text = {0};

    buf_printf(&text, "%s\n%s", DEF_FIRST, d->fix ? "fix\n" : "");
    for (size_t i = 0; i < d->n; i++)
        buf_printf(&text, "%s\n", d->layer[i].text);
    return fs_write(dir, name, text.p, text.len, 0600, true);
}

err *list_prefixed(int dir, const char *prefix, char ***ret_names)
{
    CLEANUP(strv_freep) char **names = NULL;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        closep(&fd);
        return err_sys(ERR_INTERNAL, errno, "cannot list a directory of the layer store");
    }
    struct dirent *e;
    while ((e = readdir(d))) /* NOLINT(concurrency-mt-unsafe): the stream is local */
        if (str_starts(e->d_name, prefix))
            strv_push(&names, xstrdup(e->d_name));
    closedir(d);
    *ret_names = TAKE_PTR(names);
    return NULL;
}

err *list_hex(int dir, hex **ret_names, size_t *ret_n)
{
    CLEANUP(strv_freep) char **names = NULL;
    size_t n = 0;

    TRY(list_prefixed(dir, "", &names));
    hex *list = xcalloc(strv_len(names) + 1, sizeof *list);
    for (char **name = names; name && *name; name++)
        if (is_hex(*name))
            memcpy(list[n++].text, *name, HEX_LEN + 1);
    *ret_names = list;
    *ret_n = n;
    return NULL;
}

/* ---- defining one ---- */

typedef struct stack {
    fix_layer layer[LAYERS_MAX]; /* top first */
    size_t n;
} stack;

static void stack_freep(stack **s)
{
    for (size_t i = 0; *s && i < (*s)->n; i++) {
        closep(&(*s)->layer[i].tree);
        meta_done(&(*s)->layer[i].meta);
    }
    free(*s);
}

static err *open_layer(layers *l, const hex *id, fix_layer *ret_layer)
{
    CLEANUP(closep) int dir = openat(l->layers_dir, id->text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(buf_done) buf text = {0};

    if (dir < 0)
        return err_sys(errno == ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL, errno,
                       "layer %.12s is not here", id->text);
    CLEANUP(closep) int tree = openat(dir, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree < 0)
        return err_sys(ERR_INTERNAL, errno, "layer %.12s has no tree", id->text);
    TRY(fs_read(dir, "meta", META_MAX, &text));
    TRY(meta_parse(text.p, text.len, &ret_layer->meta));
    ret_layer->tree = TAKE_FD(tree);
    return NULL;
}

static bool has_layer(const image_def *d, const hex *id)
{
    for (size_t i = 0; i < d->n; i++)
        if (str_eq(d->layer[i].text, id->text))
            return true;
    return false;
}

static err *count_paths(const meta *m, size_t *total)
{
    *total += strv_len(m->implicit) + strv_len(m->whiteout_dirs);
    return *total <= PATHS_MAX ? NULL
                               : err_sys(ERR_IMAGE_UNSUPPORTED, EBADMSG,
                                         "the layers report more than %u directories", PATHS_MAX);
}

/* Opens the layers from the top down. A layer that comes again below adds nothing, and overlayfs
 * refuses the same directory twice. Nothing below an opaque root is seen; overlayfs ignores that
 * mark, so the stack ends there. */
static err *open_stack(layers *l, const uint8_t (*diff_ids)[32], size_t n, image_def *d, stack *s)
{
    size_t paths = 0;

    for (size_t i = n; i-- > 0;) {
        hex id = hex_of(diff_ids[i]);
        if (has_layer(d, &id))
            continue;
        TRY(open_layer(l, &id, &s->layer[s->n]));
        d->layer[d->n++] = id;
        const meta *m = &s->layer[s->n++].meta;
        TRY(count_paths(m, &paths));
        if (m->opaque_root)
            break;
    }
    return NULL;
}

/* Builds the fix layer aside and puts it in place. Makes none if it would be empty. */
static err *make_fix(layers *l, const hex *image, const stack *s, bool *ret_fix)
{
    char suffix[9];
    size_t made = 0;

    id_random(suffix, 8);
    CLEANUP(freep) char *tmp = str_printf("fix.%s.%s", image->text, suffix);
    if (mkdirat(l->tmp_dir, tmp, 0700))
        return err_sys(ERR_INTERNAL, errno, "cannot make the fix layer");
    CLEANUP(closep) int dir = openat(l->tmp_dir, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(closep) int tree = -1;
    err *e = dir < 0 ? err_sys(ERR_INTERNAL, errno, "cannot open the fix layer") : NULL;
    if (!e)
        e = fs_dir(dir, "tree", 0755, &tree);
    if (!e)
        e = fix_build(s->layer, s->n, tree, &made);
    if (!e && made) {
        e = fs_remove(l->fix_dir, image->text);
        if (!e && renameat(l->tmp_dir, tmp, l->fix_dir, image->text))
            e = err_sys(ERR_INTERNAL, errno, "cannot put the fix layer in place");
        FAULT_KILL("image.fixed");
    }
    if (e || !made)
        err_drop(fs_remove(l->tmp_dir, tmp), "fix layer");
    *ret_fix = made > 0;
    return e;
}

/* Makes all layers of the image durable with one syncfs: from here on the image's name stands for
 * whole layers. */
static err *make_durable(layers *l)
{
    if (syncfs(l->dir))
        return err_sys(ERR_INTERNAL, errno, "cannot make the layers durable");
    return fsync(l->layers_dir) || fsync(l->fix_dir)
               ? err_sys(ERR_INTERNAL, errno, "cannot make the layers durable")
               : NULL;
}

/* Returns true if the image is known. An image that was forgotten but is still in use becomes known
 * again. */
static bool is_defined(layers *l, const hex *image)
{
    LOCK_SCOPE(&l->lock);
    return !faccessat(l->images_dir, image->text, F_OK, 0) ||
           !renameat(l->forgotten_dir, image->text, l->images_dir, image->text);
}

static void no_longer_pending(layers *l, const image_def *d)
{
    LOCK_SCOPE(&l->lock);
    for (size_t i = 0; i < d->n; i++)
        free(map_take_str(&l->pending, d->layer[i].text));
}

err *layers_image(layers *l, const uint8_t image[32], const uint8_t (*diff_ids)[32], size_t n)
{
    CLEANUP(image_def_done) image_def d = {0};
    CLEANUP(stack_freep) stack *s = NULL;
    hex id = hex_of(image);

    if (n > LAYERS_MAX)
        return err_sys(ERR_INVALID_REQUEST, EINVAL, "more than %d layers", LAYERS_MAX);
    LOCK_SCOPE(&l->shape);
    if (is_defined(l, &id))
        return NULL;
    s = xcalloc(1, sizeof *s);
    d.layer = xcalloc(LAYERS_MAX, sizeof *d.layer);
    TRY(open_stack(l, diff_ids, n, &d, s));
    TRY(make_fix(l, &id, s, &d.fix));
    TRY(make_durable(l));
    FAULT_KILL("image.durable");
    TRY(image_def_write(l->images_dir, id.text, &d));
    FAULT_KILL("image.defined");
    no_longer_pending(l, &d);
    return NULL;
}
