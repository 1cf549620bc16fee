/* Configuration: one table (config_table.h) defines the struct, the file's keys, the overrides from
 * the environment, the defaults and the text of --print-config.
 *
 *     CLEANUP(config_done) config c = {0};
 *     TRY(config_load("/etc/bothy/bothy.yaml", false, environ, &c));
 *     if (print) config_print(&c, &out);
 *     listen_on(c.listen_socket); exec_options.stream_max = c.exec_stream_max;
 *
 * Later sources win: default, file, BOTHY_<SECTION>_<KEY>. An unknown key is an error that names
 * the nearest one; aliases, anchors and tags are refused. Read once, before there are threads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "core/registry.h"
#include "core/spec.h"

#define CONFIG_PATH "/etc/bothy/bothy.yaml"

#define CONFIG_C_TEXT  char *
#define CONFIG_C_COUNT uint64_t
#define CONFIG_C_SIZE  uint64_t
#define CONFIG_C_TIME  uint64_t
#define CONFIG_C_MILLI uint64_t
#define CONFIG_C_BOOL  bool

/* Has a member section_key for each row: listen_socket, exec_stream_max (bytes), limits_ttl (ms),
 * limits_cpu (thousandths). Texts are never NULL after config_load; "" means none. */
typedef struct config {
#define CONFIG_SECTION(section, help)
#define CONFIG_ROW(section, key, type, preset, min, max, choices, help) \
    CONFIG_C_##type section##_##key;
#include "daemon/config_table.h"
#undef CONFIG_ROW
#undef CONFIG_SECTION
    registries registries; /* the only section that is not a table of scalars */
} config;

/* Loads the configuration. path NULL: no file. A missing file is an error only if must_exist (the
 * caller named it). */
err *config_load(const char *path, bool must_exist, char *const *env, config *ret_config) ERR_MUST;
/* The same with other defaults: values set by `preset` hold unless the file or the environment
 * changes them. */
typedef void config_preset(config *c);
err *config_load_over(config_preset *preset, const char *path, bool must_exist, char *const *env,
                      config *ret_config) ERR_MUST;
/* The steps of config_load: all defaults; a file's text over them; overrides over both; rules
 * between keys. */
void config_init(config *c);
err *config_parse(const char *name, const void *p, size_t n, config *c) ERR_MUST;
err *config_override(char *const *env, config *c) ERR_MUST;
err *config_check(const config *c) ERR_MUST;
/* Writes YAML with every key, its meaning and its value; config_parse() reads it back. */
void config_print(const config *c, buf *out);
void config_done(config *c);

/* Returns the defaults of a sandbox, for limits_fill(). The disk limit applies only where there are
 * quotas. */
limits config_limits(const config *c);
/* Returns limits.max_*, none below its default. A machine of 0 processors or bytes sets no limit.
 */
limits config_limits_most(const config *c, uint64_t memory, uint32_t processors);
enum log_level config_log_level(const config *c);
