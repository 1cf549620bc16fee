/* The release a program was built as; all programs of one build carry the same text. */
#pragma once

#define RELEASE_MAX 32u /* bytes, NUL included */

extern const char BOTHY_RELEASE[];
