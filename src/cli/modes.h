/* Which modes a program has switched on in our terminal, seen in passing, so that they can be
 * switched off when we leave it in the middle: the other screen, the mouse, pasting, a hidden
 * cursor. Looks for "ESC [ ? n ; … h" and "… l" only; anything else is none of its business. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct modes { /* zero-initialised is ready */
    uint32_t on;       /* bit i: row i of the table is not as a shell finds it */
    uint8_t state;
    uint8_t n; /* numbers of this sequence */
    uint16_t number[8];
} modes;

void modes_see(modes *m, const void *p, size_t n);
/* Appends what puts everything back; m is as new afterwards. */
void modes_undo(modes *m, buf *out);
