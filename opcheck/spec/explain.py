"""Turns what pydantic says about a spec into problems that a person can act on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from opcheck.spec.positions import Path
from opcheck.spec.problems import Problem, listing, nearest

Locate = Callable[..., Problem]
"""`Document.problem`, or a function like it that knows where merged values come from."""

WANTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "an array",
    "tuple_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}


def explain(error: ValidationError, model: type[BaseModel], raw: Any, locate: Locate) -> list[Problem]:
    """Return one problem for each place of `raw` (parsed TOML) that a model refuses."""
    places: dict[tuple[Path, str], list[Any]] = {}
    for item in error.errors(include_url=False):
        path = _path(item["loc"], raw)
        what = "key" if item["type"] == "extra_forbidden" else str(item["loc"][-1]) if item["type"] == "missing" else ""
        places.setdefault((path, what), []).append(item)
    return [_problem(path, items, model, raw, locate) for (path, _), items in places.items()]


def _path(loc: tuple[int | str, ...], raw: Any) -> Path:
    """Keep those parts of pydantic's location that exist in the TOML; the others are names of union members."""
    path: list[int | str] = []
    for part in loc:
        inside = part in raw if isinstance(raw, dict) else isinstance(raw, list) and isinstance(part, int)
        if inside and part != "[key]":
            path.append(part)
            raw = raw[part]
    return tuple(path)


def _problem(path: Path, items: list[Any], model: type[BaseModel], raw: Any, locate: Locate) -> Problem:
    first = items[0]
    kind, context = first["type"], first.get("ctx", {})
    value = raw
    for part in path:
        value = value[part]
    if kind == "extra_forbidden":
        choices = [name for item in items for name in _keys(model, item["loc"])]
        return locate(
            path, f'unknown key "{path[-1]}"', listing(dict.fromkeys(choices), 30), nearest(path[-1], choices), key=True
        )
    if kind == "missing":
        return locate(path, f'missing key "{first["loc"][-1]}"')
    if kind == "opcheck":
        return locate(path, context["what"], context["expected"], context["nearest"])
    if all(item["type"] in WANTED or item["type"] == "literal_error" for item in items):
        return _wrong_value(path, items, value, locate)
    if kind == "union_tag_not_found":
        return locate(
            path, f"wrong type: {name_of(value)}", "a tensor table, a number, a string, a boolean or an array"
        )
    return locate(path, f"{_called(path)}: {first['msg'].lower()}")


def _wrong_value(path: Path, items: list[Any], value: Any, locate: Locate) -> Problem:
    choices = [choice for item in items for choice in _choices(item)]
    wanted = dict.fromkeys(WANTED[item["type"]] for item in items if item["type"] in WANTED)
    if isinstance(value, str) and choices:
        return locate(path, f'unknown {_called(path)} "{value}"', listing(choices), nearest(value, choices))
    expected = " or ".join([*wanted, *([listing(choices)] if choices else [])])
    return locate(path, f"wrong type for {_called(path)}: {name_of(value)}", expected)


def _choices(item: Any) -> list[str]:
    expected = str(item.get("ctx", {}).get("expected", "")) if item["type"] == "literal_error" else ""
    return [part.strip("' ") for part in expected.replace(" or ", ", ").split(", ") if part]


def _called(path: Path) -> str:
    names = [part for part in path if isinstance(part, str)]
    return names[-1] if names else "value"


def name_of(value: Any) -> str:
    """Return what a TOML value is, in TOML's words, with the text of short ones."""
    for types, name in (
        ((bool,), "a boolean"), ((int,), "an integer"), ((float,), "a number"), ((str,), "a string"),
        ((list, tuple), "an array"), ((dict,), "a table"), ((datetime, date, time), "a date"),
    ):  # fmt: skip
        if isinstance(value, types):
            text = repr(value) if not isinstance(value, bool) else str(value).lower()
            return f"{name} ({text})" if len(text) <= 40 else name
    return type(value).__name__


def _keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are valid where pydantic refused `loc[-1]`."""
    models = [model]
    for part in loc[:-1]:
        if isinstance(part, str) and part.startswith("<"):
            tagged = [found for found in models if _tag(found) == part]
            models = tagged or models
        fields = (
            [found.model_fields[part] for found in models if part in found.model_fields]
            if isinstance(part, str)
            else []
        )
        if fields:
            models = [found for field in fields for found in _models(field.annotation, set())]
    return [name for found in models for name in found.model_fields]


def _tag(model: type[BaseModel]) -> str:
    own = {"Tensor": "<tensor>", "SampleSpec": "<sample>", "TemplateUse": "<use>"}
    return own.get(model.__name__, f"<{next(iter(model.model_fields))}>")


def _models(annotation: Any, seen: set[int]) -> list[type[BaseModel]]:
    """Return the models that an annotation mentions, however deep."""
    if id(annotation) in seen:
        return []
    seen.add(id(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    parts = get_args(annotation) or ((annotation.__value__,) if hasattr(annotation, "__value__") else ())
    return [found for part in parts for found in _models(part, seen)]
