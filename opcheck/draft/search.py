"""Looks for samples that an operator takes, and for what they show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain, count, islice
from types import MethodType
from typing import Any, TypeVar

import torch

from opcheck.draft.attempt import (
    DTYPES,
    NO_GUESS,
    OUT_OF_SIGHT,
    Depth,
    Operator,
    Place,
    Refused,
    Tried,
    constructed,
    differs_in_evaluation,
    sets_parameters,
    taken,
    tried,
)
from opcheck.draft.data import Data, SampleData, is_tensor, mapped, parts, places, replaced
from opcheck.draft.draft import Draft
from opcheck.draft.guess import constructions, first_samples, further_samples
from opcheck.draft.hint import gist_of, lessons_of, speaks_of_dtypes
from opcheck.draft.not_differentiable import ONLY_INTEGERS, RETURNS_NO_TENSOR, constant, without_kernel
from opcheck.draft.parameter import INDEX, TENSOR, Parameter
from opcheck.draft.recorder import examples
from opcheck.draft.refusal import has_interpreter, is_beyond_interpreter
from opcheck.draft.signature import parameters_of, parameters_of_constructor
from opcheck.draft.target import resolve_either
from opcheck.draft.workplace import EXAMPLES, Deadline, Trial, Workplace
from opcheck.samples.arguments import takes_out
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

MOST_UNTAUGHT = 30
"""How many guesses may be refused before errors are read that do not tell how far a call got, as those of C++."""

MOST_REPAIRS = 64
"""How many guesses one that was refused leads to."""

MOST_PLAIN = 6
"""After how many calls that return no tensor, and none that does, an operator is taken at its word."""

T = TypeVar("T")

GIVE_ARGUMENTS = "give arguments by --args"
NEEDS_GPU = "it needs a GPU; where there is one, add --device cuda"
OR_INTERPRETER = "; or, if its kernels are in Triton, set TRITON_INTERPRET=1"
CONSTRUCT = "say how to construct it by --module, and give arguments of forward by --args"


@dataclass
class Search:
    """Calls an operator with one sample after another."""

    own: Trial
    """What is looked for. What is done, and what ends a process, is noted there."""
    workplace: Workplace
    deadline: Deadline
    count: int = 0
    """The number of calls."""
    nearest: Refused = field(default_factory=lambda: Refused("", NO_GUESS))
    """The call that got furthest of those that were refused."""

    plain: int = 0
    """The number of calls that returned, but no tensor."""
    constant: str = ""
    """Why there is nothing to differentiate, if that is certain."""
    unreachable: str = ""
    """Why no call is made at all."""

    def __post_init__(self) -> None:
        self.name = self.own.name
        self.place = Place(self.workplace.settings.modules, self.workplace.device.device_string)
        self.module = self.own.module
        self.target: Callable[..., Any] | type[torch.nn.Module] = resolve_either(self.name, self.place.modules)

    @property
    def operator(self) -> Operator:
        """What is called: a function, or a module as it is constructed."""
        if isinstance(self.target, type):
            return ModuleRecipe(self.target, Construction.model_validate(self.module))
        return self.target

    def drafts(self) -> list[Draft]:
        """Return drafts by the samples that work: two for a module whose modes differ; none, if `refusal` says why."""
        if not isinstance(self.target, type) and not self.own.given:
            self.constant = constant(self.target, self.name)
            self.unreachable = self.constant or without_kernel(self.target, self.name)
        for construction in () if self.unreachable else self.constructions():
            self.module = construction
            tries = list(self.recorded() if self.own.given else self.guessed())
            if tries:
                return list(self.drafts_of(tries))
        self.constant = self.constant or (RETURNS_NO_TENSOR if self.plain and not self.own.given else "")
        return []

    def drafts_of(self, tries: Sequence[Tried]) -> Iterator[Draft]:
        """Yield the draft for samples that work; a second one if evaluation mode gives other results than training.

        A module whose first batch sets its parameters depends on the batch in training: it has the second draft only.
        """
        recipe = self.operator
        if not isinstance(recipe, ModuleRecipe):
            yield Draft.of(self.name, tries, variants=self.variants(), out=takes_out(recipe))
            return
        trained, mode = Draft.of(self.name, tries, self.module), (recipe, tries[0].sample, self.place)
        initialized = recipe.spec.train and sets_parameters(*mode)
        evaluated: list[Tried] = []
        if initialized or (recipe.spec.train and differs_in_evaluation(*mode)):
            self.module = {**(self.module or {}), "train": False}
            evaluated = list(self.tries((one.sample for one in tries), self.called))
        if not (initialized and evaluated):
            yield trained
        if evaluated:
            variant = "" if initialized else "eval"
            yield replace(Draft.of(self.name, evaluated, self.module, variant), initialized=initialized)

    def refusal(self) -> str:
        """Return why there is no sample, in one line."""
        of_class = isinstance(self.target, type)
        advice = CONSTRUCT if of_class else GIVE_ARGUMENTS
        if self.constant or self.unreachable:
            return self.constant or self.unreachable
        if self.own.ended:
            return self.own.ended[0]
        if self.nearest.needs_gpu or is_beyond_interpreter(self.nearest.why):
            return f"{self.nearest.why}; {NEEDS_GPU}" + ("" if has_interpreter() else OR_INTERPRETER)
        if not self.count:
            return f"its {'constructor' if of_class else 'signature'} shows nothing to try; {advice}"
        guesses = "1 guess" if self.count == 1 else f"{self.count} guesses"
        return ("" if self.own.given else f"{guesses}; the nearest: ") + f"{self.nearest.why}; {advice}"

    def constructions(self) -> Iterator[SampleData | None]:
        """Yield ways to construct a class of modules, as it is given, recorded or guessed; for a function, None."""
        if not isinstance(self.target, type) or self.module is not None:
            yield self.module
            return
        recorded = [call["module"] for group in self.groups for call in group if "module" in call]
        guesses = () if self.own.given and recorded else constructions(self.target)
        yield from self.tries(chain(recorded, guesses), self.constructed, parameters_of_constructor(self.target))

    @cached_property
    def groups(self) -> Sequence[Sequence[SampleData]]:
        """The calls to try: those that are given; if there are none, those of the examples in the documentation."""
        call = {EXAMPLES: self.name}
        if self.own.given or call in self.own.skip:
            return self.own.given
        self.say(call)
        return examples(self.name, self.place.modules)

    def from_groups(self) -> Iterator[SampleData]:
        """Yield the samples of all groups. Examples do not run before the first one is needed."""
        for group in self.groups:
            yield from self.samples_of(group)

    def samples_of(self, group: Sequence[SampleData]) -> list[SampleData]:
        """Return the samples for the module as it is constructed, of calls of which one is enough."""
        own = [call for call in group if call.get("module", self.module) == self.module]
        return [{key: value for key, value in call.items() if key != "module"} for call in own]

    def parameters(self) -> list[list[Parameter]]:
        """Return the parameters to guess arguments for; several lists if they are not known."""
        if not isinstance(self.target, type):
            return parameters_of(self.target, self.name)
        make: Any = self.target
        parameters = parameters_of(MethodType(make.forward, make), self.name)
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
        if not isinstance(self.target, type) and not self.plain and not self.nearest.needs_gpu:
            for parameters in self.parameters():
                yield from self.besides_integers(parameters)

    def besides_integers(self, parameters: Sequence[Parameter]) -> Iterator[Tried]:
        """Yield a sample with a tensor of numbers that are no integers, beside others of integers, if one works.

        If only integers do, in a call that is the same but for the dtype of one tensor, there is nothing to
        differentiate.
        """
        whole = [replace(one, options=tuple(map(_of_integers, one.options))) for one in parameters]
        for sample in islice(self.tries(first_samples(whole), self.takes_integers, whole), 1):
            tensors = [(path, value["shape"]) for path, value in places(sample) if is_tensor(value)]
            others = [
                replaced(sample, path, {"shape": shape, **values})
                for path, shape in tensors for values in ({}, {"low": 0.1, "high": 0.9}, {"low": 0, "high": 2})
            ]  # fmt: skip
            others += [one for group in further_samples(sample, parameters) for one in group if _is_mixed(one)]
            found = next(self.tries(others, self.called), None)
            if found is not None:
                yield found
            elif not self.deadline.is_over and all(map(self.is_refused_by_dtype, others)):
                self.constant = ONLY_INTEGERS

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
        if fallback is None or fallback.requires_grad:
            return fallback
        larger = self.tries([mapped(_without_ones, fallback.sample)], self.called)  # a loop over pairs of 1 is empty
        return next((one for one in larger if one.requires_grad), fallback)

    def tries(
        self,
        guesses: Iterable[SampleData],
        attempt: Callable[[SampleData], T | Refused],
        parameters: Sequence[Parameter] = (),
    ) -> Iterator[T]:
        """Yield what the guesses give that are not refused, until the time is over.

        The message of a refused guess suggests others. Guesses that got further in the source of the operator are
        repaired first; without a source, those with a new message.

        parameters: what the guesses are arguments for. None: nothing is learned.
        """
        left, lessons, order = iter(guesses), list[tuple[Depth, int, SampleData]](), count()
        seen, said, vain, best = set[str](), set[str](), 0, NO_GUESS
        while vain < MOST_IN_VAIN and self.plain < MOST_PLAIN and not self.deadline.is_over:
            is_taught = lessons and self.count % 4 and (best > OUT_OF_SIGHT or vain >= MOST_UNTAUGHT)
            guess = heappop(lessons)[2] if is_taught else next(left, None)
            if guess is None and not lessons:
                return
            guess = heappop(lessons)[2] if guess is None else guess
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

    def called(self, sample: SampleData) -> Tried | Refused:
        """Return what a call with a sample shows."""
        call = sample if self.module is None else {"module": self.module, **sample}

        def make(place: Place) -> Tried | Refused:
            return tried(self.operator, sample, place)

        return self.attempt(call, lambda: self.in_a_dtype(make))

    def in_a_dtype(self, make: Callable[[Place], T | Refused]) -> T | Refused:
        """Make a call. If its dtype is refused, and a later one is not, that is the dtype of all further calls."""
        result = make(self.place)
        for dtype in DTYPES[DTYPES.index(self.place.dtype) + 1 :] if _is_about_dtypes(result) else ():
            place = replace(self.place, dtype=dtype)
            other = make(place)
            if not _is_about_dtypes(other):
                self.place = place
                return other
        return result

    def is_refused_by_dtype(self, sample: SampleData) -> bool:
        """Tell whether a call is refused for the dtype of a tensor."""
        result = taken(self.operator, sample, self.place)
        return isinstance(result, Refused) and speaks_of_dtypes(result.why)

    def takes_integers(self, sample: SampleData) -> SampleData | Refused:
        """Return a sample without a tensor to differentiate, if the operator takes it."""
        if _is_mixed(sample):
            return Refused("there is a tensor that is not of integers", NO_GUESS)
        result = self.attempt(sample, lambda: taken(self.operator, sample, self.place))
        return result if isinstance(result, Refused) else sample

    def constructed(self, construction: SampleData) -> SampleData | Refused:
        """Return a way to construct a class of modules, if it is one."""
        assert isinstance(self.target, type)
        recipe = ModuleRecipe(self.target, Construction.model_validate(construction))
        made = self.attempt({"module": construction}, lambda: constructed(recipe, self.place))
        return made if isinstance(made, Refused) else construction

    def attempt(self, call: SampleData, make: Callable[[], T | Refused]) -> T | Refused:
        """Make a call, unless it is to be skipped. Remember what it was refused with, if it got furthest."""
        if call in self.own.skip:
            return Refused("it has ended its process", NO_GUESS)
        self.say(call)
        self.count += 1
        result = make()
        if isinstance(result, Refused):
            self.plain += result.is_plain
            ended = f"it ends its process by an exception: {result.why}, in the call {render(call)}"
            if result.ends_process and ended not in self.own.ended:
                self.own.note(ended=[*self.own.ended, ended])
            if result.depth > self.nearest.depth:
                self.nearest = replace(result, why=f"{render(call)} raised {result.why}")
        return result

    def say(self, call: SampleData) -> None:
        """Note the call that is about to be made."""
        self.own.note(self.workplace.budget, call=call)

    def variants(self) -> list[Any]:
        """Return the other ways to call the operator that there are."""
        home, _, name = self.name.replace(":", ".").rpartition(".")
        if home.partition(".")[0] == "torch":
            return [kind for kind, end in (("method", ""), ("inplace", "_")) if hasattr(torch.Tensor, name + end)]
        try:
            resolve_operator(f"{home}.{name}_", self.place.modules)
        except Unresolved:
            return []
        return [{"kind": "inplace", "target": f"{home}.{name}_"}]


def _furthest_first(depth: Depth) -> Depth:
    """Return what a heap sorts by, in which the least comes first. Of two that begin alike, the longer one does."""
    return (*(-place for place in depth), 1)


def _is_about_dtypes(result: Any) -> bool:
    """Tell whether a call, or all of its derivatives, are refused for the dtype of a tensor, or where one is read."""
    if isinstance(result, Tried):
        return all(map(speaks_of_dtypes, result.without_backward.values()))
    return isinstance(result, Refused) and (speaks_of_dtypes(result.why) or ".dtype" in result.source)


def _is_mixed(sample: SampleData) -> bool:
    """Tell whether a sample has a tensor that may be differentiated."""
    arguments = [*sample.get("args", ()), *sample.get("kwargs", {}).values()]
    return any(is_tensor(part) and "dtype" not in part for part in parts(arguments))


def _without_ones(part: Data) -> Data:
    """Return a tensor with sizes of 2 in place of 1."""
    return {**part, "shape": [max(size, 2) for size in part["shape"]]} if is_tensor(part) and "shape" in part else part


def _of_integers(option: Data) -> Data:
    """Return what to try for a parameter with tensors of integers only."""
    return mapped(lambda part: INDEX if part == TENSOR else part, option)
