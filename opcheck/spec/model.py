"""The base of all spec models: unknown keys are errors, values are frozen, types are exact."""

import re
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from opcheck.spec import dtypes

T = TypeVar("T")

Frozen = Annotated[tuple[T, ...], Field(strict=False)]
"""A TOML array, kept as a tuple."""


class Model(BaseModel):
    """A table of a spec."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


FURTHER_KEYS = ConfigDict(extra="allow")
"""The configuration of a table whose keys are not all known beforehand."""


def refuse(what: str, expected: str = "", nearest: str = "") -> PydanticCustomError:
    """Return the exception by which a validator reports a mistake in opcheck's own words."""
    # The text goes through the context: pydantic would read braces in a message as its own placeholders.
    context: dict[str, Any] = {"what": what, "expected": expected, "nearest": nearest}
    return PydanticCustomError("opcheck", "{what}", context)


DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?")


def _dotted(text: str) -> str:
    if not DOTTED.fullmatch(text):
        raise refuse(f'"{text}" is no dotted path', "package.attribute or package.module:attribute")
    return text


def _dtype_entry(text: str) -> str:
    mistake = dtypes.unknown(text)
    if mistake:
        raise refuse(f'unknown dtype "{text}"', *mistake)
    return text


def _specifier(text: str) -> str:
    # Imported here: packaging costs 40 ms, and few specs have a version condition.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise refuse(f'"{text}" is no version condition', 'a condition such as "<2.12" or ">=2.6,<3"') from None
    return text


SPECIAL = frozenset("[](){}*+?\\|")


def _pattern(text: str) -> str:
    if SPECIAL.isdisjoint(text):
        return text  # plain words: spares compiling
    try:
        re.compile(text)
    except re.error as error:
        raise refuse(f'"{text}" is no regular expression: {error}') from None
    return text


def _identifier(text: str) -> str:
    if not re.fullmatch(r"[\w.+=-]+", text):
        raise refuse(f'"{text}" cannot stand in a test id', "letters, digits and any of _ . + = -")
    return text


Dotted = Annotated[str, AfterValidator(_dotted)]
DtypeEntry = Annotated[str, AfterValidator(_dtype_entry)]
VersionCondition = Annotated[str, AfterValidator(_specifier)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Identifier = Annotated[str, AfterValidator(_identifier)]
