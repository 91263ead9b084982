"""The checks, as planning sees them: their names, what they claim, and what they apply to.

A check names its implementation by import path. It is imported when a case runs, so that planning needs no torch. A
plugin adds a check with an entry point of the group `opcheck.checks` that refers to a CheckKind, a project with
`opcheck.register_check`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from opcheck.spec.claims import Order, Supports
from opcheck.spec.library import Operator

Applies = Callable[[Operator, Supports], bool]
DtypeRule = Literal["derivative", "values", "every", "one"]
"""derivative: the most precise real and complex dtypes of backward; values: those of forward, and int64; every: all
dtypes that the spec makes a claim about; one: the first of `values`."""


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
    dtypes: DtypeRule = "derivative"
    every_variant: bool = True
    methods: bool = False
    """Whether methods are tested too. A method records the same graph as its function, so one check in each mode is
    enough."""
    applies: Applies = _always
    judge: Callable[[Any], Any] | None = None
    """The function that `opcheck.register_check` registered; None for other checks."""

    def claimed(self, operator: Operator, supports: Supports) -> bool:
        """Tell whether the operator makes the claim that this check tests."""
        return all(getattr(supports, name) for name in self.needs) and self.applies(operator, supports)

    @property
    def remedy(self) -> str:
        """How a spec says that the claim is not meant to hold. Empty: no key of `supports` says so."""
        if self.name in get_args(Order):
            return f'if this is how it should be, take "{self.name}" out of orders'
        return f"if this is how it should be, write supports.{self.needs[-1]} = false" if self.needs else ""


def _has_sparse_samples(operator: Operator, supports: Supports) -> bool:
    return operator.has_sparse_samples


def _has_dense_samples(operator: Operator, supports: Supports) -> bool:
    return any(
        all(tensor.layout == "strided" or tensor.grad is False for tensor in sample.tensors())
        for sample in operator.samples
    )


def _has_disclaimers(operator: Operator, supports: Supports) -> bool:
    silent = {"out"}  # tested by `variants`
    if not _has_sparse_samples(operator, supports):
        silent.add("masked")  # it concerns sparse samples only
    if not any(variant.kind == "inplace" for variant in operator.variants):
        silent.add("inplace_backward")
    return bool(set(supports.disclaimed()) - silent)


def _asks_for(order: Order) -> Applies:
    return lambda operator, supports: order in operator.spec.orders


def _has_reference(operator: Operator, supports: Supports) -> bool:
    return operator.spec.reference is not None


def _has_errors(operator: Operator, supports: Supports) -> bool:
    return bool(operator.spec.errors)


def _is_registered(operator: Operator, supports: Supports) -> bool:
    return operator.spec.is_registered


BUILTIN = (
    CheckKind(
        "backward",
        "the reverse-mode Jacobian equals the numerical one, also through non-contiguous cotangents",
        "opcheck.checks.backward:check",
        "check_backward_ad",
        needs=("backward",),
        methods=True,
    ),
    CheckKind(
        "forward_ad",
        "the forward-mode Jacobian equals the numerical one",
        "opcheck.checks.forward_ad:check",
        "check_forward_ad",
        needs=("forward_ad",),
        methods=True,
    ),
    CheckKind(
        "accuracy",
        "first and second derivatives have the digits that the arithmetic of their dtype allows",
        "opcheck.checks.accuracy:check",
        needs=("backward",),
        applies=_has_dense_samples,
    ),
    CheckKind(
        "batched_grad",
        "the vmapped vjp equals the loop over it",
        "opcheck.checks.batched_grad:check",
        "check_batched_grad",
        needs=("backward", "batched_grad"),
    ),
    CheckKind(
        "batched_forward_grad",
        "the vmapped jvp equals the loop over it",
        "opcheck.checks.batched_forward_grad:check",
        "check_batched_forward_grad",
        needs=("forward_ad", "batched_forward_grad"),
    ),
    CheckKind(
        "undefined_grad",
        "undefined cotangents and tangents are treated as zeros",
        "opcheck.checks.undefined_grad:check",
        "check_undefined_grad",
        needs=("backward", "undefined_grad"),
    ),
    CheckKind(
        "grad_dtypes",
        "each gradient has the dtype, shape, layout and device of its input",
        "opcheck.checks.grad_dtypes:check",
        "check_grad_dtypes",
        needs=("backward",),
    ),
    CheckKind(
        "nondeterminism",
        "running backward twice gives the same result",
        "opcheck.checks.nondeterminism:check",
        "nondet_tol",
        needs=("backward",),
    ),
    CheckKind(
        "rev_over_rev",
        "the second derivative, reverse over reverse, equals the numerical one",
        "opcheck.checks.rev_over_rev:check",
        "check_rev_over_rev",
        needs=("backward", "second_order"),
    ),
    CheckKind(
        "fwd_over_rev",
        "the second derivative, forward over reverse, equals the numerical one",
        "opcheck.checks.fwd_over_rev:check",
        "check_fwd_over_rev",
        needs=("backward", "forward_ad", "second_order", "fwd_over_rev"),
    ),
    CheckKind(
        "rev_over_fwd",
        "the second derivative, reverse over forward, equals the numerical one",
        "opcheck.checks.higher_order:check",
        needs=("backward", "forward_ad"),
        applies=_asks_for("rev_over_fwd"),
    ),
    CheckKind(
        "fwd_over_fwd",
        "the second derivative, forward over forward, equals the numerical one",
        "opcheck.checks.higher_order:check",
        needs=("backward", "forward_ad"),
        applies=_asks_for("fwd_over_fwd"),
    ),
    CheckKind(
        "scalarized_second_order",
        "the gradient of the sum of all gradients equals the numerical one",
        "opcheck.checks.higher_order:check",
        needs=("backward", "second_order"),
        applies=_asks_for("scalarized_second_order"),
    ),
    CheckKind(
        "rev_over_rev_over_rev",
        "the third derivative, in reverse mode throughout, equals the numerical one",
        "opcheck.checks.higher_order:check",
        needs=("backward", "second_order"),
        applies=_asks_for("rev_over_rev_over_rev"),
    ),
    CheckKind(
        "masked",
        "derivatives of sparse inputs are right under masked and, where claimed, non-masked semantics",
        "opcheck.checks.masked:check",
        "masked",
        needs=("backward", "masked"),
        applies=_has_sparse_samples,
    ),
    CheckKind(
        "unsupported",
        "what the spec disclaims is refused with an error, never answered with a wrong number",
        "opcheck.checks.unsupported:check",
        applies=_has_disclaimers,
    ),
    CheckKind(
        "dtypes",
        "forward and backward work for exactly the dtypes claimed",
        "opcheck.checks.dtypes:check",
        dtypes="every",
        every_variant=False,
    ),
    CheckKind(
        "variants",
        "function, method, in-place, out= and aliases give the same values",
        "opcheck.checks.variants:check",
        dtypes="values",
        every_variant=False,
    ),
    CheckKind(
        "reference",
        "values agree with the reference",
        "opcheck.checks.reference:check",
        dtypes="values",
        every_variant=False,
        applies=_has_reference,
    ),
    CheckKind(
        "vmap",
        "vmapping the operator equals looping over it",
        "opcheck.checks.vmap:check",
        needs=("vmap",),
        every_variant=False,
    ),
    CheckKind(
        "errors",
        "the listed inputs raise the stated exception and message",
        "opcheck.checks.errors:check",
        dtypes="one",
        every_variant=False,
        applies=_has_errors,
    ),
    CheckKind(
        "registration",
        "schema, autograd registration, fake tensors and AOT dispatch pass torch.library.opcheck",
        "opcheck.checks.registration:check",
        dtypes="derivative",
        every_variant=False,
        applies=_is_registered,
    ),
)


@lru_cache(maxsize=1)
def check_kinds() -> dict[str, CheckKind]:
    """Return all checks by name: the built-in ones, those of installed plugins, those that were registered."""
    from importlib.metadata import entry_points

    kinds = {kind.name: kind for kind in BUILTIN}
    for entry in entry_points(group="opcheck.checks"):
        kind = entry.load()
        kinds.setdefault(kind.name, kind)
    return kinds | REGISTERED


REGISTERED: dict[str, CheckKind] = {}
"""The checks registered in this process, by name."""


def register(kind: CheckKind) -> None:
    """Add a check to those of this process. It replaces one that was registered under the same name."""
    REGISTERED[kind.name] = kind
    check_kinds.cache_clear()
