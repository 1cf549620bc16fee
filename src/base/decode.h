/* Decodes JSON documents into C structs, driven by tables (part of base_json).
 *
 * tools/gen-api writes the tables and the structs from an api/<name>.yaml; this code knows no API.
 * An error names the member by its path ("limits.memory"), says what was expected and, for an
 * unknown member, suggests the nearest known one. Errors quote values only if they are not secret.
 *
 * Ownership: everything that a decoder writes belongs to the struct. decode_done() frees it, wipes
 * fields marked secret, and leaves the struct zeroed. For types with secrets every string of the
 * parsed document is wiped as well; wiping the body itself is the caller's job. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

enum decode_mode {
    DECODE_STRICT,  /* an unknown member is an error; null only where nullable */
    DECODE_LENIENT, /* unknown members are ignored, null is absent, 1.0 is an integer */
    DECODE_PROTO3, /* lenient, and: numbers as strings, enums by number, both spellings of a name */
};

enum decode_kind {
    DECODE_STRING,  /* char * */
    DECODE_TEXT,    /* char *: a string or an integer, as text */
    DECODE_BASE64,  /* decode_blob: a base64 string */
    DECODE_BYTES,   /* decode_blob: {"text":…}, {"b64":…}, a string */
    DECODE_OCTAL,   /* uint32_t: a string of octal digits */
    DECODE_BOOL,    /* bool */
    DECODE_INTEGER, /* int32_t, int64_t, uint32_t, uint64_t by size and min */
    DECODE_NUMBER,  /* double */
    DECODE_ENUM,    /* an enum: int */
    DECODE_MAP,     /* char **: NAME=value, ended by NULL */
    DECODE_OBJECT,  /* a struct, inline */
    DECODE_ANY,     /* json_t *: any JSON value, kept as it is */
};

typedef struct decode_blob {
    char *p; /* NULL: absent. A NUL follows the bytes */
    size_t n;
} decode_blob;

typedef struct decode_name { /* one value of an enum */
    const char *name;
    int value;
} decode_name;

#define DECODE_NOWHERE SIZE_MAX

typedef struct decode_field {
    const char *name;
    const char *alias; /* another spelling (DECODE_PROTO3), or NULL */
    enum decode_kind kind;
    bool required, nullable, secret;
    bool array;      /* array of kind: strings, texts as char **, others as pointer and count */
    size_t at;       /* offset in the struct */
    size_t has_at;   /* bool, set if the member was present; or DECODE_NOWHERE */
    size_t count_at; /* size_t: number of items; unused for arrays of strings */
    size_t size;     /* of one value */
    int64_t min;     /* INTEGER */
    uint64_t max;
    double low, high;            /* NUMBER */
    size_t len_min, len_max;     /* bytes of a string, of an item, of a map's value */
    size_t count_min, count_max; /* items of an array, members of a map */
    const char *pattern;         /* POSIX extended, or NULL */
    const char *key_pattern;     /* of a map's names */
    const decode_name *names;    /* ENUM */
    size_t nnames;
    const struct decode_type *type; /* OBJECT */
    int64_t preset;                 /* INTEGER, BOOL, ENUM, OCTAL when absent */
    double preset_number;
    const char *preset_text; /* STRING, TEXT; or NULL */
} decode_field;

typedef struct decode_type {
    const char *name; /* for people: "CreateSandbox" */
    enum decode_mode mode;
    size_t size;
    const decode_field *fields;
    size_t nfields;
    bool secret;   /* the type or one of its fields is secret */
    bool empty_ok; /* an empty body reads as {} */
} decode_type;

/* Parses and decodes one document. Errors: ERR_INVALID_REQUEST; *ret_value is zeroed then. */
err *decode_document(const decode_type *t, const void *p, size_t n, void *ret_value) ERR_MUST;
/* Like decode_document(), for a parsed object. path names it in errors, "" for none. */
err *decode_json(const decode_type *t, const json_t *j, const char *path, void *ret_value) ERR_MUST;
/* Decodes text values such as those of a query: find() returns a member's text or NULL. Scalars and
 * enums only. The caller rejects unknown names. */
err *decode_texts(const decode_type *t, const char *(*find)(void *arg, const char *name), void *arg,
                  void *ret_value) ERR_MUST;
void decode_done(const decode_type *t, void *value);
