/* System calls each role may make; anything else ends the process at once. */
#pragma once

#include "unpack/box.h"

err *role_filter_load(enum box_role role) ERR_MUST;
