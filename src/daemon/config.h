/* Configuration: one table (config_table.h) gives the struct, the file's keys, the overrides from
 * the environment, the defaults and the text of --print-config.
 *
 *     CLEANUP(config_done) config c = {0};
 *     TRY(config_load("/etc/bothy/bothy.yaml", false, environ, &c));
 *     if (print) config_print(&c, &out);
 *     listen_on(c.listen_socket); exec_options.stream_max = c.exec_stream_max;
 *
 * Later wins: default, file, BOTHY_<SECTION>_<KEY>. An unknown key is an error that names the
 * nearest; aliases, anchors and tags are refused. Read once, before there are threads. */
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

/* A member for each row, section_key: listen_socket, exec_stream_max (bytes), limits_ttl (ms),
 * limits_cpu (thousandths). Texts are never NULL after config_load; "" is none. */
typedef struct config {
#define CONFIG_SECTION(section, help)
#define CONFIG_ROW(section, key, type, preset, min, max, choices, help) \
    CONFIG_C_##type section##_##key;
#include "daemon/config_table.h"
#undef CONFIG_ROW
#undef CONFIG_SECTION
    registries registries; /* the one section that is no table of scalars */
} config;

/* path NULL: no file. A missing file is an error only if must_exist (it was named by the caller).
 */
err *config_load(const char *path, bool must_exist, char *const *env, config *ret_config) ERR_MUST;
/* The same over other defaults: what `preset` changed stands until the file or the environment says
 * otherwise. */
typedef void config_preset(config *c);
err *config_load_over(config_preset *preset, const char *path, bool must_exist, char *const *env,
                      config *ret_config) ERR_MUST;
/* The pieces of config_load: all defaults; a file's text over them; overrides over both; rules
 * between keys. */
void config_init(config *c);
err *config_parse(const char *name, const void *p, size_t n, config *c) ERR_MUST;
err *config_override(char *const *env, config *c) ERR_MUST;
err *config_check(const config *c) ERR_MUST;
/* YAML with every key, its meaning and its value; config_parse() reads it back. */
void config_print(const config *c, buf *out);
void config_done(config *c);

/* The defaults of a sandbox, for limits_fill(). Its disk is for where there are quotas. */
limits config_limits(const config *c);
/* limits.max_*, none below its default. A machine of 0 processors or bytes holds nobody back. */
limits config_limits_most(const config *c, uint64_t memory, uint32_t processors);
enum log_level config_log_level(const config *c);
