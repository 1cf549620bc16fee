/* The configuration table: values, overrides, defaults and rules between keys. */
#include "daemon/config.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "daemon/config_internal.h"
#include "wire/gateway.h"

#define FILE_MAX (1u << 20)

const config_row CONFIG_ROWS[] = {
#define CONFIG_SECTION(section, help) \
    {#section, NULL, CONFIG_IS_SECTION, 0, NULL, 0, 0, NULL, help},
#define CONFIG_ROW(section, key, type, preset, min, max, choices, help)                     \
    {#section, #key, CONFIG_IS_##type, offsetof(config, section##_##key), preset, min, max, \
     choices,  help},
#include "daemon/config_table.h"
#undef CONFIG_ROW
#undef CONFIG_SECTION
};
const size_t CONFIG_NROWS = ARRAY_LEN(CONFIG_ROWS);

/* ---- values ---- */

static const char *const EXPECTED[] = {
    [CONFIG_IS_TEXT] = "a text",
    [CONFIG_IS_COUNT] = "a whole number",
    [CONFIG_IS_SIZE] = "a size like 512m or 1g",
    [CONFIG_IS_TIME] = "a time like 30s, 5m, 1h",
    [CONFIG_IS_MILLI] = "a number like 0.5",
    [CONFIG_IS_BOOL] = "true or false",
};

static bool to_number(enum config_type type, const char *text, uint64_t *ret)
{
    switch (type) {
    case CONFIG_IS_COUNT:
        return str_to_u64(text, UINT64_MAX, ret);
    case CONFIG_IS_SIZE:
        return str_to_bytes(text, ret);
    case CONFIG_IS_TIME:
        return str_to_duration_ms(text, ret);
    default: /* a plain number parses as seconds, and its milliseconds are the thousandths */
        return text[strspn(text, "0123456789.")] == 0 && str_to_duration_ms(text, ret);
    }
}

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);

    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (strcspn(at, "|") == n && !memcmp(at, text, n))
            return true;
    return false;
}

static err *set_text(const config_row *r, const char *text, config *c)
{
    char **at = (char **)((char *)c + r->at);
    size_t n = strlen(text);

    if (r->choices && !is_choice(r->choices, text))
        return err_new(ERR_INVALID_REQUEST, "%s.%s must be one of %s, not '%.64s'", r->section,
                       r->key, r->choices, text);
    if (n < r->min || n > r->max)
        return err_new(ERR_INVALID_REQUEST, "%s.%s must have %llu to %llu characters, not %zu",
                       r->section, r->key, (unsigned long long)r->min, (unsigned long long)r->max,
                       n);
    free(*at);
    *at = xstrdup(text);
    return NULL;
}

static err *set_number(const config_row *r, const char *text, config *c)
{
    uint64_t v = 0;

    if (!to_number(r->type, text, &v))
        return err_new(ERR_INVALID_REQUEST, "%s.%s must be %s, not '%.64s'", r->section, r->key,
                       EXPECTED[r->type], text);
    if (v < r->min || v > r->max) {
        CLEANUP(freep) char *low = config_number_text(r->type, r->min);
        CLEANUP(freep) char *high = config_number_text(r->type, r->max);
        return err_new(ERR_INVALID_REQUEST, "%s.%s must be from %s to %s, not '%.64s'", r->section,
                       r->key, low, high, text);
    }
    *(uint64_t *)((char *)c + r->at) = v;
    return NULL;
}

err *config_set(const config_row *r, const char *text, config *c)
{
    if (r->type == CONFIG_IS_TEXT)
        return set_text(r, text, c);
    if (r->type != CONFIG_IS_BOOL)
        return set_number(r, text, c);
    bool yes = !strcmp(text, "true");
    if (!yes && strcmp(text, "false") != 0)
        return err_new(ERR_INVALID_REQUEST, "%s.%s must be true or false, not '%.64s'", r->section,
                       r->key, text);
    *(bool *)((char *)c + r->at) = yes;
    return NULL;
}

/* ---- looking up ---- */

