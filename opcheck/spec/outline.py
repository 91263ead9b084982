"""Mistakes in a spec file outside its operators: in the top-level keys and the defaults."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pydantic import ValidationError

from opcheck.spec.document import Document
from opcheck.spec.explain import explain
from opcheck.spec.operator import Defaults, OperatorSpec
from opcheck.spec.positions import Path
from opcheck.spec.problems import Problem, listing, nearest


def around_operators(document: Document) -> Iterator[Problem]:
    """Yield the mistakes of a spec file outside its operators."""
    yield from _top_level(document)
    yield from _in_defaults(document)


def _top_level(document: Document) -> Iterator[Problem]:
    """Yield the mistakes in the top-level keys of a spec file."""
    data = document.data
    known = ("defaults", "operator")
    unknown = [key for key in data if key not in known]
    for key in unknown:
        yield document.problem((key,), f'unknown key "{key}"', "defaults or operator", nearest(key, known), key=True)
    if not isinstance(data.get("defaults", {}), dict):
        yield document.problem(("defaults",), "defaults is not a table", "[defaults]")
    entries = data.get("operator")
    if entries is None:
        if not any(nearest(key, known) == "operator" for key in unknown):
            yield document.problem((), "a spec file without operators", "at least one [[operator]]")
    elif not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        yield document.problem(("operator",), "operator is not an array of tables", "at least one [[operator]]")


def _in_defaults(document: Document) -> Iterator[Problem]:
    """Yield the mistakes in `[defaults]`, including values that every operator overrides."""
    written = document.data.get("defaults")
    if not isinstance(written, dict):
        return
    locate = partial(_under, document, ("defaults",))
    known = {key: value for key, value in written.items() if key in Defaults.model_fields}
    for key in written.keys() - known.keys():
        words = (f'unknown key "{key}"', listing(Defaults.model_fields, 30), nearest(key, Defaults.model_fields))
        yield locate((key,), *words, key=True)
    try:
        # Validated as an operator, to avoid building a second validator. All keys of Defaults are keys of operators.
        OperatorSpec.model_validate({"name": "some.operator", **known})
    except ValidationError as error:
        yield from explain(error, Defaults, known, locate)


def _under(document: Document, base: Path, path: Path, *words: str, key: bool = False) -> Problem:
    return document.problem((*base, *path), *words, key=key)
