#include "cli/top_view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/out.h"

/* ---- samples ---- */

void top_sample_done(top_sample *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->rows[i].id);
        free(s->rows[i].name);
        free(s->rows[i].image);
        free(s->rows[i].state);
    }
    free(s->rows);
    *s = (top_sample){0};
}

static uint64_t count_of(const json_t *o, const char *key)
{
    int64_t n = json_int(o, key, 0);

    return n > 0 ? (uint64_t)n : 0;
}

static const top_row *top_view_find(const top_sample *s, const char *id)
{
    for (size_t i = 0; s && i < s->n; i++)
        if (str_eq(s->rows[i].id, id))
            return &s->rows[i];
    return NULL;
}

static double top_view_rate(uint64_t now, uint64_t before, double seconds)
{
    return now > before ? (double)(now - before) / seconds : 0;
}

static void top_view_measure(top_row *r, const top_row *before)
{
    double seconds = before ? r->at - before->at : 0;

    r->load = r->io = r->net = -1;
    if (!r->counted || !before || !before->counted || seconds <= 0)
        return;
    r->load = r->cpu > before->cpu ? 100 * (r->cpu - before->cpu) / seconds : 0;
    r->io = top_view_rate(r->io_bytes, before->io_bytes, seconds);
    r->net = top_view_rate(r->net_bytes, before->net_bytes, seconds);
}

static char *text_of(const json_t *o, const char *key)
{
    return xstrdup(str_or(json_str(o, key), "-"));
}

static void read_row(const json_t *item, uint64_t now_ns, top_row *ret)
{
    const json_t *u = json_object_get(item, "usage");
    uint64_t created = out_parse_time(json_str(item, "created"));

    *ret = (top_row){.id = text_of(item, "id"),
                     .name = text_of(item, "name"),
                     .image = text_of(json_object_get(item, "image"), "name"),
                     .state = text_of(item, "state"),
                     .counted = json_is_object(u),
                     .cpu = json_number_value(json_object_get(u, "cpu_seconds")),
                     .at = (double)out_parse_time(json_str(u, "at")) / 1e9,
                     .memory = count_of(u, "memory"),
                     .limit = count_of(u, "memory_limit"),
                     .pids = count_of(u, "pids"),
                     .io_bytes = count_of(u, "io_read") + count_of(u, "io_written"),
                     .net_bytes = count_of(u, "net_rx") + count_of(u, "net_tx"),
                     .execs = count_of(item, "running_execs"),
                     .idles = json_is_integer(json_object_get(item, "idle_for")),
                     .idle = count_of(item, "idle"),
                     .idle_for = count_of(item, "idle_for"),
                     .age = now_ns > created ? (now_ns - created) / NS_PER_S : 0};
}

void top_sample_read(const json_t *items, const top_sample *before, uint64_t now_ns,
                     top_sample *ret)
{
    size_t n = json_array_size(items);

    *ret = (top_sample){.rows = xcalloc(n + 1, sizeof *ret->rows), .n = n};
    for (size_t i = 0; i < n; i++) {
        read_row(json_array_get(items, i), now_ns, &ret->rows[i]);
        top_view_measure(&ret->rows[i], top_view_find(before, ret->rows[i].id));
    }
}

/* ---- columns ---- */

static double by_cpu(const top_row *r)
{
    return r->load;
}
static double by_memory(const top_row *r)
{
    return (double)r->memory;
}
static double by_pids(const top_row *r)
{
    return (double)r->pids;
}
static double by_io(const top_row *r)
{
    return r->io;
}
static double by_net(const top_row *r)
{
    return r->net;
}
static double by_execs(const top_row *r)
{
    return (double)r->execs;
}
static double by_idle(const top_row *r)
{
    return r->idles ? (double)r->idle_for : -1;
}
static double by_age(const top_row *r)
{
    return (double)r->age;
}

