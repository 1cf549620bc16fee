#include "base/release.h"

const char BOTHY_RELEASE[] = BOTHY_VERSION;
_Static_assert(sizeof BOTHY_RELEASE > 1 && sizeof BOTHY_RELEASE <= RELEASE_MAX, "its length");