static err *config_unknown(const char *what, const char *name, const char *const *known, size_t n)
{
    CLEANUP(buf_done) buf all = {0};

    for (size_t i = 0; i < n; i++)
        buf_printf(&all, "%s%s", i ? ", " : "", known[i]);
    const char *near = str_nearest(name, known, n);
    err *e = near ? err_new(ERR_INVALID_REQUEST, "%s '%.64s' is not known, did you mean '%s'?",
                            what, name, near)
                  : err_new(ERR_INVALID_REQUEST, "%s '%.64s' is not known", what, name);
    return err_remedy(e, "Known here: %s. 'bothyd --print-config' explains them.", buf_cstr(&all));
}

err *config_find_section(const char *section, const char **ret_section)
{
    const char *known[CONFIG_SECTIONS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < CONFIG_NROWS; i++) {
        if (CONFIG_ROWS[i].type != CONFIG_IS_SECTION)
            continue;
        if (!strcmp(CONFIG_ROWS[i].section, section)) {
            *ret_section = CONFIG_ROWS[i].section;
            return NULL;
        }
        if (n < CONFIG_SECTIONS_MAX)
            known[n++] = CONFIG_ROWS[i].section;
    }
    return config_unknown("section", section, known, n);
}

err *config_find(const char *section, const char *key, const config_row **ret_row)
{
    CLEANUP(freep) const char **known = xcalloc(CONFIG_NROWS, sizeof *known);
    size_t n = 0;

    for (size_t i = 0; i < CONFIG_NROWS; i++) {
        const config_row *r = &CONFIG_ROWS[i];
        if (r->type == CONFIG_IS_SECTION || strcmp(r->section, section) != 0)
            continue;
        if (!strcmp(r->key, key)) {
            *ret_row = r;
            return NULL;
        }
        known[n++] = r->key;
    }
    return err_wrap(config_unknown("key", key, known, n), "%s", section);
}

/* ---- overrides ---- */

/* Applies BOTHY_LISTEN_TCP=… Skips a variable that begins with no section's name: BOTHY_SOCKET
 * belongs to the command line. */
static err *override_one(const char *pair, config *c)
{
    const char *name = pair + strlen("BOTHY_"), *eq = strchr(pair, '=');
    CLEANUP(freep) char *lower = xstrndup(name, (size_t)(eq - name));
    const config_row *row = NULL;

    for (char *p = lower; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    char *key = strchr(lower, '_');
    if (!key)
        return NULL;
    *key++ = 0;
    const char *section = NULL;
    err *e = config_find_section(lower, &section);
    if (e) {
        err_free(e);
        return NULL;
    }
    TRY(config_find(section, key, &row));
    return config_set(row, eq + 1, c);
}

err *config_override(char *const *env, config *c)
{
    for (size_t i = 0; env && env[i]; i++) {
        if (!str_starts(env[i], "BOTHY_") || !strchr(env[i], '='))
            continue;
        err *e = override_one(env[i], c);
        if (e)
            return err_wrap(e, "environment variable %.*s", (int)strcspn(env[i], "="), env[i]);
    }
    return NULL;
}

/* ---- the whole ---- */

void config_init(config *c)
{
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < CONFIG_NROWS; i++) {
        const config_row *r = &CONFIG_ROWS[i];
        err *e = r->type == CONFIG_IS_SECTION ? NULL : config_set(r, r->preset, c);
        if (e) /* the table is wrong */
            abort();
    }
}

void config_done(config *c)
{
    for (size_t i = 0; i < CONFIG_NROWS; i++)
        if (CONFIG_ROWS[i].type == CONFIG_IS_TEXT)
            free(*(char **)((char *)c + CONFIG_ROWS[i].at));
    registries_done(&c->registries);
    memset(c, 0, sizeof *c);
}

static bool tcp_valid(const char *s)
{
    const char *colon = strrchr(s, ':');
    uint64_t port;

    return colon && colon > s && str_to_u64(colon + 1, 65535, &port) && port &&
           (s[0] == '[' ? colon[-1] == ']' : strchr(s, ':') == colon);
}

