"""Guesses values for a parameter of an operator from its name, annotation and default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from opcheck.draft.data import Data, Shape
from opcheck.samples.derive.keywords import UNVARIED

TENSOR: Data = {"tensor": "float"}
INDEX: Data = {"tensor": "index"}
MASK: Data = {"tensor": "mask"}
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
    "training train": [True],
    "inplace in_place": [False, True],
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

INDICES = (
    "index", "indices", "idx", "target", "targets", "label", "labels", "y_true", "classes", "tokens", "input_ids",
    "permutation",
)  # fmt: skip
BY_TYPE: tuple[tuple[tuple[str, ...], list[Data], tuple[type, ...]], ...] = (
    (("bool",), [False, True], ()),
    (("tuple[int",), [{"tuple": [2, 2]}, {"tuple": [2]}, {"tuple": [3, 2]}], ()),
    (("list[int", "sequence[int", "size"), [[2, 2], [2], [3, 2]], (list,)),
    (("float", "number"), [0.5, 1.5, 2, 1], (int, float)),
    (("int",), [2, 1, 0], (int,)),
    (("dtype",), [{"dtype": "float64"}], ()),
    (("device",), ["cpu"], (str,)),
    (("module",), [IDENTITY], ()),
)
"""Words in annotations, values for them, and the types of the values in `BY_NAME` that are used instead."""

MASKS = ("mask", "masks", "attn_mask", "attention_mask")
WORDS = ("type", "kind", "mode", "method", "name", "convention")
"""Names of parameters that take one of a few strings, which cannot be guessed."""


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
        listed, text = _members([type(default), *parts]), " | ".join(map(text_of, parts))
        if listed:
            options = listed if required else [value for value in listed if value != in_toml(default)]
        elif not required:
            options = _optional(name, text.lower(), default)
        else:
            options = [value for part in parts for value in _required(name, text_of(part).lower(), constructor)]
            options += [NONE] * (len(parts) < len(_parts(annotation)))
        return cls(name, tuple(options), required, keyword, annotation=text)


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


def text_of(annotation: Any) -> str:
    """Return an annotation as source text."""
    plain = isinstance(annotation, type) and get_origin(annotation) is None
    return annotation.__name__ if plain else str(annotation)


def _named(name: str, table: dict[str, list[Data]] = BY_NAME) -> list[Data]:
    return next((values for names, values in table.items() if name.lower() in names.split()), [])


def _tensors(name: str) -> list[Data]:
    if name.lower() in INDICES:
        return [TENSOR, INDEX]
    return [MASK, TENSOR] if name.lower() in MASKS else [TENSOR]


def _required(name: str, kind: str, constructor: bool) -> list[Data]:
    """Return values to try for a required parameter. kind: its annotation in lower case; empty if there is none."""
    named, of_constructor = _named(name), _named(name, OF_CONSTRUCTORS) if constructor else []
    if "callable" in kind or (not kind and TAKES_FUNCTION.search(name)):
        return FUNCTIONS
    if of_constructor:
        return of_constructor
    if "tensor" in kind:
        listed = any(word in kind for word in ("list[", "sequence[", "tuple[", "iterable["))
        return [TENSORS] if listed else _tensors(name)
    if sizes := re.search(r"tuple\[(int(?:, int)*)\]", kind):
        others = [2] * (sizes[1].count("int") - 1)
        return [{"tuple": [first, *others]} for first in (2, 3)]
    for words, values, types in BY_TYPE:
        if any(word in kind for word in words):
            return [value for value in named if isinstance(value, types)] or values
    if name in WORDS or kind not in ("", "any"):
        return named  # a string, a configuration: nothing to guess
    if constructor:  # which takes numbers more often than tensors
        return named or [*([INDEX] if name.lower() in INDICES else []), 2, 3, 0.5, TENSOR]
    return [*named, *_tensors(name)] if named else [*_tensors(name), INDEX, 2, 0.5]


def _optional(name: str, kind: str, default: Any) -> list[Data]:
    """Return values other than the default to try for an optional parameter. kind: as for `_required`."""
    if name in UNVARIED:
        return []
    if isinstance(default, bool):
        return [not default]
    if name == "reduction" and isinstance(default, str):
        return [value for value in _named(name) if value != default]
    if default is None and ("tensor" in kind or name in ("weight", "bias")):
        return _tensors(name)
    return []
