/* What sandboxes have used. */
#pragma once

#include "engine/engine.h"

/* Of each view, in their order; free it. None is `known` where the backend does not count or does
 * not answer: the rest of an answer is worth having all the same. */
box_usage *usage_of(engine *e, const sandbox_view *views, size_t n);
