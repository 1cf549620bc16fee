"""C from the model: header, tables, routes, the embedded document."""
import json
import re
import textwrap

from . import model


def quoted(s):
    """A C string literal of the text's UTF-8."""
    if s is None:
        return "NULL"
    out = []
    for b in s.encode():
        c = chr(b)
        if c in '"\\':
            out.append("\\" + c)
        elif c == "\n":
            out.append("\\n")
        elif 0x20 <= b < 0x7F:
            out.append(c)
        else:
            out.append(f"\\{b:03o}")
    return '"' + "".join(out).replace("??", '?""?') + '"'


def comment(text, indent=""):
    text = " ".join(text.replace("*/", "* /").split())
    if not text:
        return ""
    lines = textwrap.wrap(text, 94 - len(indent))
    if len(lines) == 1:
        return f"{indent}/* {lines[0]} */\n"
    return f"{indent}/* " + f"\n{indent} * ".join(lines) + " */\n"


def note(api):
    return f"/* Generated from {api.name}.yaml by tools/gen-api. */\n"


def declare(f):
    star = " *" if not f.ctype.endswith("*") else "*"
    if f.array and f.kind in ("DECODE_STRING", "DECODE_TEXT"):
        return f"    char **{f.c};\n"
    if f.array:
        return f"    {f.ctype}{star}{f.c};\n    size_t n{f.c};\n"
    space = "" if f.ctype.endswith("*") else " "
    has = f"    bool has_{f.c};\n" if f.has else ""
    return f"{has}    {f.ctype}{space}{f.c};\n"


def emit_enum(e):
    out = f"enum {e.ctype} {{\n"
    if not any(n == 0 for _, _, n in e.values):
        out += f"    {e.ctype.upper()}_UNSET = 0,\n"
    for _, constant, number in e.values:
        out += f"    {constant} = {number},\n"
    return out + "};\n"


def emit_struct(t):
    out = comment(t.doc) + f"typedef struct {t.ctype} {{\n"
    for f in t.fields:
        out += comment(f.doc, "    ") + declare(f)
    if not t.fields:
        out += "    char empty;\n"
    out += f"}} {t.ctype};\n"
    if t.texts:
        out += (
            f"err *{t.ctype}_decode(const char *(*find)(void *arg, const char *name), void *arg,\n"
            f"    {t.ctype} *ret_value) ERR_MUST;\n"
        )
    else:
        out += (
            f"err *{t.ctype}_decode(const void *p, size_t n, {t.ctype} *ret_value) ERR_MUST;\n"
            f"err *{t.ctype}_from_json(const json_t *j, {t.ctype} *ret_value) ERR_MUST;\n"
        )
    return out + f"void {t.ctype}_done({t.ctype} *value);\n"


def enums_of(api, t):
    """Those first used by this type."""
    return [f.enum for f in t.fields if f.enum]


def header(api):
    out = note(api) + "#pragma once\n\n#include <stdbool.h>\n#include <stddef.h>\n"
    out += '#include <stdint.h>\n\n#include "base/decode.h"\n'
    if api.operations:
        out += '#include "net/router.h"\n'
    seen = set()
    for t in api.types.values():
        for e in enums_of(api, t):
            if e.ctype not in seen:
                seen.add(e.ctype)
                out += "\n" + emit_enum(e)
        out += "\n" + emit_struct(t)
    upper = api.name.upper()
    if api.operations:
        out += f"\n/* The handlers; the door defines them. */\n"
        for op in api.operations:
            out += f"err *{api.handlers}{op.id}(request *rq, response *rs);\n"
        out += f"extern const route {upper}_ROUTES[];\nextern const size_t {upper}_NROUTES;\n"
    if api.embeds:
        out += f"/* The file as JSON. */\nextern const char {upper}_JSON[];\n"
        out += f"extern const size_t {upper}_JSON_LEN;\n"
    return out


def c_double(v, otherwise):
    return otherwise if v is None else repr(float(v))


def c_int(v):
    if v == -(2**63):
        return "INT64_MIN"
    return f"INT64_C({v})"


def emit_field(t, f):
    m = [f".name = {quoted(f.json)}", f".kind = {f.kind}", f".at = offsetof({t.ctype}, {f.c})"]
    m.append(f".size = sizeof({f.ctype})")
    m.append(f".has_at = offsetof({t.ctype}, has_{f.c})" if f.has else ".has_at = DECODE_NOWHERE")
    if f.array and f.kind not in ("DECODE_STRING", "DECODE_TEXT"):
        m.append(f".count_at = offsetof({t.ctype}, n{f.c})")
    for flag in ("required", "nullable", "secret", "array"):
        if getattr(f, flag):
            m.append(f".{flag} = true")
    if f.alias:
        m.append(f".alias = {quoted(f.alias)}")
    if f.kind == "DECODE_INTEGER":
        m += [f".min = {c_int(f.minimum)}", f".max = UINT64_C({f.maximum})"]
    if f.kind == "DECODE_NUMBER":
        m.append(f".low = {c_double(f.minimum, '-HUGE_VAL')}")
        m.append(f".high = {c_double(f.maximum, 'HUGE_VAL')}")
    m.append(f".len_min = {f.len_min}")
    m.append(f".len_max = {'SIZE_MAX' if f.len_max is None else f.len_max}")
    m.append(f".count_min = {f.count_min}")
    m.append(f".count_max = {'SIZE_MAX' if f.count_max is None else f.count_max}")
    if f.pattern:
        m.append(f".pattern = {quoted(f.pattern)}")
    if f.key_pattern:
        m.append(f".key_pattern = {quoted(f.key_pattern)}")
    if f.enum:
        names = f.enum.ctype.upper() + "_NAMES"
        m += [f".names = {names}", f".nnames = sizeof {names} / sizeof *{names}"]
    if f.type:
        m.append(f".type = &{f.type.ctype.upper()}_TYPE")
    if f.default is not None:
        if f.kind == "DECODE_NUMBER":
            m.append(f".preset_number = {float(f.default)!r}")
        elif f.kind in ("DECODE_STRING", "DECODE_TEXT"):
            m.append(f".preset_text = {quoted(str(f.default))}")
        else:
            m.append(f".preset = {int(f.default)}")
    return "    {" + ",\n     ".join(m) + "},\n"


