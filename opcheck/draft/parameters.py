"""The parameters of an operator, and values to try: from its signature or schema, and from its documentation."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from types import SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch.nn import Module

from opcheck.draft.data import Data, Shape
from opcheck.samples import arguments
from opcheck.samples.arguments import is_function
from opcheck.samples.derive.keywords import UNVARIED

TENSOR: Data = {"tensor": "float"}
INDEX: Data = {"tensor": "index"}
TENSORS: Data = [TENSOR, TENSOR]
"""Placeholders for tensors. Their shapes are chosen later."""

REQUIRED = inspect.Parameter.empty
"""The default of a parameter that has none."""
NONE: Data = {"none": True}
IDENTITY: Data = {"call": "torch.nn.Identity"}
FUNCTIONS: list[Data] = [{"object": "torch.tanh"}, {"object": "torch.nn.Linear"}]
"""Functions to pass as arguments: a smooth function of a tensor, and a class of modules that takes two sizes."""
TAKES_FUNCTION = re.compile(r"^activation$|(^|_)(fn|func|function|callback)$")
"""The pattern of names of parameters that take a function. Used for parameters without an annotation."""

BY_NAME: dict[str, list[Data]] = {
    "dim axis": [-1, 0],
    "dims axes": [[0], [1, 0], [0, 1]],
    "k n num size kernel_size window_size output_size length steps degree order": [2, 3, 1],
    "stride dilation groups": [1, 2],
    "padding": [1, 0],
    "p": [0.5, 2],
    "eps epsilon tol eps_low eps_high": [1e-3],
    "beta alpha gamma lambda lambda_ lam temperature tau scale sigma margin delta weight_decay": [1.5, 0.5],
    "section sections split_sizes mrope_section": [[1, 1], [1, 1, 1]],
    "reduction": ["mean", "sum", "none"],
}
"""Values for parameters with well-known names."""

OF_CONSTRUCTORS: dict[str, list[Data]] = {
    "in_features in_channels num_features n_features num_channels channels features": [3, 2, 4],
    "embed_dim embedding_dim d_model hidden_size input_size normalized_shape dim": [3, 2, 4],
    "num_heads n_heads nhead heads": [1, 2],
    "shape input_shape": [[3], [2, 3]],
}
"""Values for well-known parameters of module constructors, where numbers have to fit the shapes of tensors."""

BY_TYPE: tuple[tuple[tuple[str, ...], list[Data], tuple[type, ...]], ...] = (
    (("bool",), [False, True], ()),
    (("tuple[int",), [{"tuple": [2, 2]}, {"tuple": [2]}, {"tuple": [3, 2]}], ()),
    (("list[int", "sequence[int", "size"), [[2, 2], [2], [3, 2]], (list,)),
    (("list[float", "sequence[float"), [[0.5, 0.25], [0.5]], (list,)),
    (("float", "number"), [0.5, 1.5, 2, 1], (int, float)),
    (("int",), [2, 1, 0], (int,)),
    (("dtype",), [{"dtype": "float64"}], ()),
    (("device",), ["cpu"], (str,)),
    (("module",), [IDENTITY], ()),
)
"""Words in annotations, values for them, and the types of the values in `BY_NAME` that are used instead."""

PLAIN = {
    "int", "float", "complex", "number", "bool", "str", "None", "NoneType", "torch", "dtype", "device", "layout",
    "Device", "Generator", "Size", "QScheme", "size", "shape",
}  # fmt: skip
"""The words of types that hold no tensor, in annotations and in schemas of the dispatcher, or names of parameters."""
WRAPPED = re.compile(r"typing\.|\b([Ll]ist|[Tt]uple|Sequence|Iterable|Optional|Union)\[|Literal\[.*?\]")
"""The pattern of the parts of a type that say nothing about what it holds, and of literals."""
STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

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
LONG = (("seq", "len", "time", "token"), 3), (("dim", "hidden", "feature", "channel", "vocab"), 4)
"""Sizes for words in shapes. Other words, such as batch and heads, are 2."""
MOST_SIZE = 16
"""The maximum size of a dimension in documentation. An error may ask for any size."""

PROMPTED = re.compile(r"^[ \t]*(?:>>>|\.\.\.).*", re.MULTILINE)
"""The pattern of a line of an example in documentation."""
QUOTED = re.compile(r"""(?<!\w)["']([A-Za-z][\w-]*)["'](?!\w)""")
"""The pattern of a string in documentation."""
IS_TENSOR = re.compile(r"^\W*(optional |torch\.|float)?Tensor\b", re.I)
"""The pattern of a documented type, as in `(Tensor)` or `: torch.Tensor, optional`."""


@dataclass(frozen=True)
class Parameter:
    """A parameter, and values to try for it, the likeliest first."""

    name: str
    options: tuple[Data, ...]
    required: bool
    keyword: bool = False
    """Whether the parameter is keyword-only."""
    shapes: tuple[Shape, ...] = ()
    """The shapes that the annotation and the documentation of the parameter mention."""
    annotation: str = field(default="", compare=False)
    """The type as source text; empty if there is none."""

    def __str__(self) -> str:
        return f"{self.name}: {self.annotation}" if self.annotation else self.name

    @property
    def is_plain(self) -> bool:
        """Whether the type certainly holds no tensor. Without a type, the name says it, such as `dtype`."""
        return PLAIN.issuperset(
            re.findall(r"\w+", WRAPPED.sub("", self.annotation)) if self.annotation else [self.name]
        )

    @classmethod
    def of(
        cls, name: str, annotation: Any, default: Any = REQUIRED, *, keyword: bool = False, constructor: bool = False
    ) -> Parameter:
        """Return a parameter with values to try for it.

        annotation: a type, or the text of a type; empty if there is none.
        constructor: whether it is a parameter of a constructor of modules.
        """
        required = default is REQUIRED
        parts = [part for part in _parts(annotation) if part is not type(None)]
        listed, text = _members([type(default), *parts]), " | ".join(map(_text_of, parts))
        if listed:
            options = listed if required else [value for value in listed if value != in_toml(default)]
        elif not required:
            options = _optional(name, text.lower(), default)
        else:
            options = [value for part in parts for value in _required(name, _text_of(part).lower(), constructor)]
            options += [NONE] * (len(parts) < len(_parts(annotation)))
        return cls(name, tuple(options), required, keyword, annotation=text)


def parameters_of(operator: Callable[..., Any], path: str) -> list[list[Parameter]]:
    """Return lists of parameters of an operator, to be tried in turn.

    There is one list for each distinct overload in the dispatcher, else one for the Python signature. If the signature
    is unknown, the operator may take one tensor, or two.
    """
    schemas = _schemas_of(operator, path)
    if schemas:
        # Without arguments for `out=`, the operator allocates its results.
        own = [[_of_schema(one) for one in schema.arguments if not one.is_out] for schema in schemas]
        return [one for index, one in enumerate(own) if one not in own[:index]]
    unknown = [[Parameter(name, (TENSOR,), True) for name in names] for names in (["input"], ["input", "other"])]
    try:
        declared = arguments.parameters(operator)
    except (TypeError, ValueError):
        return unknown
    required = any(one.default is one.empty for one in declared if one.kind not in STARRED)
    if not required and any(one.kind is one.VAR_POSITIONAL and one.name not in PLAIN for one in declared):
        return unknown
    owner = getattr(operator, "__self__", None)
    doc = _documentation(*((owner, owner.forward) if is_function(owner) else (operator,)))
    listed = [
        Parameter(one.name, (), False) if one.kind in STARRED else _declared(one, operator, doc) for one in declared
    ]
    if any(one.name == "q" for one in listed):  # then k stands for keys, rather than for a number
        listed = [replace(one, options=(TENSOR, *one.options)) if str(one) == "k" else one for one in listed]
    return [listed]


def _schemas_of(operator: Callable[..., Any], path: str) -> list[Any]:
    """Return the schemas of an operator in torch's dispatcher, without those with `out=` if there are others.

    A C function of another package has none, whatever its name.
    """
    is_builtin = inspect.isbuiltin(operator)
    if is_builtin and not path.startswith("torch."):
        return []
    schemas = arguments.schemas_of(operator, path)
    if is_builtin and not schemas:
        schemas = arguments.schemas_of(operator, operator.__name__)  # for torch.fft.fftfreq, fft_fftfreq
    return [one for one in schemas if not any(argument.is_out for argument in one.arguments)] or schemas[:1]


def parameters_of_constructor(make: type[Module]) -> list[Parameter]:
    """Return the parameters of the constructor of a class of modules, or of its base class if it takes only `*args`."""
    by_keyword = False
    for base in make.__mro__:
        try:
            declared = inspect.signature(base).parameters.values()
        except (TypeError, ValueError):
            break
        named = [one for one in declared if one.kind not in STARRED]
        if named or not declared:
            doc = _documentation(base, vars(base).get("__init__"))
            own = [_declared(one, base, doc, constructor=True) for one in named]
            return [replace(one, keyword=one.keyword or by_keyword) for one in own]
        by_keyword = any(one.kind is one.VAR_KEYWORD for one in declared)
    return []


def _documentation(*objects: Any) -> str:
    """Return the docstrings of several objects, one after the other. None has none, whatever Python says about it."""
    return "\n".join(filter(None, (inspect.getdoc(one) for one in objects if one is not None)))


def _declared(
    one: inspect.Parameter, operator: Callable[..., Any], doc: str, *, constructor: bool = False
) -> Parameter:
    """Return a declared parameter, of a function or of a constructor of modules, with values to try for it.

    A tensor is tried first if the documentation or the annotation mentions its shape, or that it is one. A string is
    one that the documentation quotes; if one is required, also in examples.
    """
    kind, said = _annotation_of(one, operator), documented(doc, one.name)
    own = Parameter.of(one.name, kind, one.default, keyword=one.kind is one.KEYWORD_ONLY, constructor=constructor)
    shapes, options = (*shapes_in(str(one.annotation)), *shapes_in(said)), own.options
    if not constructor and (shapes or IS_TENSOR.search(said)) and TENSOR in options:
        options = (TENSOR, *(value for value in options if value != TENSOR))
    if not options and (own.required or isinstance(one.default, str)):
        examples = PROMPTED.findall(doc) if own.required else ()
        options = tuple(
            word for word in dict.fromkeys(QUOTED.findall("\n".join((said, *examples)))) if word != one.default
        )
    return replace(own, shapes=shapes, options=options)


def _annotation_of(declared: inspect.Parameter, operator: Callable[..., Any]) -> Any:
    """Return the type of a parameter; the text of the annotation if it cannot be evaluated, empty if there is none.

    None, which no parameter has for its type, is not an annotation: torch's `BroadcastingList2[int]` evaluates to it.
    """
    if declared.annotation is declared.empty:
        return ""
    owner = getattr(operator, "__self__", operator)
    home = sys.modules.get(getattr(owner if isinstance(owner, type) else operator, "__module__", None) or "")
    own = SimpleNamespace(__annotations__={"it": declared.annotation})
    try:
        kind = get_type_hints(own, vars(home) if home else {})["it"]
    except Exception:  # evaluating the text can raise anything
        return declared.annotation
    return "" if kind is type(None) else kind


def _of_schema(argument: Any) -> Parameter:
    text = str(argument.type)
    default = argument.default_value if argument.has_default_value() else REQUIRED
    if argument.has_default_value() and text.startswith("Optional"):
        default = None
    own = Parameter.of(argument.name, text.lower(), default, keyword=argument.kwarg_only)
    return replace(own, annotation=text)


def _parts(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _members(types: Sequence[Any]) -> list[Data]:
    """Return the values of the first type that is a `Literal` or an `Enum`; empty if there is none."""
    for one in types:
        if get_origin(one) is Literal:
            return list(map(in_toml, get_args(one)))
        if isinstance(one, type) and issubclass(one, Enum):
            return list(map(in_toml, one))
    return []


def in_toml(value: Any) -> Data:
    """Return a member of an enumeration as a spec writes it. Return any other value unchanged."""
    return {"object": f"{path_of(type(value))}.{value.name}"} if isinstance(value, Enum) else value


def path_of(named: Callable[..., Any]) -> str:
    """Return the import path of a class or function. For modules of torch.nn, it is the public path."""
    home = "torch.nn" if named.__module__.startswith("torch.nn.modules.") else named.__module__
    return f"{home}.{named.__qualname__}"


def _text_of(annotation: Any) -> str:
    plain = isinstance(annotation, type) and get_origin(annotation) is None
    return annotation.__name__ if plain else str(annotation)


def _named(name: str, table: dict[str, list[Data]] = BY_NAME) -> list[Data]:
    return next((values for names, values in table.items() if name.lower() in names.split()), [])


def _required(name: str, kind: str, constructor: bool) -> list[Data]:
    """Return values to try for a required parameter. kind: its annotation in lower case; empty if there is none."""
    named, of_constructor = _named(name), _named(name, OF_CONSTRUCTORS) if constructor else []
    if "callable" in kind or (not kind and TAKES_FUNCTION.search(name)):
        return FUNCTIONS
    if of_constructor:
        return of_constructor
    if "tensor" in kind:
        listed = any(word in kind for word in ("list[", "sequence[", "tuple[", "iterable["))
        return [TENSORS] if listed else [TENSOR, INDEX]
    if sizes := re.search(r"tuple\[((?:int|float)(?:, (?:int|float))*)\]", kind):
        others = [2] * sizes[1].count(",")
        return [{"tuple": [first, *others]} for first in (2, 3)]
    for words, values, types in BY_TYPE:
        if any(word in kind for word in words):
            return [value for value in named if isinstance(value, types)] or values
    if kind not in ("", "any"):
        return named  # a string, a configuration: nothing to guess
    if constructor:  # which takes numbers more often than tensors
        return named or [2, 3, 0.5, TENSOR, INDEX]
    return [*named, TENSOR] if named else [TENSOR, INDEX, 2, 0.5]


def _optional(name: str, kind: str, default: Any) -> list[Data]:
    """Return values other than the default to try for an optional parameter. kind: as for `_required`."""
    if name in UNVARIED:
        return []
    if isinstance(default, bool):
        return [not default]
    if name == "reduction" and isinstance(default, str):
        return [value for value in _named(name) if value != default]
    return [TENSOR] if default is None and ("tensor" in kind or name in ("weight", "bias")) else []


def documented(doc: str, name: str) -> str:
    """Return what documentation says about a parameter, its type first; empty if nothing.

    The documentation of a parameter goes from its name up to the next parameter. Its type is in parentheses, or it is
    the rest of the line.
    """
    match = re.search(
        rf"^([ \t]*)(?:[-*:]\s*)?(?:param )?`*{re.escape(name)}`*(\s+size|\s+shape)?\s*(?:\(([^)]*)\))?\s*:"
        r"(.*(?:\n\1[ \t]+.*|\n\s*)*)",
        doc,
        re.MULTILINE,
    )
    if match is None:
        return ""
    _, of_sizes, kind, text = match.groups("")
    return f"{kind}:{of_sizes}{text}" if kind else of_sizes + text


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
    return SIZES.get(name) or next((size for parts, size in LONG if any(part in name for part in parts)), 2)
