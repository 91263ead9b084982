"""The base of all spec models: unknown keys are errors, values are frozen, types are strict."""

import re
import warnings
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from opcheck.spec import dtypes
from opcheck.spec.document import Document
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import Problem

T = TypeVar("T")

Frozen = Annotated[tuple[T, ...], Field(strict=False)]
"""A TOML array, stored as a tuple."""
Some = Annotated[tuple[T, ...], Field(strict=False, min_length=1)]
"""A TOML array of at least one element."""
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Model(BaseModel):
    """A table of a spec."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    def stated(self) -> dict[str, Any]:
        """Return the keys that were set explicitly, with their values, in the order of the model's fields."""
        return {key: getattr(self, key) for key in type(self).model_fields if key in self.model_fields_set}


class Located(Model):
    """A table with the document and the path where it is written."""

    _document: Document = Document("Python", "", {})
    _place: KeyPath = ()

    @property
    def origin(self) -> tuple[str, KeyPath]:
        """The file that contains the table, and the path of the table in the file."""
        return self._document.file, self._place

    def problem(self, path: KeyPath, what: str, expected: str = "", nearest: str = "", key: bool = False) -> Problem:
        """Return a problem at the position of a value (or key) of the table."""
        return self._document.problem((*self._place, *path), what, expected, nearest, key)


FURTHER_KEYS = ConfigDict(extra="allow")
"""The configuration of a table that accepts keys not known in advance."""


def refuse(what: str, expected: str = "", nearest: str = "", at: tuple[int | str, ...] = ()) -> PydanticCustomError:
    """Return the exception that a validator raises to report a mistake in opcheck's own words.

    at: keys and indices that lead from the validated value to the part that is wrong.
    """
    # The text is passed in the context, since pydantic interprets braces in a message as placeholders.
    context: dict[str, Any] = {"what": what, "expected": expected, "nearest": nearest, "at": at}
    return PydanticCustomError("opcheck", "{what}", context)


NAME = r"[A-Za-z_]\w*"
MODULE = rf"{NAME}(\.{NAME})*"
DOTTED = rf"{NAME}(\.{NAME})+|{MODULE}:{MODULE}"
LONGEST_PATH = 200
LONGEST_NAME = 100
LONGEST_PATTERN = 1000
MOST_GROUPS = 100
"""The maximum number of groups in a regular expression. Python compiles nested groups recursively."""
TAKEN_MARKS = frozenset({
    "filterwarnings", "flaky", "forked", "parameterise", "parameterize", "parametrise", "parametrize", "repeat", "skip",
    "skipif", "timeout", "tryfirst", "trylast", "usefixtures", "xdist_group", "xfail",
})  # fmt: skip
"""Markers that pytest or its common plugins use, or that pytest rejects as misspelt."""


def _bounded(what: str, most: int) -> AfterValidator:
    """Return a validator that rejects strings of more than `most` characters."""

    def check(text: str) -> str:
        if len(text) > most:
            raise refuse(f"{what} of {len(text)} characters is too long", f"at most {most}")
        return text

    return AfterValidator(check)


