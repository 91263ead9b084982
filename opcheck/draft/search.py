"""Looks for samples that an operator takes, and for what they show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain, count, islice
from types import MethodType
from typing import Any, TypeVar

import torch

from opcheck.checks.arguments import takes_out
from opcheck.draft.constructions import constructions
from opcheck.draft.guess import SampleData, first_samples, further_samples
from opcheck.draft.hint import lessons_of
from opcheck.draft.parameter import INDEX, TENSOR, Parameter
from opcheck.draft.recorder import examples
from opcheck.draft.signature import parameters_of, parameters_of_constructor
from opcheck.draft.target import resolve_either
from opcheck.draft.tried import Operator, Refused, Tried, constructed, differentiable, differs_in_evaluation, tried
from opcheck.samples.modules import ModuleRecipe
from opcheck.samples.resolve import Unresolved, resolve_operator
from opcheck.spec.operator import Construction
from opcheck.spec.render import render

MOST_WITHOUT_GRADIENT = 60
"""How many more samples to try after one whose gradient is zero, or that has none."""

MOST_LIKELY = 12
"""How many guesses come before the examples in the documentation."""

MOST_IN_VAIN = 400
"""How many guesses may be refused without one that gets further than those before it."""

MOST_REPAIRS = 64
"""How many guesses one that was refused leads to."""

T = TypeVar("T")

EXAMPLES = "examples"
"""The key of a call that stands for all calls of the examples in the documentation."""

GIVE_ARGUMENTS = "give arguments by --args"
NEEDS_GPU = "it needs a GPU; draft it where there is one, or, if its kernels are in Triton, with TRITON_INTERPRET=1"
CONSTRUCT = "say how to construct it by --module, and give arguments of forward by --args"


BUSY = 3
"""How many times longer something may take by the clock than it may compute."""


class Deadline:
    """When to stop: after some seconds of computing, or a few times as many by the clock, on a machine that is busy."""

    def __init__(self, seconds: float, until: float = float("inf")) -> None:
        self.computing = time.process_time() + seconds
        self.clock = min(time.monotonic() + BUSY * seconds, until)

    @property
    def is_over(self) -> bool:
        """Whether to stop."""
        return time.process_time() > self.computing or time.monotonic() > self.clock


@dataclass(frozen=True)
class Wanted:
    """An operator to look for samples of."""

    name: str
    groups: Sequence[Sequence[SampleData]] = ()
    """Calls to try, in groups of which one is enough: samples, with how a module is constructed. Empty: guesses."""
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
    deadline: Deadline
    say: Callable[[SampleData], None] = lambda call: None
    """What is called with each call that is about to be made."""
    count: int = 0
    """The number of calls."""
    nearest: tuple[int, str] = (-1, "")
    """How far the best call that was refused got, and what it was refused with."""
    needs_gpu: bool = False
    """Whether that is for want of a GPU: then no other call gets further."""
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
        if self.needs_gpu:
            return f"{self.nearest[1]}; {NEEDS_GPU}"
        if not self.count:
            return f"its {what} shows nothing to try; {advice}"
        guesses = "1 guess" if self.count == 1 else f"{self.count} guesses"
        what = self.nearest[1] if self.wanted.groups else f"{guesses}; the nearest: {self.nearest[1]}"
        return f"{what}; {advice}"

    def constructions(self) -> Iterator[SampleData | None]:
        """Yield ways to construct a class of modules, as it is given, recorded or guessed; for a function, None."""
        if self.make is None or self.module is not None:
            yield self.module
            return
        recorded = [call["module"] for group in self.groups for call in group if "module" in call]
        guesses = () if self.wanted.groups and recorded else constructions(self.make)
        yield from self.tries(chain(recorded, guesses), self.constructed, parameters_of_constructor(self.make))

    @cached_property
    def groups(self) -> Sequence[Sequence[SampleData]]:
        """The calls to try: those of `wanted`; if it has none, those of the examples in the documentation."""
        call = {EXAMPLES: self.wanted.name}
        if self.wanted.groups or call in self.wanted.skip:
            return self.wanted.groups
        self.say(call)
        return examples(self.wanted.name, self.modules)

    def from_groups(self) -> Iterator[SampleData]:
        """Yield the samples of all groups. Examples do not run before the first one is needed."""
        for group in self.groups:
            yield from self.samples_of(group)

    def samples_of(self, group: Sequence[SampleData]) -> list[SampleData]:
        """Return the samples for the module as it is constructed, of calls of which one is enough."""
        own = [call for call in group if call.get("module", self.module) == self.module]
        return [{key: value for key, value in call.items() if key != "module"} for call in own]

    def constructed(self, construction: SampleData) -> SampleData | Refused:
        """Return a way to construct a class of modules, if it is one."""
        assert self.make is not None
        refused = constructed(ModuleRecipe(self.make, Construction.model_validate(construction)), self.modules)
        return construction if refused is None else refused

    def ways(self, samples: Sequence[Tried]) -> dict[str, Any]:
        """Return the ways to call the operator: for a function `out` and variants, for a module both modes."""
        if not isinstance(self.operator, ModuleRecipe):
            return {"out": takes_out(self.operator), "variants": self.variants()}
        ways: dict[str, Any] = {"out": True, "variants": [], "module": self.module}
        if self.operator.spec.train and differs_in_evaluation(self.operator, samples[0].sample, self.modules):
            spec = self.operator.spec.model_copy(update={"train": False})
            self.operator = ModuleRecipe(self.operator.make, spec)
            evaluated = list(self.tries((one.sample for one in samples), self.called))
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
        for group in self.groups:
            yield from islice(self.tries(self.samples_of(group), self.called), 1)

    def guessed(self) -> Iterator[Tried]:
        """Yield a sample, and others that differ from it in one respect."""
        for parameters in self.parameters():
            main = self.likeliest(parameters)
            if main is None:
                continue
            yield main
            seen = [main.sample]
            for group in further_samples(main.sample, parameters):
                attempt = next(self.tries(group, self.called), None)
                if attempt is not None and attempt.sample not in seen:
                    seen.append(attempt.sample)
                    yield attempt
            return

    def likeliest(self, parameters: Sequence[Parameter]) -> Tried | None:
        """Return the first sample whose derivatives are neither zero nor infinite; else the first that works at all."""
        fallback: Tried | None = None
        left = first_samples(parameters)
        likely = islice(left, MOST_LIKELY)  # they say more than examples, which are one row, or positive
        guesses = chain(likely, self.from_groups(), left)
        for number, attempt in enumerate(self.tries(guesses, self.called, parameters)):
            if attempt.requires_grad and attempt.is_telling:
                return attempt
            fallback = fallback or attempt
            if number == MOST_WITHOUT_GRADIENT:
                break
        return fallback

    def tries(
        self,
        guesses: Iterable[SampleData],
        attempt: Callable[[SampleData], T | Refused],
        parameters: Sequence[Parameter] = (),
    ) -> Iterator[T]:
        """Yield what the guesses give that are not refused, until the time is over.

        One that is refused teaches what to try next. What gets further in the source of the operator is repaired first.

        parameters: what the guesses are arguments for. None: nothing is learned.
        """
        left, lessons, order = iter(guesses), list[tuple[int, int, SampleData]](), count()
        seen, vain, best = set[str](), 0, -1
        while vain < MOST_IN_VAIN and not self.deadline.is_over:
            guess = heappop(lessons)[2] if lessons and self.count % 4 else next(left, None)
            if guess is None and not lessons:
                return
            guess = heappop(lessons)[2] if guess is None else guess
            call = self.call_of(guess, attempt)
            if render(guess) in seen or call in self.wanted.skip:
                continue
            seen.add(render(guess))
            self.say(call)
            self.count += 1
            result = attempt(guess)
            if not isinstance(result, Refused):
                yield result
                continue
            self.note(call, result)
            if result.needs_gpu:
                return
            vain = 0 if result.depth > best else vain + 1
            if parameters and result.depth >= best and result.depth > 0:
                best = result.depth
                for repaired in islice(lessons_of(guess, result.why, result.source, parameters), MOST_REPAIRS):
                    heappush(lessons, (-best, next(order), repaired))

    def call_of(self, guess: SampleData, attempt: object) -> SampleData:
        """Return a guess with how its module is constructed, as messages show it."""
        if attempt == self.constructed:
            return {"module": guess}
        return {**({} if self.module is None else {"module": self.module}), **guess}

    def called(self, sample: SampleData) -> Tried | Refused:
        """Return what a call with a sample shows."""
        return tried(self.operator, sample, self.modules)

    def note(self, call: SampleData, refused: Refused) -> None:
        """Remember a call that was refused, if it is the one that got furthest, or if it would end the process."""
        if refused.ends_process:
            self.ended.append(f"it ends its process by an exception: {refused.why}, in the call {render(call)}")
        if refused.needs_gpu or refused.depth > self.nearest[0]:
            self.nearest = refused.depth, f"{render(call)} raised {refused.why}"
            self.needs_gpu = refused.needs_gpu

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
        "inplace": any(one.inplace for one in samples),
        "backward": any(one.requires_grad for one in samples),
        "forward_ad": any(one.has_tangent for one in samples),
        "arguments": differentiable(samples),
    }