def emit_type(api, t):
    upper = t.ctype.upper()
    out = ""
    if t.fields:
        out += f"static const decode_field {upper}_FIELDS[] = {{\n"
        out += "".join(emit_field(t, f) for f in t.fields) + "};\n"
    out += f"static const decode_type {upper}_TYPE = {{\n    .name = {quoted(t.name)},\n"
    out += f"    .mode = {model.MODES[api.mode]},\n    .size = sizeof({t.ctype}),\n"
    if t.fields:
        out += f"    .fields = {upper}_FIELDS,\n    .nfields = {len(t.fields)},\n"
    out += f"    .secret = {'true' if t.secret else 'false'},\n"
    out += f"    .empty_ok = {'true' if t.empty_ok else 'false'},\n}};\n"
    return out + emit_functions(t, upper)


def emit_functions(t, upper):
    if t.texts:
        out = (
            f"err *{t.ctype}_decode(const char *(*find)(void *arg, const char *name), void *arg,\n"
            f"    {t.ctype} *ret_value)\n{{\n"
            f"    return decode_texts(&{upper}_TYPE, find, arg, ret_value);\n}}\n"
        )
    else:
        out = (
            f"err *{t.ctype}_decode(const void *p, size_t n, {t.ctype} *ret_value)\n{{\n"
            f"    return decode_document(&{upper}_TYPE, p, n, ret_value);\n}}\n"
            f"err *{t.ctype}_from_json(const json_t *j, {t.ctype} *ret_value)\n{{\n"
            f'    return decode_json(&{upper}_TYPE, j, "", ret_value);\n}}\n'
        )
    return out + (
        f"void {t.ctype}_done({t.ctype} *value)\n{{\n    decode_done(&{upper}_TYPE, value);\n}}\n"
    )


def decoders(api):
    out = note(api) + f'#include "api/{api.name}.h"\n\n#include <math.h>\n'
    for e in api.enums.values():
        out += f"\nstatic const decode_name {e.ctype.upper()}_NAMES[] = {{\n"
        out += "".join(f"    {{{quoted(t)}, {c}}},\n" for t, c, _ in e.values) + "};\n"
    for t in api.types.values():
        out += "\n" + emit_type(api, t)
    return out


def specific(op):
    """Literal segments before parameters before the rest of a path."""
    parts = op.pattern.split("/")
    return [(2 if "*}" in p else 1 if p.startswith("{") else 0, p) for p in parts]


def routes(api):
    upper = api.name.upper()
    out = note(api) + f'#include "api/{api.name}.h"\n\nconst route {upper}_ROUTES[] = {{\n'
    for op in sorted(api.operations, key=specific):
        out += (
            f"    {{{quoted(op.method)}, {quoted(op.pattern)}, {api.handlers}{op.id},\n"
            f"     {model.ROLES[op.role]}, {quoted(op.id)}}},\n"
        )
    n = f"sizeof {upper}_ROUTES / sizeof *{upper}_ROUTES"
    return out + f"}};\nconst size_t {upper}_NROUTES = {n};\n"


def public(node):
    """Without what only the generator reads."""
    if isinstance(node, dict):
        return {k: public(v) for k, v in node.items() if not str(k).startswith("x-") or k == "x-role"}
    return [public(v) for v in node] if isinstance(node, list) else node


def flat(api, node):
    """Without references: for readers that take one schema out of the file."""
    if isinstance(node, dict):
        return {k: flat(api, v) for k, v in api.resolve(node)[0].items()}
    return [flat(api, v) for v in node] if isinstance(node, list) else node


def embedded(api):
    upper = api.name.upper()
    doc = api.doc if api.operations else flat(api, api.doc)
    text = json.dumps(public(doc), ensure_ascii=True, separators=(",", ":"), default=str)
    lines = [quoted(p) for p in re.findall(r".{1,80}", text)]
    out = note(api) + f'#include "api/{api.name}.h"\n\nconst char {upper}_JSON[] =\n    '
    return out + "\n    ".join(lines) + f";\nconst size_t {upper}_JSON_LEN = sizeof {upper}_JSON - 1;\n"
