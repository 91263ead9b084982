"""Looks for samples that an operator takes, and for what they show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import chain, count, islice
from types import MethodType
from typing import Any, TypeVar

import torch

from opcheck.checks.arguments import takes_out
from opcheck.draft.constructions import constructions, parameters_of_constructor
from opcheck.draft.guess import SampleData, first_samples, further_samples
from opcheck.draft.hint import Place, completed, repairs
from opcheck.draft.parameter import INDEX, TENSOR, Parameter
from opcheck.draft.signature import parameters_of
from opcheck.draft.target import resolve_either
from opcheck.draft.tried import Operator, Refused, Tried, constructed, differentiable, differs_in_evaluation, tried
from opcheck.samples.modules import ModuleRecipe
from opcheck.samples.resolve import Unresolved, resolve_operator
from opcheck.spec.operator import Construction
from opcheck.spec.render import render

MOST_WITHOUT_GRADIENT = 60
"""How many more samples to try after one whose gradient is zero, or that has none."""

MOST_IN_VAIN = 400
"""How many guesses may be refused without one that gets further than those before it."""

MOST_REPAIRS = 64
"""How many guesses one that was refused leads to."""

T = TypeVar("T")

GIVE_ARGUMENTS = "give arguments by --args"
CONSTRUCT = "say how to construct it by --module, and give arguments of forward by --args"


@dataclass(frozen=True)
class Wanted:
    """An operator to look for samples of."""

    name: str
    groups: Sequence[Sequence[SampleData]] = ()
    """Samples to try, in groups of which one is enough. Empty: guesses."""
    module: SampleData | None = None
    """How to construct it, if it is a class of modules. None: guesses."""
    skip: tuple[SampleData, ...] = ()
    """The calls that have ended an earlier process."""
    ended: tuple[str, ...] = ()
    """How they have ended it."""


@dataclass
class Search:
    """Calls an operator with one sample after another."""

    wanted: Wanted
    modules: Sequence[str]
    until: float
    """When to stop, by `time.monotonic()`."""
    say: Callable[[SampleData], None] = lambda call: None
    """What is called with each call that is about to be made."""
    count: int = 0
    """The number of calls."""
    nearest: tuple[int, str] = (-1, "")
    """How far the best call that was refused got, and what it was refused with."""
    ended: list[str] = field(default_factory=list)
    """The calls by which the operator wanted to end its process."""

    def __post_init__(self) -> None:
        self.module = self.wanted.module
        self.operator: Operator = resolve_either(self.wanted.name, self.modules)
        self.make: type[torch.nn.Module] | None = self.operator if isinstance(self.operator, type) else None

    def answer(self) -> dict[str, Any]:
        """Return samples that work, and what they show; or why there is none."""
        for construction in self.constructions():
            self.module = construction
            if self.make is not None:
                self.operator = ModuleRecipe(self.make, Construction.model_validate(construction))
            samples = list(self.recorded()) if self.wanted.groups else list(self.guessed())
            if samples:
                return {**shown(samples), **self.ways(samples)}
        return {"refusal": self.refusal()}

    def refusal(self) -> str:
        """Return why there is no sample, in one line."""
        what, advice = ("signature", GIVE_ARGUMENTS) if self.make is None else ("constructor", CONSTRUCT)
        for ended in (*self.ended, *self.wanted.ended):
            return ended
        if not self.count:
            return f"its {what} shows nothing to try; {advice}"
        guesses = "" if self.wanted.groups else f"{self.count} guesses; the nearest: "
        return f"{guesses}{self.nearest[1]}; {advice}"

    def constructions(self) -> Iterator[SampleData | None]:
        """Yield ways to construct a class of modules, as it is given or guesses; for a function, None."""
        if self.make is None or self.module is not None:
            yield self.module
            return
        make = self.make

        def call(construction: SampleData) -> SampleData:
            return {"module": construction}

        def construct(construction: SampleData) -> SampleData | Refused:
            refused = constructed(ModuleRecipe(make, Construction.model_validate(construction)), self.modules)
            return construction if refused is None else refused

        yield from self.taught(
            constructions(make),
            construct,
            parameters_of_constructor(make),
            call,
        )

    def ways(self, samples: Sequence[Tried]) -> dict[str, Any]:
        """Return the ways to call the operator: for a function `out` and variants, for a module both modes."""
        if not isinstance(self.operator, ModuleRecipe):
            return {"out": takes_out(self.operator), "variants": self.variants()}
        ways: dict[str, Any] = {"out": True, "variants": [], "module": self.module}
        if self.operator.spec.train and differs_in_evaluation(self.operator, samples[0].sample, self.modules):
            spec = self.operator.spec.model_copy(update={"train": False})
            self.operator = ModuleRecipe(self.operator.make, spec)
            evaluated = list(self.attempts(one.sample for one in samples))
            if evaluated:
                ways["evaluation"] = {**shown(evaluated), **ways, "module": {**(self.module or {}), "train": False}}
        return ways

    def parameters(self) -> list[list[Parameter]]:
        """Return the parameters to guess arguments for; several lists if they are not known."""
        if not isinstance(self.operator, ModuleRecipe):
            return parameters_of(self.operator, self.wanted.name)
        assert self.make is not None
        parameters = parameters_of(MethodType(self.make.forward, self.make), self.wanted.name)
        only_a_tensor = [one for one in parameters if [parameter.options for parameter in one] == [(TENSOR,)]]
        return [*parameters, *([replace(parameter, options=(INDEX,))] for (parameter,) in only_a_tensor)]

    def recorded(self) -> Iterator[Tried]:
        """Yield one sample of each group that was given."""
        for group in self.wanted.groups:
            yield from islice(self.attempts(group), 1)

    def guessed(self) -> Iterator[Tried]:
        """Yield a sample, and others that differ from it in one respect."""
        for parameters in self.parameters():
            main = self.likeliest(parameters)
            if main is None:
                continue
            yield main
            seen = [main.sample]
            for group in further_samples(main.sample, parameters):
                attempt = next(self.attempts(group), None)
                if attempt is not None and attempt.sample not in seen:
                    seen.append(attempt.sample)
                    yield attempt
            return

    def likeliest(self, parameters: Sequence[Parameter]) -> Tried | None:
        """Return the first sample whose derivatives are neither zero nor infinite; else the first that works at all."""
        fallback: Tried | None = None
        for number, attempt in enumerate(self.taught(first_samples(parameters), self.called, parameters, self.call_of)):
            if attempt.requires_grad and attempt.is_telling:
                return attempt
            fallback = fallback or attempt
            if number == MOST_WITHOUT_GRADIENT:
                break
        return fallback

    def taught(
        self,
        guesses: Iterator[SampleData],
        attempt: Callable[[SampleData], T | Refused],
        parameters: Sequence[Parameter],
        call_of: Callable[[SampleData], SampleData],
    ) -> Iterator[T]:
        """Yield what the guesses give that are not refused. A guess that is refused teaches what to try next.

        What gets further in the source of the operator than others is repaired first.
        """
        required = [one.name for one in parameters if one.required]
        names: dict[Place, str] = {("args", index): name for index, name in enumerate(required)}
        optional = [one.name for one in parameters if not one.required]
        lessons: list[tuple[int, int, SampleData]] = []
        seen, vain, best, order = set[str](), 0, -1, count()
        while vain < MOST_IN_VAIN and time.monotonic() < self.until:
            guess = heappop(lessons)[2] if lessons and self.count % 4 else next(guesses, None)
            if guess is None and not lessons:
                return
            guess = heappop(lessons)[2] if guess is None else guess
            text = render(guess)
            call = call_of(guess)
            if text in seen or call in self.wanted.skip:
                continue
            seen.add(text)
            self.say(call)
            self.count += 1
            got = attempt(guess)
            if not isinstance(got, Refused):
                yield got
                continue
            self.note(call, got)
            vain = 0 if got.depth > best else vain + 1
            if got.depth >= best and got.depth > 0:
                best = got.depth
                lesson = chain(repairs(guess, got.why, got.source, names), completed(guess, got.why, optional))
                for repaired in islice(lesson, MOST_REPAIRS):
                    heappush(lessons, (-got.depth, next(order), repaired))

    def call_of(self, sample: SampleData) -> SampleData:
        """Return a sample with how its module is constructed, as messages show it."""
        return {**({} if self.module is None else {"module": self.module}), **sample}

    def called(self, sample: SampleData) -> Tried | Refused:
        """Return what a call with a sample shows."""
        return tried(self.operator, sample, self.modules)

    def attempts(self, samples: Iterable[SampleData]) -> Iterator[Tried]:
        """Yield what the samples show that the operator takes, until the time is over."""
        for sample in samples:
            call = self.call_of(sample)
            if time.monotonic() > self.until:
                return
            if call in self.wanted.skip:
                continue
            self.say(call)
            self.count += 1
            attempt = self.called(sample)
            if isinstance(attempt, Refused):
                self.note(call, attempt)
            else:
                yield attempt

    def note(self, call: SampleData, refused: Refused) -> None:
        """Remember a call that was refused, if it is the one that got furthest, or if it would end the process."""
        if refused.ends_process:
            self.ended.append(f"it ends its process by an exception: {refused.why}, in the call {render(call)}")
        if refused.depth > self.nearest[0]:
            self.nearest = refused.depth, f"{render(call)} raised {refused.why}"

    def variants(self) -> list[Any]:
        """Return the other ways to call the operator that there are."""
        home, _, name = self.wanted.name.replace(":", ".").rpartition(".")
        if home.partition(".")[0] == "torch":
            return [kind for kind, end in (("method", ""), ("inplace", "_")) if hasattr(torch.Tensor, name + end)]
        try:
            resolve_operator(f"{home}.{name}_", self.modules)
        except Unresolved:
            return []
        return [{"kind": "inplace", "target": f"{home}.{name}_"}]


def shown(samples: Sequence[Tried]) -> dict[str, Any]:
    """Return what samples show about an operator."""
    return {
        "samples": [one.sample for one in samples],
        "random": any(one.random for one in samples),
        "backward": any(one.requires_grad for one in samples),
        "forward_ad": any(one.has_tangent for one in samples),
        "arguments": differentiable(samples),
    }
