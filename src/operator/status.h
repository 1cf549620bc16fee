/* Conditions and status of the operator's objects, as JSON. */
#pragma once

#include "base/json.h"
#include "core/cause.h"
#include "operator/objects.h"

/* A condition to write; texts are borrowed. */
typedef struct wanted_condition {
    const char *type;
    bool is;
    const char *reason;
    const char *message; /* or NULL */
} wanted_condition;

#define STATUS_MESSAGE_MAX 1024

/* Makes the conditions as an array. lastTransitionTime is kept where the status is unchanged. */
json_t *status_conditions(const condition *before, size_t nbefore, const wanted_condition *want,
                          size_t n, uint64_t generation, uint64_t now_ns);
/* Makes a string of at most max bytes, cut between characters, without control characters. */
json_t *status_text(const char *s, size_t max);
/* Returns whether writing would change anything; the order of members does not
 * count. NULL is an empty object. */
bool status_differs(const json_t *is, const json_t *wanted);
/* Makes a merge patch from one object to another: a null removes each member no longer wanted. Only
 * the members of the objects themselves are compared. */
json_t *status_members(const json_t *is, const json_t *wanted);
/* Makes a merge patch of the status subresource, of status_members(). */
json_t *status_patch(const json_t *is, const json_t *wanted);
/* Maps a code of Sandbox.status.cause to the engine's causes, which all backends share. */
enum cause_kind status_cause_kind(const char *code);
