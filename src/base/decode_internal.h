/* Shared by decode.c (objects, arrays, documents) and decode_value.c (single values). */
#pragma once

#include "base/decode.h"

/* The path to the member being decoded, for errors only; the frames live on the stack. */
typedef struct place {
    const struct place *up;
    const char *name; /* NULL: an item of an array */
    size_t index;
} place;

__attribute__((format(printf, 2, 3))) err *decode_wrong(const place *p, const char *fmt,
                                                        ...) ERR_MUST;
err *decode_wrong_type(const place *p, const char *expected, const json_t *got) ERR_MUST;

/* Decodes one value of any kind but DECODE_OBJECT; at is zeroed memory for it. */
err *decode_value(enum decode_mode mode, const decode_field *f, const json_t *j, const place *p,
                  void *at) ERR_MUST;
/* Like decode_value(), from the text of a query; scalars and enums only. */
err *decode_value_text(const decode_field *f, const char *s, const place *p, void *at) ERR_MUST;
void decode_store_integer(const decode_field *f, uint64_t bits, void *at);
