#include "cli/bar.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/out.h"

#define BAR_MAX      40
#define WIDTH        80
#define LABEL        8
#define PERCENT_FULL 100
#define EVERY_NS     (100 * NS_PER_MS)
#define RATE_MS      500 /* before that the rate is not meaningful */

bar bar_start(const char *label)
{
    return (bar){.label = label, .began_ns = now_mono_ns(), .first = -1};
}

static size_t terminal_width(void)
{
    struct winsize w;

    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : WIDTH;
}

static void put_bar(buf *out, size_t width, unsigned percent)
{
    size_t full = width * percent / PERCENT_FULL;

    buf_char(out, '[');
    for (size_t i = 0; i < width; i++)
        buf_char(out, i < full ? '=' : i == full ? '>' : ' ');
    buf_char(out, ']');
}

static void put_rate(buf *out, const bar *b, uint64_t done)
{
    uint64_t ms = (now_mono_ns() - b->began_ns) / NS_PER_MS;

    if (ms < RATE_MS || done <= (uint64_t)b->first)
        return;
    buf_str(out, "  ");
    out_size(out, (done - (uint64_t)b->first) * 1000 / ms);
    buf_str(out, "/s");
}

static void put_label(buf *line, const bar *b)
{
    out_safe(line, b->label);
    while (line->len < LABEL)
        buf_char(line, ' ');
}

static void bar_show(bar *b, buf *line, size_t width)
{
    if (line->len >= width)
        line->len = width - 1;
    fprintf(stderr, "\r%s\x1b[K", buf_cstr(line));
    fflush(stderr);
    b->drawn_ns = now_mono_ns();
}

static unsigned percent_of(const bar_state *s)
{
    if (s->percent >= 0)
        return s->percent > PERCENT_FULL ? PERCENT_FULL : (unsigned)s->percent;
    return s->done < s->total ? (unsigned)((double)s->done * PERCENT_FULL / (double)s->total)
                              : PERCENT_FULL;
}

static void put_tail(buf *tail, const bar *b, const bar_state *s)
{
    if (s->total)
        buf_printf(tail, "%4u %%  ", percent_of(s));
    out_size(tail, s->done);
    if (s->total) {
        buf_str(tail, " of ");
        out_size(tail, s->total);
    }
    if (s->note)
        buf_printf(tail, "  %s", s->note);
    put_rate(tail, b, s->done);
}

void bar_draw(bar *b, const bar_state *s)
{
    size_t width = terminal_width();
    CLEANUP(buf_done) buf tail = {0};
    CLEANUP(buf_done) buf line = {0};

    if (b->first < 0)
        b->first = (int64_t)s->done;
    put_label(&line, b);
    put_tail(&tail, b, s);
    size_t used = line.len + tail.len + 3, room = width > used ? width - used : 0;
    if (s->total && room > 4)
        put_bar(&line, room < BAR_MAX ? room : BAR_MAX, percent_of(s));
    buf_append(&line, tail.p, tail.len);
    bar_show(b, &line, width);
}

bool bar_due(const bar *b)
{
    return !b->drawn_ns || now_mono_ns() - b->drawn_ns >= EVERY_NS;
}

void bar_say(bar *b, const char *text)
{
    CLEANUP(buf_done) buf line = {0};

    put_label(&line, b);
    out_safe(&line, text);
    bar_show(b, &line, terminal_width());
}

void bar_clear(bar *b)
{
    if (b->drawn_ns)
        fputs("\r\x1b[K", stderr);
    b->drawn_ns = 0;
}
