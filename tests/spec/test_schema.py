"""The JSON Schema that editors complete specs with."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tomli

from opcheck.spec.schema import json_schema


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema, of the extra `test`, is not installed")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_schema_is_json_and_refuses_unknown_keys() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "opcheck spec"
    assert set(schema["properties"]) == {"defaults", "operator"}
    closed = {name for name, table in schema["$defs"].items() if table.get("additionalProperties") is False}
    assert {"OperatorSpec", "Defaults", "SampleSpec", "Tensor", "Supports", "When"} <= closed


def test_every_key_of_an_operator_is_described() -> None:
    properties = json_schema()["$defs"]["OperatorSpec"]["properties"]
    assert [name for name, entry in properties.items() if not entry.get("description")] == []


@pytest.mark.parametrize(
    "text",
    [
        'name = "torch.sin"\nsamples = [{ use = "unary", low = 1 }]',
        'name = "torch.cat"\nsamples = [{ args = [[{ shape = [2] }, { tuple = [1, { none = true }] }], 1.5] }]',
    ],
)
def test_good_specs_pass(validator: Any, text: str) -> None:
    assert list(validator.iter_errors(tomli.loads(f"[[operator]]\n{text}\n"))) == []


@pytest.mark.parametrize("text", ['name = "torch.sin"\nreseed = 1', 'name = "torch.sin"\nsample = []', "variants = []"])
def test_bad_specs_fail(validator: Any, text: str) -> None:
    assert not validator.is_valid(tomli.loads(f"[[operator]]\n{text}\n"))
