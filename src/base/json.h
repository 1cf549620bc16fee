/* JSON through jansson, strictly: duplicate keys, NUL, invalid UTF-8, trailing bytes and more than
 * JSON_DEPTH_MAX levels are errors.
 * Separate library (base_json): the warden does not link it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define JSON_DEPTH_MAX 64
/* Parses one document. Reports ERR_INVALID_REQUEST with line and column. */
err *json_parse(const void *p, size_t n, json_t **ret_root) ERR_MUST;
/* The same, but \u0000 may be in its texts: who reads them looks at their lengths. */
err *json_parse_nul(const void *p, size_t n, json_t **ret_root) ERR_MUST;
/* The same for programs that are not ours (a container engine): a key that comes twice counts once,
 * and where a number is beyond 63 bits, all numbers of the document are reals. */
err *json_parse_foreign(const void *p, size_t n, json_t **ret_root) ERR_MUST;
/* CLEANUP(json_decrefp) is jansson's own. */
/* Appends compact JSON; in lines, for people. No control character is left in it as it is. */
void json_write(buf *out, const json_t *j);
void json_write_indented(buf *out, const json_t *j);
/* {"text":...} when valid UTF-8 without NUL, else {"b64":...}. */
json_t *json_bytes(const void *p, size_t n);
/* {"code","message","cause","remedy","retryable",...}; kind and retry_after if set. */
json_t *json_of_err(const err *e, const char *request_id);
/* The error of an answer's {"error":{...}}, or NULL when there is none of that form. */
err *json_to_err(const json_t *root);

/* Readers of optional members: the default when absent or of another type. */
const char *json_str(const json_t *o, const char *key); /* or NULL */
int64_t json_int(const json_t *o, const char *key, int64_t otherwise);
/* Integers and reals; what is below zero, or no number, is 0, what is too large UINT64_MAX. */
uint64_t json_count(const json_t *o, const char *key);
bool json_flag(const json_t *o, const char *key);
