"""The table of checks. The keys of `supports`, planning and the documentation use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from opcheck.spec.problems import SpecError
from opcheck.spec.recipe import SPARSE_LAYOUTS
from opcheck.text import one_line

DtypeRule = Literal["derivative", "coarse", "values", "every", "one"]
"""The dtypes that a check runs in. derivative: the most precise real and complex dtypes of backward; coarse: the dtypes
of backward below double precision; values: the most precise real and complex dtypes of forward, and int64; every: all
dtypes that the spec makes a claim about; one: the first of `values`."""

VariantKind = Literal["function", "method", "inplace"]

Derive = Literal["none", "standard", "thorough"]
"""How many samples opcheck derives from each written one. thorough takes ten times as long; it adds costly checks."""


@dataclass(frozen=True)
class CheckKind:
    """A check, as declared for specs and planning."""

    name: str
    claim: str
    """The meaning of a pass, in one line."""
    implementation: str
    """The import path `package.module:function`; empty for a check with a `judge`."""
    needs: tuple[str, ...] = ()
    """Keys of `supports` that must not be disclaimed, the most specific one last."""
    feature: str = ""
    """The description of the key under `supports` that has the check's name and disclaims it. Empty: no such key."""
    rests_on: tuple[str, ...] = ()
    """The checks that this one depends on, the most basic first. A failure is `blocked` if one of them fails, too."""
    dtypes: DtypeRule = "derivative"
    variants: tuple[VariantKind, ...] = ("function", "inplace")
    """The kinds of variants to test. A method records the same graph as its function, so that one check for each mode
    tests it."""
    on_request: bool = False
    """Whether the check runs only if the spec lists it under `orders`."""
    applies: Callable[[Any], bool] | None = None
    """A predicate of operators: whether the check applies. None: it applies to all."""
    of_disclaimers: bool = False
    """Whether the check applies only to operators whose spec disclaims something that no other check tests."""
    may_be_wrong: bool = False
    """Whether an operator that disclaims the check may be wrong without raising. True for checks with a `feature`."""
    beside_cpu: bool = False
    """Whether the check compares a device with the CPU, and so has no case on the CPU itself."""
    least: Derive = "none"
    """The lowest setting of `derive` at which the check runs by default. At lower settings it runs only if named."""
    judge: Callable[[Any], Any] | None = None
    """The function that `opcheck.register_check` registered; None for other checks."""

    def __post_init__(self) -> None:
        if self.feature:
            object.__setattr__(self, "needs", (*self.needs, self.name))
            object.__setattr__(self, "may_be_wrong", True)

    def claimed(self, operator: Any, device: Any, supports: Any) -> bool:
        """Return whether an operator, given its `supports` on a device, makes the claim of this check there.

        Raises SpecError in place of an exception of `applies`.
        """
        if self.beside_cpu and device.device_string.partition(":")[0] == "cpu":
            return False
        if self.on_request and self.name not in operator.spec.orders:
            return False
        if self.of_disclaimers and not operator.has_disclaimers(supports):
            return False
        if not all(getattr(supports, name) for name in self.needs):
            return False
        try:
            return self.applies is None or bool(self.applies(operator))
        except Exception as error:
            what = f'`applies` of the check "{self.name}" raised {one_line(error)}'
            raise SpecError([operator.problem(("name",), what)]) from error

    def tests(self, variant: str, supports: Any) -> bool:
        """Return whether the check tests a kind of variant of an operator, given its `supports` on a device."""
        if variant == "inplace" and not supports.inplace_backward and not self.of_disclaimers:
            return False
        return variant in self.variants

    @property
    def remedy(self) -> str:
        """Advice on how a spec disclaims the claim. Empty: no key of the spec disclaims it."""
        if self.on_request:
            return f'if this is intended, remove "{self.name}" from orders'
        return f"if this is intended, set supports.{self.needs[-1]} = false" if self.needs else ""


BASIC = ("device_consistency", "purity", "nondeterminism")
SOUND = (*BASIC, "context", "needs_input_grad")
"""The checks that must pass for derivatives to be meaningful."""

jacobian = partial(CheckKind, implementation="opcheck.checks.jacobian.compare:check")
"""A check that compares Jacobians, or uses the evidence that is computed for them."""
of_function = partial(CheckKind, variants=("function",))
"""A check of the function alone, since its variants would give the same result."""
of_gradients = partial(of_function, needs=("backward",), rests_on=(*BASIC, "context"))
"""A check of the gradients of the function alone."""

