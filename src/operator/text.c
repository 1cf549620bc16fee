#include "operator/text.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

/* ---- quantities ---- */

typedef unsigned __int128 wide;

static const struct {
    const char *suffix;
    uint64_t factor;  /* multiplies the number into thousandths, */
    uint64_t divisor; /* divides the result */
} SUFFIXES[] = {
    {"n", 1, 1000000},
    {"u", 1, 1000},
    {"m", 1, 1},
    {"", 1000, 1},
    {"k", 1000000, 1},
    {"M", UINT64_C(1000000000), 1},
    {"G", UINT64_C(1000000000000), 1},
    {"T", UINT64_C(1000000000000000), 1},
    {"P", UINT64_C(1000000000000000000), 1},
    {"Ki", UINT64_C(1000) << 10, 1},
    {"Mi", UINT64_C(1000) << 20, 1},
    {"Gi", UINT64_C(1000) << 30, 1},
    {"Ti", UINT64_C(1000) << 40, 1},
    {"Pi", UINT64_C(1000) << 50, 1},
};

static bool to_result(wide value, wide divisor, uint64_t *ret)
{
    wide up = (value + divisor - 1) / divisor;

    if (up > UINT64_MAX)
        return false;
    *ret = (uint64_t)up;
    return true;
}

/* Parses "e3", "E6", as Kubernetes' own encoder writes them; up to 15 here. */
static bool text_exponent(const char *s, uint64_t *ret_factor)
{
    uint64_t e;

    if ((*s != 'e' && *s != 'E') || !str_to_u64(s + 1, 15, &e))
        return false;
    *ret_factor = 1000;
    while (e--)
        *ret_factor *= 10;
    return true;
}

static bool suffix_of(const char *s, uint64_t *ret_factor, uint64_t *ret_divisor)
{
    *ret_divisor = 1;
    for (size_t i = 0; i < ARRAY_LEN(SUFFIXES); i++)
        if (!strcmp(SUFFIXES[i].suffix, s)) {
            *ret_factor = SUFFIXES[i].factor;
            *ret_divisor = SUFFIXES[i].divisor;
            return true;
        }
    return text_exponent(s, ret_factor);
}

#define DIGITS_MAX 18 /* so that no product exceeds 128 bits */

bool quantity_to_milli(const char *s, uint64_t *ret_milli)
{
    uint64_t number = 0, scale = 1, factor, divisor;
    size_t digits = 0;
    bool point = false;

    for (; isdigit((unsigned char)*s) || (*s == '.' && !point); s++) {
        if (*s == '.') {
            point = true;
            continue;
        }
        if (++digits > DIGITS_MAX)
            return false;
        number = number * 10 + (uint64_t)(*s - '0');
        scale *= point ? 10 : 1;
    }
    if (!digits || !suffix_of(s, &factor, &divisor))
        return false;
    return to_result((wide)number * factor, (wide)scale * divisor, ret_milli);
}

bool quantity_to_units(const char *s, uint64_t *ret_units)
{
    uint64_t milli;

    return quantity_to_milli(s, &milli) && to_result(milli, 1000, ret_units);
}

/* ---- times ---- */

static bool offset_of_text(const char *s, int64_t *ret_seconds)
{
    struct tm tm = {0};

    if (!strcmp(s, "Z") || !strcmp(s, "z"))
        return *ret_seconds = 0, true;
    if ((*s != '+' && *s != '-') || strlen(s) != strlen("+00:00"))
        return false;
    const char *rest = strptime(s + 1, "%H:%M", &tm);
    if (!rest || *rest)
        return false;
    *ret_seconds = (*s == '-' ? -1 : 1) * (tm.tm_hour * 3600 + tm.tm_min * 60);
    return true;
}

#define SECONDS_MAX INT64_C(9000000000) /* the year 2255: its nanoseconds fit into 64 bits */

bool time_of_text(const char *s, uint64_t *ret_ns)
{
    struct tm tm = {0};
    uint64_t fraction = 0, unit = NS_PER_S / 10;
    int64_t offset;
    const char *rest = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);

    if (!rest)
        return false;
    if (*rest == '.')
        for (rest++; isdigit((unsigned char)*rest); rest++, unit /= 10)
            fraction += unit * (uint64_t)(*rest - '0');
    if (!offset_of_text(rest, &offset))
        return false;
    int64_t at = (int64_t)timegm(&tm) - offset;
    if (at < 0 || at > SECONDS_MAX)
        return false;
    *ret_ns = (uint64_t)at * NS_PER_S + fraction;
    return true;
}

static size_t write_seconds(uint64_t ns, char *text)
{
    time_t t = (time_t)(ns / NS_PER_S);
    struct tm tm;

    gmtime_r(&t, &tm);
    return strftime(text, TIME_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
}

void time_to_text(uint64_t ns, char ret_text[TIME_TEXT_MAX])
{
    *ret_text = 0;
    if (ns) {
        size_t n = write_seconds(ns, ret_text);
        str_copy(ret_text + n, TIME_TEXT_MAX - n, "Z");
    }
}

void time_to_micro(uint64_t ns, char ret_text[TIME_TEXT_MAX])
{
    size_t n = write_seconds(ns, ret_text);

    snprintf(ret_text + n, TIME_TEXT_MAX - n, ".%06uZ", (unsigned)(ns % NS_PER_S / 1000));
}

/* ---- addresses ---- */

bool cidr_valid(const char *s, bool *ret_v6)
{
    char address[INET6_ADDRSTRLEN];
    unsigned char bytes[16];
    const char *slash = strchr(s, '/');
    size_t n = slash ? (size_t)(slash - s) : 0;
    uint64_t bits;

    if (!n || n >= sizeof address)
        return false;
    memcpy(address, s, n);
    address[n] = 0;
    *ret_v6 = strchr(address, ':') != NULL;
    return inet_pton(*ret_v6 ? AF_INET6 : AF_INET, address, bytes) == 1 &&
           str_to_u64(slash + 1, *ret_v6 ? 128 : 32, &bits);
}
