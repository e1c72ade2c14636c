"""JSON schemas of what `serve` supports: some written by hand, and random ones. Their values are short."""

import random

from variants import LONG

SHORT = {"type": "string", "maxLength": 4}
WRITTEN = [
    True,
    {"type": "null"},
    {"type": "boolean"},
    {"type": "integer", "minimum": -5, "maximum": 17},
    {"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 102},
    {"type": "integer", "multipleOf": 7},
    {"type": "number", "minimum": 0.5, "maximum": 1},
    {"type": "number", "exclusiveMinimum": -1, "exclusiveMaximum": 0},
    {"type": "string", "minLength": 3, "maxLength": 3},
    {"type": "string", "pattern": "^[a-c]{2,4}-[0-9]+$"},
    {"type": "string", "pattern": "^(cat|dog)?$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "maxLength": 5, "format": "a-format-of-nobody"},
    {"maxLength": 3},
    {"required": ["a"], "additionalProperties": {"type": "integer", "maximum": 9, "minimum": 0}},
    {"enum": ["red", "gr\"een", "bl\\ue", 7, None, [1, {"a": 2}], {"b": "é"}]},
    {"type": "string", "enum": ["one", "two"]},
    {"const": {"a": [1, 2.5, "x"], "b": {}}},
    {"type": ["null", "integer", "string"], "maxLength": 2, "minimum": 10, "maximum": 12},
    {"anyOf": [{"type": "integer"}, {"const": "none"}]},
    {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
    {"oneOf": [{"const": 1}, {"const": 2}]},
    {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "boolean"}}},
    {"type": "string", "anyOf": [{"type": "string", "const": "a"}, {"type": "string", "maxLength": 1}]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 2},
    {"type": "array", "prefixItems": [{"type": "boolean"}, SHORT], "items": False},
    {"type": "array", "prefixItems": [{"type": "boolean"}], "items": {"type": "null"}, "maxItems": 3},
    {"type": "array", "prefixItems": [{"type": "boolean"}], "minItems": 2, "maxItems": 2},
    {"type": "array", "maxItems": 0},
    {"type": "array", "maxItems": 2, "uniqueItems": False},
    {"type": "array", "items": {"type": "array", "items": {"type": "array", "maxItems": 1}, "maxItems": 2}, "maxItems": 2},
    {"type": "object"},
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": SHORT}, "required": ["b"]},
    {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a", "c"], "additionalProperties": SHORT},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 3},
    {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}, "minProperties": 2},
    {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}, "maxProperties": 1},
    {"type": "object", "patternProperties": {"^n[0-9]$": {"type": "integer"}}, "maxProperties": 2},
    {"type": "object", "propertyNames": {"pattern": "^[a-z]{1,3}$"}, "maxProperties": 2},
    {"type": "object", "properties": {"spaced name \" \\ é": {"type": "boolean"}}, "required": ["spaced name \" \\ é"]},
    {
        "title": "A person",
        "type": "object",
        "properties": {
            "name": {**SHORT, "description": "d", "default": "x", "examples": ["y"]},
            "friends": {"type": "array", "items": {"$ref": "#/$defs/friend"}, "maxItems": 2},
            "home": {"anyOf": [{"$ref": "#/$defs/home"}, {"type": "null"}]},
        },
        "required": ["name", "friends", "home"],
        "additionalProperties": False,
        "$defs": {
            "friend": {"type": "object", "properties": {"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["name", "age"]},
            "home": {"type": "object", "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["zip"]},
        },
    },
    {"$ref": "#/$defs/list", "$defs": {"list": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"next": {"$ref": "#/$defs/list"}}, "required": ["next"]}]}}},
    {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
    {"type": "object", "properties": {"same": {"$ref": "#/properties/other"}, "other": {"type": "boolean"}}, "required": ["same", "other"]},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/a", "$comment": "c", "type": "boolean", "x-unknown": 1},
]  # fmt: skip


def drawn(random: random.Random, depth: int):
    """A schema that some value fits."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "pattern", "format"]
    kind = random.choice(kinds + ["object", "object", "object", "array", "array", "anyOf"] * (depth > 0))
    if kind == "string":
        least = random.randrange(3)
        return {"type": "string", "minLength": least, "maxLength": least + random.randrange(4)}
    if kind in ("integer", "number"):
        least = random.randint(-1000, 1000)
        keys = ("minimum", "maximum") if random.random() < 0.5 else ("exclusiveMinimum", "exclusiveMaximum")
        schema = {"type": kind, keys[0]: least, keys[1]: least + 2 + random.choice((0, 5, 1000))}
        if random.random() < 0.3:
            del schema[random.choice(keys)]
        return schema
    if kind in ("boolean", "null"):
        return {"type": kind}
    if kind == "enum":
        values = ["a b", "é", "\n", 3, -2.5, True, None, [], {"k": [1]}]
        return {"enum": random.sample(values, random.randint(1, 4))}
    if kind == "pattern":
        return {"type": "string", "pattern": random.choice(("^[A-Z][a-z]{0,3}$", "^x*$", r"^\d{1,3}\.\d$", "^(a|bc){1,2}$", "^[^a-y]?$"))}
    if kind == "format":
        return {"type": "string", "format": random.choice(("date", "ipv4", "uuid", "time", "date-time", "email", "hostname"))}
    if kind == "anyOf":
        return {"anyOf": [drawn(random, depth - 1) for _ in range(random.randint(1, 3))]}
    if kind == "array":
        least = random.randrange(3)
        schema = {"type": "array", "items": drawn(random, depth - 1), "minItems": least, "maxItems": least + random.randrange(3)}
        if random.random() < 0.3:
            schema["prefixItems"] = [drawn(random, depth - 1) for _ in range(random.randint(1, 2))]
            schema["maxItems"] = max(schema["maxItems"], len(schema["prefixItems"]))
        return schema
    names = random.sample(["name", "n", "two words", "ключ", "a\"b", "x-y"], random.randint(1, 4))
    schema = {"type": "object", "properties": {name: drawn(random, depth - 1) for name in names}}
    schema["required"] = random.sample(names, random.randint(0, len(names)))
    if random.random() < 0.3:
        schema["additionalProperties"] = random.choice((False, drawn(random, 0)))
    return schema


def some_schemas() -> list:
    """All that are written, and some that are drawn: 25, and with AC_TEST_LONG=1 149."""
    source = random.Random(7)
    return WRITTEN + [drawn(source, 3) for _ in range(200 - len(WRITTEN) if LONG else 25)]
