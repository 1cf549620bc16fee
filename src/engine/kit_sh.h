/* File verbs by the image's sh and its tools, where the kit cannot run. The shell answers in text;
 * this code turns the text into the kit's records. Names may hold any byte but NUL; times are whole
 * seconds; search and watch do not exist. Archives are made by the image's tar: pack gives one
 * entry of unknown length whose DATA are a tar archive that is not checked, and unpack reads a tar
 * archive on its stdin. */
#pragma once

#include "exec/exec.h"
#include "wire/kit.h"

typedef struct kit_sh kit_sh;

/* Creates the script for a request. ERR_UNSUPPORTED for a verb that it cannot do. */
err *kit_sh_new(const kit_request *rq, kit_sh **ret_sh) ERR_MUST;
void kit_sh_free(kit_sh *s);
char **kit_sh_argv(kit_sh *s); /* owned by s */
/* Decodes a record, as kit_decode(). all: no bytes follow these, and the shell has ended as `end`
 * says. */
enum kit_verdict kit_sh_decode(kit_sh *s, const char *p, size_t n, bool all, const exec_end *end,
                               kit_record *ret_record, size_t *ret_used);
