"""Writes the call of an operator as Python code in plain torch: its arguments, the call, and its outputs."""

from __future__ import annotations

import enum
import keyword
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pprint import pformat
from typing import Any

import torch
from torch import Tensor

from opcheck.samples.function import TestedFunction
from opcheck.samples.inputs import Slot, code_of, describe, listed
from opcheck.samples.layouts import unexpanded
from opcheck.samples.modules import ModuleCall
from opcheck.samples.results import chosen, named
from opcheck.strides import extent, is_expanded

WRITTEN_OUT = 64
"""The maximum number of elements of a tensor to write out. The code draws larger ones between the same bounds."""

DRAWING = (".uniform_(", "torch.rand(", "torch.randint(")
"""The calls that draw the elements of larger tensors in the code."""

RESERVED = {"module", "result", "torch"}
"""The names that are not available for arguments, since the code uses them otherwise."""

MAPS = {"abs": "{}.abs()", "real": "{}.real", "gauge_invariant": "{}.abs()"}
"""The expressions for `outputs.apply`, if one expression is enough."""


class Unwritable(Exception):
    """Raised if a call cannot be written in plain torch. The message gives the reason."""


@dataclass
class Source:
    """Code for the call of an operator at a sample. Collects the imports and definitions that expressions refer to."""

    function: TestedFunction
    labels: tuple[str, ...]
    """The names of the leaves in messages."""
    imports: dict[str, None] = field(default_factory=dict)
    definitions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names: list[str] = []
        for label in self.labels:
            self.names.append(self._free(label))

    def _free(self, label: str) -> str:
        """Return an unused identifier for a tensor, derived from its name in messages."""
        name = re.sub(r"\W+", "_", label).strip("_") or "x"
        name = f"x{name}" if name[0].isdecimal() else name
        while name in RESERVED or keyword.iskeyword(name) or name in sys.modules or name in self.names:
            name += "_"
        return name

    def leaves(self) -> Iterator[str]:
        """Yield an expression for the argument that each leaf is mapped to."""
        inputs = self.function.inputs
        for slot, leaf in zip(inputs.slots, inputs.leaves, strict=True):
            yield tensor(slot.through(leaf.detach()))

    def call(self, path: str, module: str = "") -> str:
        """Return an expression that calls the operator.

        module: expression that constructs the module, if the operator is one.
        """
        inputs, operator = self.function.inputs, self.function.operator
        if not isinstance(operator, ModuleCall):
            return f"{self.path(path)}({listed(inputs.args, inputs.kwargs, self.expression)})"
        args, kwargs = self.expression(inputs.args), {**inputs.kwargs}
        keys = operator.named_in(kwargs)
        state = ", ".join(f"{name!r}: {self.expression(kwargs.pop(key))}" for name, key in keys.items())
        self.definitions.append(f"module = {module}")
        own = f", {self.expression(kwargs)}" if kwargs else ""
        return f"torch.func.functional_call(module, {{{state}}}, {args}{own})"

    def outputs(self, result: Any, wanted: Callable[[Tensor], bool]) -> list[str]:
        """Return expressions for the outputs to test in `result` that satisfy `wanted`. Raises Unwritable."""
        spec = self.function.outputs
        if spec.apply is not None and spec.apply not in MAPS:
            raise Unwritable(f'outputs.apply is "{spec.apply}"')
        items = chosen(tuple(named(result)), spec)
        most = max(part.dim() for _, part in items)
        return [
            (MAPS[spec.apply] if spec.apply and (spec.apply != "gauge_invariant" or part.dim() == most) else "{}")
            .format(f"result{path}")
            for path, part in items if wanted(part)
        ]  # fmt: skip

    def expression(self, item: Any) -> str:
        """Return an expression for an argument. Raises Unwritable."""
        return code_of(item, self._leaf, self.name)

    def _leaf(self, item: Any) -> str:
        if isinstance(item, Slot):
            return self.names[item.index]
        if isinstance(item, Tensor):
            name = self._free(f"tensor{len(self.definitions)}")
            self.definitions.append(f"{name} = {tensor(item)}")
            return name
        if type(item) is slice:
            return f"slice({item.start!r}, {item.stop!r}, {item.step!r})"
        if type(item) is float and item - item != 0:
            return f'float("{item}")'
        plain = (bool, int, float, complex, str, bytes, type(None), type(...))
        if type(item) in plain or isinstance(item, (torch.dtype, torch.layout, torch.memory_format)):
            return repr(item)
        if isinstance(item, torch.device):
            return f'torch.device("{item}")'
        return f"{self.name(type(item))}.{item.name}" if isinstance(item, enum.Enum) else self.name(item)

    def name(self, item: Any) -> str:
        """Return the dotted path of a function, a class or another named object. Raises Unwritable."""
        own = getattr(item, "__module__", None) or "", getattr(item, "__qualname__", "")
        for module, name in (own, ("torch", getattr(item, "__name__", ""))):  # functions of torch in C have no module
            with suppress(AttributeError, KeyError):
                if reduce(getattr, name.split("."), sys.modules[module]) is item:
                    return self.path(f"{module}:{name}")
        raise Unwritable(f"an argument of the type {type(item).__name__} has no literal")

    def path(self, path: str) -> str:
        """Return an expression for the object that a path names. Add its module to the imports."""
        module, _, rest = path.partition(":")
        names = module.split(".")
        if not rest:
            module = next(m for m in (".".join(names[:end]) for end in range(len(names), 0, -1)) if m in sys.modules)
        if not module.startswith("torch.") and module != "torch":
            self.imports[module] = None
        return f"{module}.{rest}" if rest else path


