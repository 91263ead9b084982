"""Decides, before any call, whether an operator has nothing to differentiate, or cannot be called on the CPU."""

from __future__ import annotations

import collections.abc
import re
from collections.abc import Callable
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import torch

from opcheck.draft.signature import STARRED, annotation_of, schemas_of
from opcheck.samples.arguments import parameters
from opcheck.samples.results import PLAIN

TAKES_NO_TENSOR = "it takes no tensor, so there is nothing to differentiate"
RETURNS_NO_TENSOR = "it returns no tensor, so there is nothing to differentiate"
ONLY_INTEGERS = "it takes tensors of integers only, so there is nothing to differentiate"
ONLY_QUANTIZED = "it takes quantized tensors only, so there is nothing to differentiate"
CONSTANT = (TAKES_NO_TENSOR, RETURNS_NO_TENSOR, ONLY_INTEGERS, ONLY_QUANTIZED)
NO_KERNEL = "it has no kernel for dense tensors on the CPU"

PLAIN_WORDS = {
    "List", "Optional", "int", "float", "complex", "number", "bool", "str", "Device", "Generator", "QScheme",
    "NoneType",
}  # fmt: skip
"""The words of types in schemas of the dispatcher that hold no tensor, such as `Optional[List[int]]`."""

PLAIN_TYPES = (*PLAIN, Enum, torch.Generator, torch.Size)
"""Types in annotations that hold no tensor."""

ON_CPU = (
    "CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional",
    "SparseCPU", "SparseCsrCPU", "MkldnnCPU", "NestedTensorCPU",
)  # fmt: skip
QUANTIZED = "QuantizedCPU"
"""Dispatch keys of kernels on the CPU: for tensors of any layout, and for quantized tensors."""


def reason_not_to_call(operator: Callable[..., Any], path: str) -> str:
    """Return why calls of an operator cannot show a derivative, by all of its schemas or by its annotations.

    Empty if they leave that open.
    """
    schemas = schemas_of(operator, path)
    if not schemas:
        return TAKES_NO_TENSOR if _is_annotated_plain(operator) else ""
    tensors = {sum(not _is_plain(one.type) for one in schema.arguments) for schema in schemas}
    if tensors == {0}:
        return TAKES_NO_TENSOR
    if _has_kernel(schemas, ON_CPU):
        return ""
    return ONLY_QUANTIZED if tensors == {1} and _has_kernel(schemas, (QUANTIZED,)) else NO_KERNEL


def _is_plain(kind: Any) -> bool:
    """Return whether a type in a schema certainly holds no tensor."""
    return PLAIN_WORDS.issuperset(re.findall(r"[\w.]+", str(kind)))


def _is_annotated_plain(operator: Callable[..., Any]) -> bool:
    """Return whether all parameters have annotations, of types that hold no tensor."""
    try:
        declared = parameters(operator)
    except (TypeError, ValueError):  # no signature
        return False
    return all(one.kind not in STARRED and _holds_no_tensor(annotation_of(one, operator)) for one in declared)


def _holds_no_tensor(annotation: Any) -> bool:
    origin, inside = get_origin(annotation), [one for one in get_args(annotation) if one is not ...]
    if origin is None:
        return isinstance(annotation, type) and issubclass(annotation, PLAIN_TYPES)
    is_iterable = isinstance(origin, type) and issubclass(origin, collections.abc.Iterable)
    if origin in (Union, UnionType) or is_iterable:
        return bool(inside) and all(map(_holds_no_tensor, inside))
    return origin is Literal


def _has_kernel(schemas: list[Any], keys: tuple[str, ...]) -> bool:
    """Return whether an operator of aten has a kernel for any of the dispatch keys.

    True for operators outside aten, which may have any kernel.
    """
    names = [".".join(filter(None, (own.name, own.overload_name))) for own in schemas]
    try:
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return any(not name.startswith("aten::") or has(name, key) for name in names for key in keys)
    except RuntimeError:  # an operator of TorchScript is not in the dispatcher
        return True