def matching(pattern: str, mistake: str, expected: str) -> AfterValidator:
    """Return a validator that rejects strings that a regular expression does not match as a whole."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise refuse(f'"{text}" {mistake}', expected)
        return text

    return AfterValidator(check)


def _pattern_of(pattern: str) -> WithJsonSchema:
    """Return the JSON Schema of a string with a pattern that rejects common mistakes, but no valid string.

    The pattern is simple, because editors do not support all of Python's regular expressions.
    """
    return WithJsonSchema({"type": "string", "pattern": pattern})


def named(kind: str) -> WithJsonSchema:
    """Return a placeholder for the JSON Schema of a name of a kind, such as "check". `schema.py` inserts the names."""
    return WithJsonSchema({"type": "string", "names": kind})


def _known_dtype(text: str) -> str:
    mistake = dtypes.unknown(text)
    if mistake:
        raise refuse(*mistake)
    return text


def _some_left(entries: tuple[str, ...]) -> tuple[str, ...]:
    if entries and not dtypes.expand(entries):
        raise refuse("this list leaves no dtype", 'dtypes that no later entry removes, as in ["floating", "-half"]')
    return entries


def _unknown_dtype(text: str) -> str:
    if text in dtypes.KNOWN or text in dtypes.GROUPS:
        kind = "standard torch dtype" if text in dtypes.KNOWN else "group of standard dtypes"
        expected = "a dtype that only this device has; to say that a device lacks a standard dtype, list it under lacks"
        raise refuse(f'"{text}" is a {kind}', expected)
    return text


def _specifier(text: str) -> str:
    # Imported here: packaging takes 40 ms to import, and few specs have a version condition.
    from packaging.specifiers import SpecifierSet

    try:
        SpecifierSet(text)
    except ValueError:  # includes InvalidSpecifier
        raise refuse(f'"{text}" is not a version condition', 'a condition such as "<2.12" or ">=2.6,<3"') from None
    return text


def _regular_expression(text: str) -> str:
    if text.count("(") > MOST_GROUPS:
        raise refuse(f"a regular expression of {text.count('(')} groups is too large", f"at most {MOST_GROUPS}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns about patterns that will change their meaning
            re.compile(text)
    except (re.error, OverflowError, Warning) as error:
        raise refuse(f'"{text}" is not a regular expression: {error}') from None
    return text


def _free_mark(text: str) -> str:
    if text in TAKEN_MARKS:
        raise refuse(f'"{text}" cannot be a marker: it has a meaning of its own in pytest', "another name")
    if text.startswith("_") or "=" in text or text in ("and", "not", "or"):
        expected = "letters, digits and any of _ . + -, no leading _; not one of and, not, or"
        raise refuse(f'"{text}" cannot be a pytest marker', expected)
    return text


def _keyword(text: str) -> str:
    if not text.isidentifier():
        raise refuse(f'"{text}" cannot be the name of an argument', "a Python identifier")
    return text


_PATH = _bounded("a path", LONGEST_PATH)
_SHORT = _bounded("a name", LONGEST_NAME)

CheckName = Annotated[str, named("check")]
DeviceName = Annotated[str, named("device")]
Dotted = Annotated[
    str,
    _PATH,
    matching(DOTTED, "is not a dotted path", "package.attribute or package.module:attribute"),
    _pattern_of(r"^[^\s.:()/-]+([.:][^\s.:()/-]+)+$"),
]
ModuleName = Annotated[
    str,
    _PATH,
    matching(MODULE, "is not the name of a module", "a name such as mylib.ops"),
    _pattern_of(r"^[^\s.:()/-]+(\.[^\s.:()/-]+)*$"),
]
NewDtype = Annotated[
    str,
    _SHORT,
    AfterValidator(_unknown_dtype),
    matching(r"[a-z]\w*", "is not the name of a dtype", "its name in torch, such as float8_e8m0fnu"),
    _pattern_of(r"^[a-z]\w*$"),
]
"""The name of a dtype that is not built into opcheck."""
DtypeEntry = Annotated[str, AfterValidator(_known_dtype), named("dtype entry")]
DtypeEntries = Annotated[Frozen[DtypeEntry], AfterValidator(_some_left)]
"""Dtypes and groups of dtypes. A leading `-` takes one from those before it."""
VersionCondition = Annotated[
    str,
    _bounded("a version condition", LONGEST_NAME),
    AfterValidator(_specifier),
    _pattern_of(r"^\s*((~=|===?|!=|<=?|>=?)[^,]+(,\s*|$))*$"),
]
Pattern = Annotated[str, _bounded("a regular expression", LONGEST_PATTERN), AfterValidator(_regular_expression)]
Identifier = Annotated[
    str,
    _SHORT,
    matching(r"[\w.+=-]+", "cannot be part of a test id", "letters, digits and any of _ . + = -"),
    _pattern_of(r"^[^\s\[\]:/,]+$"),
]
MarkName = Annotated[Identifier, AfterValidator(_free_mark)]
"""A name to select cases by. It becomes a pytest marker."""
Keyword = Annotated[str, _SHORT, AfterValidator(_keyword)]
"""The name of a keyword argument."""