def tensor(x: Tensor) -> str:
    """Return an expression for a tensor, with its values, dtype, device and strides. Raises Unwritable."""
    if x.layout is not torch.strided or x.is_nested or x.is_neg() or type(x) not in (Tensor, torch.nn.Parameter):
        raise Unwritable(f"a tensor has no literal: {describe(x)}")
    if x.is_conj():
        return f"{tensor(x.conj())}.conj()"
    if is_expanded(x):
        return f"{tensor(unexpanded(x))}.expand({tuple(x.shape)})"
    kind = f"dtype={x.dtype}" + ("" if x.is_cpu else f', device="{x.device}"')
    values = _values(x, kind)
    if x.numel() < 2 or (x.is_contiguous() and not x.storage_offset()):
        return values
    size = x.storage_offset() + extent(x.shape, x.stride())
    memory = f"torch.zeros({size}, {kind}).as_strided({tuple(x.shape)}, {x.stride()}, {x.storage_offset()})"
    return f"{memory}.copy_({values})"


def _values(x: Tensor, kind: str) -> str:
    """Return an expression for a contiguous tensor with the values of `x`, or random ones if there are many."""
    shape = tuple(x.shape)
    if not x.numel():
        return f"torch.empty({shape}, {kind})"
    if x.numel() <= WRITTEN_OUT:
        text = re.sub(r"\b(nan|inf)\b", r"torch.\1", pformat(x.tolist(), width=88, compact=True))
        text = text.replace("\n", "\n" + 8 * " ")
        return f"torch.tensor({text}, {kind})"
    if x.dtype is torch.bool:
        return f"torch.rand({shape}) < 0.5"
    parts = torch.view_as_real(x) if x.is_complex() else x
    low, high = parts.min().item(), parts.max().item()
    if x.is_complex():
        return f"torch.view_as_complex(torch.empty({(*shape, 2)}, dtype={parts.dtype}).uniform_({low}, {high}))"
    if x.is_floating_point():
        return f"torch.empty({shape}, {kind}).uniform_({low}, {high})"
    return f"torch.randint({low}, {high + 1}, {shape}, {kind})"