BUILTIN = (
    jacobian(
        "backward",
        "the reverse-mode Jacobian equals the numerical one, also through non-contiguous cotangents",
        needs=("backward",),
        rests_on=SOUND,
        variants=("function", "inplace", "method"),
    ),
    jacobian(
        "forward_ad",
        "the forward-mode Jacobian equals the numerical one",
        needs=("forward_ad",),
        rests_on=(*BASIC, "context"),
        variants=("function", "inplace", "method"),
    ),
    CheckKind(
        "accuracy",
        "first and second derivatives have the digits that the arithmetic of their dtype allows",
        "opcheck.checks.jacobian.accuracy:check",
        needs=("backward",),
        rests_on=(*BASIC, "context"),
        applies=lambda operator: operator.has_leaves_in("strided", *SPARSE_LAYOUTS),  # each element can be perturbed
    ),
    of_function(
        "derived",
        "first derivatives are right at samples of other sizes, ranks, layouts and keywords, which opcheck derives",
        "opcheck.checks.jacobian.derived:check",
        needs=("backward",),
        rests_on=(*SOUND, "backward", "forward_ad"),
        applies=lambda operator: operator.has_varied_samples,
        least="standard",
    ),
    jacobian(
        "batched_grad",
        "the vmapped vjp equals the loop over it",
        needs=("backward", "batched_grad"),
        rests_on=(*BASIC, "backward"),
    ),
    jacobian(
        "batched_forward_grad",
        "the vmapped jvp equals the loop over it",
        needs=("forward_ad", "batched_forward_grad"),
        rests_on=(*BASIC, "forward_ad"),
    ),
    jacobian(
        "undefined_grad",
        "undefined cotangents and tangents are treated as zeros",
        needs=("backward", "undefined_grad"),
        rests_on=(*BASIC, "backward", "forward_ad"),
    ),
    CheckKind(
        "grad_dtypes",
        "each gradient has the dtype, shape, layout and device of its input",
        "opcheck.checks.jacobian.grad_dtypes:check",
        needs=("backward",),
        rests_on=BASIC,
    ),
    CheckKind(
        "nondeterminism",
        "running backward twice gives the same result",
        "opcheck.checks.behavior.nondeterminism:check",
        needs=("backward",),
        rests_on=("device_consistency", "purity"),
    ),
    CheckKind(
        "purity",
        "forward, backward and forward mode leave arguments, cotangents, tangents and captured tensors as they are",
        "opcheck.checks.behavior.purity:check",
        feature="arguments, cotangents and captured tensors left as they are",
        rests_on=("device_consistency",),
    ),
    of_function(
        "buffers",
        "buffers change in training mode only, have no graph, and the module can be called twice before backward",
        "opcheck.checks.behavior.buffers:check",
        applies=lambda operator: operator.spec.module is not None,
    ),
    of_function(
        "context",
        "values and gradients do not depend on modes (grad, inference, deterministic), autocast, threads, other calls",
        "opcheck.checks.behavior.context:check",
        feature="independence of modes, autocast, threads and other calls",
        rests_on=BASIC,
    ),
    of_gradients(
        "needs_input_grad",
        "gradients do not depend on which inputs require grad; an output requires grad only if an input does",
        "opcheck.checks.behavior.needs_input_grad:check",
    ),
    of_gradients(
        "linearity",
        "derivatives are linear in cotangents and tangents: at any scale, with NaN, lazy conj/neg, any memory layout",
        "opcheck.checks.behavior.linearity:check",
        feature="derivatives that are linear in cotangents and tangents",
    ),
    of_gradients(
        "saved",
        "changing a tensor in place before backward raises or has no effect; saved tensors are freed with the graph",
        "opcheck.checks.behavior.saved:check",
        feature="what is kept for backward is guarded against changes in place",
    ),
    of_gradients(
        "detached",
        "each output that depends on an input requires grad",
        "opcheck.checks.behavior.detached:check",
    ),
    of_gradients(
        "aliasing",
        "one tensor, or slices of it, may be several arguments; outputs share memory only as tracked views",
        "opcheck.checks.behavior.aliasing:check",
        feature="one tensor, or parts of it, in two places; memory shared with outputs",
    ),
    jacobian(
        "rev_over_rev",
        "the second derivative, reverse over reverse, equals the numerical one",
        needs=("backward", "second_order"),
        rests_on=(*SOUND, "saved", "backward"),
    ),
    jacobian(
        "fwd_over_rev",
        "the second derivative, forward over reverse, equals the numerical one",
        needs=("backward", "forward_ad", "second_order", "fwd_over_rev"),
        rests_on=(*SOUND, "saved", "backward", "forward_ad", "rev_over_rev"),
    ),
    jacobian(
        "rev_over_fwd",
        "the second derivative, reverse over forward, equals the numerical one",
        needs=("backward", "forward_ad", "second_order", "rev_over_fwd"),
        rests_on=(*SOUND, "forward_ad", "rev_over_rev"),
        applies=lambda operator: operator.has_leaves_in("strided"),
    ),
    jacobian(
        "fwd_over_fwd",
        "the second derivative, forward over forward, equals the numerical one",
        needs=("backward", "forward_ad", "second_order", "fwd_over_fwd"),
        rests_on=(*SOUND, "forward_ad", "rev_over_rev"),
        applies=lambda operator: operator.has_leaves_in("strided"),
    ),
    jacobian(
        "rev_over_rev_over_rev",
        "the third derivative, in reverse mode throughout, equals the numerical one",
        needs=("backward", "second_order", "third_order"),
        rests_on=(*SOUND, "saved", "backward", "rev_over_rev"),
        applies=lambda operator: operator.has_leaves_in("strided"),
    ),
    jacobian(
        "scalarized_second_order",
        "the gradient of the sum of all gradients equals the numerical one",
        needs=("backward", "second_order"),
        rests_on=(*SOUND, "saved", "backward", "rev_over_rev"),
        on_request=True,
    ),
    CheckKind(
        "masked",
        "derivatives of sparse inputs are right under masked and, where claimed, non-masked semantics",
        "opcheck.checks.jacobian.masked:check",
        needs=("backward", "masked"),
        may_be_wrong=True,
        applies=lambda operator: operator.has_sparse_samples,
    ),
    CheckKind(
        "unsupported",
        "what the spec disclaims is refused with an error, never answered with a wrong number",
        "opcheck.checks.behavior.unsupported:check",
        of_disclaimers=True,
    ),
    of_function(
        "low_precision_grad",
        "below double precision, outputs and first derivatives in both modes are right to rounding",
        "opcheck.checks.jacobian.low_precision_grad:check",
        needs=("backward",),
        dtypes="coarse",
        applies=lambda operator: not operator.spec.reseed,  # random values depend on the dtype
    ),
    of_function(
        "dtypes",
        "in each dtype claimed forward and backward work and values are right; with dtypes.exact, others are refused",
        "opcheck.checks.values.dtypes:check",
        dtypes="every",
    ),
    of_function(
        "variants",
        "function, method, in-place, out= and aliases give the same values",
        "opcheck.checks.values.variants:check",
        rests_on=("device_consistency",),
        dtypes="values",
        applies=lambda operator: operator.spec.module is None or operator.spec.aliases,  # modules have no variants
    ),
    of_function(
        "reference",
        "values agree with the reference",
        "opcheck.checks.values.reference:check",
        rests_on=("device_consistency",),
        dtypes="values",
        applies=lambda operator: operator.spec.reference is not None,
    ),
    of_function(
        "device_consistency",
        "outputs and gradients agree with those of the CPU in values, dtype, layout and shape",
        "opcheck.checks.values.device_consistency:check",
        dtypes="values",
        applies=lambda operator: operator.spec.devices is None or "cpu" in operator.spec.devices,
        beside_cpu=True,
    ),
    of_function(
        "vmap",
        "vmapping the operator equals looping over it",
        "opcheck.checks.behavior.vmap:check",
        needs=("vmap",),
        rests_on=("device_consistency",),
    ),
    of_function(
        "compile",
        "compiled by torch.compile, the operator gives the same values and gradients",
        "opcheck.checks.behavior.compile:check",
        feature="the same values and gradients under torch.compile",
        rests_on=(*BASIC, "context"),
        least="thorough",
    ),
    of_function(
        "errors",
        "the listed inputs raise the stated exception and message",
        "opcheck.checks.values.errors:check",
        dtypes="one",
        applies=lambda operator: operator.spec.errors,
    ),
    of_function(
        "registration",
        "schema, autograd registration, fake tensors and AOT dispatch pass torch.library.opcheck",
        "opcheck.checks.values.registration:check",
        dtypes="one",  # its case also tests samples in the other dtypes
        applies=lambda operator: operator.spec.is_registered,
    ),
)