static void show_id(const top_row *r, buf *b)
{
    out_safe(b, r->id);
}
static void show_name(const top_row *r, buf *b)
{
    out_safe(b, r->name);
}
static void show_image(const top_row *r, buf *b)
{
    out_safe(b, r->image);
}
static void show_state(const top_row *r, buf *b)
{
    out_safe(b, r->state);
}
static void show_cpu(const top_row *r, buf *b)
{
    if (r->load >= 0)
        buf_printf(b, "%.1f", r->load);
}
static void show_memory(const top_row *r, buf *b)
{
    if (r->counted)
        out_size(b, r->memory);
}
static void show_limit(const top_row *r, buf *b)
{
    if (r->counted)
        out_size(b, r->limit);
}
static void show_pids(const top_row *r, buf *b)
{
    if (r->counted)
        buf_printf(b, "%" PRIu64, r->pids);
}
static void show_rate(double bytes, buf *b)
{
    if (bytes < 0)
        return;
    out_size(b, (uint64_t)bytes);
    buf_str(b, "/s");
}
static void show_io(const top_row *r, buf *b)
{
    show_rate(r->io, b);
}
static void show_net(const top_row *r, buf *b)
{
    show_rate(r->net, b);
}
static void show_execs(const top_row *r, buf *b)
{
    buf_printf(b, "%" PRIu64, r->execs);
}
static void show_idle(const top_row *r, buf *b)
{
    if (!r->idles)
        return;
    out_age(b, r->idle_for);
    buf_char(b, '/');
    out_age(b, r->idle);
}
static void show_age(const top_row *r, buf *b)
{
    out_age(b, r->age);
}

static const struct {
    const char *head;
    void (*show)(const top_row *r, buf *b);
    bool right;
    const char *name; /* name for --sort; NULL: not sortable */
    char key;
    double (*by)(const top_row *r);
    size_t max; /* wider cells are cut; 0: never */
} COLUMNS[] = {
    {"ID", show_id, false, NULL, 0, NULL, 0},
    {"NAME", show_name, false, NULL, 0, NULL, 16},
    {"IMAGE", show_image, false, NULL, 0, NULL, 24},
    {"STATE", show_state, false, NULL, 0, NULL, 0},
    {"CPU%", show_cpu, true, "cpu", 'c', by_cpu, 0},
    {"MEMORY", show_memory, true, "memory", 'm', by_memory, 0},
    {"LIMIT", show_limit, true, NULL, 0, NULL, 0},
    {"PIDS", show_pids, true, "pids", 'p', by_pids, 0},
    {"IO", show_io, true, "io", 'i', by_io, 0},
    {"NET", show_net, true, "net", 'n', by_net, 0},
    {"EXECS", show_execs, true, "execs", 'e', by_execs, 0},
    {"IDLE", show_idle, true, "idle", 'd', by_idle, 0},
    {"AGE", show_age, true, "age", 'a', by_age, 0},
};
#define COLUMNS_N ARRAY_LEN(COLUMNS)

int top_column(const char *name)
{
    for (size_t i = 0; i < COLUMNS_N; i++)
        if (str_eq(COLUMNS[i].name, name))
            return (int)i;
    return -1;
}

int top_column_of_key(char key)
{
    for (size_t i = 0; i < COLUMNS_N; i++)
        if (key && COLUMNS[i].key == key)
            return (int)i;
    return -1;
}

const char *top_column_name(int column)
{
    return COLUMNS[column].name;
}

typedef struct order {
    double (*by)(const top_row *r);
    bool reverse;
} order;

static int top_view_compare(const void *a, const void *b, void *arg)
{
    const order *o = arg;
    const top_row *x = a, *y = b;
    double l = o->by(x), r = o->by(y);

    if (l != r)
        return (l < r) == o->reverse ? -1 : 1;
    return strcmp(x->id, y->id);
}

void top_sort(top_sample *s, int column, bool reverse)
{
    qsort_r(s->rows, s->n, sizeof *s->rows, top_view_compare,
            &(order){COLUMNS[column].by, reverse});
}

/* ---- drawing ---- */

