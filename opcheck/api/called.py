"""Turns a function and its arguments into an operator with one sample, as a spec would give it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import is_
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opcheck.api.plan import caller
from opcheck.samples.arguments import REGISTERED, signature_of, written_by
from opcheck.samples.leaves import Given
from opcheck.samples.modules import ModuleCall, uninitialized
from opcheck.samples.results import leaves_of
from opcheck.spec import dtypes as names
from opcheck.spec.claims import Dtypes, Supports
from opcheck.spec.document import Document, shown
from opcheck.spec.library import Operator, Sample
from opcheck.spec.operator import Construction, OperatorSpec
from opcheck.spec.positions import Span
from opcheck.spec.problems import SpecError, worded
from opcheck.spec.values import TupleValue
from opcheck.spec.wording import validated


@dataclass(frozen=True, eq=False)
class CallSample(Sample):
    """The arguments of one call."""

    called_at: int = 0
    """The line of the call."""
    sparse: bool = False

    @property
    def span(self) -> Span:
        """The line of the call."""
        return Span(0, 0, self.called_at, 1)

    @property
    def is_sparse(self) -> bool:
        """Whether any tensor has a sparse layout."""
        return self.sparse

    def toml(self) -> str:
        """Return an empty string: the message shows the realized arguments anyway."""
        return ""


def operator_of(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    supports: Mapping[str, Any],
    dtypes: Iterable[str | torch.dtype],
) -> Operator:
    """Return the operator for one call of `opcheck.check`.

    The parameters and buffers of a module are added as keyword arguments.

    Raises ValueError or TypeError for arguments that cannot be tested.
    """
    tensors = [part for _, part in leaves_of((args, kwargs)) if isinstance(part, Tensor)]
    if not tensors:
        raise ValueError("none of the arguments is a tensor: there is nothing to test")
    call = function if isinstance(function, ModuleCall) else None
    if call is not None and call.is_lazy:
        name = next(iter(uninitialized(call.module)))
        raise ValueError(f"{name} of {type(call.module).__name__} has no shape yet: call the module once before")
    state = {} if call is None else call.state
    own = _own_dtype([*tensors, *state.values()])
    wanted = tuple(dict.fromkeys([own, *_names(dtypes, own)]))
    any_grad = any(tensor.requires_grad for tensor in tensors)
    file, line = caller()
    document = Document(shown(Path(file)) if Path(file).is_file() else file, "", {})
    placed = tuple(_recipe_of(value, f"argument {index}", own, any_grad) for index, value in enumerate(args))
    named = {name: _recipe_of(value, f'argument "{name}"', own, any_grad) for name, value in kwargs.items()}
    if call is not None:
        named |= {key: Given(state[name], state[name].requires_grad, own) for name, key in call.keys(kwargs).items()}
    sample = CallSample(
        "0", placed, named, document, (), line,
        any(str(tensor.layout).startswith("torch.sparse") for tensor in tensors),
    )  # fmt: skip
    # As in a spec that lists no dtypes, other dtypes need not be refused.
    claimed = Dtypes.model_construct(set(), forward=wanted, backward=tuple(filter(names.is_differentiable, wanted)))
    spec = OperatorSpec.model_construct(
        name=name_of(function if call is None else call.module),
        module=None if call is None else Construction.model_construct(),
        supports=_supports(supports),
        dtypes=claimed,
        registered=isinstance(function, REGISTERED),
        inplace=written_by(function),
    )
    operator = Operator(spec, (sample,), "", document, 0)
    for mistake in operator.unknown_arguments(signature_of(function, spec.name).names):
        raise ValueError(f"supports: {worded(mistake.what, mistake.expected, mistake.nearest)}")
    return operator


def _recipe_of(value: Any, place: str, own: str, any_grad: bool) -> Any:
    """Return an argument with each tensor, on its own or in lists and tuples, wrapped in a Given.

    Raises ValueError for a tensor inside anything else: derivatives cannot reach it, so it would be a constant.
    """
    if isinstance(value, Tensor):
        if value.is_nested:
            raise ValueError(f'{place} is a nested tensor: write a spec instead, with layout = "jagged"')
        return Given(value, value.requires_grad or not any_grad, own)
    if type(value) in (list, tuple):
        items = [_recipe_of(item, f"{place}[{index}]", own, any_grad) for index, item in enumerate(value)]
        if all(map(is_, items, value)):  # no item is a tensor
            return value
        return items if type(value) is list else TupleValue.model_construct(tuple=items)
    for path, part in leaves_of(value):
        if isinstance(part, Tensor):
            raise ValueError(
                f"cannot differentiate with respect to the tensor at {place}{path}; expected tensors as arguments, or "
                "in lists or tuples. Wrap the function so that it takes this tensor as an argument"
            )
    return value


def _own_dtype(tensors: list[Tensor]) -> str:
    """Return the dtype that the leaves promote to; if no tensor can be a leaf, that of the first tensor."""
    leaves = [tensor.dtype for tensor in tensors if tensor.requires_grad]
    leaves = leaves or [tensor.dtype for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()]
    dtype = reduce(torch.promote_types, leaves) if leaves else tensors[0].dtype
    return str(dtype).removeprefix("torch.")


def _names(names_or_groups: Iterable[str | torch.dtype], own: str) -> tuple[str, ...]:
    """Return the names of dtypes, with groups expanded. Raises ValueError for one that the arguments cannot have."""
    entries = tuple(str(entry).removeprefix("torch.") for entry in names_or_groups)
    for entry in entries:
        mistake = names.unknown(entry)
        if mistake:
            raise ValueError(worded(*mistake))
    expanded = names.expand(entries)
    for name in expanded:
        if own.startswith("complex") and not name.startswith("complex"):
            raise ValueError(f"{own} arguments cannot be tested in {name}: it has no room for imaginary parts")
    return expanded


def _supports(claims: Mapping[str, Any]) -> Supports:
    """Return the claims of a call. Raises ValueError for keys and values that do not exist, or TypeError."""
    if not isinstance(claims, Mapping):
        raise TypeError(f'supports is a dict such as {{"forward_ad": False}}, not {type(claims).__name__}')

    try:
        return validated(Supports, dict(claims), Document("supports", "", {}).problem)
    except SpecError as error:
        mistakes = (worded(one.what, one.expected, one.nearest) for one in error.problems)
        raise ValueError("\n".join(f"supports: {mistake}" for mistake in mistakes)) from None


def name_of(function: Any) -> str:
    """Return the name of a function in ids: `mylib.cube`, `torch.sin`, `torch.ops.mylib.cube`."""
    if isinstance(function, partial):
        return name_of(function.func)
    if isinstance(function, REGISTERED):
        text = str(getattr(function, "_opoverload", function))
        return f"torch.ops.{text}"
    name = str(getattr(function, "__qualname__", None) or getattr(function, "__name__", type(function).__qualname__))
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type):
        return f"{owner.__module__}.{owner.__qualname__}.{function.__name__}"
    last = name.rpartition(".")[2]
    for namespace, home in (("torch", torch), ("torch.Tensor", torch.Tensor)):
        if getattr(home, last, None) is function:
            return f"{namespace}.{last}"
    module = getattr(function, "__module__", None) or type(function).__module__
    name = name.rpartition("<locals>.")[2]
    return name if module == "__main__" else f"{module}.{name}"
