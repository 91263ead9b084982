"""The checks that compare Jacobians with finite differences (`backward`, `fwd_over_rev`, ...), and those of gradients.

The latter test other properties than values: gradients can be batched, and undefined cotangents count as zeros.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from opcheck.checks.calls import differentiate
from opcheck.checks.per_sample import PerSample
from opcheck.checks.pictured import pictured
from opcheck.checks.plain_torch import CALL, asserted, for_vectors
from opcheck.checks.subject import Subject
from opcheck.checks.truth import differentiable_reference
from opcheck.checks.verdict import (
    EMPTY_DERIVATIVE,
    HOLDS,
    NO_DERIVATIVE,
    NO_GRAPH,
    Verdict,
    cannot,
    fails,
    inapplicable,
    inconclusive,
    out_of_reach,
    refused,
    remedy,
)
from opcheck.derivatives import Disagreement, by_torch
from opcheck.derivatives.autodiff import Function, functions_in
from opcheck.derivatives.check_claim import (
    check_claim,
    derivative_named,
    derivative_of,
    extent_compared,
    lets_wrong_sign_pass,
)
from opcheck.derivatives.coordinates import are_strided
from opcheck.derivatives.disagreement import Mismatch
from opcheck.derivatives.gradients import attributes, memory_of_cotangents
from opcheck.derivatives.sparse import are_movable
from opcheck.strides import MEMORIES

REMEDY = 'if the gradient is meant to differ from the derivative, write surrogate = "..." with a function that has it'
OF_NAN = (
    "if the operator is not meant for such inputs, let it raise an error, or restrict the sample: low and high bound "
    "its numbers, and vary limits what opcheck changes"
)
OF_NO_GRAD = "torch.no_grad() does not hold anything constant in forward mode, .detach() does so in both modes"
ADVICE = (REMEDY, OF_NAN, OF_NO_GRAD)
"""The last lines of messages about Jacobians that differ."""
OF_SPARSE = ("backward", "forward_ad", "rev_over_rev", "fwd_over_rev")
"""The derivatives that are also tested for sparse inputs."""
NO_DOUBLE_JVP = (
    "torch cannot take the jvp of the jvp of an autograd.Function: it gives zeros, and without setup_context raises"
)

WITHOUT_A_GRAPH = ("backward", "forward_ad", "batched_forward_grad")
"""Checks that compare something even if no output requires grad: the derivative must then be zero."""


OF_COARSE = "take {} out of dtypes.forward, or state tolerance.eps, atol and rtol as for float32"
OF_COARSE_FIRST = "let the first derivative compute in {}, or state tolerance.eps, atol and rtol as for float32"
MOST_LINES = 40
"""The maximum number of lines of an explanation that are shown."""
INCONCLUSIVE = ("inconclusive", "coarse")
"""The kinds of disagreement that do not show whether a derivative is wrong."""


def compared(subject: Subject) -> Verdict:
    """Return the verdict on the claim of the check, about a Jacobian or about gradients, at one sample."""
    check, outputs = subject.check, subject.output_info
    if derivative_named(check) is not None:
        if check not in OF_SPARSE and not are_strided(subject.leaves):
            return inapplicable("derivatives of higher order are taken of dense inputs only")
        if check == "fwd_over_fwd" and functions_in(subject.outputs):
            return out_of_reach(NO_DOUBLE_JVP)
        if subject.too_coarse:
            return inapplicable(subject.too_coarse)
    if not outputs.has_derivative:
        return NO_DERIVATIVE
    if not outputs.requires_grad and check not in WITHOUT_A_GRAPH:
        return NO_GRAPH
    if blind := too_wide_tolerances(subject):
        return blind
    # If the Jacobian is too large to compare entry by entry, gradients are compared with those of the reference, too.
    reference = differentiable_reference(subject) if check == "backward" else None
    disagreement = disagreement_on(subject, check, None if reference is None else reference.function)
    if disagreement is None and not outputs.differentiable:
        return EMPTY_DERIVATIVE
    times = {"rev_over_rev": 2, "rev_over_rev_over_rev": 3}.get(check)
    if disagreement is not None and times and disagreement.kind not in INCONCLUSIVE:
        differentiate(subject, times)  # @once_differentiable raises here, which is clearer than zeros
    verdict = HOLDS if disagreement is None else _verdict_on(subject, disagreement)
    extent = None if subject.context.by_torch else extent_compared(check, subject.point)
    if extent not in ("structured", "projected"):
        return verdict
    return replace(verdict, fields={**verdict.fields, "jacobian": extent})


def disagreement_on(subject: Subject, check: str, reference: Function | None = None) -> Disagreement | None:
    """Return why the claim of a check, about a Jacobian or about gradients, does not hold at a sample, or None.

    torch's own functions test the claim with `--engine torch`, in fast mode, and at leaves whose elements cannot be
    moved. If they cannot, opcheck tests it in fast mode, and CannotAsk is raised in the two other cases. Passes on the
    exceptions of the operator.

    reference: the differentiable reference, see `check_claim`.
    """
    context, spec, overrides = subject.context, subject.case.operator.spec, subject.context.overrides
    point, numbers, supports, settings = subject.point, subject.numbers, subject.supports, spec.gradcheck
    generated = settings.gen_non_contig_grad_outputs
    non_contiguous = (False, True) if generated == "both" else (generated,)
    fast_mode = bool(overrides.get("fast_mode", settings.fast_mode))
    movable = are_movable(subject.leaves)
    if context.by_torch or fast_mode or not movable:
        try:
            disagreement = by_torch.check_claim(
                check, subject.function, subject.leaves, numbers, grad_outputs=subject.inputs.grad_outputs,
                masked=subject.function.masked, fast_mode=fast_mode,
                raise_exception=bool(overrides.get("raise_exception", settings.raise_exception)),
                forward_ad=supports.forward_ad, undefined_grad=supports.undefined_grad, non_contiguous=non_contiguous,
            )  # fmt: skip
        except by_torch.CannotAsk:
            if context.by_torch or not movable:
                raise
        else:
            left_out = None if context.by_torch else LEFT_OUT_BY_TORCH.get(check)
            return disagreement or (left_out(point) if left_out else None)
    return check_claim(
        check, point, numbers, expected=subject.expected, forward_ad=supports.forward_ad,
        undefined_grad=supports.undefined_grad, non_contiguous=non_contiguous, whole=spec.orders, reference=reference,
    )  # fmt: skip


LEFT_OUT_BY_TORCH = {"backward": memory_of_cotangents, "grad_dtypes": attributes}
"""The tests of those parts of a claim that torch's functions leave out."""


