/* bothy pool: shows the pool of ready slots, and changes its watermarks. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/verbs.h"

#define SLOTS_MAX 16384

typedef struct pool_args {
    common_args common;
    const char *low, *high;
} pool_args;

static const opt OPTS[] = {
    OPT(0, "low", "N", OPT_TEXT, pool_args, low, "fill the pool up when fewer slots are ready"),
    OPT(0, "high", "N", OPT_TEXT, pool_args, high, "so many it is filled up to"),
    COMMON_OPTS(pool_args),
};

/* Returns "0.031 s", or "-" if there is no value. */
static char *seconds_of(const json_t *pool, const char *name)
{
    const json_t *v = json_object_get(pool, name);

    return json_is_number(v) ? str_printf("%.3f s", json_number_value(v)) : xstrdup("-");
}

static void print_pools(const json_t *pools)
{
    static const char *const COUNTS[] = {"low",    "high",    "max",     "ready",
                                         "making", "claimed", "waiting", "refills_failed"};
    CLEANUP(out_table_done) out_table t = {0};
    size_t i;
    json_t *p;

    out_table_init(&t, "POOL LOW HIGH MAX READY MAKING CLAIMED WAITING FAILED OLDEST-WAIT REFILL");
    json_array_foreach(pools, i, p)
    {
        CLEANUP(freep) char *wait = seconds_of(p, "oldest_wait");
        CLEANUP(freep) char *refill = seconds_of(p, "refill_time");
        out_table_cell(&t, json_str(p, "name"));
        for (size_t c = 0; c < ARRAY_LEN(COUNTS); c++) {
            CLEANUP(freep) char *n = str_printf("%lld", (long long)json_int(p, COUNTS[c], 0));
            out_table_cell(&t, n);
        }
        out_table_cell(&t, wait);
        out_table_cell(&t, refill);
    }
    out_table_print(&t, stdout, out_colours(stdout));
}

static void print_line(const char *name, const char *text)
{
    CLEANUP(buf_done) buf safe = {0};

    if (!text)
        return;
    out_safe(&safe, text);
    printf("%-10s  %s\n", name, buf_cstr(&safe));
}

/* Prints what has no column in the table: the refill's state, why claims wait, the last error. */
static void print_words(const json_t *pools)
{
    size_t i;
    json_t *p;

    json_array_foreach(pools, i, p)
    {
        print_line("refill", json_str(p, "state"));
        print_line("queue", json_str(p, "waits_for"));
        print_line("last error", json_str(p, "last_error"));
    }
}

static err *put_number(json_t *body, const char *name, const char *text)
{
    uint64_t n;

    if (!text)
        return NULL;
    if (!str_to_u64(text, SLOTS_MAX, &n))
        return usage_error("--%s: '%s' is no number from 0 to %d", name, text, SLOTS_MAX);
    json_object_set_new(body, name, json_integer((json_int_t)n));
    return NULL;
}

static err *pool_change(cli *c, const pool_args *a)
{
    CLEANUP(json_decrefp) json_t *body = json_object();

    TRY(put_number(body, "low", a->low));
    TRY(put_number(body, "high", a->high));
    return cli_call(c, "PATCH", json_incref(body), NULL, "/v1/pools/slots");
}

static err *pool_run(cli *c, void *args, const opt_words *words, int *status)
{
    const pool_args *a = args;
    CLEANUP(json_decrefp) json_t *answer = NULL;

    (void)words, (void)status;
    if (a->low || a->high)
        TRY(pool_change(c, a));
    TRY(cli_call(c, "GET", NULL, &answer, "/v1/pools"));
    const json_t *pools = json_object_get(answer, "pools");
    if (c->common.json) {
        out_json(stdout, pools);
        return NULL;
    }
    if (!json_array_size(pools)) {
        puts("This node's backend keeps nothing warm.");
        return NULL;
    }
    print_pools(pools);
    print_words(pools);
    return NULL;
}

const verb VERB_POOL = {
    .name = "pool",
    .usage = "[OPTIONS]",
    .summary = "Show the pool of ready slots, or change its watermarks",
    .text = "A change holds until the daemon is started again; pool.low and pool.high of\n"
            "bothy.yaml are for good. Only an administrator changes it.",
    .opts = OPTS,
    .args_size = sizeof(pool_args),
    .run = pool_run,
};
