"""What an API file says, as plain values: types with fields, enums, operations."""
import dataclasses
import re

import yaml

KEYWORDS = set(
    """auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while bool true false asm typeof errno""".split()
)
MODES = {"strict": "DECODE_STRICT", "lenient": "DECODE_LENIENT", "proto3-json": "DECODE_PROTO3"}
ROLES = {"anyone": "ROLE_ANYONE", "read": "ROLE_READ", "user": "ROLE_USER", "admin": "ROLE_ADMIN"}
INT64_MAX = 2**63 - 1
FIELDS_MAX = 256
# Keys of a schema that only inform; everything else must be understood or is refused.
INFORM = {"description", "example", "title", "deprecated", "externalDocs", "readOnly", "writeOnly"}
KNOWN = INFORM | {
    "type", "format", "enum", "default", "nullable", "required", "properties", "items", "oneOf",
    "allOf", "additionalProperties", "minimum", "maximum", "minLength", "maxLength", "minItems",
    "maxItems", "maxProperties", "pattern", "x-secret", "x-bytes", "x-key-pattern", "x-decode",
    "x-enum-numbers", "x-presence",
}  # fmt: skip


class Refused(Exception):
    """The file asks for something that has no C form."""


@dataclasses.dataclass
class Enum:
    ctype: str  # create_sandbox_pull
    values: list  # (text, constant, number)


@dataclasses.dataclass
class Field:
    json: str
    c: str
    kind: str  # DECODE_…
    ctype: str  # of one value
    array: bool = False
    required: bool = False
    nullable: bool = False
    secret: bool = False
    has: bool = False
    alias: str = None
    minimum: object = None
    maximum: object = None
    len_min: int = 0
    len_max: int = None
    count_min: int = 0
    count_max: int = None
    pattern: str = None
    key_pattern: str = None
    enum: Enum = None
    type: object = None
    default: object = None
    doc: str = ""


@dataclasses.dataclass
class Type:
    name: str  # CreateSandbox
    ctype: str  # create_sandbox
    doc: str
    fields: list = dataclasses.field(default_factory=list)
    empty_ok: bool = False
    texts: bool = False  # from a query

    @property
    def secret(self):
        return any(f.secret or (f.type and f.type.secret) for f in self.fields)


@dataclasses.dataclass
class Operation:
    method: str
    path: str
    pattern: str
    id: str
    role: str
    raw: dict
    parameters: list


def snake(name):
    name = re.sub(r"[^A-Za-z0-9]+", "_", name)
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower().strip("_")


def camel(name):
    head, *rest = name.split("_")
    return head + "".join(p[:1].upper() + p[1:] for p in rest)


def c_name(name):
    c = snake(name)
    if not c or c[0].isdigit():
        c = "n" + c
    return c + "_" if c in KEYWORDS else c


