"""The JSON Schema of spec files, for completion in editors."""

from __future__ import annotations

from typing import Any

from opcheck.spec.operator import SpecFile


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a spec file."""
    schema = SpecFile.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "opcheck spec"}
