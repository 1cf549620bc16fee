/* A tar whose sums are right, so that what a mutation made is read beyond its first header. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TAR_BLOCK 512

static inline void tar_fix_sum(uint8_t *head)
{
    unsigned sum = 0;
    char text[8];

    memset(head + 148, ' ', 8);
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += head[i];
    snprintf(text, sizeof text, "%06o", sum);
    memcpy(head + 148, text, 7);
}

static inline size_t tar_content(const uint8_t *head)
{
    size_t n = 0;

    for (size_t i = 124; i < 136 && head[i] >= '0' && head[i] <= '7'; i++)
        n = n * 8 + (size_t)(head[i] - '0');
    return (n + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

static inline void tar_mend(uint8_t *data, size_t size)
{
    static const uint8_t NONE[TAR_BLOCK];
    size_t at = 0;

    while (at + TAR_BLOCK <= size) {
        if (memcmp(data + at, NONE, TAR_BLOCK) != 0)
            tar_fix_sum(data + at);
        size_t content = tar_content(data + at);
        at += TAR_BLOCK + (content < size ? content : size);
    }
}
