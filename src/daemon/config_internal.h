/* The configuration table as data, shared by config.c and config_yaml.c. */
#pragma once

#include "daemon/config.h"

enum config_type {
    CONFIG_IS_SECTION,
    CONFIG_IS_TEXT,
    CONFIG_IS_COUNT,
    CONFIG_IS_SIZE,
    CONFIG_IS_TIME,
    CONFIG_IS_MILLI,
    CONFIG_IS_BOOL
};

typedef struct config_row {
    const char *section;
    const char *key; /* NULL: this row is the section itself */
    enum config_type type;
    size_t at;
    const char *preset;
    uint64_t min, max;
    const char *choices;
    const char *help;
} config_row;

#define CONFIG_SECTIONS_MAX 32

extern const config_row CONFIG_ROWS[];
extern const size_t CONFIG_NROWS;

err *config_find_section(const char *section, const char **ret_section) ERR_MUST;
err *config_find(const char *section, const char *key, const config_row **ret_row) ERR_MUST;
err *config_set(const config_row *r, const char *text, config *c) ERR_MUST;
/* Formats a number as in the file: "64m", "1h", "0.5". */
char *config_number_text(enum config_type type, uint64_t v);
