"""Learns from refused guesses: an error message, or the source line that raised it, suggests other arguments."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import prod
from typing import Any

from opcheck.draft.data import (
    INDICES,
    LARGEST,
    Data,
    SampleData,
    Shape,
    is_tensor,
    mapped,
    places,
    replaced,
    with_keyword,
)
from opcheck.draft.parameters import FUNCTIONS, TENSOR, Parameter, shapes_in

RANKS = re.compile(
    r"\b(\d)[ -]?[dD]\b|\b(\d)[ -]?dim(?:ension(?:al|s)?)?\b|(?:ndim|dim\(\)|ndimension\(\)|\.shape\))\D{0,12}?(\d)\b"
    r"|in [\[(](\d), (\d)[\])]|to unpack \(expected (\d)"
)
"""The pattern of a number of dimensions, as in `4D`, `3 dimensions`, `x.ndim == 3` or `len(x.shape) != 2`."""
OF_RANK: dict[int, Shape] = {0: (), 1: (3,), 2: (2, 3), 3: (2, 3, 3), 4: (1, 2, 4, 4), 5: (1, 2, 4, 4, 4)}
NUMBERS = re.compile(r"(?<![\w.])-?\d+(?![\w.]*\w)|(?<=\d)x(\d+)|(\d+)(?=x\d)")
ELEMENTS = re.compile(r"\b(?:contain|have|has|with|of|expected) (\d+) (?:elements?|entries)\b")
"""The pattern of the number of elements of a vector, as in `running_mean should contain 3 elements not 2`."""
NEEDED = re.compile(
    r"\b(require|specif|should be defined|must be (given|provided|passed|defined|set)|at least one|needed|KeyError"
    r"|is not None|(must not|cannot|can't) (both |all )?be None)"
)
"""The pattern of an error about a missing argument. The message also names the argument."""
MISSING = re.compile(r"missing \d+ required|^KeyError")
"""The pattern of an error that names arguments, also those that a function only passes on, by `**kwargs`."""
BEYOND = re.compile(r"\b(less|larger|greater|longer|bigger|more) than\b")
"""The pattern of an error about a size that must be beyond a number: the next number is tried, too."""
OUT_OF_RANGE = re.compile(r"out of (range|bounds)")

KINDS = (
    (
        re.compile(r"[Pp]ositive[- ]?(semi-?)?definite|PSD|[Cc]holesky"),
        {"structure": "positive_definite", "through": "symmetrize"},
    ),
    (
        re.compile(r"[Dd]omain|between 0|[Pp]robabilit|[Pp]ositive|[Nn]on-?negative|\[0, 1\]|not finite"),
        {"low": 0.1, "high": 0.9},
    ),
    (
        re.compile(
            r"\b(Long(Tensor)?|int64|integer (tensors?|d?type)|integral|indices must|must be long"
            r"|not implemented for '(Double|Float|Half|BFloat16))\b"
        ),
        INDICES,
    ),
    (re.compile(r"[Oo]rthogonal|[Rr]otation matri|\bdet\("), {"through": "orthogonal"}),
    (re.compile(r"\b(for|be|requires|[Ee]xpected)( a)? complex|non-complex dtypes"), {"dtype": "complex"}),
    (re.compile(r"\b[Bb]ool(ean|Tensor)?\b|[Mm]ask must be"), {"dtype": "bool"}),
    (re.compile(r"cannot have requires_grad|not differentiable with respect to argument"), {"grad": False}),
)
"""Words in errors that call for a structure, domain, dtype or constant, and the keys that give it to a tensor."""
WANTS_FLOAT = re.compile(r"same dtype|floating[- ]point|must be (a )?float|not implemented for '(Long|Bool)'")
"""The pattern of an error about a tensor of integers or booleans that should be one of numbers."""
OF_DTYPES = re.compile(
    r"[dD](ata)?[ -]?types?\b|scalar type|\b[Ii]nteg(er|ral)|\bindex tensor|Double|[Ff]loat|[Hh]alf|\b(BF|FP)16\b"
    r"|int64|Long"
)
"""The pattern of an error about the dtype of a tensor."""

WANTS_TENSOR = re.compile(
    r"must be (a )?(torch\.)?Tensor|not a (torch\.)?Tensor|value of type 'Tensor|'(int|float|list|bool)' object", re.I
)
WANTS_INTEGER = re.compile(
    r"interpreted as an integer|only integer tensors of|combination of arguments - got \([^)]*Tensor"
)
WANTS_NUMBERS = re.compile(r"must be (a )?(tuple|list|sequence) of ints?\b|'(NoneType|int|float)' has no len")
WANTS_FUNCTION = re.compile(r"object is not callable")
OF_TWO = re.compile(r"takes 1 positional argument but 2 were given")
"""The pattern of an error about a function that should take two arguments, such as the time and the state."""
INSTEAD: tuple[tuple[re.Pattern[str], tuple[type, ...], list[Data]], ...] = (
    (WANTS_TENSOR, (int, float), [{"shape": []}, {"shape": [2, 3]}, {"shape": [3]}]),
    (WANTS_INTEGER, (dict,), [2]),
    (WANTS_NUMBERS, (int, float, dict), [[2], [2, 2], [2, 2, 2]]),
    (WANTS_FUNCTION, (int, float, dict), FUNCTIONS),
    (OF_TWO, (dict,), [{"object": "torch.add"}]),
)
"""Words in errors about the type of a value, types that the value may have, and values to try in its place. Tensors are
dicts."""


def repairs_of(sample: SampleData, said: str, source: str, parameters: Sequence[Parameter]) -> Iterator[SampleData]:
    """Yield repaired versions of a refused sample.

    Each has one change that the error message, or the source lines that raised it, suggest: of one argument, or of all
    tensors that are equal to it. Arguments that the error names are changed first. An optional argument that it asks
    for is added.
    """
    hints = Hints(said, source)
    parameters = [*parameters, *_passed_on(said, {one.name for one in parameters})]
    named = {key for place, one in enumerate(parameters) if hints.names(one.name) for key in (place, one.name)}
    every = sorted(places(sample), key=lambda own: own[0][1] not in named)
    for path, value in every:
        yield from (replaced(sample, path, better) for better in hints.better(value, path[1] in named))
    each = [value for _, value in every if is_tensor(value)]
    for index, value in enumerate(each):
        if value in each[:index]:  # tensors that are alike may have to stay so
            yield from (mapped(partial(_instead_of, value, better), sample) for better in hints.better(value))
    first = next((_of_another(value["shape"]) for value in each if "shape" in value), [])
    for one in parameters:
        is_needed = "NoneType" in said or (NEEDED.search(hints.said) and one.name in named)
        if is_needed and not one.required and one.name not in sample.get("kwargs", {}):
            plain = [value for value in one.options if not is_tensor(value)]
            tensors = first if TENSOR in one.options or not one.annotation else []
            yield from (with_keyword(sample, one.name, value) for value in (*plain, *tensors, 2, [2, 2]))


def _passed_on(said: str, known: Container[str]) -> list[Parameter]:
    """Return the parameters that an error says are missing, without known ones: constructors often pass on others."""
    names = [name for name in re.findall(r"'(\w+)'", said) if MISSING.search(said) and name not in known]
    return [replace(Parameter.of(name, "", constructor=True), required=False) for name in names]


def _of_another(shape: list[int]) -> list[SampleData]:
    """Return tensors that go with one of a shape: an equal one, and an index for each row, as of classes."""
    return [{"shape": shape}, {"shape": shape[:1], **INDICES}]


class Hints:
    """What an error message, and the source lines that raised it, suggest about an argument.

    The source is what an exception without a message says, such as `assert mask is not None`.
    """

    def __init__(self, said: str, source: str) -> None:
        said = said if ": " in said else f"{said} {source}"
        self.said, self.both = said, f"{said} {source}"
        self.shapes: list[Shape] = [(int(count),) for count in ELEMENTS.findall(said)]
        self.shapes += [shape for text in (said, source) for shape in shapes_in(text, LARGEST)]
        self.ranks = [int(number) for match in RANKS.findall(self.both) for number in match if number]
        listed = list(_numbers_in(said))
        self.listed = dict.fromkeys((*listed, *(number + 1 for number in listed if BEYOND.search(said))))
        self.numbers = [number for number in dict.fromkeys(map(abs, (*_numbers_in(self.both), *self.listed))) if number]

    def names(self, parameter: str) -> bool:
        """Return whether the error or its source mentions a parameter, with underscores or with spaces."""
        return re.search(rf"\b{parameter.replace('_', '[_ ]')}\b", self.both, re.IGNORECASE) is not None

    def better(self, value: Any, is_named: bool = False) -> Iterator[Any]:
        """Yield values to try in place of a value. is_named: whether the error names the parameter."""
        if isinstance(value, dict) and "shape" in value:
            yield from self._tensors(value)
        elif isinstance(value, dict) and "tuple" in value:
            yield from ({"tuple": better} for better in self.better(value["tuple"]))
        elif isinstance(value, list):
            counts = dict.fromkeys((*self.numbers, *self.ranks))
            yield from ((value * 5)[:count] for count in counts if count != len(value) and count <= 5)
        elif is_named and type(value) in (int, float):  # as in `sample rate must be 44100 or 48000`
            yield from (number for number in self.listed if number != value)
        for words, types, others in INSTEAD:
            if words.search(self.said) and isinstance(value, types):
                yield from others

    def _tensors(self, value: dict[str, Any]) -> Iterator[Any]:
        """Yield tensors of other shapes and kinds to try in place of a tensor."""
        own = tuple(value["shape"])
        longer = [(2, *own)] if OUT_OF_RANGE.search(self.said) and len(own) < 4 else []
        shapes = chain(self.shapes, _of_ranks(own, self.ranks), _with_sizes(own, self.numbers), longer)
        small = [shape for shape in dict.fromkeys(shapes) if shape != own and prod(shape) <= LARGEST]
        yield from ({**value, "shape": list(shape)} for shape in small)
        if "dtype" in value and WANTS_FLOAT.search(self.said):
            yield {"shape": list(own)}
        for words, kind in KINDS:
            if words.search(self.said) and not kind.items() <= value.items():
                yield {**({"shape": list(own)} if "dtype" in kind else value), **kind}


def _numbers_in(text: str) -> Iterator[int]:
    return (int(match[0].strip("x")) for match in NUMBERS.finditer(text))


def _instead_of(value: Data, other: Data, part: Data) -> Data:
    """Return another value in place of each part that equals a value."""
    return other if part == value else part


def _of_ranks(own: Shape, ranks: Iterable[int]) -> Iterator[Shape]:
    """Yield two shapes for each other rank: a shape cut, or extended by dimensions of 2, and the default shape."""
    for rank in ranks:
        if rank != len(own) and rank in OF_RANK:
            yield own[-rank:] if 0 < rank < len(own) else (2,) * (rank - len(own)) + own
            yield OF_RANK[rank]


def _with_sizes(own: Shape, numbers: Iterable[int]) -> Iterator[Shape]:
    """Yield a shape with one size replaced by each of some numbers, the last dimension first.

    If that makes the tensor too large, all other sizes are 1.
    """
    for number in numbers:
        for dim in reversed(range(len(own))):
            changed = (*own[:dim], number, *own[dim + 1 :])
            yield changed if prod(changed) <= LARGEST else tuple(number if k == dim else 1 for k in range(len(own)))
