/* JSON through jansson, strictly: duplicate keys, NUL, invalid UTF-8, trailing bytes and more than
 * JSON_DEPTH_MAX levels are errors.
 *
 * Separate library (base_json): the warden does not link it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define JSON_DEPTH_MAX 64
/* Parses one document. Errors: ERR_INVALID_REQUEST with line and column. */
err *json_parse(const void *p, size_t n, json_t **ret_root) ERR_MUST;
/* Like json_parse(), but allows \u0000 in strings: the reader must use their lengths. */
err *json_parse_nul(const void *p, size_t n, json_t **ret_root) ERR_MUST;
/* Like json_parse(), for documents of other programs (a container engine): duplicate keys are
 * allowed, and if a number exceeds 63 bits, all numbers of the document are read as reals. */
err *json_parse_foreign(const void *p, size_t n, json_t **ret_root) ERR_MUST;
/* CLEANUP(json_decrefp) is jansson's own. */
/* Appends JSON, compact or indented for people. Control characters are always escaped. */
void json_write(buf *out, const json_t *j);
void json_write_indented(buf *out, const json_t *j);
/* Returns {"text":...} for valid UTF-8 without NUL, else {"b64":...}. */
json_t *json_bytes(const void *p, size_t n);
/* Returns {"code","message","cause","remedy","retryable",...}; kind and retry_after if set. */
json_t *json_of_err(const err *e, const char *request_id);
/* Returns the error in an answer's {"error":{...}}, or NULL if there is none of that form. */
err *json_to_err(const json_t *root);

/* Readers of optional members: they return the default if the member is absent or of another
 * type. */
const char *json_str(const json_t *o, const char *key); /* or NULL */
int64_t json_int(const json_t *o, const char *key, int64_t otherwise);
/* Accepts integers and reals. Returns 0 for a negative value or another type, and UINT64_MAX for
 * one that is too large. */
uint64_t json_count(const json_t *o, const char *key);
bool json_flag(const json_t *o, const char *key);
