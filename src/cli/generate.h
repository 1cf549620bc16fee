/* Writes the manual page and the bash completion from the tables of verbs and options. */
#pragma once

#include <stdio.h>

#include "base/err.h"

/* what: "man" or "bash" */
err *generate(const char *what, FILE *f) ERR_MUST;
