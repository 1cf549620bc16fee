/* What a pause keeps and loses, on one line. */
#pragma once

#include "base/json.h"

void pause_print_facts(const char *name, const json_t *facts);
