/* Macros for rows of base/decode, for the tables of objects.c and pod_view.c. */
#pragma once

#include "base/cleanup.h"
#include "base/decode.h"

#define ROW_IF(t, m, json, k, has, ...)                                      \
    {                                                                        \
        .name = (json), .kind = (k), .at = offsetof(t, m), .has_at = (has),  \
        .count_at = DECODE_NOWHERE, .size = sizeof(((t *)0)->m), __VA_ARGS__ \
    }
#define ROW_(t, m, json, k, ...) ROW_IF(t, m, json, k, DECODE_NOWHERE, __VA_ARGS__)
#define STRING(t, m, json, max)  ROW_(t, m, json, DECODE_STRING, .len_max = (max))
#define REQUIRED(t, m, json, max) \
    ROW_(t, m, json, DECODE_STRING, .len_min = 1, .len_max = (max), .required = true)
#define STRING_OR(t, m, json, max, otherwise) \
    ROW_(t, m, json, DECODE_STRING, .len_max = (max), .preset_text = (otherwise))
/* A string or an integer: quantities, int-or-string. */
#define TEXT(t, m, json, max) ROW_(t, m, json, DECODE_TEXT, .len_max = (max))
#define TEXT_OR(t, m, json, max, otherwise) \
    ROW_(t, m, json, DECODE_TEXT, .len_max = (max), .preset_text = (otherwise))
#define COUNT(t, m, json, top, otherwise) \
    ROW_(t, m, json, DECODE_INTEGER, .max = (top), .preset = (otherwise))
#define SIGNED(t, m, json)          ROW_(t, m, json, DECODE_INTEGER, .min = INT32_MIN, .max = INT32_MAX)
#define FLAG(t, m, json, otherwise) ROW_(t, m, json, DECODE_BOOL, .preset = (otherwise))
#define CHOICE(t, m, json, values) \
    ROW_(t, m, json, DECODE_ENUM, .names = (values), .nnames = ARRAY_LEN(values))
#define MAP(t, m, json, items, max) \
    ROW_(t, m, json, DECODE_MAP, .count_max = (items), .len_max = (max))
/* The size is that of a pointer, not of the json_t that the member points to. */
#define ANY(t, m, json)                                                                     \
    {                                                                                       \
        .name = (json), .kind = DECODE_ANY, .at = offsetof(t, m), .has_at = DECODE_NOWHERE, \
        .count_at = DECODE_NOWHERE, .size = sizeof(void *)                                  \
    }
#define OBJECT(t, m, json, of) ROW_(t, m, json, DECODE_OBJECT, .type = &(of))
#define OBJECT_IF(t, m, json, of, has) \
    ROW_IF(t, m, json, DECODE_OBJECT, offsetof(t, has), .type = &(of))
#define NEEDED(t, m, json, of) ROW_(t, m, json, DECODE_OBJECT, .type = &(of), .required = true)
#define STRINGS(t, m, json, items, max)                                               \
    {                                                                                 \
        .name = (json), .kind = DECODE_STRING, .at = offsetof(t, m), .array = true,   \
        .has_at = DECODE_NOWHERE, .count_at = DECODE_NOWHERE, .size = sizeof(char *), \
        .count_max = (items), .len_max = (max)                                        \
    }
#define OBJECTS(t, m, count, json, of, items)                                                   \
    {                                                                                           \
        .name = (json), .kind = DECODE_OBJECT, .at = offsetof(t, m), .array = true,             \
        .has_at = DECODE_NOWHERE, .count_at = offsetof(t, count), .size = sizeof(*((t *)0)->m), \
        .type = &(of), .count_max = (items)                                                     \
    }
#define TYPE(var, text, t, rows)                            \
    static const decode_type var = {.name = (text),         \
                                    .mode = DECODE_LENIENT, \
                                    .size = sizeof(t),      \
                                    .fields = (rows),       \
                                    .nfields = ARRAY_LEN(rows)}
/* A member whose own members lie in the same struct: nested in JSON, flat in C. */
#define INTO(json, of)                                                            \
    {                                                                             \
        .name = (json), .kind = DECODE_OBJECT, .at = 0, .has_at = DECODE_NOWHERE, \
        .count_at = DECODE_NOWHERE, .type = &(of)                                 \
    }
#define INTO_NEEDED(json, of)                                                     \
    {                                                                             \
        .name = (json), .kind = DECODE_OBJECT, .at = 0, .has_at = DECODE_NOWHERE, \
        .count_at = DECODE_NOWHERE, .type = &(of), .required = true               \
    }
/* Its size is 0: the struct around it is the one to clear. */
#define PART(var, text, rows)        \
    static const decode_type var = { \
        .name = (text), .mode = DECODE_LENIENT, .fields = (rows), .nfields = ARRAY_LEN(rows)}

/* Metadata and conditions, which every kind has (objects.c). */
extern const decode_type OBJECT_META, OBJECT_CONDITION;
#define CONDITIONS_MAX 32
struct object_meta;
struct condition;
/* Fills in the numeric times of decoded metadata and conditions; an invalid time becomes 0. */
void object_times(struct object_meta *m, struct condition *c, size_t n);
uint64_t object_time(const char *text); /* 0: absent or invalid */
