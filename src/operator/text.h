/* The texts of Kubernetes' API: quantities and times. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* "250m", "1", "1.5", "64Mi", "1e3", "2G" in thousandths, rounded up. False on anything else, and
 * beyond what 64 bits hold. */
bool quantity_to_milli(const char *s, uint64_t *ret_milli);
/* The same in whole units, rounded up: bytes. */
bool quantity_to_units(const char *s, uint64_t *ret_units);

/* RFC 3339 with any fraction, Z or an offset, in ns since 1970; false before that. */
bool time_of_text(const char *s, uint64_t *ret_ns);
/* "2026-01-02T03:04:05Z", as metadata has it; "" for 0. */
#define TIME_TEXT_MAX 32
void time_to_text(uint64_t ns, char ret_text[TIME_TEXT_MAX]);
/* With six digits, as eventTime and Leases have it. */
void time_to_micro(uint64_t ns, char ret_text[TIME_TEXT_MAX]);

/* "10.0.0.0/8", "fd00::/8"; the bits behind the prefix may be anything. */
bool cidr_valid(const char *s, bool *ret_v6);
