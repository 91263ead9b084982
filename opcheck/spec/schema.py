"""The JSON Schema of spec files, templates and device profiles, for editors. pydantic generates it from the models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, get_args

import tomli
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from opcheck.spec.checks import VariantKind
from opcheck.spec.device_profile import ProfileFile
from opcheck.spec.dtypes import FOLLOWING, GROUPS, KNOWN
from opcheck.spec.model import Model
from opcheck.spec.operator import SpecFile, TemplateFile, TemplateUse
from opcheck.spec.render import render
from opcheck.spec.templates import Template

EXAMPLES = Path(__file__).parent / "builtin" / "examples.toml"
FILES: dict[str, type[Model]] = {"operator": SpecFile, "template": TemplateFile, "device": ProfileFile}
"""The model of each kind of file, by the key that such a file must have."""


@dataclass(frozen=True)
class Vocabulary:
    """The names that specs may use, besides those that the format itself defines."""

    checks: Mapping[str, str]
    """The claim of each check, by name."""
    devices: Mapping[str, str]
    """The description of each device, by name."""
    templates: tuple[Template, ...]
    """Templates of different folders may have the same name."""
    complete: bool
    """Whether the lists are complete, so that any other name is a mistake."""
    dtypes: tuple[str, ...] = ()
    """The dtypes that device profiles declare."""

    def schema_of(self, kind: str) -> JsonSchemaValue:
        """Return the schema of a name of a kind: the argument of `named` in the models."""
        dtypes = (*KNOWN, *self.dtypes)
        entries = tuple(dict.fromkeys((*GROUPS, *dtypes)))
        fixed: dict[str, Iterable[str]] = {
            "variant": get_args(VariantKind),
            "dtype": dtypes,
            "dtype or group": entries,
            "dtype or precision": (*KNOWN, *FOLLOWING, *self.dtypes),
            "dtype entry": (*entries, *(f"-{name}" for name in entries)),
        }
        if kind in fixed:
            return {"type": "string", "enum": list(fixed[kind])}
        templates = {template.name: template.file.template.about for template in self.templates}
        others = {f"-{name}": f"all but: {about}" if about else "" for name, about in self.devices.items()}
        known = {
            "check": self.checks, "device": self.devices, "device entry": {**self.devices, **others},
            "template": dict(sorted(templates.items())),
        }[kind]  # fmt: skip
        choice: JsonSchemaValue = {"enum": list(known)}
        if any(known.values()):
            choice["x-taplo"] = {"docs": {"enumValues": list(known.values())}}
        return {"type": "string"} | (choice if self.complete else {"anyOf": [choice, {}]})

    def parameters(self) -> dict[str, list[str]]:
        """Return the parameters of each template, by the template's name."""
        parameters: dict[str, dict[str, None]] = {}
        for template in self.templates:
            parameters.setdefault(template.name, {}).update(dict.fromkeys(template.parameters))
        return {name: list(several) for name, several in sorted(parameters.items())}


def json_schema(vocabulary: Vocabulary) -> JsonSchemaValue:
    """Return the JSON Schema (draft 7) of spec files, templates and device profiles.

    vocabulary: the checks, devices and templates to offer. Other names are rejected if it is complete.
    """
    _build(Model)
    writer = type("Writer", (_Writer,), {"vocabulary": vocabulary})
    models = [(model, "validation") for model in FILES.values()]
    _, written = models_json_schema(models, schema_generator=writer)  # type: ignore[arg-type]
    definitions = written["$defs"]
    kinds = {key: definitions.pop(model.__name__) for key, model in FILES.items()}
    rule: JsonSchemaValue = {}
    for key, kind in kinds.items():  # a file is a spec unless it has the key `template` or `device`
        own = {"required": kind["required"], "propertyNames": {"enum": list(kind["properties"])}}
        rule = {"if": {"required": [key]}, "then": own, "else": rule} if rule else own
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "opcheck spec",
        "type": "object",
        "properties": {key: node for kind in kinds.values() for key, node in kind["properties"].items()},
        **rule,
        "$defs": definitions,
    }


def _build(model: type[Model]) -> None:
    # Models are built lazily (defer_build), and pydantic before 2.14 cannot write a default of an unbuilt model.
    for derived in model.__subclasses__():
        derived.model_rebuild()
        _build(derived)


