"""Turns pydantic's errors about a spec into problems with a position, the expected values and a suggestion."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from functools import lru_cache
from itertools import filterfalse
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from opcheck.spec.document import written
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import Mistake, Problem, SpecError, listing, nearest
from opcheck.spec.recipe import Tensor
from opcheck.spec.render import render
from opcheck.spec.values import LITERALS, TENSOR
from opcheck.text import counted

M = TypeVar("M", bound=BaseModel)

Locate = Callable[[KeyPath, str, str, str, bool], Problem]
"""A function that makes the Problem for a Mistake: `Document.problem`, or one that traces merged values."""

WANTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "an array",
    "tuple_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "union_tag_not_found": "a number, string, boolean, array or table",
}
BOUNDS = {
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "finite_number": "a finite number",
}
MOST = 40
"""The maximum number of names that a message lists."""


def validated(model: type[M], raw: Any, locate: Locate) -> M:
    """Return parsed TOML as a model. Raises SpecError with a problem for everything that the model rejects."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise SpecError(locate(*mistake) for mistake in explain(error, model, raw)) from None


def explain(error: ValidationError, model: type[BaseModel], raw: Any) -> list[Mistake]:
    """Return one mistake for each place in `raw` (parsed TOML) that the model rejects."""
    places: dict[tuple[KeyPath, str], list[Any]] = {}
    for item in filterfalse(_is_long_enough, error.errors(include_url=False)):
        path = written(raw, item["loc"])  # other parts are names of union members
        kind, last = item["type"], item["loc"][-1] if item["loc"] else ""
        # If the key itself is wrong, pydantic appends "[key]" to its location.
        named = last == "[key]" and len(item["loc"]) > 1 and path[-1:] == item["loc"][-2:-1]
        what = "key" if kind == "extra_forbidden" or named else str(last) if _is_missing(item) else ""
        places.setdefault((path, what), []).append(item)
    # A type error around another error comes from a union member that the author did not intend.
    around = {path[:length] for path, what in places for length in range(len(path) + bool(what))}
    mistakes = {
        (path, what): _mistake(path, items, model, raw)._replace(key=what == "key")
        for (path, what), items in places.items()
        if what or path not in around or not all(_is_type(item) for item in items)
    }
    misspelt = {(path[:-1], mistake.nearest) for (path, what), mistake in mistakes.items() if what == "key"}
    return [mistake for place, mistake in mistakes.items() if place not in misspelt]


def _is_long_enough(item: Any) -> bool:
    """Return whether an array is called too short only since pydantic does not count its invalid elements."""
    return item["type"] == "too_short" and bool(len(item["input"]) >= item["ctx"]["min_length"])


def _is_missing(item: Any) -> bool:
    return item["type"] == "missing" and isinstance(item["loc"][-1], str)


def _is_type(item: Any) -> bool:
    return item["type"] in WANTED or item["type"] == "literal_error"


def _mistake(path: KeyPath, items: list[Any], model: type[BaseModel], raw: Any) -> Mistake:
    first = next((item for item in items if item["type"] == "too_short"), items[0])  # an array is meant
    kind, context = first["type"], first.get("ctx", {})
    value = raw
    for part in path:
        value = value[part]
    if kind == "extra_forbidden":
        return Mistake(path, *_unknown_key(str(path[-1]), items, model))
    own = next((item["ctx"] for item in items if item["type"] == "opcheck"), None)
    if own:
        return Mistake((*path, *own["at"]), own["what"], own["expected"], own["nearest"])
    if _is_missing(first):
        key = first["loc"][-1]
        fields = [table.model_fields[key] for table in _tables(model, first["loc"]) if key in table.model_fields]
        return Mistake(path, f'missing key "{key}"', next((field.description for field in fields), None) or "")
    if kind in ("missing", "too_short", "too_long", "string_too_short"):
        return Mistake(path, *_wrong_length(path, items, value))
    if kind in BOUNDS:
        return Mistake(path, f"{_called(path)} is out of range: {render(value)}", BOUNDS[kind].format(**context))
    if all(_is_type(item) for item in items):
        return Mistake(path, *_wrong_value(path, items, value))
    return Mistake(path, f"{_called(path)}: {first['msg'].lower()}")


def _wrong_length(path: KeyPath, items: list[Any], value: Any) -> tuple[str, str]:
    """Return what is wrong with an array or string of the wrong length, and what was expected."""
    kind, context = items[0]["type"], items[0].get("ctx", {})
    if not value:
        return f"{_called(path)} is empty", "some text" if kind == "string_too_short" else "at least one element"
    if kind == "too_long":
        return f"{_called(path)} is too long", f"at most {counted(context['max_length'], 'element')}"
    # A tuple of fixed length: pydantic reports every missing element.
    return f"{_called(path)} is too short", f"{items[-1]['loc'][-1] + 1} elements"


