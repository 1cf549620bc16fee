/* Conditions and the status of our objects, as JSON. */
#pragma once

#include "base/json.h"
#include "core/cause.h"
#include "operator/objects.h"

/* What is to be said; texts are borrowed. */
typedef struct wanted_condition {
    const char *type;
    bool is;
    const char *reason;
    const char *message; /* or NULL */
} wanted_condition;

#define STATUS_MESSAGE_MAX 1024

/* The conditions as an array: lastTransitionTime stays where the status is the same as before. */
json_t *status_conditions(const condition *before, size_t nbefore, const wanted_condition *want,
                          size_t n, uint64_t generation, uint64_t now_ns);
/* Cut to its limit at a character, without control characters. */
json_t *status_text(const char *s, size_t max);
/* Whether writing it would change anything: both as they are, whatever the order of members. NULL
 * is an empty object. */
bool status_differs(const json_t *is, const json_t *wanted);
/* A merge patch of the status subresource: what has gone is taken away by a null. */
json_t *status_patch(const json_t *is, const json_t *wanted);
/* What a code of Sandbox.status.cause is for the engine, whose causes are every backend's. */
enum cause_kind status_cause_kind(const char *code);
