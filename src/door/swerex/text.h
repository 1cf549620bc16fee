/* Texts as a Python program would have them: what SWE-ReX's server, and so its clients, take for
 * granted. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* bytes.decode("utf-8", errors="backslashreplace"): always valid UTF-8. */
void rex_decode(buf *out, const char *p, size_t n);
/* Reads the character at the front of n bytes (at least one) and returns its length. A byte that is
 * not UTF-8 is a character of its own, as Python's surrogateescape has it. */
size_t rex_char(const char *p, size_t n, uint32_t *ret_char);
/* Of n bytes those in front of a character that is not all there. */
size_t rex_whole(const char *p, size_t n);
/* What SWE-ReX does to a terminal's output: escape sequences go, \r\n is \n. In place. */
void rex_strip(buf *text);
/* str.strip() of ASCII white space. In place. */
void rex_trim(buf *text);
/* What a shell has said of its variables (declare -p), up to a line that is the mark, becomes what
 * another one can read: without those that are read-only, which would end the reading, and the
 * driver's. The mark goes, what is behind it stays. In place. */
void rex_settle(buf *state, const char *mark);
/* repr() of a str and of a float. */
void rex_repr(buf *out, const char *p, size_t n);
void rex_repr_float(buf *out, double v);

/* Path.read_text(encoding, errors): NULL is their default. Of encodings there are UTF-8, ASCII and
 * Latin-1, of handlers strict, ignore, replace and backslashreplace. False: *ret_class (a class of
 * builtins) and the message in `why` say what Python would raise. Universal newlines. */
bool rex_read_text(const char *p, size_t n, const char *encoding, const char *errors, buf *out,
                   const char **ret_class, buf *why);
