"""Rewrites JSON Schemas so that a validator has one message, at the right place, for each mistake.

If a value fits no member of a union, validators report the whole value, with a message about all members. Here,
keywords that concern only one type of value (`items`, `properties`) stand side by side instead, and the keys of a table
decide which member it is. The result is draft 7, the newest that Taplo validates by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Schema = dict[str, Any]

BOOLEAN = {"type": "boolean"}
RULE = ("if", "then", "else")


def refusal(why: str) -> Schema:
    """Return a schema that accepts nothing. Validators quote it, so that `why` is what people read."""
    return {"not": {"description": why}}


def unknown_key(known: Iterable[str]) -> Schema:
    """Return the schema of a key that a table does not have."""
    # Taplo completes the values of known keys with this schema too, but for the allOf.
    return {"allOf": [True], **refusal(f"unknown key; expected one of {', '.join(known)}")}


def merged(members: list[Schema]) -> Schema:
    """Return one schema for values that fit one of several members."""
    kinds = [member.get("type") for member in members]
    tables = [member for member, kind in zip(members, kinds, strict=True) if kind == "object"]
    arrays = [member for member, kind in zip(members, kinds, strict=True) if kind == "array"]
    scalars = [member for member, kind in zip(members, kinds, strict=True) if kind not in ("object", "array")]
    others = [arrays[0] if len(arrays) == 1 else {"type": "array"}] if arrays else []
    others += [_table(tables)] if tables else []
    if len(others) + len(scalars) == 1:
        return (others + scalars)[0]
    if all("enum" in member or member == BOOLEAN for member in scalars) and not others:
        return {"enum": [name for member in scalars for name in member.get("enum", (True, False))]}
    result: Schema = {"type": _types(scalars)}
    for other in others:
        result["type"].append(other["type"])
        result |= {key: value for key, value in other.items() if key != "type"}
    return result | _of_strings(scalars, {key: result[key] for key in RULE if key in result})


def _types(schemas: Iterable[Schema]) -> list[str]:
    given = [schema["type"] for schema in schemas]
    flat = dict.fromkeys(name for types in given for name in (types if isinstance(types, list) else [types]))
    return [name for name in flat if name != "integer" or "number" not in flat]


def _of_strings(scalars: list[Schema], rule: Schema) -> Schema:
    """Return the rules of the strings among other types. `rule` is the one of tables."""
    strings = [member for member in scalars if "string" in _types([member])]
    own = {key: value for key, value in strings[0].items() if key != "type"} if len(strings) == 1 else {}
    offered = own.pop("anyOf", None) or ([own, {}] if "enum" in own else [])  # only editors look at these
    found = rule
    if own:
        found = {"if": {"type": "string"}, "then": own} | ({"else": rule} if rule else {})
    return found | ({"anyOf": offered} if offered else {})


def _table(tables: list[Schema]) -> Schema:
    """Return the schema of a table of one of several kinds. A key that only one kind has decides which."""
    if len(tables) == 1:
        return tables[0]
    if any("properties" not in table for table in tables):  # any key could be of any kind
        return {"type": "object"}
    main = max(tables, key=lambda table: (_closed(table), len(table["properties"])))
    special = {
        next(key for key in table["properties"] if key not in main["properties"]): table
        for table in tables
        if set(table["properties"]) - set(main["properties"])
    }
    if not special:
        return main
    keys = list(dict.fromkeys(key for table in (main, *special.values()) for key in table["properties"]))
    owners = {other: key for key, table in special.items() for other in table["properties"] if other != key}
    rule = _only(main, keys, {key: refusal(f"only with {owners[key]}") for key in keys if key in owners}, [*special])
    for key, table in reversed(special.items()):
        no = refusal(f"does not go with {key}")
        rule = {"if": {"required": [key]}, "then": _only(table, keys, dict.fromkeys(keys, no)), "else": rule}
    properties = {key: value for table in (*special.values(), main) for key, value in table["properties"].items()}
    return {"type": "object", "properties": {key: properties[key] for key in keys}, **rule}


def _only(table: Schema, keys: list[str], refused: Mapping[str, Schema], also: Iterable[str] = ()) -> Schema:
    """Return what is special about one kind of table, given the keys of all kinds and what refuses those of others.

    also: keys that would make it a table of another kind.
    """
    found = {key: value for key, value in table.items() if key in RULE}
    others = {key: schema for key, schema in refused.items() if key not in table["properties"]}
    if not _closed(table):
        return found
    allowed = {key: others.get(key, {}) for key in keys}
    return found | {"properties": allowed, "additionalProperties": unknown_key([*table["properties"], *also])}


def _closed(table: Schema) -> bool:
    return bool(table.get("additionalProperties", True) is not True)


def required(table: Schema) -> Schema:
    """Return a table that misses its required keys only if all others are known: one of these may be misspelt."""
    if "required" not in table or not _closed(table):
        return table
    rest = {key: value for key, value in table.items() if key != "required"}
    return rest | if_known(table["properties"], {"required": table["required"]})


def if_known(keys: Iterable[str], then: Schema) -> Schema:
    """Return a rule for tables that have only known keys."""
    return {"if": {"propertyNames": {"enum": list(keys)}}, "then": then}


def said_once(node: Any) -> Any:
    """Return a schema without the types of enumerated values, which would be told as a second mistake."""
    if isinstance(node, dict):
        choices = "enum" in node or "const" in node
        return {key: said_once(value) for key, value in node.items() if not (choices and key == "type")}
    return [said_once(item) for item in node] if isinstance(node, list) else node
