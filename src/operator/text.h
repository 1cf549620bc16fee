/* Quantities, times and addresses in the text forms of the Kubernetes API. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Parses "250m", "1", "1.5", "64Mi", "1e3", "2G" into thousandths, rounded up. Returns false for
 * anything else, and if 64 bits cannot hold the result. */
bool quantity_to_milli(const char *s, uint64_t *ret_milli);
/* The same in whole units, such as bytes, rounded up. */
bool quantity_to_units(const char *s, uint64_t *ret_units);

/* Parses RFC 3339 with any fraction, Z or an offset, into ns since 1970.
 * Returns false for earlier times. */
bool time_of_text(const char *s, uint64_t *ret_ns);
/* Writes "2026-01-02T03:04:05Z", as in metadata; "" for 0. */
#define TIME_TEXT_MAX 32
void time_to_text(uint64_t ns, char ret_text[TIME_TEXT_MAX]);
/* The same with six digits of seconds, as in eventTime and Leases. */
void time_to_micro(uint64_t ns, char ret_text[TIME_TEXT_MAX]);

/* Returns false unless s is like "10.0.0.0/8" or "fd00::/8". The bits
 * behind the prefix may be anything. */
bool cidr_valid(const char *s, bool *ret_v6);
