"""Puts a claim about derivatives to the engine, and makes a verdict of its answer."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Literal

from opcheck.checks.pictured import pictured
from opcheck.checks.subject import Subject
from opcheck.checks.verdict import HOLDS, Verdict, cannot, fails, refused, untested
from opcheck.derivatives import Disagreement
from opcheck.derivatives.disagreement import Mismatch
from opcheck.derivatives.question import Function

Mode = Literal["reverse", "forward"]

WITHOUT_A_GRAPH = ("backward", "forward_ad", "batched_forward_grad")
"""Checks that compare something even if no output requires grad: the derivative must then be zero."""


def engine_verdict(
    subject: Subject, mode: Mode | None = None, *, order: int = 1, reference: Function | None = None
) -> Verdict:
    """Ask the engine whether the claim of the case holds at a sample.

    mode, order: of the Jacobian that the check is about, for the message; None: of none in particular.
    reference: another function of the leaves, for a second look at what is too large to be compared entry by entry.
    """
    check, outputs = subject.context.case.check, subject.output_info
    if not outputs.has_derivative:
        return untested("no output is of a floating or complex dtype")
    if not outputs.requires_grad and check not in WITHOUT_A_GRAPH:
        return untested("no output requires grad: there is no backward pass")
    if subject.context.wide and subject.context.default_engine.excuses_wrong_sign(check, subject.request):
        return _blind(subject)
    engine = subject.context.engine
    found = engine.ask(check, subject.request.with_(reference=reference))
    fields = {"jacobian": engine.compared} if engine.compared in ("structured", "projected") else {}
    if found is None and not outputs.differentiable:
        return untested("the outputs that have a derivative are empty")
    if found is None:
        return Verdict(True, fields=fields) if fields else HOLDS
    verdict = _contradicted(subject, found, mode, order)
    return replace(verdict, fields={**verdict.fields, **fields}) if fields else verdict


def _blind(subject: Subject) -> Verdict:
    """Return that the tolerances say nothing: those of the command line, else those of the spec."""
    context, numbers = subject.context, subject.request.numbers
    operator = context.case.operator
    own = ("tolerance",) if "tolerance" in operator.spec.model_fields_set else ("name",)
    place = operator.problem(own, f"atol = {numbers.atol:g} and rtol = {numbers.rtol:g}")
    text = str(place) if not WIDTHS_OF_DERIVATIVES & set(context.overrides) else place.what
    return cannot(f"{context.case.check}: a gradient of the wrong sign would pass: {text}", NARROWER)


WIDTHS_OF_DERIVATIVES = {"atol", "rtol"}
NARROWER = (
    "each entry of the Jacobian is within the tolerance of its negative: state smaller ones, or samples with larger "
    "derivatives"
)


def _contradicted(subject: Subject, found: Disagreement, mode: Mode | None, order: int) -> Verdict:
    kind = subject.context.case.kind
    title, rest = f"{kind.name}: {_first_line(found.text)}", _rest(found.text)
    if found.kind == "inconclusive":
        return Verdict(False, title, rest, inconclusive=True)
    if found.kind == "refused":
        return refused(kind, title)
    if found.mismatch is None:
        return fails(title, rest, **_jacobians(found))
    numbers = subject.request.numbers
    least = "what differences cannot tell" if found.below_atol else f"{numbers.atol:g}"
    allowed = f"allowed: {least} + {numbers.rtol:g} |numerical|, step {numbers.eps:g}"
    told = next((finding.text for finding in found.findings if finding.kind == "random"), "")
    title = f"{kind.name}: {told or _headline(kind.claim, mode, order)}"
    if any(finding.kind == "nan" for finding in found.findings):
        title += f": {found.worst[0].describe()}" if found.worst else ""
    return fails(title, f"{found.shown()}\n{allowed}", **_fields(found.mismatch, found))


def _headline(claim: str, mode: Mode | None, order: int) -> str:
    if mode is None:
        return claim.replace("equals the numerical one", "is not the numerical one")
    what = "Jacobian" if order == 1 else "Jacobian of the backward pass"
    return f"the {mode}-mode {what} is not the numerical one"


def _fields(mismatch: Mismatch, found: Disagreement) -> dict[str, Any]:
    worst = mismatch.worst
    fields: dict[str, Any] = {
        "output": worst.output,
        "leaf": worst.leaf,
        "row": mismatch.row,
        "column": mismatch.column,
    }
    fields |= {"numerical": worst.numerical, "analytical": worst.analytical}
    fields |= {"wrong": mismatch.wrong, "entries": mismatch.entries}
    fields |= {"name": worst.name, "leaf_name": worst.leaf_name}
    if found.findings:
        fields["diagnosis"] = [asdict(finding) for finding in found.findings]
    if found.worst:
        fields["worst"] = [asdict(entry) for entry in found.worst]
    return fields | _jacobians(found)


def _jacobians(found: Disagreement) -> dict[str, Any]:
    return {"jacobians": pictured(found.pair)} if found.pair is not None else {}


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else "no explanation"


def _rest(text: str, most: int = 40) -> str:
    lines = [line for line in text.splitlines() if line.strip()][1:]
    return "\n".join(lines[:most] + (["..."] if len(lines) > most else []))
