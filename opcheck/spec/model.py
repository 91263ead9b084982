"""The base of all spec models: unknown keys are errors, values are frozen, types are strict."""

import re
import warnings
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from opcheck.spec import dtypes

T = TypeVar("T")

Frozen = Annotated[tuple[T, ...], Field(strict=False)]
"""A TOML array, stored as a tuple."""


class Model(BaseModel):
    """A table of a spec."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


FURTHER_KEYS = ConfigDict(extra="allow")
"""The configuration of a table that accepts keys not known in advance."""


def refuse(what: str, expected: str = "", nearest: str = "", at: tuple[int | str, ...] = ()) -> PydanticCustomError:
    """Return the exception that a validator raises to report a mistake in opcheck's own words.

    at: keys and indices that lead from the validated value to the part that is wrong.
    """
    # Passed through the context, since pydantic takes braces in a message for placeholders.
    context: dict[str, Any] = {"what": what, "expected": expected, "nearest": nearest, "at": at}
    return PydanticCustomError("opcheck", "{what}", context)


NAME = r"[A-Za-z_]\w*"
MODULE = re.compile(rf"{NAME}(\.{NAME})*")
DOTTED = re.compile(rf"{NAME}(\.{NAME})+|{MODULE.pattern}:{MODULE.pattern}")
LONGEST_PATH = 200
LONGEST_NAME = 100
LONGEST_PATTERN = 1000
MOST_GROUPS = 100
"""The most groups in a regular expression. Python compiles nested groups recursively."""


def _bounded(text: str, what: str, most: int) -> None:
    if len(text) > most:
        raise refuse(f"{what} of {len(text)} characters is too long", f"at most {most}")


def _dotted(text: str) -> str:
    _bounded(text, "a path", LONGEST_PATH)
    if not DOTTED.fullmatch(text):
        raise refuse(f'"{text}" is not a dotted path', "package.attribute or package.module:attribute")
    return text


def _module_name(text: str) -> str:
    _bounded(text, "a path", LONGEST_PATH)
    if not MODULE.fullmatch(text):
        raise refuse(f'"{text}" is not the name of a module', "a name such as mylib.ops")
    return text


def _dtype_entry(text: str) -> str:
    mistake = dtypes.unknown(text)
    if mistake:
        raise refuse(f'unknown dtype "{text}"', *mistake)
    return text


def _new_dtype(text: str) -> str:
    _bounded(text, "a name", LONGEST_NAME)
    if text in dtypes.KNOWN or text in dtypes.GROUPS:
        raise refuse(f'"{text}" may exist on any device', "a dtype that exists only there; other profiles say `lacks`")
    if not re.fullmatch(r"[a-z]\w*", text):
        raise refuse(f'"{text}" is not the name of a dtype', "its name in torch, such as float8_e8m0fnu")
    return text


def _specifier(text: str) -> str:
    # Imported here: packaging takes 40 ms to import, and few specs have a version condition.
    from packaging.specifiers import SpecifierSet

    _bounded(text, "a version condition", LONGEST_NAME)
    try:
        SpecifierSet(text)
    except ValueError:  # InvalidSpecifier among them
        raise refuse(f'"{text}" is not a version condition', 'a condition such as "<2.12" or ">=2.6,<3"') from None
    return text


SPECIAL = frozenset("[](){}*+?\\|")


def _pattern(text: str) -> str:
    _bounded(text, "a regular expression", LONGEST_PATTERN)
    if SPECIAL.isdisjoint(text):
        return text  # plain words need no compiling
    if text.count("(") > MOST_GROUPS:
        raise refuse(f"a regular expression of {text.count('(')} groups is too large", f"at most {MOST_GROUPS}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns about patterns that will change their meaning
            re.compile(text)
    except (re.error, OverflowError, Warning) as error:
        raise refuse(f'"{text}" is not a regular expression: {error}') from None
    return text


def _identifier(text: str) -> str:
    _bounded(text, "a name", LONGEST_NAME)
    if not re.fullmatch(r"[\w.+=-]+", text):
        raise refuse(f'"{text}" cannot be part of a test id', "letters, digits and any of _ . + = -")
    return text


TAKEN_MARKS = frozenset({
    "filterwarnings", "flaky", "forked", "parameterise", "parameterize", "parametrise", "parametrize", "repeat", "skip",
    "skipif", "timeout", "tryfirst", "trylast", "usefixtures", "xdist_group", "xfail",
})  # fmt: skip
"""Markers that pytest or its common plugins use, or that pytest rejects as misspelt."""


def _mark_name(text: str) -> str:
    if text in TAKEN_MARKS:
        raise refuse(f'"{text}" cannot be a marker: it has a meaning of its own in pytest', "another name")
    if text.startswith("_") or "=" in text or text in ("and", "not", "or"):
        expected = "letters, digits and any of _ . + -, no leading _; not one of and, not, or"
        raise refuse(f'"{text}" cannot be a pytest marker', expected)
    return text


def _keyword(text: str) -> str:
    _bounded(text, "a name", LONGEST_NAME)
    if not text.isidentifier():
        raise refuse(f'"{text}" cannot be the name of an argument', "a Python identifier")
    return text


def _pattern_of(pattern: str) -> WithJsonSchema:
    """Return the JSON Schema of a string: a pattern that refuses common mistakes, and nothing that is valid.

    It is simple, because editors do not have Python's regular expressions.
    """
    return WithJsonSchema({"type": "string", "pattern": pattern})


def named(kind: str) -> WithJsonSchema:
    """Return the JSON Schema of a string that is one of the names of a kind: checks, devices, ..."""
    return WithJsonSchema({"type": "string", "names": kind})


CheckName = Annotated[str, named("check")]
DeviceName = Annotated[str, named("device")]
Dotted = Annotated[
    str,
    AfterValidator(_dotted),
    _pattern_of(r"^[^\s.:()/-]+([.:][^\s.:()/-]+)+$"),
]
ModuleName = Annotated[
    str,
    AfterValidator(_module_name),
    _pattern_of(r"^[^\s.:()/-]+(\.[^\s.:()/-]+)*$"),
]
NewDtype = Annotated[
    str,
    AfterValidator(_new_dtype),
    _pattern_of(r"^[a-z]\w*$"),
]
"""The name of a dtype that opcheck does not know."""
DtypeEntry = Annotated[str, AfterValidator(_dtype_entry), named("dtype entry")]
VersionCondition = Annotated[
    str,
    AfterValidator(_specifier),
    _pattern_of(r"^\s*((~=|===?|!=|<=?|>=?)[^,]+(,\s*|$))*$"),
]
Pattern = Annotated[str, AfterValidator(_pattern)]
Identifier = Annotated[
    str,
    AfterValidator(_identifier),
    _pattern_of(r"^[^\s\[\]:/,]+$"),
]
MarkName = Annotated[Identifier, AfterValidator(_mark_name)]
"""A name to select cases by. It becomes a pytest marker."""
Keyword = Annotated[str, AfterValidator(_keyword)]
"""The name of a keyword argument."""
