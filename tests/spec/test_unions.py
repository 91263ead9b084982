"""Schemas without unions: they accept what the unions accept, and say one thing about what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from opcheck.spec.unions import merged, required, said_once, unknown_key

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema, of the extra `test`, is not installed")

STRING = {"type": "string"}
NAME = {"type": "string", "enum": ["method", "inplace"]}
NAMES = {"type": "array", "items": NAME}
INTEGER, NUMBER, BOOLEAN = {"type": "integer"}, {"type": "number"}, {"type": "boolean"}


def closed(*needed: str, **keys: Any) -> dict[str, Any]:
    """Return the schema of a table with some keys, of which some must be there."""
    table = {"type": "object", "properties": keys, "additionalProperties": unknown_key(keys), "required": [*needed]}
    return required(table if needed else {key: value for key, value in table.items() if key != "required"})


TARGET = closed("kind", kind=NAME, target=STRING)
POINT, CIRCLE, NONE = closed(x=NUMBER, y=NUMBER, z=NUMBER), closed("r", "c", r=NUMBER, c=NUMBER), closed(none=BOOLEAN)
OPEN = {"type": "object", "properties": {"use": STRING, "x": NUMBER}, "required": ["use"]}

UNIONS = {
    "scalars": [BOOLEAN, INTEGER, NUMBER, STRING],
    "a boolean or a name": [BOOLEAN, {"type": "string", "enum": ["both"]}],
    "a name or names": [NAME, NAMES],
    "a boolean or names": [BOOLEAN, NAMES],
    "a name or a table": [NAME, TARGET],
    "a scalar, an array or one of several tables": [BOOLEAN, STRING, NAMES, POINT, CIRCLE, NONE],
    "tables, one with further keys": [POINT, OPEN],
    "a number or a name": [INTEGER, NAME],
    "two kinds of strings": [BOOLEAN, NAME, STRING],
    "two kinds of arrays": [BOOLEAN, NAMES, {"type": "array", "items": INTEGER}],
    "a table with any keys or another one": [{"type": "object", "additionalProperties": NUMBER}, TARGET],
    "one": [NAME],
}
VALUES = [
    True, 1, 1.5, "method", "both", "other", [], ["method"], ["other"], [1], {}, {"kind": "method"}, {"target": "x"},
    {"kind": "other", "target": "x"}, {"kind": "method", "target": 1}, {"x": 1, "z": 2}, {"x": "1"},
    {"r": 1, "c": 2}, {"r": 1}, {"none": True}, {"none": 1}, {"none": True, "x": 1}, {"r": 1, "c": 1, "x": 1}, {"w": 1},
    {"use": "a", "more": 1}, {"use": 1}, {"use": "a", "x": 1}, {"use": "a", "y": 1},
]  # fmt: skip


def mistakes(schema: Any, value: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(value)]


@pytest.mark.parametrize("members", UNIONS.values(), ids=UNIONS)
def test_a_merged_union_accepts_what_a_member_accepts(members: list[Any]) -> None:
    schema = said_once(merged(members))
    jsonschema.Draft7Validator.check_schema(schema)
    accepted = [value for value in VALUES if not mistakes(schema, value)]
    wanted = [value for value in VALUES if any(not mistakes(member, value) for member in members)]
    assert [value for value in wanted if value not in accepted] == []
    # What cannot be told apart is accepted.
    assert accepted == wanted or members in (
        UNIONS["two kinds of arrays"],
        UNIONS["a table with any keys or another one"],
    )
    assert len(accepted) < len(VALUES)


@pytest.mark.parametrize("members", UNIONS.values(), ids=UNIONS)
def test_a_mistake_has_one_message(members: list[Any]) -> None:
    schema = said_once(merged(members))
    for value in VALUES:  # a table may have a mistake in each key
        assert len(mistakes(schema, value)) <= (max(len(value), 1) if isinstance(value, dict) else 1), value


def test_a_misspelt_key_is_not_told_as_a_missing_one_too() -> None:
    assert mistakes(CIRCLE, {"r": 1}) == ["'c' is a required property"]
    (message,) = mistakes(CIRCLE, {"r": 1, "cc": 2})
    assert "unknown key; expected one of r, c" in message


def test_the_key_of_another_kind_of_table_is_told_as_that() -> None:
    schema = merged([POINT, CIRCLE])
    (message,) = mistakes(schema, {"r": 1, "c": 1, "y": 1})
    assert "does not go with r" in message
    (message,) = mistakes(schema, {"c": 1, "y": 1})
    assert "only with r" in message
    (message,) = mistakes(schema, {"a": 1})
    assert "unknown key; expected one of x, y, z, r" in message


def test_names_are_offered_where_other_types_are_possible_too() -> None:
    assert merged([NAME, NAMES])["anyOf"] == [{"enum": NAME["enum"]}, {}]