def _wrong_value(path: KeyPath, items: list[Any], value: Any) -> tuple[str, str, str]:
    """Return what is wrong with a value of the wrong type or an unknown name, what was expected, the nearest name."""
    choices = [choice for item in items for choice in _choices(item)]
    wanted = dict.fromkeys(WANTED[item["type"]] for item in items if item["type"] in WANTED)
    listed = [listing(choices, MOST)] if choices else []
    expected = " or ".join([*listed, *wanted])
    if isinstance(value, str) and choices:
        name = path[-1] if isinstance(path[-1], str) else _called(path[:-1]).removesuffix("s")
        return f'unknown {name} "{value}"', expected, nearest(value, choices)
    what = "wrong type" if wanted else "wrong value"
    return f"{what} for {_called(path)}: {name_of(value)}", expected, ""


def _choices(item: Any) -> list[str]:
    """Return the values of a literal as TOML writes them."""
    expected = str(item.get("ctx", {}).get("expected", "")) if item["type"] == "literal_error" else ""
    named = [part.strip("' ") for part in expected.replace(" or ", ", ").split(", ") if part]
    return [name.lower() if name in ("True", "False") else name for name in named]


def _called(path: KeyPath) -> str:
    names = [part for part in path if isinstance(part, str)]
    if not names:
        return "the table"
    return f"an element of {names[-1]}" if isinstance(path[-1], int) else names[-1]


def name_of(value: Any) -> str:
    """Return the type of a TOML value in TOML's terms, and its text if it is short."""
    for types, name in (
        ((bool,), "a boolean"), ((int,), "an integer"), ((float,), "a number"), ((str,), "a string"),
        ((list, tuple), "an array"), ((dict,), "a table"), ((datetime,), "a date and time"), ((date,), "a date"),
        ((time,), "a time"),
    ):  # fmt: skip
        if isinstance(value, types):
            text = value.isoformat() if isinstance(value, (date, time)) else render(value)
            return f"{name} ({text})" if len(text) <= 40 else name
    return type(value).__name__


def _unknown_key(key: str, items: list[Any], model: type[BaseModel]) -> tuple[str, str, str]:
    """Return what is wrong with an unknown key, what was expected, and the key that was probably meant."""
    tables = _tables(model, items[0]["loc"])
    choices = [name for item in items for table in _tables(model, item["loc"]) for name in table.model_fields]
    literals = LITERALS if TENSOR in items[0]["loc"][-2:] else ()  # the table was taken for a tensor
    plural = f"{key}s" if f"{key}s" in choices else ""  # preferred to a key of that name in an inner table
    usual = OF_TORCH.get(key, "")  # preferred to a key that looks like it
    near = plural or _inside(key, tables) or (usual if usual in choices else nearest(key, [*choices, *literals]))
    instead = ""
    if not near and key in model.model_fields and model not in tables:
        instead = f"; {key} is a key of the operator"
    elif not near and any({"args", "kwargs"} <= table.model_fields.keys() for table in tables):
        instead = f"; a keyword argument of the operator goes under kwargs = {{ {key} = ... }}"
        if key in Tensor.model_fields:
            instead = f"; a tensor goes under args = [{{ {key} = ... }}]"
    return f'unknown key "{key}"', listing(dict.fromkeys(choices), MOST) + instead, near


OF_TORCH = {"requires_grad": "grad", "min": "low", "max": "high", "size": "shape", "data": "values"}
"""The keys of a tensor, by the names that functions of torch and NumPy have for them."""


HOLDERS = {"Supports": True, "Dtypes": True, "OperatorTolerances": True, "Outputs": True, "SampleSpec": False}
"""Tables whose keys are often written one level too high. False: the table is an element of an array."""


def _inside(key: str, tables: list[type[BaseModel]]) -> str:
    """Return the place of a key written one level too high, such as `supports.forward_ad`, or an empty string."""
    for table in tables:
        for name, field in table.model_fields.items():
            inner = [part for part in _models(field.annotation, []) if key in part.model_fields]
            if inner and inner[0].__name__ in HOLDERS:
                return f"{name}.{key}" if HOLDERS[inner[0].__name__] else f"{name} = [{{ {key} = ... }}]"
    return ""


def _tables(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[type[BaseModel]]:
    """Return the possible models of the table that contains the last key of a location."""
    return _models_at(model, tuple(part for part in loc[:-1] if isinstance(part, str)))


@lru_cache(maxsize=256)
def _models_at(model: type[BaseModel], names: tuple[str, ...]) -> list[type[BaseModel]]:
    """Return the possible models of the table at a location, whose keys are `names`."""
    models = [model]
    for name in names:
        if name.startswith("<"):
            models = [table for table in models if _tag(table) == name] or models
        else:
            for table in models:
                table.model_rebuild()  # annotations may be forward references
            fields = [table.model_fields[name] for table in models if name in table.model_fields]
            models = [table for field in fields for table in _models(field.annotation, [])] or models
    return models


def _tag(model: type[BaseModel]) -> str:
    own = {"SampleSpec": "<sample>", "TemplateUse": "<use>"}
    return own.get(model.__name__, f"<{next(iter(model.model_fields))}>")


def _models(annotation: Any, seen: list[Any]) -> list[type[BaseModel]]:
    """Return the models that an annotation mentions at any depth. seen: the annotations already visited."""
    if any(annotation is one for one in seen):
        return []
    seen.append(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    parts = get_args(annotation) or ((annotation.__value__,) if hasattr(annotation, "__value__") else ())
    return [table for part in parts for table in _models(part, seen)]
