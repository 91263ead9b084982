"""Measures which conditions the samples of an operator meet. A gradient that is wrong under another one would pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from opcheck.checks.base import Context
from opcheck.checks.jacobian.derived import HUGE, variations
from opcheck.checks.judging import PerSample, implementation
from opcheck.mutation.call import Call, Signature, called, tells_of_derivatives
from opcheck.mutation.conditions import Condition, conditions
from opcheck.planning.case import Case
from opcheck.planning.expectations import about, samples_to_run
from opcheck.planning.planner import plan
from opcheck.planning.selection import Selection
from opcheck.running.session import RunSession
from opcheck.samples.cache import Cache
from opcheck.samples.derive import LARGEST
from opcheck.spec.checks import Derive
from opcheck.spec.device import DeviceProfile
from opcheck.spec.library import Library, Operator, Sample

State = Literal["met", "survived", "unreachable"]
Derivative = Literal["gradient", "tangent", "second derivative"]
"""What a mutant has wrong."""
CHECKS: dict[Derivative, tuple[str, ...]] = {
    "gradient": ("backward", "low_precision_grad"),
    "tangent": ("forward_ad",),
    "second derivative": ("rev_over_rev",),
}
"""The checks that notice it at a sample; the first that an operator has."""
MOST_CHANGED = 60
"""The most samples that are made for one condition, before those that `thorough` derives are tried."""
MOST_DERIVED = 400
"""The most samples of `thorough` that are tried for one operator."""


@dataclass(frozen=True)
class Answer:
    """What became of one condition of an operator."""

    condition: Condition
    state: State
    """survived: no sample that counts meets it, but one could; unreachable: none of those tried does."""
    by: str = ""
    """What meets it: a sample, or a check."""
    sample: Sample | None = None
    """A sample that would meet it, and at which the operator is right, where it survived."""
    of: Derivative = "gradient"

    @property
    def words(self) -> str:
        """What is to be said of a survivor."""
        said = f"a {self.of} wrong {self.condition.words} would pass"
        if self.sample is not None:
            return f"{said}: add {written(self.sample)}"
        return f"{said}: it takes the check {' or '.join(self.condition.checks)}, which does not run for it"


def written(sample: Sample) -> str:
    """Return a sample as TOML, with the dtypes that it is meant for."""
    shown = sample.toml()
    return shown if sample.dtypes is None else f"{shown[:-2]}, dtypes = {list(sample.dtypes)} }}".replace("'", '"')


@dataclass(frozen=True)
class Measured:
    """What became of all conditions of an operator."""

    operator: Operator
    answers: tuple[Answer, ...]
    cases: tuple[Case, ...] = field(default=(), repr=False)
    """The cases that look at the derivative."""
    of: Derivative = "gradient"

    def those(self, state: State) -> list[Answer]:
        """Return the conditions that are met, survived or are unreachable."""
        return [answer for answer in self.answers if answer.state == state]


def score(measured: Iterable[Measured]) -> float:
    """Return the share of the conditions met among those that samples can meet; 1 if there are none."""
    answers = [answer for one in measured for answer in one.answers if answer.state != "unreachable"]
    return sum(answer.state == "met" for answer in answers) / len(answers) if answers else 1.0


def measure(
    operator: Operator, device: DeviceProfile, session: RunSession, derive: Derive, of: Derivative = "gradient"
) -> Measured:
    """Return which conditions are met by the samples of an operator, those derived from them among them.

    derive: which derived samples count: none, standard or thorough. Second derivatives are looked at at none of them.
    of: what would be wrong.
    """
    cases = plan(Library((operator,)), [device], Selection(derive=derive), session.settings.seed)
    planned = [case for case in cases if case.variant.kind == "function"]
    looks = next((own for name in CHECKS[of] if (own := [case for case in planned if case.check == name])), [])
    if not looks:
        return Measured(operator, ())
    further = [case for case in planned if case.check == "derived" and of != "second derivative"]
    samples = Samples.of(looks, session)
    listed = list(conditions(operator.samples, samples.signature, looks[0].claims.backward))
    listed = [condition for condition in listed if of == "gradient" or not condition.checks]
    counted = _met(listed, samples.counted(derive if further else "none"))
    answers = [_answer(condition, counted.get(condition), planned) for condition in listed]
    left = [answer.condition for answer in answers if answer.state == "unreachable" and not answer.condition.checks]
    killed = dict(samples.killers(left))
    final = [
        replace(answer, state="survived", sample=killed[answer.condition]) if answer.condition in killed else answer
        for answer in answers
    ]
    return Measured(operator, tuple(replace(answer, of=of) for answer in final), (*looks, *further), of)


def _met(listed: Sequence[Condition], calls: Iterator[tuple[str, Call]]) -> dict[Condition, str]:
    """Return the name of the first sample that meets each condition. Ends when all are met."""
    met: dict[Condition, str] = {}
    for name, call in calls:
        met |= {condition: name for condition in listed if condition not in met and condition.met_by(call)}
        if len(met) == len(listed):
            break
    return met


def _answer(condition: Condition, by: str | None, planned: Sequence[Case]) -> Answer:
    if by is None:
        return Answer(condition, "unreachable")
    if not condition.checks:
        return Answer(condition, "met", by)
    dtypes = (condition.dtype,) if condition.dtype else {case.dtype for case in planned}
    ran = [case.check for case in planned if case.check in condition.checks and case.dtype in dtypes]
    return Answer(condition, "met", ran[0]) if ran else Answer(condition, "survived")


@dataclass(frozen=True)
class Samples:
    """The samples of an operator, as they are called in the dtypes in which gradients are checked."""

    contexts: tuple[Context, ...]
    signature: Signature

    @classmethod
    def of(cls, cases: Sequence[Case], session: RunSession) -> Samples:
        """Return the samples of the cases of one check. Raises Unresolved."""
        contexts = tuple(session.context(case, samples_to_run(case)) for case in cases)
        path = cases[0].variant.path
        return cls(contexts, Signature.of(contexts[0].operator, path))

    @property
    def own(self) -> Iterator[tuple[Context, Sample]]:
        """The written samples, each in the first dtype that it is meant for."""
        seen = set()
        for context in self.contexts:
            for sample in context.samples:
                if sample.name not in seen:
                    seen.add(sample.name)
                    yield context, sample

    def counted(self, derive: str) -> Iterator[tuple[str, Call]]:
        """Yield the calls that are checked, with the names of their samples: all written ones first."""
        for context, sample in self.own:
            is_judged = not any(about(expect, sample.name) for expect in context.case.expectations)
            call = called(context, sample, self.signature) if is_judged else None
            if call is not None:
                yield sample.name, call
        if derive != "none":
            for context, sample in self.derived(thorough=derive == "thorough"):
                call = called(context, sample, self.signature)
                if call is not None and tells_of_derivatives(call, (HUGE, LARGEST)):
                    yield sample.name, call

    def derived(self, thorough: bool) -> Iterator[tuple[Context, Sample]]:
        """Yield the samples derived from the written ones."""
        for context, sample in self.own:
            for one in variations(context, sample, thorough):
                yield context, one.sample

    def killers(self, wanted: Sequence[Condition]) -> Iterator[tuple[Condition, Sample]]:
        """Yield a sample for each condition that it takes to notice a gradient wrong under it, where there is one.

        Each is accepted, meets the condition, and passes the check of gradients.
        """
        left = []
        for condition in wanted:
            sample = next(self._killers_made_for(condition), None)
            if sample is None:
                left.append(condition)
            else:
                yield condition, sample
        for context, sample in islice(self.derived(thorough=True), MOST_DERIVED) if left else ():
            call = called(context, sample, self.signature)
            met = [condition for condition in left if call is not None and condition.met_by(call)]
            if met and _passes(context, sample):
                yield from ((condition, sample) for condition in met)
                left = [condition for condition in left if condition not in met]
            if not left:
                break

    def _killers_made_for(self, condition: Condition) -> Iterator[Sample]:
        own = list(self.own)
        others = tuple(sample for _, sample in own)
        varied = [(context, sample) for context, sample in own if condition.way in sample.vary]
        made = ((context, one) for context, sample in varied for one in condition.change(sample, others))
        for number, (context, sample) in enumerate(islice(made, MOST_CHANGED)):
            one = replace(sample, name=f"{sample.name}~{condition.name}~{number}")  # no two share a cache
            call = called(context, one, self.signature)
            if call is not None and condition.met_by(call) and _passes(context, one):
                yield one


def _passes(context: Context, sample: Sample) -> bool:
    """Tell whether the operator, as it is, passes at a sample. Empty ones are not compared, and do."""
    check: PerSample = implementation(context.case.kind)
    verdict = check.verdict(replace(context, cache=Cache()), sample)
    return verdict.passed or verdict.untested
