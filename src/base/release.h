/* The release a program was built as; every program of one build says the same. */
#pragma once

#define RELEASE_MAX 32u /* bytes of it, NUL included */

extern const char BOTHY_RELEASE[];
