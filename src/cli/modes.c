#include "cli/modes.h"

#include "base/cleanup.h"

/* Modes, and whether each is on in a fresh terminal. The alternate screen comes last: leaving it
 * restores the cursor. */
static const struct {
    uint16_t number;
    bool normal;
} TABLE[] = {
    {1, false},    /* cursor keys send application sequences */
    {7, true},     /* lines wrap */
    {25, true},    /* the cursor is visible */
    {66, false},   /* keypad */
    {1000, false}, /* mouse */
    {1002, false}, {1003, false}, {1004, false}, {1005, false},
    {1006, false}, {1015, false}, {2004, false}, /* bracketed paste */
    {2026, false},                               /* synchronised output */
    {47, false},                                 /* alternate screen */
    {1047, false}, {1049, false},
};

enum {
    TEXT,
    ESCAPE,
    BRACKET,
    NUMBERS,
};

static void modes_note(modes *m, bool on)
{
    for (size_t i = 0; i < m->n; i++)
        for (size_t row = 0; row < ARRAY_LEN(TABLE); row++)
            if (TABLE[row].number == m->number[i])
                m->on = on != TABLE[row].normal ? m->on | 1u << row : m->on & ~(1u << row);
}

/* Takes a character after "ESC [ ?". */
static void take_number(modes *m, char c)
{
    if (c >= '0' && c <= '9' && m->n) {
        uint16_t *v = &m->number[m->n - 1];
        *v = (uint16_t)(*v < 6000 ? *v * 10 + (c - '0') : 9999);
    } else if (c == ';' && m->n < ARRAY_LEN(m->number)) {
        m->number[m->n++] = 0;
    } else {
        if (c == 'h' || c == 'l')
            modes_note(m, c == 'h');
        m->state = c == '\033' ? ESCAPE : TEXT;
    }
}

void modes_see(modes *m, const void *p, size_t n)
{
    const char *text = p;

    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (m->state == NUMBERS) {
            take_number(m, c);
        } else if (m->state == BRACKET && c == '?') {
            m->state = NUMBERS;
            m->n = 1;
            m->number[0] = 0;
        } else {
            m->state = c == '\033' ? ESCAPE : m->state == ESCAPE && c == '[' ? BRACKET : TEXT;
        }
    }
}

void modes_undo(modes *m, buf *out)
{
    if (m->state != TEXT)
        buf_str(out, "\030"); /* CAN: ends an incomplete sequence */
    for (size_t row = 0; row < ARRAY_LEN(TABLE); row++)
        if (m->on & 1u << row)
            buf_printf(out, "\033[?%u%c", TABLE[row].number, TABLE[row].normal ? 'h' : 'l');
    buf_str(out, "\033[m");
    *m = (modes){0};
}
