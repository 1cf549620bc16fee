/* Text operations of Python, with the results that SWE-ReX's server and clients expect. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Appends bytes.decode("utf-8", errors="backslashreplace"): always valid UTF-8. */
void rex_decode(buf *out, const char *p, size_t n);
/* Reads the first character of n bytes (at least one) and returns its length. A byte that is not
 * UTF-8 counts as a character, as with Python's surrogateescape. */
size_t rex_char(const char *p, size_t n, uint32_t *ret_char);
/* Returns how many of n bytes come before an incomplete character at the end. */
size_t rex_whole(const char *p, size_t n);
/* Cleans a terminal's output as SWE-ReX does: removes escape sequences, turns \r\n into \n. In
 * place. */
void rex_strip(buf *text);
/* Does str.strip() for ASCII white space, in place. */
void rex_trim(buf *text);
/* Turns the variables that a shell has listed (declare -p), up to the line that is the mark, into
 * text that another shell can read. Leaves out read-only ones, which would abort the reading, and
 * those of the shell and the session driver. Removes the mark and keeps what follows it. In
 * place. */
void rex_settle(buf *state, const char *mark);
/* Append repr() of a str and of a float. */
void rex_repr(buf *out, const char *p, size_t n);
void rex_repr_float(buf *out, double v);

/* Does Path.read_text(encoding, errors); NULL is Python's default. Encodings: UTF-8, ASCII,
 * Latin-1. Handlers: strict, ignore, replace, backslashreplace. Newlines are universal. Returns
 * false if Python would raise: *ret_class is a class of builtins, `why` the message. */
bool rex_read_text(const char *p, size_t n, const char *encoding, const char *errors, buf *out,
                   const char **ret_class, buf *why);