/* Returns the screen cells of UTF-8 text, counting one for each character. */
static size_t width_of(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

/* Appends the first n characters. */
static void put_cut(buf *out, const char *text, size_t n)
{
    for (; *text; text++) {
        if ((*text & 0xc0) != 0x80 && !n--)
            return;
        buf_char(out, *text);
    }
}

static void top_view_pad(buf *out, size_t n)
{
    while (n--)
        buf_char(out, ' ');
}

typedef struct grid {
    char **cells; /* rows of COLUMNS_N; the first is the head */
    size_t rows;
    size_t width[COLUMNS_N];
} grid;

static void grid_add(grid *g, const char *text, size_t column)
{
    CLEANUP(buf_done) buf cut = {0};
    size_t max = COLUMNS[column].max, n = width_of(text);

    if (max && n > max) {
        put_cut(&cut, text, max - 1);
        buf_str(&cut, "+");
        n = max;
    } else {
        buf_str(&cut, *text ? text : "-");
        n = *text ? n : 1;
    }
    if (n > g->width[column])
        g->width[column] = n;
    g->cells[g->rows * COLUMNS_N + column] = buf_take(&cut);
}

static void grid_fill(grid *g, const top_sample *s, size_t shown)
{
    g->cells = xcalloc((shown + 1) * COLUMNS_N, sizeof(char *));
    for (size_t c = 0; c < COLUMNS_N; c++)
        grid_add(g, COLUMNS[c].head, c);
    for (g->rows = 1; g->rows <= shown; g->rows++)
        for (size_t c = 0; c < COLUMNS_N; c++) {
            CLEANUP(buf_done) buf text = {0};
            COLUMNS[c].show(&s->rows[g->rows - 1], &text);
            grid_add(g, buf_cstr(&text), c);
        }
}

static void grid_done(grid *g)
{
    for (size_t i = 0; g->cells && i < g->rows * COLUMNS_N; i++)
        free(g->cells[i]);
    free(g->cells);
}

static void end_line(const top_look *l, const char *text, bool head, buf *out)
{
    bool mark = head && l->colours;

    if (mark)
        buf_str(out, "\033[1m");
    put_cut(out, text, l->cols ? l->cols : SIZE_MAX);
    if (mark)
        buf_str(out, "\033[0m");
    buf_str(out, l->screen ? "\033[K\r\n" : "\n");
}

static void draw_row(const grid *g, size_t row, const top_look *l, buf *out)
{
    CLEANUP(buf_done) buf line = {0};

    for (size_t c = 0; c < COLUMNS_N; c++) {
        const char *text = g->cells[row * COLUMNS_N + c];
        size_t n = width_of(text), room = g->width[c] > n ? g->width[c] - n : 0;
        if (c)
            buf_str(&line, "  ");
        if (COLUMNS[c].right)
            top_view_pad(&line, room);
        buf_str(&line, text);
        if (!COLUMNS[c].right && c + 1 < COLUMNS_N)
            top_view_pad(&line, room);
    }
    end_line(l, buf_cstr(&line), !row, out);
}

static void draw_heading(const top_sample *s, const top_look *l, buf *out)
{
    CLEANUP(buf_done) buf line = {0};
    double load = 0;
    uint64_t memory = 0;

    for (size_t i = 0; i < s->n; i++) {
        load += s->rows[i].load > 0 ? s->rows[i].load : 0;
        memory += s->rows[i].memory;
    }
    buf_printf(&line, "%zu sandbox%s, cpu %.0f %%, memory ", s->n, s->n == 1 ? "" : "es", load);
    out_size(&line, memory);
    buf_printf(&line, ", by %s", top_column_name(l->column));
    end_line(l, buf_cstr(&line), false, out);
    buf_clear(&line);
    if (l->trouble)
        out_safe(&line, l->trouble);
    else
        buf_str(
            &line,
            "sort: c cpu, m memory, p pids, i io, n net, e execs, d idle, a age; r reverse, q quit");
    end_line(l, buf_cstr(&line), false, out);
}

#define HEADING 3 /* lines above the rows on a screen, including the table's head */

void top_draw(const top_sample *s, const top_look *l, buf *out)
{
    CLEANUP(grid_done) grid g = {0};
    /* The last line of a screen stays empty: a line break there would scroll. */
    size_t room = !l->rows ? s->n : l->rows > HEADING + 1 ? l->rows - HEADING - 1 : 0;
    size_t shown = s->n <= room ? s->n : room ? room - 1 : 0;

    if (l->screen)
        draw_heading(s, l, out);
    grid_fill(&g, s, shown);
    for (size_t i = 0; i <= shown; i++)
        draw_row(&g, i, l, out);
    if (shown < s->n && room) {
        CLEANUP(freep) char *more = str_printf("… and %zu more", s->n - shown);
        end_line(l, more, false, out);
    }
}

json_t *top_json(const top_sample *s)
{
    json_t *all = json_array();

    for (size_t i = 0; i < s->n; i++) {
        const top_row *r = &s->rows[i];
        json_t *o =
            json_pack("{s:s,s:s,s:s,s:s,s:I,s:I}", "id", r->id, "name", r->name, "image", r->image,
                      "state", r->state, "execs", (json_int_t)r->execs, "age", (json_int_t)r->age);
        if (r->counted)
            json_object_update_new(o, json_pack("{s:f,s:I,s:I,s:I,s:f,s:f}", "cpu_percent", r->load,
                                                "memory", (json_int_t)r->memory, "memory_limit",
                                                (json_int_t)r->limit, "pids", (json_int_t)r->pids,
                                                "io_rate", r->io, "net_rate", r->net));
        if (r->idles)
            json_object_update_new(o, json_pack("{s:I,s:I}", "idle", (json_int_t)r->idle,
                                                "idle_for", (json_int_t)r->idle_for));
        json_array_append_new(all, o);
    }
    return all;
}