err *config_check(const config *c)
{
    for (const char *p = c->node_cell; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9')))
            return err_new(ERR_INVALID_REQUEST, "node.cell must be four of a-z and 0-9, not '%s'",
                           c->node_cell);
    if (*c->listen_tcp && !tcp_valid(c->listen_tcp))
        return err_new(ERR_INVALID_REQUEST,
                       "listen.tcp must be address:port, as 127.0.0.1:7070 or [::1]:7070, not '%s'",
                       c->listen_tcp);
    if (*c->ports_domain && !gateway_domain_ok(c->ports_domain))
        return err_new(
            ERR_INVALID_REQUEST,
            "ports.domain must be a name of lower case letters, digits, hyphens and dots, "
            "not '%s'",
            c->ports_domain);
    if (c->exec_stream_max > c->exec_sandbox_max)
        return err_new(ERR_INVALID_REQUEST, "exec.stream_max must not be above exec.sandbox_max");
    if (c->pool_low > c->pool_high)
        return err_new(ERR_INVALID_REQUEST, "pool.low must not be above pool.high");
    if (c->retention_spool > c->retention_record)
        return err_new(ERR_INVALID_REQUEST, "retention.spool must not be above retention.record");
    if (str_eq(c->backend_name, "kubernetes") && !*c->kubernetes_image)
        return err_new(ERR_INVALID_REQUEST,
                       "kubernetes.image is needed for the backend 'kubernetes'");
    if (str_eq(c->backend_name, "fake") && !*c->backend_fake_dir)
        return err_new(ERR_INVALID_REQUEST, "backend.fake_dir is needed for the backend 'fake'");
    return NULL;
}

/* Loads a file. If it exists but cannot be read, that is an error: its limits and restrictions
 * would be missing. */
static err *load_file(const char *path, bool must_exist, config *c)
{
    CLEANUP(buf_done) buf text = {0};
    struct stat st;

    if (!must_exist && stat(path, &st) && (errno == ENOENT || errno == ENOTDIR))
        return NULL;
    err *e = fs_read_linked(path, FILE_MAX, &text);
    if (e)
        return err_remedy(e, "Name a file with --config, and let bothyd's user read it: it runs as "
                             "the user bothy, with --user as you.");
    return config_parse(path, text.p, text.len, c);
}

/* Adds the remedy of a configuration error, in place of one for requests. */
static err *of_config(err *e)
{
    return !e || e->remedy ? e
                           : err_remedy(e, "Correct it in the file or the environment, and start "
                                           "again; 'bothyd --print-config' "
                                           "explains every key.");
}

err *config_load(const char *path, bool must_exist, char *const *env, config *ret_config)
{
    return config_load_over(NULL, path, must_exist, env, ret_config);
}

err *config_load_over(config_preset *preset, const char *path, bool must_exist, char *const *env,
                      config *ret_config)
{
    CLEANUP(config_done) config c = {0};

    config_init(&c);
    if (preset)
        preset(&c);
    if (path)
        TRY(of_config(load_file(path, must_exist, &c)));
    TRY(of_config(config_override(env, &c)));
    TRY(of_config(config_check(&c)));
    *ret_config = c;
    memset(&c, 0, sizeof c);
    return NULL;
}

/* E2B's SDKs ask for two if none is named; on a smaller machine that is only a higher quota. */
#define CORES_LEAST 2u

static uint32_t mib_of(uint64_t bytes)
{
    return (uint32_t)((bytes + (1u << 20) - 1) >> 20);
}

limits config_limits(const config *c)
{
    return (limits){
        .memory = c->limits_memory,
        .disk = c->limits_disk,
        .cpu_milli = (uint32_t)c->limits_cpu,
        .pids = (uint32_t)c->limits_pids,
        .nofile = (uint32_t)c->limits_nofile,
        .nofile_hard = (uint32_t)c->limits_nofile_hard,
        .shm_mib = mib_of(c->limits_shm),
        .execs = (uint32_t)c->exec_live_max,
    };
}

limits config_limits_most(const config *c, uint64_t memory, uint32_t processors)
{
    const limits defaults = config_limits(c);
    const uint32_t cores = processors == 1 ? CORES_LEAST : processors;
    limits most = {.memory = c->limits_max_memory ? c->limits_max_memory : memory,
                   .cpu_milli = c->limits_max_cpu ? (uint32_t)c->limits_max_cpu : cores * 1000,
                   .pids = (uint32_t)c->limits_max_pids,
                   .disk = c->limits_max_disk};

    most.shm_mib = mib_of(c->limits_max_shm ? c->limits_max_shm : most.memory);
    limits_lift(&most, &defaults);
    return most;
}

enum log_level config_log_level(const config *c)
{
    static const char *const NAMES[] = {"debug", "info", "warn", "error"};

    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (str_eq(c->log_level, NAMES[i]))
            return (enum log_level)i;
    return LOG_INFO;
}