class Api:
    def __init__(self, name, doc):
        self.name = name
        self.doc = doc
        self.mode = doc.get("x-mode", "strict")
        if self.mode not in MODES:
            raise Refused(f"x-mode '{self.mode}' is none of {', '.join(MODES)}")
        self.prefix = doc.get("x-prefix", "")
        self.handlers = doc.get("x-handlers", "handle_")
        self.schemas = doc.get("components", {}).get("schemas", {})
        self.types = {}  # name -> Type, in the order in which C needs them
        self.enums = {}
        self.building = []
        self.operations = self._operations()
        self.embeds = bool(self.operations) or doc.get("x-embed", False)
        self._wanted_types()

    # ---- references ----
    def resolve(self, node):
        """Follows $ref; a single allOf is the referenced schema with what stands beside it."""
        name = None
        while True:
            if "$ref" in node:
                parts = node["$ref"].split("/")
                if parts[:2] != ["#", "components"] or len(parts) != 4:
                    raise Refused(f"$ref '{node['$ref']}' leads out of the file")
                try:
                    target = self.doc["components"][parts[2]][parts[3]]
                except KeyError:
                    raise Refused(f"$ref '{node['$ref']}' leads nowhere") from None
                beside = {k: v for k, v in node.items() if k != "$ref"}
                name, node = parts[3], {**target, **beside}
            elif len(node.get("allOf", [])) == 1:
                beside = {k: v for k, v in node.items() if k != "allOf"}
                inner, inner_name = self.resolve(node["allOf"][0])
                name, node = inner_name or name, {**inner, **beside}
            else:
                return node, name

    # ---- types ----
    def _wanted_types(self):
        for name, schema in self.schemas.items():
            if schema.get("x-decode") or self.doc.get("x-decode") == "all":
                if self.resolve(schema)[0].get("properties") is not None:
                    self.object_type(name, schema)
        for op in self.operations:
            body = op.raw.get("requestBody")
            schema = (body or {}).get("content", {}).get("application/json", {}).get("schema")
            if schema is not None:
                node, name = self.resolve(schema)
                t = self.object_type(name or camel(op.id) + "Body", node)
                t.empty_ok = t.empty_ok or not body.get("required", False)
            if any(p["in"] == "query" for p in op.parameters):
                self.query_type(op)

    def object_type(self, name, schema):
        if name in self.types:
            return self.types[name]
        if name in self.building:
            raise Refused(f"schema {name} contains itself, a struct cannot")
        self.building.append(name)
        t = Type(name, self.prefix + c_name(name), schema.get("description", ""))
        self._check_keys(schema, name)
        required = schema.get("required", [])
        for member, sub in schema.get("properties", {}).items():
            t.fields.append(self.field(t, member, sub, member in required))
        if len(t.fields) > FIELDS_MAX:
            raise Refused(f"schema {name} has more than {FIELDS_MAX} members")
        missing = set(required) - set(schema.get("properties", {}))
        if missing:
            raise Refused(f"schema {name} requires {', '.join(missing)} but does not define it")
        self.building.pop()
        self.types[name] = t
        return t

    def query_type(self, op):
        name = op.id + "_query"
        t = Type(name, self.prefix + c_name(name), f"Query of {op.method} {op.path}", texts=True)
        for p in op.parameters:
            if p["in"] != "query":
                continue
            f = self.field(t, p["name"], p["schema"], p.get("required", False))
            f.doc = p.get("description", "")
            scalar = ("STRING", "TEXT", "OCTAL", "BOOL", "INTEGER", "NUMBER", "ENUM")
            if f.array or f.kind not in ["DECODE_" + k for k in scalar]:
                raise Refused(f"{op.id}: query parameter {f.json} is not a scalar")
            t.fields.append(f)
        self.types[name] = t

    def _check_keys(self, schema, where):
        for key in schema:
            if key not in KNOWN and not key.startswith("x-error"):
                raise Refused(f"{where}: '{key}' has no C form")

    def field(self, owner, member, schema, required):
        where = f"{owner.name}.{member}"
        node, ref = self.resolve(schema)
        self._check_keys(node, where)
        f = Field(member, c_name(member), None, None, required=required)
        f.doc = node.get("description", "")
        f.nullable = node.get("nullable", False)
        f.secret = node.get("x-secret", False)
        f.default = node.get("default")
        if self.mode == "proto3-json":
            f.alias = camel(member) if "_" in member else snake(member)
            f.alias = None if f.alias == member else f.alias
        if node.get("type") == "array":
            f.array = True
            f.count_min = node.get("minItems", 0)
            f.count_max = node.get("maxItems")
            node, ref = self.resolve(node.get("items", {}))
            self._check_keys(node, where + "[]")
            if node.get("type") == "array":
                raise Refused(f"{where}: an array of arrays has no C form")
            if f.default is not None:
                raise Refused(f"{where}: an array cannot have a default")
        self._value(f, owner, node, ref, where)
        optional_number = f.kind in ("DECODE_INTEGER", "DECODE_NUMBER", "DECODE_OCTAL")
        f.has = not f.array and not required and (
            f.kind == "DECODE_OBJECT"
            or (optional_number and f.default is None and self.mode != "proto3-json")
            or node.get("x-presence", False)
        )
        self._check_pattern(f, where)
        return f

    def _value(self, f, owner, node, ref, where):
        kind = node.get("type")
        if node.get("x-bytes"):
            f.kind, f.ctype = "DECODE_BYTES", "decode_blob"
            f.len_max = node.get("maxLength")
        elif "oneOf" in node:
            if sorted(n.get("type", "") for n in node["oneOf"]) != ["integer", "string"]:
                raise Refused(f"{where}: of oneOf only string or integer has a C form")
            f.kind, f.ctype = "DECODE_TEXT", "char *"
            self._lengths(f, node)
        elif "enum" in node:
            self._enum(f, owner, node, ref, where)
        elif kind == "string":
            self._string(f, node)
        elif kind == "boolean":
            f.kind, f.ctype = "DECODE_BOOL", "bool"
        elif kind == "integer":
            self._integer(f, node, where)
        elif kind == "number":
            f.kind, f.ctype = "DECODE_NUMBER", "double"
            f.minimum, f.maximum = node.get("minimum"), node.get("maximum")
        elif node.get("properties") is not None:
            inner = ref or f"{owner.name}_{f.json}"
            f.type = self.object_type(inner, node)
            f.kind, f.ctype = "DECODE_OBJECT", f.type.ctype
        elif kind == "object" and isinstance(node.get("additionalProperties"), dict):
            self._map(f, node, where)
        elif kind in (None, "object"):
            f.kind, f.ctype = "DECODE_ANY", "json_t *"
        else:
            raise Refused(f"{where}: type '{kind}' has no C form")

    def _lengths(self, f, node):
        f.len_min, f.len_max = node.get("minLength", 0), node.get("maxLength")
        f.pattern = node.get("pattern")

    def _string(self, f, node):
        self._lengths(f, node)
        f.kind, f.ctype = {
            "byte": ("DECODE_BASE64", "decode_blob"),
            "octal": ("DECODE_OCTAL", "uint32_t"),
        }.get(node.get("format"), ("DECODE_STRING", "char *"))
        if f.kind == "DECODE_OCTAL" and f.default is not None:
            f.default = int(f.default, 8)
        if f.kind != "DECODE_BASE64" and node.get("format") in ("int64", "uint64"):
            # How generated descriptions of protobuf write 64-bit integers.
            self._integer(f, {"format": node["format"]}, "")

    def _integer(self, f, node, where):
        fmt = node.get("format", "int64")
        bounds = {
            "int32": (-(2**31), 2**31 - 1),
            "uint32": (0, 2**32 - 1),
            "int64": (-(2**63), INT64_MAX),
            "uint64": (0, 2**64 - 1),
        }
        if fmt not in bounds:
            raise Refused(f"{where}: integer format '{fmt}' has no C form")
        low, high = bounds[fmt]
        f.minimum = max(low, node.get("minimum", low))
        f.maximum = min(high, node.get("maximum", high))
        if f.minimum >= 0 and fmt.startswith("int"):
            fmt = "u" + fmt
        f.kind, f.ctype = "DECODE_INTEGER", fmt + "_t"

    def _map(self, f, node, where):
        value, _ = self.resolve(node["additionalProperties"])
        if value.get("type") != "string" or "enum" in value or "format" in value or f.array:
            raise Refused(f"{where}: of maps only those to strings have a C form")
        f.kind, f.ctype = "DECODE_MAP", "char **"
        f.count_max = node.get("maxProperties")
        f.key_pattern = node.get("x-key-pattern")
        self._lengths(f, value)

    def _enum(self, f, owner, node, ref, where):
        if node.get("type") != "string":
            raise Refused(f"{where}: of enums only those of strings have a C form")
        base = c_name(ref) if ref else c_name(owner.name) + "_" + f.c.rstrip("_")
        ctype = self.prefix + base
        texts = node["enum"]
        numbers = node.get("x-enum-numbers") or (
            list(range(len(texts))) if self.mode == "proto3-json" else list(range(1, len(texts) + 1))
        )
        if len(numbers) != len(texts):
            raise Refused(f"{where}: x-enum-numbers does not fit enum")
        if ctype not in self.enums:
            stem = ctype.upper() + "_"
            values = [(t, stem + c_name(str(t)).upper().rstrip("_"), n)
                      for t, n in zip(texts, numbers)]  # fmt: skip
            self.enums[ctype] = Enum(ctype, values)
        f.enum = self.enums[ctype]
        f.kind, f.ctype = "DECODE_ENUM", "enum " + ctype
        if f.default is not None:
            if f.default not in texts:
                raise Refused(f"{where}: default '{f.default}' is none of its values")
            f.default = numbers[texts.index(f.default)]

    def _check_pattern(self, f, where):
        """Patterns run as POSIX extended expressions on a peer's bytes: the length must be bounded,
        and only what means the same in both dialects may be used."""
        for p in (f.pattern, f.key_pattern):
            if p is None:
                continue
            if "\\" in p or "(?" in p:
                raise Refused(f"{where}: pattern {p} uses more than the common subset")
            re.compile(p)
        if f.pattern and f.len_max is None:
            raise Refused(f"{where}: a pattern needs a maxLength")

    # ---- operations ----
    def _operations(self):
        ops = []
        for path, item in self.doc.get("paths", {}).items():
            shared = item.get("parameters", [])
            for method in ("get", "put", "post", "patch", "delete", "head"):
                if method not in item:
                    continue
                raw = item[method]
                params = [self.resolve(p)[0] for p in shared + raw.get("parameters", [])]
                name = "*" if raw.get("x-any-method") else method.upper()
                ops.append(self._operation(name, path, raw, params))
        ids = [op.id for op in ops]
        for i in set(ids):
            if ids.count(i) > 1:
                raise Refused(f"operationId {i} is there twice")
        return ops

    def _operation(self, method, path, raw, params):
        if "operationId" not in raw:
            raise Refused(f"{method} {path} has no operationId")
        role = raw.get("x-role", "user")
        if role not in ROLES:
            raise Refused(f"{method} {path}: x-role '{role}' is none of {', '.join(ROLES)}")
        in_path = {p["name"]: p for p in params if p["in"] == "path"}
        pattern = path
        for name in re.findall(r"{(\w+)}", path):
            if name not in in_path:
                raise Refused(f"{method} {path}: parameter {name} is not described")
            if in_path[name].get("x-rest"):
                pattern = pattern.replace("{" + name + "}", "{" + name + "*}")
        return Operation(method, path, pattern, raw["operationId"], role, raw, params)


def load(path):
    with open(path, encoding="utf-8") as f:
        return Api(path.stem, yaml.safe_load(f))
