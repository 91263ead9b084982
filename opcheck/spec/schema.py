"""The JSON Schema of spec files, for completion in editors."""

from __future__ import annotations

from typing import Any

from opcheck.spec.model import Model
from opcheck.spec.operator import SpecFile


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a spec file."""
    _build(Model)
    schema = SpecFile.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "opcheck spec"}


def _build(model: type[Model]) -> None:
    # Models are built lazily (defer_build), and pydantic before 2.14 cannot write a default of an unbuilt model.
    for derived in model.__subclasses__():
        derived.model_rebuild()
        _build(derived)
