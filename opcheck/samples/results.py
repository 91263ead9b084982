"""Finds the tensors in the result of an operator, with their names, and selects the outputs to test."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Number
from types import NoneType
from typing import Any, TypeVar

import torch
from torch import Tensor

from opcheck.spec.claims import Outputs

T = TypeVar("T")


class Untestable(TypeError):
    """Raised if a result contains no tensor to test, or an object that may contain one."""

    is_plain = False
    """Whether the result contains numbers, strings and the like; None does not count: the output may be an argument."""


WHAT_IS_TESTED = (
    "an operator must return tensors, alone or in tuples, lists, dicts, named tuples, dataclasses or attrs classes; "
    "if it returns nothing but changes its first argument, write inplace = true; for others, inplace = [names]"
)

PLAIN = (Number, str, bytes, NoneType, torch.dtype, torch.device, torch.layout, torch.memory_format)
"""The types whose objects cannot contain a tensor."""


def flatten(result: Any) -> tuple[Tensor, ...]:
    """Return the tensors of a result, in order. Raises Untestable as `named` does."""
    if isinstance(result, Tensor) and not result.is_nested:
        return (of_torch(result),)
    return tuple(tensor for _, tensor in named(result))


def named(result: Any) -> list[tuple[str, Tensor]]:
    """Return the tensors of a result with their paths, in order. A nested tensor is replaced by its components.

    Raises Untestable if there is no tensor, or an object that may contain a tensor, which would go untested.
    """
    results, is_plain = [], False
    for path, part in leaves_of(result):
        is_plain |= part is not None
        if isinstance(part, Tensor):
            results += unnested(path, part)
        elif not isinstance(part, PLAIN):
            where = f" at output{path}" if path else ""
            raise Untestable(f"the operator returned {_what(part)}{where}; opcheck cannot look for tensors in it")
    if not results:
        error = Untestable(f"the operator returned {_what(result)}; it contains no tensor")
        error.is_plain = is_plain
        raise error
    return results


def leaves_of(result: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all items that are not containers, with their paths in Python syntax: `.loss`, `['logits']`, `[0]`."""
    parts = None if isinstance(result, Tensor) else _parts(result)
    if parts is None:
        yield path, result
    else:
        for step, part in parts:
            yield from leaves_of(part, path + step)


def unnested(path: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
    """Return a tensor with its path; for a nested tensor, its components, or the values if it is jagged."""
    if not tensor.is_nested:
        return [(path, of_torch(tensor))]
    if tensor.layout is torch.jagged:  # torch cannot differentiate its components one by one
        return [(f"{path}.values()", tensor.values())]
    return [(f"{path}[{index}]", part) for index, part in enumerate(tensor.unbind())]


def of_torch(tensor: Tensor) -> Tensor:
    """Return an instance of a subclass, which may override operators, as a plain tensor that shares its memory."""
    kind = type(tensor)  # torch's own operators work on those with __torch_dispatch__, such as masked tensors
    if kind is Tensor or kind is torch.nn.Parameter or kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return tensor
    return tensor.as_subclass(Tensor)


def _parts(result: Any) -> list[tuple[str, Any]] | None:
    """Return the items of a container with their paths, or None if `result` is not a container."""
    kind = type(result)
    if isinstance(result, Mapping):
        return [(f"[{_short(key)}]", part) for key, part in result.items()]
    if isinstance(result, (tuple, list)):
        names = getattr(kind, "__match_args__", ())  # for named tuples and torch.return_types
        if len(names) != len(result):
            return [(f"[{index}]", part) for index, part in enumerate(result)]
    elif dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif hasattr(kind, "__attrs_attrs__"):
        names = [field.name for field in kind.__attrs_attrs__]
    else:
        return None
    return [(f".{name}", getattr(result, name, None)) for name in names]


def names_among(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths if any of them contains a name, such as `.loss` and `['logits']`; empty if all are positions."""
    return tuple(paths) if any(path.strip("[0123456789]") for path in paths) else ()


def _what(result: Any) -> str:
    """Return a description of a result without tensors, for messages."""
    if result is None:
        return "None"
    kind = type(result)
    if isinstance(result, PLAIN):
        return f"{_short(result)} ({kind.__name__})"
    if isinstance(result, (Mapping, tuple, list)) and not result:
        return f"an empty {kind.__name__}"
    return (
        f"a {kind.__name__}" if kind.__module__ == "builtins" else f"an object of {kind.__module__}.{kind.__qualname__}"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def select(result: Any, spec: Outputs, masked: bool = False) -> tuple[Tensor, ...]:
    """Return the outputs to test, mapped by `outputs.apply`. Raises Untestable as `flatten` and `chosen` do.

    masked: whether gradients of sparse outputs that are made dense keep the sparsity pattern (`masked_grad`).
    """
    outputs = chosen(flatten(result), spec)
    if spec.apply is None:
        return outputs
    most = max((output.dim() for output in outputs), default=0)
    maps: dict[str, Callable[[Tensor], Tensor]] = {
        "abs": _abs,
        "real": lambda output: output.real if output.is_complex() else output,
        # Eigenvectors and singular vectors have arbitrary phases; eigenvalues, with one dimension less, do not.
        "gauge_invariant": lambda output: _abs(output) if output.dim() == most else output,
        "finite": _finite,
        "to_dense": lambda output: output if output.layout is torch.strided else output.to_dense(masked_grad=masked),
        "values": _values,
    }
    return tuple(map(maps[spec.apply], outputs))


def chosen(outputs: tuple[T, ...], spec: Outputs) -> tuple[T, ...]:
    """Return the items that `outputs.select` selects; all by default. Raises Untestable if an index is out of range."""
    if spec.select is None:
        return outputs
    count = len(outputs)
    missing = [index for index in spec.select if not -count <= index < count]
    if missing:
        raise Untestable(f"outputs.select names output {missing[0]}, but the operator returned {count} tensors")
    return tuple(outputs[index] for index in spec.select)


def _abs(output: Tensor) -> Tensor:
    return output if output.dtype is torch.bool else output.abs()


def _finite(output: Tensor) -> Tensor:
    """Replace NaN, inf and -inf by three fixed numbers, which compare equal to themselves and have zero derivatives."""
    if output.is_complex():
        return torch.view_as_complex(_finite(torch.view_as_real(output.resolve_conj())))
    if not output.is_floating_point():
        return output
    for number, instead in ((torch.inf, 1.375), (-torch.inf, -1.375)):
        output = torch.where(output == number, instead, output)
    return torch.where(output.isnan(), 0.375, output)  # torch.nan_to_num would keep tangents that are NaN


def _values(output: Tensor) -> Tensor:
    if output.layout is torch.strided:
        return output
    return (output.coalesce() if output.layout is torch.sparse_coo else output).values()


def has_derivative(tensor: Tensor) -> bool:
    """Return whether a tensor has a floating or complex dtype."""
    return tensor.is_floating_point() or tensor.is_complex()


def differentiable(outputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs with a floating or complex dtype."""
    return tuple(filter(has_derivative, outputs))


def with_gradient(outputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs that require grad."""
    return tuple(output for output in outputs if output.requires_grad)
