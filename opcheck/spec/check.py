"""A row of the table of checks: what a check claims, what it needs and applies to, and which function tests it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

DtypeRule = Literal["derivative", "coarse", "values", "every", "one"]
"""derivative: the most precise real and complex dtypes of backward; coarse: those of backward below double precision;
values: those of forward, and int64; every: all dtypes that the spec makes a claim about; one: the first of `values`."""


@dataclass(frozen=True)
class CheckKind:
    """A check, as specs and planning see it."""

    name: str
    claim: str
    """What a pass means, in one line."""
    implementation: str
    """`package.module:function`."""
    torch_parameter: str = ""
    """The parameter of torch's gradcheck or gradgradcheck that corresponds to it."""
    needs: tuple[str, ...] = ()
    """Keys of `supports` that must not be disclaimed, the most specific one last."""
    feature: str = ""
    """What the key of its own name under `supports` is about, by which a spec disclaims it. Empty: it has none."""
    rests_on: tuple[str, ...] = ()
    """The checks without whose claims this one says nothing, the most basic one first. A failure is `blocked` if one of
    them fails as well."""
    dtypes: DtypeRule = "derivative"
    every_variant: bool = True
    methods: bool = False
    """Whether methods are tested too. A method records the same graph as its function, so one check in each mode is
    enough."""
    on_request: bool = False
    """Whether the spec has to ask for it, under `orders`."""
    applies: str | Callable[[Any], bool] = ""
    """The property of an operator, or a predicate, that tells whether it applies; empty: it always does."""
    of_disclaimers: bool = False
    """Whether it applies to operators whose spec disclaims something that only this check tests."""
    may_be_wrong: bool = False
    """Whether an operator whose spec disclaims it may be silently wrong: nothing has to raise."""
    beside_cpu: bool = False
    """Whether it compares a device with the CPU, and so makes no case on the CPU itself."""
    derives: bool = False
    """Whether it is about samples that opcheck derives, so that it runs only if the project, or somebody, wants any."""
    judge: Callable[[Any], Any] | None = None
    """The function that `opcheck.register_check` registered; None for other checks."""

    def __post_init__(self) -> None:
        if self.feature:
            object.__setattr__(self, "needs", (*self.needs, self.name))

    def claimed(self, operator: Any, supports: Any) -> bool:
        """Tell whether an operator, with what it supports on a device, makes the claim that this check tests."""
        if self.on_request and self.name not in operator.spec.orders:
            return False
        if self.of_disclaimers and not operator.has_disclaimers(supports):
            return False
        if not all(getattr(supports, name) for name in self.needs):
            return False
        applies = self.applies
        return bool(applies(operator) if callable(applies) else not applies or getattr(operator, applies))

    def runs_on(self, device: Any) -> bool:
        """Tell whether it makes cases on a device."""
        return not self.beside_cpu or device.device_string.partition(":")[0] != "cpu"

    @property
    def remedy(self) -> str:
        """How a spec says that the claim is not meant to hold. Empty: no key of `supports` says so."""
        if self.on_request:
            return f'if this is how it should be, take "{self.name}" out of orders'
        return f"if this is how it should be, write supports.{self.needs[-1]} = false" if self.needs else ""