@lru_cache(maxsize=1)
def _examples() -> dict[str, dict[str, list[Any]]]:
    return tomli.loads(EXAMPLES.read_text(encoding="utf-8"))


def examples(model: type[BaseModel], key: str) -> list[Any]:
    """Return example values of a key. The file of examples lists them under the class that declares the key."""
    listed = (_examples().get(base.__name__, {}).get(key) for base in model.__mro__)
    return next((one for one in listed if one), [])


class _Writer(GenerateJsonSchema):
    """pydantic's generator, adapted to TOML and to draft 7, the newest that Taplo supports. Adds names and examples."""

    vocabulary: ClassVar[Vocabulary]

    def field_title_should_be_set(self, _: object) -> bool:
        """Return False: a title would only repeat the key."""
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Return the schema of the value without null, which TOML does not have."""
        return self.generate_inner(schema["schema"])

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """Return the schema of a number. It allows null, since Taplo reads inf and nan as null."""
        return super().float_schema(schema) | {"type": ["number", "null"]}

    def tuple_schema(self, schema: core_schema.TupleSchema) -> JsonSchemaValue:
        """Return the schema of an array. For a fixed length, draft 7 has `items` in place of `prefixItems`."""
        written = super().tuple_schema(schema)
        return written | {"items": written.pop("prefixItems")} if "prefixItems" in written else written

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Return the schema of a union: anyOf, not oneOf, since a table may match two members."""
        return {"anyOf": super().tagged_union_schema(schema)["oneOf"]}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema of a key. Its default is left out if it is null, which TOML does not have, or a table."""
        written = super().default_schema(schema)
        if written.get("default") is None or isinstance(written["default"], dict):
            written.pop("default", None)
        return written

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of any value. A placeholder from `named` is replaced by the schema of the known names."""
        written = super().generate_inner(schema)
        return self.vocabulary.schema_of(written["names"]) if "names" in written else written

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Return the schema of a table with names as keys. Known names are `properties`: editors complete no others."""
        written = super().dict_schema(schema)
        keys = self.generate_inner(schema["keys_schema"]) if "keys_schema" in schema else {}
        known = keys.get("enum") or keys.get("anyOf", [{}])[0].get("enum")
        if known:
            written["properties"] = dict.fromkeys(known, written["additionalProperties"])
        if "patternProperties" in written:
            written["additionalProperties"] = False
        return written

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a table, with descriptions and examples of its keys for editors."""
        written, model = super().model_schema(schema), schema["cls"]
        about = (model.__doc__ or "").split("\n\n")[0]
        written |= {"description": about}
        if written.get("additionalProperties") is False:
            # This schema rejects each unknown key; `false` would report a mistake of the whole table. Without the
            # allOf, Taplo would use this schema to complete the values of known keys as well.
            unknown = {"description": f"unknown key; expected one of {', '.join(written['properties'])}"}
            written["additionalProperties"] = {"allOf": [True], "not": unknown}
        for key, node in written["properties"].items():
            listed = examples(model, key)
            example = [f"Example: `{key} = {render(listed[0])}`"] if listed else []
            shown = {"description": "\n\n".join([node.get("description", about), *example])}
            # Draft 7 ignores keywords beside a `$ref`.
            node = {"allOf": [{"$ref": node.pop("$ref")}], **node} if "$ref" in node else node
            written["properties"][key] = node | shown | ({"examples": listed} if listed else {})
        return self._with_parameters(written) if model is TemplateUse else written

    def _with_parameters(self, use: JsonSchemaValue) -> JsonSchemaValue:
        """Return the schema of a use of a template, with the parameters of the templates."""
        templates = self.vocabulary.parameters()
        users: dict[str, list[str]] = {}
        for name, parameters in templates.items():
            for parameter in parameters:
                users.setdefault(parameter, []).append(name)
        offered = {key: {"description": f"a parameter of {', '.join(names)}"} for key, names in users.items()}
        rules = [
            {
                "if": {"properties": {"use": {"const": name}}},
                "then": {"propertyNames": {"enum": [*parameters, *TemplateUse.model_fields]}},
            }
            for name, parameters in templates.items()
        ]
        whole = use | {"properties": use["properties"] | offered}
        return whole | {"allOf": rules} if rules and self.vocabulary.complete else whole
