"""Measures which conditions the samples of an operator meet. A gradient wrong under any other condition would pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from opcheck.checks.attempts import Attempt, attempt, attempts
from opcheck.checks.looks import FIRST, look
from opcheck.checks.per_sample import PerSample, implementation
from opcheck.checks.subject import Context
from opcheck.mutation.call import Call
from opcheck.mutation.conditions import Condition, conditions
from opcheck.planning.case import Case
from opcheck.planning.expectations import is_about
from opcheck.planning.planner import plan
from opcheck.planning.selection import Selection
from opcheck.running.own_process import Ended
from opcheck.running.session import RunSession
from opcheck.samples.arguments import Signature, signature_of
from opcheck.samples.cache import Cache
from opcheck.spec.checks import Derive
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.library import Library, Operator, Sample
from opcheck.spec.render import render

State = Literal["met", "survived", "unreachable"]
Derivative = Literal["gradient", "tangent", "second derivative"]
"""The derivative that is wrong in a mutant."""
CHECKS: dict[Derivative, tuple[str, ...]] = {
    "gradient": ("backward", "low_precision_grad"),
    "tangent": ("forward_ad",),
    "second derivative": ("rev_over_rev",),
}
"""The checks that test each derivative at written samples. The first one that runs for an operator is used."""


@dataclass(frozen=True)
class Answer:
    """The result for one condition of an operator."""

    condition: str
    """The name of the condition."""
    state: State
    """met: a sample that counts, or a check, meets the condition. survived: neither does, but a sample that `thorough`
    derives would, or a check that does not run. unreachable: none of these would."""
    words: str = ""
    """The message, if the condition survived."""
    by: str = ""
    """The name of the sample or the check that meets the condition."""
    add: str = ""
    """A sample that would meet a condition that survived, as TOML. The operator passes there."""
    is_of_samples: bool = True
    """Whether samples meet the condition, rather than checks."""


@dataclass(frozen=True)
class Measured:
    """The results for all conditions of an operator."""

    operator: str
    """The id of the operator."""
    answers: tuple[Answer, ...]
    """One answer for each condition. Empty if no derivative is claimed, so that there is nothing to mutate."""

    def those(self, state: State) -> list[Answer]:
        """Return the answers with a given state."""
        return [answer for answer in self.answers if answer.state == state]


def score(measured: Iterable[Measured]) -> float:
    """Return the fraction of the conditions that are met, among those that are not unreachable; 1 if there are none."""
    answers = [answer for one in measured for answer in one.answers if answer.state != "unreachable"]
    return sum(answer.state == "met" for answer in answers) / len(answers) if answers else 1.0


@dataclass(frozen=True)
class Target:
    """An operator to mutate, and how."""

    operator: Operator
    device: DeviceProfile
    session: RunSession
    derive: Derive
    """Which derived samples count. For second derivatives, none do."""
    of: Derivative = "gradient"
    """The derivative that is wrong in a mutant."""

    @cached_property
    def planned(self) -> list[Case]:
        """The cases of the operator itself, without its variants."""
        library, selection = Library((self.operator,)), Selection(derive=self.derive, engine=self.session.engine)
        cases = plan(library, [self.device], selection, self.session.settings.seed)
        return [case for case in cases if case.variant.kind == "function"]

    @cached_property
    def looks(self) -> list[Case]:
        """The cases that test the derivative at written samples."""
        return next((own for name in CHECKS[self.of] if (own := self._of_check(name))), [])

    @cached_property
    def further(self) -> list[Case]:
        """The cases that test the derivative at derived samples."""
        return self._of_check("derived") if self.of != "second derivative" else []

    def _of_check(self, name: str) -> list[Case]:
        return [case for case in self.planned if case.check == name]

    @cached_property
    def signature(self) -> Signature:
        """The signature of the operator. Raises Unresolved."""
        case = self.looks[0]
        return signature_of(self.session.context(case).operator, case.variant.path)

    @cached_property
    def conditions(self) -> list[Condition]:
        """The conditions under which the derivative may be wrong."""
        listed = conditions(self.operator.samples, self.signature, self.looks[0].claims.backward)
        return [condition for condition in listed if self.of == "gradient" or not condition.checks]

    @cached_property
    def own(self) -> list[tuple[Context, Sample]]:
        """The written samples, each with the context of the first case that runs it."""
        own: dict[str, tuple[Context, Sample]] = {}
        for case in self.looks:
            context = self.session.context(case)
            for sample in context.case.samples:
                own.setdefault(sample.name, (context, sample))
        return list(own.values())

    def written(self) -> Iterator[Attempt]:
        """Yield calls at the written samples, except for those that an expectation (`expect`) is about."""
        for context, sample in self.own:
            if not any(is_about(expect, sample.name) for expect in context.case.expectations):
                yield attempt(context, sample, sample)

    def derived(self, wanted: Collection[Condition], *, thorough: bool) -> Iterator[Attempt]:
        """Yield calls at samples derived from the written ones, varied in the ways that may meet some conditions."""
        ways = {way for condition in wanted for way in condition.ways}
        for context, sample in self.own:
            yield from (tried for _, tried in attempts(context, sample, thorough, ways))


def measure(target: Target) -> Measured | Ended:
    """Return which conditions the samples of an operator meet, including derived samples.

    An operator that is wrong as it stands is not measured: samples at which it passes would hide what is wrong.
    """
    if not target.looks:
        return Measured(target.operator.id, ())
    written = list(target.written())
    for one in written:
        answer = look(one).answer
        if answer in FIRST and not _passes(one):
            return Ended(f"{answer} fails without a mutation, at the sample {one.written.name}: mend this first")
    met = _meeting(target, target.conditions, written, lambda _: True)
    if target.further and target.derive != "none":
        left = _without(target.conditions, met)
        met |= _meeting(target, left, target.derived(left, thorough=target.derive == "thorough"), _holds)
    other: dict[Condition, Sample] = {}
    if target.derive != "thorough":
        left = _without(target.conditions, met)
        further = target.derived(left, thorough=True)
        other = _meeting(target, left, further, lambda one: _holds(one) and _passes(one))
    answers = (_answer(one, met.get(one), other.get(one), target) for one in target.conditions)
    return Measured(target.operator.id, tuple(answers))


def _without(conditions: Iterable[Condition], met: Collection[Condition]) -> list[Condition]:
    return [condition for condition in conditions if condition not in met]


def _meeting(
    target: Target, wanted: Collection[Condition], tried: Iterable[Attempt], counts: Callable[[Attempt], bool]
) -> dict[Condition, Sample]:
    """Return, for each condition, the first sample that meets it and that `counts` accepts. Stops if all are met."""
    met: dict[Condition, Sample] = {}
    for one in tried if wanted else ():
        call = Call.of(one, target.signature)
        new = [condition for condition in _without(wanted, met) if call is not None and condition.met_by(call)]
        if new and counts(one):
            assert one.subject is not None, "there was a call"
            met |= dict.fromkeys(new, one.subject.sample)
            if len(met) == len(wanted):
                break
    return met


def _holds(tried: Attempt) -> bool:
    return look(tried).answer == "hold"


def _passes(tried: Attempt) -> bool:
    """Return whether the operator itself passes at a sample. An empty sample, which is not compared, passes."""
    assert tried.subject is not None
    context, sample = tried.subject.context, tried.subject.sample
    check: PerSample = implementation(context.case.kind)
    return check.verdict(replace(context, cache=Cache()), sample).passed


def _answer(condition: Condition, by: Sample | None, other: Sample | None, target: Target) -> Answer:
    """Return the answer for a condition.

    by: the first sample that meets it, if any.
    other: a sample that would meet it, but does not count.
    """
    name, said = condition.name, f"a {target.of} wrong {condition.words or f'for {condition.name}'} would pass"
    if not condition.checks:
        if by is not None:
            return Answer(name, "met", by=by.name)
        if other is None:
            return Answer(name, "unreachable")
        return Answer(name, "survived", f"{said}: add {_written(other)}", add=_written(other))
    if by is None:
        return Answer(name, "unreachable", is_of_samples=False)
    for case in target.planned:
        if case.check in condition.checks and condition.dtype in ("", case.dtype):
            return Answer(name, "met", by=case.check, is_of_samples=False)
    words = f"{said}: it takes the check {' or '.join(condition.checks)}, which does not run for it"
    return Answer(name, "survived", words, is_of_samples=False)


def _written(sample: Sample) -> str:
    """Return a sample as TOML, with its dtypes, if it is restricted to some."""
    shown = sample.toml()
    return shown if sample.dtypes is None else f"{shown[:-2]}, dtypes = {render(sample.dtypes)} }}"
