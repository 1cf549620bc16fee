/* Random identifiers from the kernel's generator. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define SANDBOX_ID_LEN 20 /* four characters of the cell, then sixteen random ones: [a-z0-9] */
#define CELL_LEN       4

void random_bytes(void *p, size_t n);
/* Writes n random characters of [a-z0-9] and a NUL. */
void id_random(char *ret_text, size_t n);
void id_sandbox(const char cell[CELL_LEN + 1], char ret_id[SANDBOX_ID_LEN + 1]);
bool id_is_sandbox(const char *s);
