"""The reference page: every operation, every schema, the error table."""
import json
import re


def read_errors(path):
    """Rows of src/base/err_table.h."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    rows = re.findall(
        r'ERR_ROW\(\s*(\w+),\s*"(\w+)",\s*(\d+),\s*"(\w+)",\s*(\d+),\s*(true|false),\s*"(.*?)"\)',
        text,
        flags=re.S,
    )
    return [dict(zip(("id", "name", "http", "connect", "cli", "retry", "remedy"), r)) for r in rows]


def cell(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def link(name):
    return f"[{name}](#{name.lower()})"


def reference(node):
    if "$ref" in node:
        return node["$ref"].rsplit("/", 1)[1]
    if len(node.get("allOf", [])) == 1:
        return reference(node["allOf"][0])
    return None


def type_text(node):
    name = reference(node)
    if name:
        return link(name)
    if "oneOf" in node:
        return " or ".join(type_text(n) for n in node["oneOf"])
    kind = node.get("type", "anything")
    if kind == "array":
        return "array of " + type_text(node.get("items", {}))
    if kind == "object" and isinstance(node.get("additionalProperties"), dict):
        return "map to " + type_text(node["additionalProperties"])
    if "enum" in node:
        return " \\| ".join(f"`{v}`" for v in node["enum"])
    return {"octal": "octal string", "byte": "base64", "date-time": "time"}.get(
        node.get("format"), kind
    )


def bounds(node):
    out = []
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        out.append(f"{low} to {high}")
    elif low is not None:
        out.append(f"at least {low}")
    elif high is not None:
        out.append(f"at most {high}")
    if "maxLength" in node:
        out.append(f"at most {node['maxLength']} bytes")
    if "maxItems" in node:
        out.append(f"at most {node['maxItems']} items")
    if "pattern" in node:
        out.append(f"`{cell(node['pattern'])}`")
    if node.get("default") not in (None, False, 0):
        out.append(f"default `{node['default']}`")
    if node.get("nullable"):
        out.append("may be null")
    return ", ".join(out)


def members(node):
    out = "| member | type | meaning |\n|---|---|---|\n"
    required = node.get("required", [])
    for name, sub in node.get("properties", {}).items():
        star = " *" if name in required else ""
        text = cell(sub.get("description", ""))
        limit = bounds(sub)
        text += (" " if text and limit else "") + (f"({limit})" if limit else "")
        out += f"| `{name}`{star} | {type_text(sub)} | {text} |\n"
        for inner, leaf in sub.get("properties", {}).items():
            out += f"| `{name}.{inner}` | {type_text(leaf)} | {cell(leaf.get('description', ''))} |\n"
    return out


def schema_section(name, node):
    out = f"### {name}\n\n"
    if node.get("description"):
        out += node["description"].strip() + "\n\n"
    if "properties" in node:
        out += members(node) + "\n"
    elif "enum" in node:
        out += type_text(node).replace("\\|", "|") + "\n\n"
    return out


def contents(content):
    parts = []
    for media, c in content.items():
        what = type_text(c.get("schema", {}))
        parts.append(f"`{media}`" + (f" {what}" if what.startswith("[") else ""))
    return ", ".join(parts)


def curl(op, example):
    method = "" if op.method in ("GET", "*") else f"-X {op.method} "
    body = ""
    if example is not None:
        text = json.dumps(example).replace("'", "'\\''")
        body = f" \\\n  -H 'Content-Type: application/json' -d '{text}'"
        method = ""
    return f"```sh\ncurl --unix-socket \"$BOTHY_SOCKET\" {method}http://b{op.path}{body}\n```\n\n"


def operation_section(api, op):
    raw = op.raw
    out = f"### {'any method' if op.method == '*' else op.method} {op.path}\n\n**{raw.get('summary', '')}.** Role: `{op.role}`.\n\n"
    if raw.get("description"):
        out += raw["description"].strip() + "\n\n"
    if op.parameters:
        out += "| parameter | in | type | meaning |\n|---|---|---|---|\n"
        for p in op.parameters:
            limit = bounds(p["schema"])
            text = cell(p.get("description", "")) + (f" ({limit})" if limit else "")
            out += f"| `{p['name']}` | {p['in']} | {type_text(p['schema'])} | {text} |\n"
        out += "\n"
    example = None
    if "requestBody" in raw:
        content = raw["requestBody"]["content"]
        out += f"Body: {contents(content)}\n\n"
        example = content.get("application/json", {}).get("example")
    for status, answer in raw.get("responses", {}).items():
        answer, _ = api.resolve(answer)
        label = "Otherwise" if status == "default" else status
        what = contents(answer.get("content", {}))
        out += f"* {label}: {cell(answer.get('description', ''))}" + (f" {what}" if what else "") + "\n"
        for name, h in answer.get("headers", {}).items():
            out += f"  * header `{name}`: {cell(api.resolve(h)[0].get('description', ''))}\n"
    return out + "\n" + (curl(op, example) if "{" not in op.path or example is not None else "")


def page(api, errors):
    info = api.doc["info"]
    out = f"# {info['title']}: REST reference\n\n"
    out += f"Generated from `api/{api.name}.yaml`; do not edit. Version {info['version']}.\n\n"
    out += info.get("description", "").strip() + "\n\nMembers marked * are required.\n\n"
    for tag in api.doc.get("tags", []):
        out += f"## {tag['name'].capitalize()}\n\n{tag.get('description', '')}\n\n"
        for op in api.operations:
            if tag["name"] in op.raw.get("tags", []):
                out += operation_section(api, op)
    out += "## Schemas\n\n"
    for name, node in api.schemas.items():
        out += schema_section(name, node)
    if errors:
        out += "## Error codes\n\n| code | HTTP | exit status | retryable | remedy |\n|---|---|---|---|---|\n"
        for e in errors:
            retry = "yes" if e["retry"] == "true" else "no"
            out += f"| `{e['name']}` | {e['http']} | {e['cli']} | {retry} | {cell(e['remedy'])} |\n"
    return out
