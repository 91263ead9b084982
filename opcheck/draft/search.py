"""Looks for samples that an operator takes, and for what they show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain, count, islice
from types import MethodType
from typing import Any, TypeVar

import torch

from opcheck.draft.attempt import NO_GUESS, OUT_OF_SIGHT, Depth, Refused, Tried
from opcheck.draft.caller import Caller
from opcheck.draft.data import Data, SampleData, is_mixed, is_tensor, mapped, places, replaced
from opcheck.draft.draft import Draft
from opcheck.draft.guess import constructions, first_samples, further_samples
from opcheck.draft.hint import gist_of, lessons_of
from opcheck.draft.not_differentiable import ONLY_INTEGERS, RETURNS_NO_TENSOR, constant, without_kernel
from opcheck.draft.parameter import INDEX, TENSOR, Parameter
from opcheck.draft.recorder import examples
from opcheck.draft.signature import parameters_of, parameters_of_constructor
from opcheck.draft.workplace import EXAMPLES, Deadline, Trial, Workplace
from opcheck.samples.arguments import takes_out
from opcheck.samples.resolve import Unresolved, resolve_operator
from opcheck.spec.render import render

MOST_WITHOUT_GRADIENT = 60
"""How many more samples to try after one whose gradient is zero, or that has none."""

MOST_LIKELY = 12
"""How many guesses come before the examples in the documentation."""

MOST_IN_VAIN = 400
"""How many guesses may be refused without one that gets further than those before it."""

MOST_UNTAUGHT = 30
"""How many guesses may be refused before errors are read that do not tell how far a call got, as those of C++."""

MOST_REPAIRS = 64
"""How many guesses one that was refused leads to."""

MOST_PLAIN = 6
"""After how many calls that return no tensor, and none that does, an operator is taken at its word."""

T = TypeVar("T")


@dataclass
class Search:
    """Looks for samples of one operator."""

    own: Trial
    """What is looked for."""
    workplace: Workplace
    deadline: Deadline
    constant: str = ""
    """Why there is nothing to differentiate, if that is certain."""
    unreachable: str = ""
    """Why no call is made at all."""

    def __post_init__(self) -> None:
        self.caller = Caller(self.own, self.workplace)
        self.name, self.target = self.own.name, self.caller.target

    def drafts(self) -> list[Draft]:
        """Return drafts by the samples that work: two for a module whose modes differ; none, if `refusal` says why."""
        if not isinstance(self.target, type) and not self.own.given:
            self.constant = constant(self.target, self.name)
            self.unreachable = self.constant or without_kernel(self.target, self.name)
        for _ in () if self.unreachable else self.constructions():
            tries = list(self.one_of_each(map(self.samples_of, self.groups)) if self.own.given else self.guessed())
            if tries:
                return list(self.drafts_of(tries))
        self.constant = self.constant or (RETURNS_NO_TENSOR if self.caller.plain and not self.own.given else "")
        return []

    def drafts_of(self, tries: Sequence[Tried]) -> Iterator[Draft]:
        """Yield the draft for samples that work; a second one if evaluation mode gives other results than training.

        A module whose first batch sets its parameters depends on the batch in training: it has the second draft only.
        """
        recipe, sample = self.caller.recipe, tries[0].sample
        if recipe is None:
            yield Draft.of(self.name, tries, variants=self.variants(), out=takes_out(self.target))
            return
        trained = Draft.of(self.name, tries, self.caller.module)
        initialized = recipe.spec.train and self.caller.sets_parameters(sample)
        evaluated: list[Tried] = []
        if initialized or (recipe.spec.train and self.caller.differs_in_evaluation(sample)):
            self.caller.module = {**(self.caller.module or {}), "train": False}
            evaluated = list(self.tries((one.sample for one in tries), self.caller.called))
        if not (initialized and evaluated):
            yield trained
        if evaluated:
            variant = "" if initialized else "eval"
            yield replace(Draft.of(self.name, evaluated, self.caller.module, variant), initialized=initialized)

    def refusal(self) -> str:
        """Return why there is no sample, in one line."""
        return self.constant or self.unreachable or self.caller.refusal()

    def constructions(self) -> Iterator[SampleData | None]:
        """Construct a class of modules in one way after another, as is given, recorded or guessed. Yield each way.

        For a function, the only one is None.
        """
        if not isinstance(self.target, type) or self.caller.module is not None:
            yield self.caller.module
            return
        recorded = [call["module"] for group in self.groups for call in group if "module" in call]
        guesses = () if self.own.given and recorded else constructions(self.target)
        yield from self.tries(chain(recorded, guesses), self.caller.constructed, parameters_of_constructor(self.target))

    @cached_property
    def groups(self) -> Sequence[Sequence[SampleData]]:
        """The calls to try: those that are given; if there are none, those of the examples in the documentation."""
        call = {EXAMPLES: self.name}
        if self.own.given or call in self.own.skip:
            return self.own.given
        self.caller.say(call)
        return examples(self.name, self.caller.modules)

    def from_groups(self) -> Iterator[SampleData]:
        """Yield the samples of all groups. Examples do not run before the first one is needed."""
        for group in self.groups:
            yield from self.samples_of(group)

    def samples_of(self, group: Sequence[SampleData]) -> list[SampleData]:
        """Return the samples for the module as it is constructed, of calls of which one is enough."""
        own = [call for call in group if call.get("module", self.caller.module) == self.caller.module]
        return [{key: value for key, value in call.items() if key != "module"} for call in own]

    def parameters(self) -> list[list[Parameter]]:
        """Return the parameters to guess arguments for; several lists if they are not known."""
        if not isinstance(self.target, type):
            return parameters_of(self.target, self.name)
        make: Any = self.target
        parameters = parameters_of(MethodType(make.forward, make), self.name)
        only_a_tensor = [one for one in parameters if [parameter.options for parameter in one] == [(TENSOR,)]]
        return [*parameters, *([replace(parameter, options=(INDEX,))] for (parameter,) in only_a_tensor)]

    def one_of_each(self, groups: Iterable[Sequence[SampleData]]) -> Iterator[Tried]:
        """Yield what the first sample of each group shows that is not refused."""
        for group in groups:
            yield from islice(self.tries(group, self.caller.called), 1)

    def guessed(self) -> Iterator[Tried]:
        """Yield a sample, and others that differ from it in one respect."""
        for parameters in self.parameters():
            main = self.likeliest(parameters)
            if main is None:
                continue
            yield main
            seen = [main.sample]
            for one in self.one_of_each(further_samples(main.sample, parameters)):
                if one.sample not in seen:
                    seen.append(one.sample)
                    yield one
            return
        if not isinstance(self.target, type) and not self.caller.plain and not self.caller.nearest.needs_gpu:
            for parameters in self.parameters():
                yield from self.besides_integers(parameters)

    def besides_integers(self, parameters: Sequence[Parameter]) -> Iterator[Tried]:
        """Yield a sample with a tensor of numbers that are no integers, beside others of integers, if one works.

        If only integers do, in a call that is the same but for the dtype of one tensor, there is nothing to
        differentiate.
        """
        whole = [replace(one, options=tuple(map(_of_integers, one.options))) for one in parameters]
        for sample in islice(self.tries(first_samples(whole), self.caller.called_with_integers, whole), 1):
            tensors = [(path, value["shape"]) for path, value in places(sample) if is_tensor(value)]
            others = [
                replaced(sample, path, {"shape": shape, **values})
                for path, shape in tensors for values in ({}, {"low": 0.1, "high": 0.9}, {"low": 0, "high": 2})
            ]  # fmt: skip
            others += [one for group in further_samples(sample, parameters) for one in group if is_mixed(one)]
            found = next(self.tries(others, self.caller.called), None)
            if found is not None:
                yield found
            elif not self.deadline.is_over and all(map(self.caller.is_refused_by_dtype, others)):
                self.constant = ONLY_INTEGERS

    def likeliest(self, parameters: Sequence[Parameter]) -> Tried | None:
        """Return the first sample whose derivatives are neither zero nor infinite; else the first that works at all."""
        fallback: Tried | None = None
        left = first_samples(parameters)
        likely = islice(left, MOST_LIKELY)  # they say more than examples, which are one row, or positive
        guesses = chain(likely, self.from_groups(), left)
        for number, attempt in enumerate(self.tries(guesses, self.caller.called, parameters)):
            if attempt.requires_grad and attempt.is_telling:
                return attempt
            fallback = fallback or attempt
            if number == MOST_WITHOUT_GRADIENT:
                break
        if fallback is None or fallback.requires_grad:
            return fallback
        larger = self.tries(
            [mapped(_without_ones, fallback.sample)], self.caller.called
        )  # a loop over pairs of 1 is empty
        return next((one for one in larger if one.requires_grad), fallback)

    def tries(
        self,
        guesses: Iterable[SampleData],
        attempt: Callable[[SampleData], T | Refused],
        parameters: Sequence[Parameter] = (),
    ) -> Iterator[T]:
        """Yield what attempts at guesses give that are not refused, until the time is over.

        The message of a refused guess suggests others. Guesses that got further in the source of the operator are
        repaired first; without a source, those with a new message.

        parameters: what the guesses are arguments for. Empty: nothing is learned.
        """
        left, lessons, order = iter(guesses), list[tuple[Depth, int, SampleData]](), count()
        seen, said, vain, best = set[str](), set[str](), 0, NO_GUESS
        while vain < MOST_IN_VAIN and self.caller.plain < MOST_PLAIN and not self.deadline.is_over:
            is_taught = lessons and self.caller.count % 4 and (best > OUT_OF_SIGHT or vain >= MOST_UNTAUGHT)
            guess = None if is_taught else next(left, None)
            if guess is None:
                if not lessons:
                    return
                guess = heappop(lessons)[2]
            if render(guess) in seen:
                continue
            seen.add(render(guess))
            result = attempt(guess)
            if not isinstance(result, Refused):
                yield result
                continue
            if result.needs_gpu:
                return
            vain = 0 if result.depth > best else vain + 1
            # Where nothing tells how far a call got, the same error says nothing new.
            is_new = result.depth > OUT_OF_SIGHT or gist_of(result.why) not in said
            said.add(gist_of(result.why))
            if parameters and result.depth >= max(best, OUT_OF_SIGHT) and is_new:
                best = result.depth
                place = _furthest_first(best if best > OUT_OF_SIGHT else (len(said),))
                for repaired in islice(lessons_of(guess, result.why, result.source, parameters), MOST_REPAIRS):
                    heappush(lessons, (place, next(order), repaired))

    def variants(self) -> list[Any]:
        """Return the other ways to call the operator that there are."""
        home, _, name = self.name.replace(":", ".").rpartition(".")
        if home.partition(".")[0] == "torch":
            return [kind for kind, end in (("method", ""), ("inplace", "_")) if hasattr(torch.Tensor, name + end)]
        try:
            resolve_operator(f"{home}.{name}_", self.caller.modules)
        except Unresolved:
            return []
        return [{"kind": "inplace", "target": f"{home}.{name}_"}]


def _furthest_first(depth: Depth) -> Depth:
    """Return what a heap sorts by, in which the least comes first. Of two that begin alike, the longer one does."""
    return (*(-place for place in depth), 1)


def _without_ones(part: Data) -> Data:
    """Return a tensor with sizes of 2 in place of 1."""
    return {**part, "shape": [max(size, 2) for size in part["shape"]]} if is_tensor(part) and "shape" in part else part


def _of_integers(option: Data) -> Data:
    """Return what to try for a parameter with tensors of integers only."""
    return mapped(lambda part: INDEX if part == TENSOR else part, option)
