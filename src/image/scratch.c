/* Directories below staging, one for each call of skopeo. */
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/str.h"
#include "image/images.h"

err *scratch_make(image_store *s, scratch *ret_scratch)
{
    scratch x = {.staging = s->o.staging_dir};
    CLEANUP(closep) int fd = -1;

    id_random(x.name, sizeof x.name - 1);
    TRY(fs_dir(x.staging, x.name, 0700, &fd));
    x.path = str_printf("%s/%s", s->o.staging_path, x.name);
    *ret_scratch = x;
    return NULL;
}

void scratch_done(scratch *x)
{
    if (!x->path)
        return;
    err_drop(fs_remove(x->staging, x->name), "image staging");
    free(x->path);
    *x = (scratch){0};
}