def too_wide_tolerances(subject: Subject) -> Verdict | None:
    """Return an error if tolerances are so wide that a gradient of the wrong sign would pass, else None.

    The error names where the tolerances were set: on the command line, or in the spec.
    """
    context = subject.context
    if not (context.wide and lets_wrong_sign_pass(subject.check, subject.point, subject.numbers)):
        return None
    operator, numbers = context.case.operator, subject.numbers
    own = ("tolerance",) if "tolerance" in operator.spec.model_fields_set else ("name",)
    place = operator.problem(own, f"atol = {numbers.atol:g} and rtol = {numbers.rtol:g}")
    text = str(place) if not WIDTHS_OF_DERIVATIVES & set(context.overrides) else place.what
    return cannot(f"{subject.check}: a gradient of the wrong sign would pass: {text}", NARROWER)


WIDTHS_OF_DERIVATIVES = {"atol", "rtol"}
NARROWER = (
    "every entry of the Jacobian is smaller than the tolerance, so that -J would pass, too: reduce atol and rtol, or "
    "use samples with larger derivatives"
)


def _verdict_on(subject: Subject, disagreement: Disagreement) -> Verdict:
    kind = subject.case.kind
    first, *others = [line for line in disagreement.text.splitlines() if line.strip()]
    title = f"{kind.name}: {first.strip()[:300]}"
    rest = "\n".join(others[:MOST_LINES] + (["..."] if len(others) > MOST_LINES else []))
    if disagreement.kind == "coarse":
        dtype = subject.case.dtype
        if "second_order" in kind.needs:  # of outputs that are coarse, the checks of first order say so
            return inconclusive(title, OF_COARSE_FIRST.format(dtype))
        return inconclusive(title, OF_COARSE.format(dtype), **remedy("dtypes.forward", f"-{dtype}"))
    if disagreement.kind == "inconclusive":
        return inconclusive(title, rest)
    cause, code = disagreement.cause, _code(kind.name, disagreement.memory)
    if disagreement.kind == "refused":
        return refused(kind, title, code=code, cause=cause)
    if disagreement.mismatch is None:
        return fails(title, rest, code=code, cause=cause, **_jacobians(disagreement))
    numbers = subject.numbers
    least = "error of finite differences" if disagreement.below_atol else f"{numbers.atol:g}"
    allowed = f"allowed: {least} + {numbers.rtol:g} |numerical|, step {numbers.eps:g}"
    random = next((finding.text for finding in disagreement.findings if finding.kind == "random"), "")
    title = f"{kind.name}: {random or _headline(kind.name, kind.claim)}"
    is_nan = any(finding.kind == "nan" for finding in disagreement.findings)
    if is_nan:
        title += f": {disagreement.worst[0].describe()}" if disagreement.worst else ""
    lines = [line for line in disagreement.text.splitlines() if not random or random not in line]  # it is in the title
    advice = OF_NAN if is_nan else REMEDY
    if subject.function.surrogate_operator is not None:
        advice = OF_NO_GRAD if kind.name == "forward_ad" else ""
    lines += [allowed, *([advice] if advice and not random else [])]
    return fails(title, "\n".join(lines), **_fields(disagreement.mismatch, disagreement))


