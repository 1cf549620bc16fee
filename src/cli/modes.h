/* Tracks which modes a program has switched on in our terminal, so that they can be switched off
 * when we leave in the middle: alternate screen, mouse, bracketed paste, hidden cursor. Recognises
 * only "ESC [ ? n ; … h" and "… l". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

typedef struct modes { /* zero-initialised is ready */
    uint32_t on;       /* bit i: row i of the table differs from its normal value */
    uint8_t state;
    uint8_t n; /* numbers in this sequence */
    uint16_t number[8];
} modes;

void modes_see(modes *m, const void *p, size_t n);
/* Appends the sequences that restore all modes, and resets m. */
void modes_undo(modes *m, buf *out);
