"""Finds out what arguments should be like from text: documentation, annotations, error messages and source lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from typing import Any

from opcheck.draft.data import LARGEST, Data, SampleData, Shape, is_tensor, mapped, places, replaced, with_keyword
from opcheck.draft.parameter import TENSOR, Parameter

SIZE = r"'?(?:\.\.\.|\*|\d+|[A-Z]\w{0,3}|batch(?:_size)?)'?"
LISTED = re.compile(rf"[(\[]\s*({SIZE}(?:\s*,\s*{SIZE})+|{SIZE}\s*,|'{SIZE}')\s*,?\s*[)\]]")
CROSSED = re.compile(r"(?<![\w*])((?:[A-Z*]|\d+)(?:\s?x\s?(?:[A-Z*]|\d+))+)(?!\w)")
WORDED = re.compile(
    r"\b(?:shape|size)s?\W{1,3}[(\[]\s*((?!int\b|float\b|tuple\b|list\b|str\b|bool\b)\w+(?:\s*,\s*[\w*.]+)+)\s*,?\s*[)\]]"
)
TYPED = re.compile(r"""(?:Float|Int|Shaped|Num|Real|Inexact|Complex)\[[^,]+,\s*["']([^"']+)["']""")
"""Patterns of shapes. LISTED: `(*, 3, 3)` or `['B', '4']`. CROSSED: `Bx3x3`. WORDED: `of shape (batch, seq_len,
head_dim)`. TYPED: `Float[Tensor, "batch 3"]`."""

SIZES = {"C": 2, "D": 3, "H": 4, "W": 4, "L": 3, "T": 3, "M": 3, "K": 3}
"""Sizes for letters in shapes. Other letters, such as N and B, are 2."""
WORDS = ((re.compile("seq|len|time|token"), 3), (re.compile("dim|hidden|feature|channel|vocab"), 4))
"""Sizes for words in shapes. Other words, such as batch and heads, are 2."""

RANKS = re.compile(
    r"\b(\d)[ -]?[dD]\b|\b(\d)[ -]?dim(?:ension(?:al|s)?)?\b|(?:ndim|dim\(\)|ndimension\(\)|\.shape\))\D{0,12}?(\d)\b"
    r"|in [\[(](\d), (\d)[\])]|to unpack \(expected (\d)"
)
"""The pattern of a number of dimensions, as in `4D`, `3 dimensions`, `x.ndim == 3` or `len(x.shape) != 2`."""

OF_RANK: dict[int, Shape] = {0: (), 1: (3,), 2: (2, 3), 3: (2, 3, 3), 4: (1, 2, 4, 4), 5: (1, 2, 4, 4, 4)}
NUMBERS = re.compile(r"(?<![\w.])-?\d+(?![\w.]*\w)|(?<=\d)x(\d+)|(\d+)(?=x\d)")
ACTUAL = re.compile(r"\b([Gg]ot|[Aa]ctual|[Rr]eceived|but)\b.*")
"""The part of an error message that describes the actual arguments."""
MOST_SIZE = 16
"""The maximum size of a dimension in documentation. An error may ask for any size."""

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
        re.compile(r"\b(Long(Tensor)?|int64|integer (tensors?|d?type)|integral|indices must|must be long)\b"),
        {"dtype": "int64", "low": 0, "high": 2},
    ),
    (re.compile(r"\b[Bb]ool(ean)?\b|[Mm]ask must be"), {"dtype": "bool"}),
    (re.compile(r"[Ss]parse (coordinate )?tensors?\b|[Ss]parse coordinate"), {"layout": "sparse_coo"}),
    (re.compile(r"[Ss]parse row compressed|[Ss]parse compressed|[Ss]parse ?[Cc]sr"), {"layout": "sparse_csr"}),
    (re.compile(r"[Ss]parse column compressed|[Ss]parse ?[Cc]sc"), {"layout": "sparse_csc"}),
    (re.compile(r"cannot have requires_grad|not differentiable with respect to argument"), {"grad": False}),
)
"""Words in errors that call for a domain, dtype, layout or constant, and the keys that give it to a tensor."""
DTYPES = re.compile(
    r"[dD](ata)?[ -]?types?\b|scalar type|\b[Ii]nteg(er|ral)|\bindex tensor|Double|[Ff]loat|[Hh]alf|\b(BF|FP)16\b"
    r"|int64|Long"
)
"""The pattern of an error about the dtype of a tensor."""
SQUARE = re.compile(r"\b[Ss]quare\b")
KERNEL = re.compile(r"[Kk]ernel size:? \(?(\d+(?: x \d+)*)\)?\. Kernel size can't be greater")
ELEMENTS = re.compile(r"\b(?:contain|have|has|with|of|expected) (\d+) (?:elements?|entries)\b")
NEEDED = re.compile(
    r"\b(require|specif|should be defined|must be (given|provided|defined|set)|at least one|needed"
    r"|(must not|cannot|can't) (both |all )?be None)"
)
"""The pattern of an error about a missing argument. The message also names the argument."""
WANTS_MORE = re.compile(r"NoneType")
OUT_OF_RANGE = re.compile(r"out of (range|bounds)")
QUOTED = re.compile(r"""(?<!\w)["']([A-Za-z][\w-]*)["'](?!\w)""")
"""The pattern of a string in documentation."""
IS_TENSOR = re.compile(r"^\W*(optional |torch\.|float)?Tensor\b", re.I)
"""The pattern of a documented type, as in `(Tensor)` or `: torch.Tensor, optional`."""
WANTS_TENSOR = re.compile(
    r"must be (a )?(torch\.)?Tensor|not a (torch\.)?Tensor|value of type 'Tensor|'(int|float|list|bool)' object"
    r"|expected Tensor as element",
    re.I,
)
TAKES_ONE = re.compile(r"takes (from 0 to )?1 positional arguments? but 2 were given")
"""The pattern of an error of a function that was passed as an argument, and is called with two tensors."""
WANTS_LIST = re.compile(r"iterable|not subscriptable|has no len")
WANTS_NUMBERS = re.compile(r"must be (a )?(tuple|list|sequence) of ints?\b|'NoneType' has no len")
WANTS_NUMBER = re.compile(r"interpreted as an integer|one element tensors|Tensor with more than|not Tensor|as an int")
INSTEAD: tuple[tuple[re.Pattern[str], tuple[type, ...], list[Data]], ...] = (
    (WANTS_TENSOR, (int, float), [{"shape": []}, {"shape": [2, 3]}, {"shape": [3]}]),
    (WANTS_LIST, (int,), [[3], [2, 3]]),
    (WANTS_NUMBERS, (int, float, dict), [[2], [2, 2], [2, 2, 2]]),
    (WANTS_NUMBER, (dict,), [2, 0.5]),
)
"""Words in errors about the type of a value, types that the value may have, and values to try in its place. Tensors are
dicts."""


def shapes_in(text: str, most: int = MOST_SIZE) -> list[Shape]:
    """Return the shapes that a text mentions, with numbers in place of letters. A star is one dimension, or none.

    most: the maximum size. Shapes with larger sizes are left out.
    """
    listed = chain(LISTED.finditer(text), WORDED.finditer(text))
    parts = [re.split(r"\s*,\s*", match[1].strip(" ,")) for match in listed]
    parts += [re.split(r"\s?x\s?", match[1]) for match in CROSSED.finditer(text)]
    parts += [match[1].split() for match in TYPED.finditer(text)]
    shapes = chain.from_iterable(_concrete([part.strip("'") for part in own]) for own in parts)
    return list(dict.fromkeys(shape for shape in shapes if max(shape, default=1) <= most))


def _concrete(sizes: list[str]) -> Iterator[Shape]:
    stars = ("*", "...")
    yield tuple(2 if size in stars else int(size) if size.isdigit() else _size_of(size) for size in sizes)
    if any(size in stars for size in sizes):
        yield from _concrete([size for size in sizes if size not in stars])


def _size_of(name: str) -> int:
    return SIZES.get(name) or next((size for words, size in WORDS if words.search(name)), 2)


def mentions_dtypes(said: str) -> bool:
    """Return whether an error message is about the dtype of a tensor."""
    return DTYPES.search(said) is not None


@dataclass(frozen=True)
class Documented:
    """What documentation says about a parameter."""

    shapes: Sequence[Shape] = ()
    is_tensor: bool = False
    """Whether its type is a tensor."""
    words: Sequence[str] = ()
    """The strings that its type or its description quotes, as in ``"batch"``."""


def documented(doc: str, name: str) -> Documented:
    """Return what documentation says about a parameter.

    The documentation of a parameter goes from its name up to the next parameter. Its type is in parentheses, or it is
    the rest of the line.
    """
    match = re.search(
        rf"^([ \t]*)(?:[-*:]\s*)?(?:param )?`*{re.escape(name)}`*(\s+size|\s+shape)?\s*(\([^)]*\))?\s*:"
        r"(.*)((?:\n\1[ \t]+.*|\n\s*)*)",
        doc,
        re.MULTILINE,
    )
    if match is None:
        return Documented()
    _, of_sizes, kind, line, others = match.groups("")
    words = dict.fromkeys(QUOTED.findall(kind + line + others))
    return Documented(shapes_in(of_sizes + line + others), IS_TENSOR.search(kind or line) is not None, tuple(words))


def repairs_of(sample: SampleData, said: str, source: str, parameters: Sequence[Parameter]) -> Iterator[SampleData]:
    """Yield repaired versions of a refused sample.

    Each has one change that the error message, or the source lines that raised it, suggest: of one argument, or of all
    tensors that are equal to it. Arguments that the error names are changed first. If a kernel is larger than its
    input, all tensors are enlarged at once.
    """
    if kernel := KERNEL.search(said):
        yield mapped(partial(_at_least, sizes=[int(size) for size in re.findall(r"\d+", kernel[1])]), sample)
    hints = Hints(said, source)
    named = {key for place, one in enumerate(parameters) if hints.names(one.name) for key in (place, one.name)}
    every = sorted(places(sample), key=lambda own: own[0][1] not in named)
    for path, value in every:
        others = chain(hints.wanted_numbers(value) if path[1] in named else (), hints.better(value))
        yield from (replaced(sample, path, better) for better in others)
    each = [value for _, value in every if is_tensor(value)]
    for index, value in enumerate(each):
        if value in each[:index]:  # tensors that are alike may have to stay so
            yield from (mapped(partial(_instead_of, value, better), sample) for better in hints.better(value))
    first = [{"shape": value["shape"]} for value in each if "shape" in value][:1]
    for one in (one for one in parameters if not one.required):
        is_needed = NEEDED.search(said) and one.name in named and one.name not in sample.get("kwargs", {})
        values = [*_further(one, first)] if is_needed else []
        values += first if WANTS_MORE.search(said) else []
        yield from (with_keyword(sample, one.name, value) for value in values)


def _further(one: Parameter, tensors: list[Data]) -> Iterator[Data]:
    """Yield values for an optional parameter: those that its name calls for, then tensors if it may be one, numbers."""
    yield from (value for value in one.options if not is_tensor(value))
    yield from tensors if TENSOR in one.options or not one.annotation else ()
    yield from (2, [2], [2, 2], 0.5)


class Hints:
    """What an error message, and the source lines that raised it, suggest about an argument."""

    def __init__(self, said: str, source: str) -> None:
        self.said, self.both = said, f"{said} {source}"
        text = ACTUAL.sub("", said)
        self.wanted = shapes_in(text, LARGEST) or shapes_in(source, LARGEST)
        self.everywhere = shapes_in(said, LARGEST)
        self.ranks = [int(number) for match in RANKS.findall(f"{text} {source}") for number in match if number]
        self.numbers = [number for number in dict.fromkeys(map(abs, _numbers_in(self.both))) if number]

    def names(self, parameter: str) -> bool:
        """Return whether the error or its source mentions a parameter, with underscores or with spaces."""
        return re.search(rf"\b{parameter.replace('_', '[_ ]')}\b", self.both, re.IGNORECASE) is not None

    def wanted_numbers(self, value: Any) -> list[int]:
        """Return the whole numbers in the error in place of a number, as in `sample rate must be 44100 or 48000`."""
        numbers = dict.fromkeys(_numbers_in(self.said)) if type(value) in (int, float) else {}
        return [number for number in numbers if number != value]

    def better(self, value: Any) -> Iterator[Any]:
        """Yield values to try in place of a value."""
        if isinstance(value, dict) and "shape" in value:
            yield from self._tensors(value)
        elif isinstance(value, dict) and "tuple" in value:
            yield from ({"tuple": better} for better in self.better(value["tuple"]))
        elif isinstance(value, dict) and "object" in value and TAKES_ONE.search(self.said):
            yield {"object": "torch.mul"}
        elif isinstance(value, list):
            counts = dict.fromkeys((*self.numbers, *self.ranks))
            yield from ((value * 5)[:count] for count in counts if count != len(value) and count <= 5)
        for words, types, others in INSTEAD:
            if words.search(self.said) and isinstance(value, types):
                yield from others

    def _tensors(self, value: dict[str, Any]) -> Iterator[Any]:
        """Yield tensors of other shapes and kinds to try in place of a tensor."""
        own, is_out = tuple(value["shape"]), OUT_OF_RANGE.search(self.said)
        longer = [(2, *own)] if is_out and len(own) < 4 else []
        square = [(*own[:-2], own[-1], own[-1])] if SQUARE.search(self.said) and own else []
        shapes = [
            *((int(count),) for count in ELEMENTS.findall(self.said)),
            *square, *self.wanted, *_of_ranks(own, self.ranks), *self.everywhere, *_with_sizes(own, self.numbers),
            *longer,
        ]  # fmt: skip
        small = [shape for shape in dict.fromkeys(shapes) if shape != own and prod(shape) <= LARGEST]
        yield from ({**value, "shape": list(shape)} for shape in small)
        for words, kind in KINDS:
            if words.search(self.said) and not kind.items() <= value.items():
                yield {**({"shape": list(own)} if "dtype" in kind else value), **kind}
        if is_out and value.get("high", 0) == 2:
            yield {**value, "high": 1}


def _numbers_in(text: str) -> Iterator[int]:
    return (int(match[0].strip("x")) for match in NUMBERS.finditer(text))


def _instead_of(value: Data, other: Data, part: Data) -> Data:
    """Return another value in place of each part that equals a value."""
    return other if part == value else part


def _at_least(part: Any, sizes: Sequence[int]) -> Any:
    """Return a tensor whose last dimensions have at least the given sizes. Anything else is returned unchanged."""
    if not (is_tensor(part) and len(part.get("shape", ())) > len(sizes)):
        return part
    first, last = part["shape"][: -len(sizes)], part["shape"][-len(sizes) :]
    return {**part, "shape": [*first, *map(max, last, sizes)]}


def _of_ranks(own: Shape, ranks: Iterable[int]) -> Iterator[Shape]:
    """Yield two shapes for each other rank: a shape cut, or extended by dimensions of 2, and the default shape."""
    for rank in ranks:
        if rank != len(own) and rank in OF_RANK:
            yield own[-rank:] if 0 < rank < len(own) else (2,) * (rank - len(own)) + own
            yield OF_RANK[rank]


def _with_sizes(own: Shape, numbers: Iterable[int]) -> Iterator[Shape]:
    """Yield a shape with one size replaced by each of some numbers, the last dimension first."""
    for number in numbers:
        yield from ((*own[:dim], number, *own[dim + 1 :]) for dim in reversed(range(len(own))))
