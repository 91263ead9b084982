"""The checks there are: the built-in ones, those of plugins, those that a project registers.

A check names its implementation by import path. It is imported when a case runs, so that planning needs no torch. A
plugin adds a check with an entry point of the group `opcheck.checks` that refers to a CheckKind, a project with
`opcheck.register_check`.
"""

from __future__ import annotations

from functools import lru_cache

from opcheck.plan.kind import (
    CheckKind,
    has_dense_samples,
    has_disclaimers,
    has_errors,
    has_movable_samples,
    has_reference,
    has_sparse_samples,
    has_ways_to_call,
    is_module,
    is_registered,
    runs_on_cpu,
)

BASIC = ("device_consistency", "purity", "nondeterminism")
SOUND = (*BASIC, "context", "needs_input_grad")
"""What calls must be like for derivatives to say something."""

BUILTIN = (
    CheckKind(
        "backward",
        "the reverse-mode Jacobian equals the numerical one, also through non-contiguous cotangents",
        "opcheck.checks.backward:check",
        "check_backward_ad",
        needs=("backward",),
        rests_on=SOUND,
        methods=True,
    ),
    CheckKind(
        "forward_ad",
        "the forward-mode Jacobian equals the numerical one",
        "opcheck.checks.forward_ad:check",
        "check_forward_ad",
        needs=("forward_ad",),
        rests_on=(*BASIC, "context"),
        methods=True,
    ),
    CheckKind(
        "accuracy",
        "first and second derivatives have the digits that the arithmetic of their dtype allows",
        "opcheck.checks.accuracy:check",
        needs=("backward",),
        rests_on=(*BASIC, "context"),
        applies=has_movable_samples,
    ),
    CheckKind(
        "batched_grad",
        "the vmapped vjp equals the loop over it",
        "opcheck.checks.batched_grad:check",
        "check_batched_grad",
        needs=("backward", "batched_grad"),
        rests_on=(*BASIC, "backward"),
    ),
    CheckKind(
        "batched_forward_grad",
        "the vmapped jvp equals the loop over it",
        "opcheck.checks.batched_forward_grad:check",
        "check_batched_forward_grad",
        needs=("forward_ad", "batched_forward_grad"),
        rests_on=(*BASIC, "forward_ad"),
    ),
    CheckKind(
        "undefined_grad",
        "undefined cotangents and tangents are treated as zeros",
        "opcheck.checks.undefined_grad:check",
        "check_undefined_grad",
        needs=("backward", "undefined_grad"),
        rests_on=(*BASIC, "backward", "forward_ad"),
    ),
    CheckKind(
        "grad_dtypes",
        "each gradient has the dtype, shape, layout and device of its input",
        "opcheck.checks.grad_dtypes:check",
        "check_grad_dtypes",
        needs=("backward",),
        rests_on=BASIC,
    ),
    CheckKind(
        "nondeterminism",
        "running backward twice gives the same result",
        "opcheck.checks.nondeterminism:check",
        "nondet_tol",
        needs=("backward",),
        rests_on=("device_consistency", "purity"),
    ),
    CheckKind(
        "purity",
        "forward, backward and forward mode leave arguments, cotangents, tangents and captured tensors as they are",
        "opcheck.checks.purity:check",
        needs=("purity",),
        rests_on=("device_consistency",),
    ),
    CheckKind(
        "buffers",
        "a module changes its buffers in training mode only",
        "opcheck.checks.buffers:check",
        every_variant=False,
        applies=is_module,
    ),
    CheckKind(
        "context",
        "values and gradients do not depend on grad mode, inference mode, autocast, threads, or other calls",
        "opcheck.checks.calling_context:check",
        needs=("context",),
        rests_on=BASIC,
        every_variant=False,
    ),
    CheckKind(
        "needs_input_grad",
        "each input alone requiring grad, and all of them, give the same gradients; nothing else requires grad",
        "opcheck.checks.needs_input_grad:check",
        needs=("backward",),
        rests_on=(*BASIC, "context"),
        every_variant=False,
    ),
    CheckKind(
        "linearity",
        "derivatives are linear in cotangents and tangents, large, small, negative, lazily conjugated or negated",
        "opcheck.checks.linearity:check",
        needs=("backward",),
        rests_on=(*BASIC, "context"),
        every_variant=False,
    ),
    CheckKind(
        "saved",
        "a tensor changed in place between forward and backward makes backward raise, or does not matter",
        "opcheck.checks.saved:check",
        needs=("backward", "saved"),
        rests_on=(*BASIC, "context"),
        every_variant=False,
    ),
    CheckKind(
        "detached",
        "each output that depends on an input requires grad",
        "opcheck.checks.detached:check",
        needs=("backward",),
        rests_on=(*BASIC, "context"),
        every_variant=False,
    ),
    CheckKind(
        "aliasing",
        "one tensor in two places has the sum of both gradients; outputs share no memory behind autograd's back",
        "opcheck.checks.aliasing:check",
        needs=("backward", "aliasing"),
        rests_on=(*BASIC, "context"),
        every_variant=False,
    ),
    CheckKind(
        "rev_over_rev",
        "the second derivative, reverse over reverse, equals the numerical one",
        "opcheck.checks.rev_over_rev:check",
        "check_rev_over_rev",
        needs=("backward", "second_order"),
        rests_on=(*SOUND, "saved", "backward"),
    ),
    CheckKind(
        "fwd_over_rev",
        "the second derivative, forward over reverse, equals the numerical one",
        "opcheck.checks.fwd_over_rev:check",
        "check_fwd_over_rev",
        needs=("backward", "forward_ad", "second_order", "fwd_over_rev"),
        rests_on=(*SOUND, "saved", "backward", "forward_ad", "rev_over_rev"),
    ),
    CheckKind(
        "rev_over_fwd",
        "the second derivative, reverse over forward, equals the numerical one",
        "opcheck.checks.higher_order:check",
        needs=("backward", "forward_ad", "second_order", "rev_over_fwd"),
        rests_on=(*SOUND, "forward_ad", "rev_over_rev"),
        applies=has_dense_samples,
    ),
    CheckKind(
        "fwd_over_fwd",
        "the second derivative, forward over forward, equals the numerical one",
        "opcheck.checks.higher_order:check",
        needs=("backward", "forward_ad", "second_order", "fwd_over_fwd"),
        rests_on=(*SOUND, "forward_ad", "rev_over_rev"),
        applies=has_dense_samples,
    ),
    CheckKind(
        "rev_over_rev_over_rev",
        "the third derivative, in reverse mode throughout, equals the numerical one",
        "opcheck.checks.higher_order:check",
        needs=("backward", "second_order", "third_order"),
        rests_on=(*SOUND, "saved", "backward", "rev_over_rev"),
        applies=has_dense_samples,
    ),
    CheckKind(
        "scalarized_second_order",
        "the gradient of the sum of all gradients equals the numerical one",
        "opcheck.checks.higher_order:check",
        needs=("backward", "second_order"),
        rests_on=(*SOUND, "saved", "backward", "rev_over_rev"),
        asked=True,
    ),
    CheckKind(
        "masked",
        "derivatives of sparse inputs are right under masked and, where claimed, non-masked semantics",
        "opcheck.checks.masked:check",
        "masked",
        needs=("backward", "masked"),
        applies=has_sparse_samples,
    ),
    CheckKind(
        "unsupported",
        "what the spec disclaims is refused with an error, never answered with a wrong number",
        "opcheck.checks.unsupported:check",
        applies=has_disclaimers,
    ),
    CheckKind(
        "dtypes",
        "values and gradients are right to rounding in each dtype claimed; with dtypes.exact, all others are refused",
        "opcheck.checks.dtypes:check",
        dtypes="every",
        every_variant=False,
    ),
    CheckKind(
        "variants",
        "function, method, in-place, out= and aliases give the same values",
        "opcheck.checks.variants:check",
        rests_on=("device_consistency",),
        dtypes="values",
        every_variant=False,
        applies=has_ways_to_call,
    ),
    CheckKind(
        "reference",
        "values agree with the reference",
        "opcheck.checks.reference:check",
        rests_on=("device_consistency",),
        dtypes="values",
        every_variant=False,
        applies=has_reference,
    ),
    CheckKind(
        "device_consistency",
        "outputs and gradients agree with those of the CPU in values, dtype, layout, shape and strides",
        "opcheck.checks.device_consistency:check",
        dtypes="values",
        every_variant=False,
        applies=runs_on_cpu,
        beside_cpu=True,
    ),
    CheckKind(
        "vmap",
        "vmapping the operator equals looping over it",
        "opcheck.checks.vmap:check",
        needs=("vmap",),
        rests_on=("device_consistency",),
        every_variant=False,
    ),
    CheckKind(
        "errors",
        "the listed inputs raise the stated exception and message",
        "opcheck.checks.errors:check",
        dtypes="one",
        every_variant=False,
        applies=has_errors,
    ),
    CheckKind(
        "registration",
        "schema, autograd registration, fake tensors and AOT dispatch pass torch.library.opcheck",
        "opcheck.checks.registration:check",
        every_variant=False,
        applies=is_registered,
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
