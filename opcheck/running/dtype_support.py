"""Replaces failures by their common cause, if an operator refuses a dtype or has no derivative in it.

Many checks then fail. With a common cause, reports show the change that the spec needs once, not for each check and
dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch

from opcheck.checks.calls import has_tangents
from opcheck.checks.subject import Context, Subject
from opcheck.derivatives import NO_REFUSAL, tried
from opcheck.planning.case import Case
from opcheck.running.outcome import Outcome
from opcheck.samples.cache import Cache
from opcheck.samples.results import Untestable
from opcheck.spec.dtypes import grouped, is_differentiable
from opcheck.spec.library import Sample
from opcheck.spec.render import render
from opcheck.text import one_line

Answer = Literal["works", "has no graph", "refuses", "unknown"]

OF_NO_GRAPH = ("backward", "forward_ad", "batched_forward_grad", "detached", "dtypes")
"""The checks that rightly fail if the spec claims a derivative that the operator does not have."""
OF_NO_SAMPLE = ("errors", "registration")
"""The checks that do not call the operator with its samples."""


@dataclass(frozen=True)
class Support:
    """How an operator handles one dtype, independent of the check."""

    answer: Answer
    has_tangent: bool = False
    """Whether an output has a tangent (forward mode), although no output requires grad."""
    in_place: bool = False
    """Whether the operator returns its first argument: torch rejects in-place calls on leaves that require grad."""
    why: str = ""
    """The exception by which the operator refuses the dtype, or inputs that require grad, in one line; or empty."""


def with_common_cause(outcome: Outcome, context: Context) -> Outcome:
    """Return a bad outcome with its cause, if the operator refuses the dtype or lacks a derivative that is claimed.

    An error of another check than `dtypes` then becomes `blocked` by `dtypes`. Outcomes without such a cause are
    returned unchanged.
    """
    case = context.case
    if outcome.outcome not in ("failed", "error", "blocked") or case.dtype not in case.claims.forward:
        return outcome
    of_derivatives = case.kind.dtypes in ("derivative", "coarse") or case.check == "dtypes"
    follows = {
        "refuses": case.check not in OF_NO_SAMPLE,
        "has no graph": of_derivatives and (outcome.outcome != "failed" or case.check in OF_NO_GRAPH),
    }
    cause = _cause(context) if follows.get(_support(context, case.dtype).answer) else ""
    if not cause:
        return outcome
    outcome = replace(outcome, message=f"{case.id}: {cause}", fields={**outcome.fields, "cause": cause})
    if outcome.outcome == "error" and case.check != "dtypes":
        return replace(outcome, outcome="blocked", fields={**outcome.fields, "blocked_by": "dtypes"})
    return outcome


def _cause(context: Context) -> str:
    """Return a message with the change that the spec needs, and the reasons.

    Return an empty string if the operator works in none of the claimed dtypes.
    """
    case = context.case
    support_of = {dtype: _support(context, dtype) for dtype in case.claims.forward}
    refused = [dtype for dtype, support in support_of.items() if support.answer == "refuses"]
    works = [dtype for dtype in support_of if support_of[dtype].answer in ("works", "has no graph")]
    bare = [dtype for dtype in works if support_of[dtype].answer == "has no graph"]
    pulled = [dtype for dtype in works if dtype in case.claims.backward and dtype not in bare]
    if not works:
        return ""
    entries: dict[str, Any] = {}
    listed = case.claims.supports.backward if isinstance(case.claims.supports.backward, tuple) else ()
    if refused or (bare and pulled):
        dtypes: dict[str, Any] = {"forward": grouped(works)}
        if pulled and pulled != list(filter(is_differentiable, works)):
            dtypes["backward"] = grouped(pulled)
        if case.claims.exact:
            dtypes["exact"] = True
        entries["dtypes"] = dtypes
    if bare and not pulled and support_of[bare[0]].in_place:
        entries["inplace"] = True
    elif bare and not pulled and not listed:
        has_tangent = any(support_of[dtype].has_tangent for dtype in bare)
        entries["supports"] = {"backward": False} if has_tangent else {"backward": False, "forward_ad": False}
    reasons = [f"it refuses {', '.join(refused)} ({support_of[refused[0]].why})"] if refused else []
    if "inplace" in entries:
        reasons.append("it returns its first argument, and refuses one that requires grad")
    elif bare:
        why = support_of[bare[0]].why
        reason = f"it refuses inputs that require grad ({why})" if why else "no output requires grad"
        reason += f" by {', '.join(map(str, listed))} alone" if listed else ""
        reasons.append(reason + (f" in {', '.join(bare)}" if pulled else ""))
    document, span = case.operator.document, case.operator.span
    place, advice = "", _called(entries)
    if document.text:  # it comes from a spec
        place, advice = f"{document.file}:{span.line}:{span.column}: ", f"write {_written(case, entries)}"
    if not entries:
        advice = "list the arguments that have a gradient in supports.backward"
    return f"{place}{case.operator.id}: {advice}: {', and '.join(reasons)}"


def _called(entries: Mapping[str, Any]) -> str:
    """Return how to change a call of `opcheck.check`, instead of keys of a spec."""
    if "inplace" in entries:
        return "wrap it as `lambda x: function(x.clone())`"
    claims = dict(entries)
    if "dtypes" in claims:
        claims["dtypes"] = claims["dtypes"].get("backward", claims["dtypes"]["forward"])
    return "pass " + " and ".join(f"{key}={value!r}" for key, value in claims.items())


def _written(case: Case, entries: Mapping[str, Any]) -> str:
    """Return keys of the spec as TOML. `supports` keeps the entries that the spec has already."""
    if case.device.name != "cpu":
        return f"per_device.{case.device.name} = {render(entries)}"
    if "supports" in entries:
        entries = {**entries, "supports": case.operator.spec.supports.model_copy(update=entries["supports"])}
    return " and ".join(f"{key} = {render(value)}" for key, value in entries.items())


def _support(context: Context, dtype: str) -> Support:
    """Return how an operator handles a dtype: call it with each sample, as a function, until one works.

    Samples that cannot be made, or whose outputs have no elements, are ignored, since they prove nothing.
    """
    case = replace(context.case, dtype=dtype, variant=context.case.operator.variants[0])
    context = replace(context, case=case, cache=Cache(), requires_grad=False)
    differentiable = dtype in case.claims.backward and case.claims.supports.backward is not False
    support = Support("unknown")
    for sample in context.case.samples:
        try:
            subject = context.subject(sample)
        except Exception:
            continue  # the sample cannot be made, which says nothing about the operator
        try:
            with torch.no_grad():
                telling = any(output.numel() for output in subject.outputs)
        except (*NO_REFUSAL, Untestable):
            continue
        except Exception as error:
            support = support if support.answer == "has no graph" else Support("refuses", why=one_line(error))
            continue
        if not telling:
            continue
        has_graph = differentiable and tried(
            partial(_has_graph, replace(context, requires_grad=True), sample), catch_out_of_memory=True
        )
        if not differentiable or has_graph is True:
            return Support("works")
        has_tangent = support.has_tangent or tried(partial(has_tangents, subject)) is True
        why = one_line(has_graph) if isinstance(has_graph, Exception) else ""
        support = Support("has no graph", has_tangent, _returns_first(subject), why)
    return support


def _has_graph(context: Context, sample: Sample) -> bool:
    """Return whether an output requires grad; true if there are no leaves. Passes on exceptions of the operator."""
    subject = context.subject(sample)
    return not subject.leaves or subject.output_info.requires_grad


def _returns_first(subject: Subject) -> bool:
    args, kwargs = subject.inputs.fill([leaf.detach().clone() for leaf in subject.leaves])
    returned = tried(lambda: subject.function.called(args, kwargs))
    return isinstance(returned, torch.Tensor) and any(returned is arg for arg in args[:1])
