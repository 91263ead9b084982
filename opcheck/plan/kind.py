"""A check, as planning sees it: its name, what it claims, and what it applies to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from opcheck.spec.claims import Supports
from opcheck.spec.device import DeviceProfile
from opcheck.spec.library import Operator
from opcheck.spec.recipe import SPARSE_LAYOUTS

Applies = Callable[[Operator, Supports], bool]
DtypeRule = Literal["derivative", "coarse", "values", "every", "one"]
"""derivative: the most precise real and complex dtypes of backward; coarse: those of backward below double precision;
values: those of forward, and int64; every: all dtypes that the spec makes a claim about; one: the first of `values`."""


def _always(operator: Operator, supports: Supports) -> bool:
    return True


@dataclass(frozen=True)
class CheckKind:
    """A check, as planning sees it."""

    name: str
    claim: str
    """What a pass means, in one line."""
    implementation: str
    """`package.module:function`."""
    torch_parameter: str = ""
    """The parameter of torch's gradcheck or gradgradcheck that corresponds to it."""
    needs: tuple[str, ...] = ()
    """Keys of `supports` that must not be disclaimed, the most specific one last."""
    rests_on: tuple[str, ...] = ()
    """The checks without whose claims this one says nothing, the most basic one first. A failure is `blocked` if one of
    them fails as well."""
    dtypes: DtypeRule = "derivative"
    every_variant: bool = True
    methods: bool = False
    """Whether methods are tested too. A method records the same graph as its function, so one check in each mode is
    enough."""
    asked: bool = False
    """Whether the spec has to ask for it, under `orders`."""
    applies: Applies = _always
    may_be_wrong: bool = False
    """Whether an operator whose spec disclaims it may be silently wrong: nothing has to raise."""
    beside_cpu: bool = False
    """Whether it compares a device with the CPU, and so makes no case on the CPU itself."""
    judge: Callable[[Any], Any] | None = None
    """The function that `opcheck.register_check` registered; None for other checks."""

    def claimed(self, operator: Operator, supports: Supports) -> bool:
        """Tell whether the operator makes the claim that this check tests."""
        if self.asked and self.name not in operator.spec.orders:
            return False
        return all(getattr(supports, name) for name in self.needs) and self.applies(operator, supports)

    def runs_on(self, device: DeviceProfile) -> bool:
        """Tell whether it makes cases on a device."""
        return not self.beside_cpu or device.device_string.partition(":")[0] != "cpu"

    @property
    def remedy(self) -> str:
        """How a spec says that the claim is not meant to hold. Empty: no key of `supports` says so."""
        if self.asked:
            return f'if this is how it should be, take "{self.name}" out of orders'
        return f"if this is how it should be, write supports.{self.needs[-1]} = false" if self.needs else ""


# what a check applies to


def has_sparse_samples(operator: Operator, supports: Supports) -> bool:
    """Tell whether any sample has a sparse tensor."""
    return operator.has_sparse_samples


def has_dense_samples(operator: Operator, supports: Supports) -> bool:
    """Tell whether any sample has dense leaves only."""
    return any(
        all(tensor.layout == "strided" or tensor.grad is False for tensor in sample.tensors())
        for sample in operator.samples
    )


def has_movable_samples(operator: Operator, supports: Supports) -> bool:
    """Tell whether all leaves of any sample are strided or sparse, so that each of their elements can be moved."""
    movable = ("strided", *SPARSE_LAYOUTS)
    return any(
        all(tensor.layout in movable or tensor.grad is False for tensor in sample.tensors())
        for sample in operator.samples
    )


def has_disclaimers(operator: Operator, supports: Supports) -> bool:
    """Tell whether the spec disclaims something that `unsupported` can test."""
    silent = {"out", "outputs"}  # tested by `variants` and `detached`
    if not has_sparse_samples(operator, supports):
        silent.add("masked")  # it concerns sparse samples only
    if not any(variant.kind == "inplace" for variant in operator.variants):
        silent.add("inplace_backward")
    return bool(set(supports.disclaimed()) - silent)


def has_reference(operator: Operator, supports: Supports) -> bool:
    """Tell whether the spec names a reference."""
    return operator.spec.reference is not None


def runs_on_cpu(operator: Operator, supports: Supports) -> bool:
    """Tell whether the operator is meant to run on the CPU as well."""
    return operator.spec.devices is None or "cpu" in operator.spec.devices


def has_errors(operator: Operator, supports: Supports) -> bool:
    """Tell whether the spec lists inputs that must be refused."""
    return bool(operator.spec.errors)


def is_reproducible(operator: Operator, supports: Supports) -> bool:
    """Tell whether the operator gives the same numbers in each dtype: random ones do not."""
    return not operator.spec.reseed


def is_registered(operator: Operator, supports: Supports) -> bool:
    """Tell whether the operator is registered with torch."""
    return operator.spec.is_registered


def has_ways_to_call(operator: Operator, supports: Supports) -> bool:
    """Tell whether there is another way to call the operator: modules have aliases only."""
    return operator.spec.module is None or bool(operator.spec.aliases)


def is_module(operator: Operator, supports: Supports) -> bool:
    """Tell whether the operator is a module."""
    return operator.spec.module is not None
