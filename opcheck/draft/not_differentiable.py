"""Decides, before any call, whether an operator has nothing to differentiate, or cannot be called on the CPU."""

from __future__ import annotations

import collections.abc
import inspect
from collections.abc import Callable
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch

from opcheck.draft.signature import STARRED, schemas_of
from opcheck.samples.arguments import parameters

TAKES_NO_TENSOR = "it takes no tensor, so there is nothing to differentiate"
RETURNS_NO_TENSOR = "it returns no tensor, so there is nothing to differentiate"
ONLY_INTEGERS = "it takes tensors of integers only, so there is nothing to differentiate"
ONLY_QUANTIZED = "it takes quantized tensors only, so there is nothing to differentiate"
NO_KERNEL = "it has no kernel for dense tensors on the CPU"

PLAIN_KINDS = {
    "BoolType", "ComplexType", "DeviceObjType", "FloatType", "GeneratorType", "IntType", "LayoutType",
    "MemoryFormatType", "NoneType", "NumberType", "QSchemeType", "ScalarTypeType", "StringType", "SymBoolType",
    "SymFloatType", "SymIntType",
}  # fmt: skip
"""Kinds of types in schemas of the dispatcher that hold no tensor."""

PLAIN_TYPES = (
    int, float, complex, str, bytes, NoneType, Enum, torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.Generator, torch.Size,
)  # fmt: skip
"""Types in annotations that hold no tensor. bool is a subclass of int."""

DENSE = ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
OTHERS = ("SparseCPU", "SparseCsrCPU", "MkldnnCPU", "NestedTensorCPU")
QUANTIZED = "QuantizedCPU"
"""Dispatch keys of kernels on the CPU: for dense tensors, for other layouts, and for quantized tensors."""


def constant(operator: Callable[..., Any], path: str) -> str:
    """Return why an operator has nothing to differentiate, according to all of its schemas or to its annotations.

    Empty if they leave that open.
    """
    schemas = _schemas(operator, path)
    if not schemas:
        return TAKES_NO_TENSOR if _is_annotated_plain(operator) else ""
    if all(_is_plain(one.type) for schema in schemas for one in schema.arguments):
        return TAKES_NO_TENSOR
    returned = [one for schema in schemas for one in schema.returns]
    writes = any(one.alias_info is not None and one.alias_info.is_write for own in schemas for one in own.arguments)
    if returned and not writes and all(_is_plain(one.type) for one in returned):
        return RETURNS_NO_TENSOR
    tensors = [sum(not _is_plain(one.type) for one in schema.arguments) for schema in schemas]
    is_quantized = _has_kernel(schemas, (QUANTIZED,)) and not _has_kernel(schemas, (*DENSE, *OTHERS))
    return ONLY_QUANTIZED if is_quantized and set(tensors) == {1} else ""


def without_kernel(operator: Callable[..., Any], path: str) -> str:
    """Return why an operator cannot be called on the CPU: it has no kernel for dense tensors or other layouts.

    Empty if it has a kernel, or if that is unknown.
    """
    schemas = _schemas(operator, path)
    return NO_KERNEL if schemas and not _has_kernel(schemas, (*DENSE, *OTHERS)) else ""


def _schemas(operator: Callable[..., Any], path: str) -> list[Any]:
    """Return the schemas of an operator of torch or of its dispatcher.

    Empty for a C function of another package, which may have the name of a different function of torch.
    """
    schemas = schemas_of(operator, path)
    return schemas if path.startswith("torch.") or not inspect.isbuiltin(operator) else []


def _is_plain(kind: Any) -> bool:
    """Return whether a type in a schema certainly holds no tensor."""
    if kind.kind() in ("ListType", "OptionalType"):
        return _is_plain(kind.getElementType())
    return kind.kind() in PLAIN_KINDS


def _is_annotated_plain(operator: Callable[..., Any]) -> bool:
    """Return whether all parameters have annotations, of types that hold no tensor."""
    try:
        declared, hints = parameters(operator), get_type_hints(operator)
    except Exception:  # evaluating an annotation can raise anything
        return False
    return all(one.kind not in STARRED and one.name in hints and _holds_no_tensor(hints[one.name]) for one in declared)


def _holds_no_tensor(annotation: Any) -> bool:
    origin, inside = get_origin(annotation), [one for one in get_args(annotation) if one is not ...]
    if origin is Literal:
        return True
    if origin in (Union, UnionType) or (
        isinstance(origin, type) and issubclass(origin, collections.abc.Iterable) and inside
    ):
        return all(map(_holds_no_tensor, inside))
    return isinstance(annotation, type) and origin is None and issubclass(annotation, PLAIN_TYPES)


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
