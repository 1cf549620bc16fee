#include "engine/kit_sh.h"

#include "base/str.h"

struct kit_sh {
    char *argv[12];
};

err *kit_sh_new(const kit_request *rq, kit_sh **ret_sh)
{
    (void)ret_sh;
    return err_new(ERR_UNSUPPORTED, "%s: this node has no kit", kit_verb_name(rq->verb));
}

void kit_sh_free(kit_sh *s)
{
    free(s);
}

char **kit_sh_argv(kit_sh *s)
{
    return s->argv;
}

enum kit_verdict kit_sh_decode(kit_sh *s, const char *p, size_t n, bool all, const exec_end *end,
                               kit_record *ret_record, size_t *ret_used)
{
    (void)s, (void)p, (void)n, (void)all, (void)end, (void)ret_record, (void)ret_used;
    return KIT_BAD;
}
