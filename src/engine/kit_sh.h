/* File verbs by the image's sh and its tools, for where the kit cannot go. The shell's answers are
 * text; this turns them into the kit's records. Names may hold any byte but NUL; times are whole
 * seconds; there is no search or watch. Archives are the image's tar: pack gives one entry of
 * unknown length whose DATA are a tar, of which nothing is checked, and unpack reads a tar on its
 * stdin. */
#pragma once

#include "exec/exec.h"
#include "wire/kit.h"

typedef struct kit_sh kit_sh;

/* ERR_UNSUPPORTED for a verb it cannot do. */
err *kit_sh_new(const kit_request *rq, kit_sh **ret_sh) ERR_MUST;
void kit_sh_free(kit_sh *s);
char **kit_sh_argv(kit_sh *s); /* its own */
/* As kit_decode(). all: nothing follows these bytes, and the shell has ended as `end` says. */
enum kit_verdict kit_sh_decode(kit_sh *s, const char *p, size_t n, bool all, const exec_end *end,
                               kit_record *ret_record, size_t *ret_used);
