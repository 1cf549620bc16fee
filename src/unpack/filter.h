/* The system calls that each role may make; any other kills the process at once. */
#pragma once

#include "unpack/box.h"

err *role_filter_load(enum box_role role) ERR_MUST;
