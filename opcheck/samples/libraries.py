"""What a spec may name in torch, NumPy, SciPy and math: functions of tensors or arrays, and constants.

A rule decides, not a list of dangerous functions. A C function must be in one of torch's tables of operators, as
torch.sin is. A Python function must be defined where torch defines operators. A NumPy function must be a ufunc or
dispatch on its arguments (NEP 18). This excludes every function that loads, saves or sets something, known or not, with
few exceptions.
"""

from __future__ import annotations

import re
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch
from torch.nn import functional

EXCEPTIONS = {
    "torch": {"from_file", "frombuffer"},
    "torch.Tensor": {
        "apply_", "backward", "const_data_ptr", "data_ptr", "map2_", "map_", "module_load", "record_stream",
        "register_hook", "register_post_accumulate_grad_hook", "set_", "share_memory_", "storage", "untyped_storage",
    },
    "torch.sparse": {"as_sparse_gradcheck"},
    "numpy": {"save", "savetxt", "savez", "savez_compressed"},
    "scipy.fft": {
        "get_workers", "register_backend", "set_backend", "set_global_backend", "set_workers", "skip_backend",
    },
}  # fmt: skip
"""Names that the rules would allow and must not: files, raw memory, hooks, callbacks, process state."""

_PYTHON_HOMES = (
    "torch.functional", "torch._lobpcg", "torch._lowrank", "torch.nn.functional", "torch.masked._ops",
    "torch.masked.maskedtensor.creation", "torch.nested", "torch.signal.windows.windows", "torch.sparse",
    "torch.sparse.semi_structured",
)  # fmt: skip
_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme, float)
_ARRAYS_OF = ("array", "asarray", "ascontiguousarray")
"""Functions that make arrays of other objects, and so have nothing to dispatch on."""
_HAS_VALUES = frozenset(
    ("Tensor", "number", "int", "float", "complex", "bool", "str", "List", "Optional", "Device", "Generator")
)
"""The words for types, in schemas, of which a spec can write values. A generator can be left to its default, None."""


def offers(namespace: str, name: str, found: Any) -> bool:
    """Return whether a spec may name `namespace.name`, which is `found`."""
    if name in EXCEPTIONS.get(namespace, ()):
        return False
    if namespace == "torch.Tensor":
        return isinstance(found, (MethodDescriptorType, WrapperDescriptorType, FunctionType))
    if namespace == "torch":
        return is_operator(found) or isinstance(found, _CONSTANTS)
    if namespace == "torch.nn":
        return isinstance(found, type) and issubclass(found, torch.nn.Module)
    if namespace == "torch.distributions":
        return _of_distributions(found)
    if namespace.startswith("torch."):
        return is_operator(found)
    if namespace == "math":
        return isinstance(found, (BuiltinFunctionType, float))
    return _on_arrays(namespace.partition(".")[0], name, found)


def is_operator(found: Any) -> bool:
    """Return whether a function is one of torch's operators, wherever it was found."""
    if isinstance(found, BuiltinFunctionType):
        return _table(found) in _tables() and found.__name__ not in EXCEPTIONS["torch"]
    return (
        isinstance(found, FunctionType)
        and found.__module__ in _PYTHON_HOMES
        and found.__name__ not in EXCEPTIONS["torch.sparse"]
    )


def _table(function: BuiltinFunctionType) -> tuple[Any, str]:
    """Return the module of a C function, and the name of its class in that module."""
    return function.__self__, function.__qualname__.rpartition(".")[0]


@cache
def _tables() -> frozenset[tuple[Any, str]]:
    ones: list[Any] = [
        torch.sin, functional.linear, torch.fft.fft, torch.linalg.det, torch.nested.to_padded_tensor, torch.sparse.mm,
        torch.special.erf,
    ]  # fmt: skip
    return frozenset(map(_table, ones))


def _of_distributions(found: Any) -> bool:
    from torch import distributions

    classes = (distributions.Distribution, distributions.Transform)
    return found is distributions.kl_divergence or (isinstance(found, type) and issubclass(found, classes))


def _on_arrays(library: str, name: str, found: Any) -> bool:
    import numpy

    if isinstance(found, numpy.ufunc) or (type(found) is type(numpy.sum) and hasattr(found, "__wrapped__")):
        return True
    if library == "numpy":
        return isinstance(found, float) or name in _ARRAYS_OF
    # The transforms of scipy.fft dispatch too, and wrap the function that returns the dispatched arguments.
    function = isinstance(found, FunctionType) or hasattr(found, "__wrapped__")
    return function and str(found.__module__).startswith("scipy.")


@cache
def takes_and_gives_tensors(operator: Any) -> bool:
    """Return whether an operator of torch.ops, or an overload, takes tensors and returns or changes some.

    An overload counts if a spec has values for all arguments that it needs: not for a stream or a storage.
    """
    overloads = [getattr(operator, name) for name in operator.overloads()] if _is_packet(operator) else [operator]
    return any(_on_tensors(overload._schema) for overload in overloads)


def _on_tensors(schema: Any) -> bool:
    tensors = [argument for argument in schema.arguments if "Tensor" in str(argument.type)]
    written = [argument for argument in tensors if argument.alias_info is not None and argument.alias_info.is_write]
    given = [result for result in schema.returns if "Tensor" in str(result.type)]
    needed = [str(argument.type) for argument in schema.arguments if not argument.has_default_value()]
    has_values = _HAS_VALUES.issuperset(word for one in needed for word in re.findall(r"[\w.]+", one))
    return has_values and any(not argument.kwarg_only for argument in tensors) and bool(given or written)


def _is_packet(found: Any) -> bool:
    """Return whether an object of torch.ops stands for all overloads of an operator."""
    return isinstance(found, type(torch.ops.aten.sin))


def is_dispatched(found: Any) -> bool:
    """Return whether an object is an operator of torch.ops, or an overload of one."""
    return _is_packet(found) or isinstance(found, type(torch.ops.aten.sin.default))