BATCHED = f"""\
{CALL}batch = [torch.stack([v, 2 * v]) for v in cotangents]
actual = torch.func.vmap(lambda *vs: pulled(outputs, inputs, vs))(*batch)
expected = [torch.stack([g, 2 * g]) for g in pulled(outputs, inputs, cotangents)]"""


def _code(check: str, memory: str) -> str:
    """Return plain-torch code for a check of gradients, which compares no Jacobians; empty if there is none."""
    if check == "batched_grad":
        return asserted(BATCHED)
    return asserted(for_vectors(MEMORIES[memory].code)) if memory else ""


def _headline(check: str, claim: str) -> str:
    steps, mode = derivative_of(check)
    if steps not in ((), ("rev",)):
        return claim.replace("equals the numerical one", "is not the numerical one")
    what = "Jacobian of the backward pass" if steps else "Jacobian"
    return f"the {mode}-mode {what} is not the numerical one"


def _fields(mismatch: Mismatch, disagreement: Disagreement) -> dict[str, Any]:
    worst = mismatch.worst
    of_entry = ("output", "leaf", "numerical", "analytical", "name", "leaf_name")
    fields: dict[str, Any] = {key: getattr(worst, key) for key in of_entry}
    fields |= {key: getattr(mismatch, key) for key in ("row", "column", "wrong", "entries")}
    if disagreement.findings:
        fields["diagnosis"] = [asdict(finding) for finding in disagreement.findings]
    if disagreement.worst:
        fields["worst"] = [asdict(entry) for entry in disagreement.worst]
    return fields | _jacobians(disagreement)


def _jacobians(disagreement: Disagreement) -> dict[str, Any]:
    return {"jacobians": pictured(disagreement.pair)} if disagreement.pair is not None else {}


check = PerSample(compared)
