"""The JSON Schema of spec files, templates and device profiles, for editors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from opcheck.spec.claims import When
from opcheck.spec.device import ProfileFile
from opcheck.spec.model import Model
from opcheck.spec.operator import SpecFile, TemplateFile, TemplateUse
from opcheck.spec.recipe import Tensor
from opcheck.spec.render import render
from opcheck.spec.unions import Schema, if_known, merged, refusal, required, said_once, unknown_key
from opcheck.spec.vocabulary import Vocabulary

EXAMPLES = Path(__file__).parent / "builtin" / "examples.toml"
FILES: dict[str, type[Model]] = {"operator": SpecFile, "template": TemplateFile, "device": ProfileFile}
"""The kinds of files, and the key that each one must have."""
NULL = {"type": "null"}
REFERENCE = "#/$defs/"


def json_schema(vocabulary: Vocabulary) -> Schema:
    """Return the JSON Schema (draft 7) of spec files, templates and device profiles.

    vocabulary: the checks, devices and templates to offer. Other names are refused if it is complete.
    """
    _build(Model)
    _, written = models_json_schema([(model, "validation") for model in FILES.values()])
    writer = _Writer(written["$defs"], vocabulary)
    file = _any_file({key: writer.table(model) for key, model in FILES.items()})
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "opcheck spec"}
    return {**head, **said_once({**file, "$defs": writer.referred(file)})}


def _build(model: type[Model]) -> None:
    # Models are built lazily (defer_build), and pydantic before 2.14 cannot write a default of an unbuilt model.
    for derived in model.__subclasses__():
        derived.model_rebuild()
        _build(derived)


def _any_file(files: Mapping[str, Schema]) -> Schema:
    """Return the schema of any file. A template or a device profile is one that has the key `template` or `device`."""
    properties = {key: value for file in files.values() for key, value in file["properties"].items()}
    lone = {"properties": {"samples": refusal("only with template")}}
    rule = {"if": {"required": ["samples"]}, "then": lone, "else": if_known(properties, {"required": ["operator"]})}
    for key in ("device", "template"):
        own = files[key]["properties"]
        others = {other: refusal(f"does not go with {key}") for other in properties if other not in own}
        needed = [name for name, field in FILES[key].model_fields.items() if field.is_required()]
        then = {"required": needed, "properties": others}
        rule = {"if": {"required": [key]}, "then": then, "else": rule}
    return {"type": "object", "properties": properties, "additionalProperties": unknown_key(properties), **rule}


@lru_cache(maxsize=1)
def _examples() -> dict[str, dict[str, list[Any]]]:
    return tomli.loads(EXAMPLES.read_text(encoding="utf-8"))


def examples(model: type[BaseModel], key: str) -> list[Any]:
    """Return examples of the values of a key. They stand under the class that declares it."""
    found = (_examples().get(base.__name__, {}).get(key) for base in model.__mro__)
    return next((given for given in found if given), [])


class _Writer:
    """Rewrites the definitions of pydantic."""

    def __init__(self, definitions: Mapping[str, Schema], vocabulary: Vocabulary) -> None:
        self.definitions, self.vocabulary = definitions, vocabulary
        self._written: dict[str, Schema] = {}

    def table(self, model: type[BaseModel]) -> Schema:
        """Return the schema of a model."""
        definition = self.definitions[model.__name__]
        keys = {key: self._key(model, key, node) for key, node in definition["properties"].items()}
        table: Schema = {"type": "object", "description": _about(model), "properties": keys}
        if model is TemplateUse:
            return self._use(table)
        if model.model_config.get("extra") == "allow":
            return table
        table["additionalProperties"] = unknown_key(keys)
        if model is Tensor:
            return table | _shape_or_values(keys)
        if issubclass(model, When):
            table["minProperties"] = 1
        return required(table | {key: definition[key] for key in ("required",) if key in definition})

    def _key(self, model: type[BaseModel], key: str, node: Schema) -> Schema:
        """Return the schema of a key, with what an editor shows of it."""
        given = examples(model, key)
        shown = [str(node.get("description") or _about(model))]
        shown += [f"Example: `{key} = {render(given[0])}`"] if given else []
        found = self.inline(self.value(node)) | {"description": "\n\n".join(shown)}
        if given:
            found["examples"] = given
        if node.get("default") is not None and not isinstance(node["default"], dict):
            found["default"] = node["default"]
        return found

    def value(self, node: Schema, names: str = "") -> Schema:
        """Return the schema of a value. `names` is the kind of the names in it, if it is about any."""
        names = node.get("names", names)
        if "$ref" in node:
            return {"$ref": node["$ref"]}
        members = node.get("anyOf") or node.get("oneOf")
        if members:
            return merged([self.inline(self.value(member, names)) for member in members if member != NULL])
        kind = node.get("type")
        found = {key: value for key, value in node.items() if key in KEPT}
        if kind == "array":
            return found | self._items(node, names)
        if kind == "object":
            return found | self._map(node)
        if kind == "string" and names:
            return found | self._named(names)
        if "expected" in node:
            return found | {"if": {"pattern": node["pattern"]}, "else": refusal(node["expected"])}
        return found | ({"type": ["number", "null"]} if kind == "number" else {})  # Taplo reads inf and nan as null

    def inline(self, schema: Schema) -> Schema:
        """Return what a schema refers to. Draft 7 ignores what stands beside a `$ref`, a description too."""
        return self._referred(str(schema["$ref"]).removeprefix(REFERENCE)) if "$ref" in schema else schema

    def referred(self, schema: Schema) -> dict[str, Schema]:
        """Return the definitions that a schema refers to, directly or through others."""
        found: dict[str, Schema] = {}
        waiting = [schema]
        while waiting:
            for name in sorted(set(_references(waiting.pop())) - found.keys()):
                found[name] = self._referred(name)
                waiting.append(found[name])
        return found

    def _referred(self, name: str) -> Schema:
        if name not in self._written:
            model = _models().get(name)
            self._written[name] = self.value(self.definitions[name]) if model is None else self.table(model)
        return self._written[name]

    def _items(self, node: Schema, names: str) -> Schema:
        if "prefixItems" in node:
            return {"items": [self.value(item) for item in node["prefixItems"]]}
        return {"items": self.value(node["items"], names)} if node.get("items") else {}

    def _map(self, node: Schema) -> Schema:
        """Return the schema of a table whose keys are names."""
        inside = node.get("additionalProperties", True)
        value = self.value(inside) if isinstance(inside, dict) else {}
        if "keys" not in node:
            return {"additionalProperties": value}
        kind = node["keys"]
        known = self.vocabulary.names(kind)
        rest = value if self.vocabulary.open(kind) else unknown_key(known)
        return {"properties": dict.fromkeys(known, value), "additionalProperties": rest}

    def _named(self, kind: str) -> Schema:
        """Return what is special about a string that is a name."""
        known = self.vocabulary.names(kind)
        choice: Schema = {"enum": list(known)}
        if any(known.values()):
            choice["x-taplo"] = {"docs": {"enumValues": list(known.values())}}
        return {"anyOf": [choice, {}]} if self.vocabulary.open(kind) else choice

    def _use(self, table: Schema) -> Schema:
        """Return the schema of a use of a template, with the parameters of the templates."""
        templates = self.vocabulary.parameters()
        users: dict[str, list[str]] = {}
        for name, parameters in templates.items():
            for parameter in parameters:
                users.setdefault(parameter, []).append(name)
        keys = {key: {"description": f"a parameter of {', '.join(names)}"} for key, names in users.items()}
        rule: Schema = {}
        for name, parameters in templates.items() if self.vocabulary.complete else ():
            then = {
                "properties": {key: {} for key in (*table["properties"], *parameters)},
                "additionalProperties": unknown_key([*parameters, *TemplateUse.model_fields]),
            }
            rule = {"if": {"properties": {"use": {"const": name}}}, "then": then} | ({"else": rule} if rule else {})
        return table | {"properties": table["properties"] | keys} | rule


KEPT = (
    "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength",
    "minItems", "maxItems", "deprecated",
)  # fmt: skip
"""What pydantic writes about a value that means the same in draft 7."""


def _models() -> dict[str, type[Model]]:
    """Return all models by name."""
    found: dict[str, type[Model]] = {}
    waiting = [Model]
    while waiting:
        derived = waiting.pop().__subclasses__()
        found |= {model.__name__: model for model in derived}
        waiting += derived
    return found


def _references(node: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key == "$ref":
            yield value.removeprefix(REFERENCE)
        else:
            yield from _references(value)


def _about(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").split("\n\n")[0]


def _shape_or_values(keys: Iterable[str]) -> Schema:
    """Return the rule that a tensor has either shape or values. A dtype alone is a literal."""
    either = [{"required": ["shape"]}, {"required": ["values"]}, {"required": ["dtype"], "maxProperties": 1}]
    missing = {"if": {"not": {"anyOf": either}}, "then": if_known(keys, {"required": ["shape"]})}
    both = {"properties": {"values": refusal("a tensor has either shape or values")}}
    return {"if": {"required": ["shape", "values"]}, "then": both, "else": missing}
