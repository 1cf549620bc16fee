/* Prints on one line what a pause keeps or loses. */
#pragma once

#include "base/json.h"

void pause_print_facts(const char *name, const json_t *facts);
