"""Calls an operator with one sample after another, and remembers how far the calls have got."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count, islice
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
    taken,
    tried,
)
from opcheck.draft.data import SampleData, is_mixed
from opcheck.draft.hint import gist_of, lessons_of, speaks_of_dtypes
from opcheck.draft.parameter import Parameter
from opcheck.draft.refusal import has_interpreter, is_beyond_interpreter
from opcheck.draft.target import resolve_either
from opcheck.draft.workplace import Deadline, Trial, Workplace
from opcheck.samples.modules import ModuleRecipe
from opcheck.spec.operator import Construction
from opcheck.spec.render import render

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
class Caller:
    """An operator, and what its calls have shown."""

    own: Trial
    """What is known of the operator. What is about to be called, and what ends a process, is noted there."""
    workplace: Workplace
    deadline: Deadline
    count: int = 0
    """The number of calls."""
    nearest: Refused = field(default_factory=lambda: Refused("", NO_GUESS))
    """The call that got furthest of those that were refused."""
    plain: int = 0
    """The number of calls that returned, but no tensor."""

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

    def call(self, samples: Iterable[SampleData], parameters: Sequence[Parameter] = ()) -> Iterator[Tried]:
        """Yield what calls with samples show that are not refused. See `_tries`."""
        return self._tries(samples, self._called, parameters)

    def call_with_integers(
        self, samples: Iterable[SampleData], parameters: Sequence[Parameter]
    ) -> Iterator[SampleData]:
        """Yield the samples that are taken of those without a tensor to differentiate."""
        return self._tries(samples, self._called_with_integers, parameters)

    def construct(self, constructions: Iterable[SampleData], parameters: Sequence[Parameter]) -> Iterator[SampleData]:
        """Yield the ways to construct a class of modules that work."""
        return self._tries(constructions, self._constructed, parameters)

    def _tries(
        self,
        guesses: Iterable[SampleData],
        attempt: Callable[[SampleData], T | Refused],
        parameters: Sequence[Parameter],
    ) -> Iterator[T]:
        """Yield what attempts at guesses give that are not refused, until the time is over.

        The message of a refused guess suggests others. Guesses that got further in the source of the operator are
        repaired first; without a source, those with a new message.

        parameters: what the guesses are arguments for. Empty: nothing is learned.
        """
        left, lessons, order = iter(guesses), list[tuple[Depth, int, SampleData]](), count()
        seen, said, vain, best = set[str](), set[str](), 0, NO_GUESS
        while vain < MOST_IN_VAIN and self.plain < MOST_PLAIN and not self.deadline.is_over:
            is_taught = lessons and self.count % 4 and (best > OUT_OF_SIGHT or vain >= MOST_UNTAUGHT)
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

    def _called(self, sample: SampleData) -> Tried | Refused:
        """Return what a call with a sample shows."""
        call = sample if self.module is None else {"module": self.module, **sample}
        return self._attempt(call, lambda: self._in_a_dtype(sample))

    def _in_a_dtype(self, sample: SampleData) -> Tried | Refused:
        """Make a call. If its dtype is refused, and a later one is not, that is the dtype of all further calls."""
        result = tried(self.operator, sample, self.place)
        for dtype in DTYPES[DTYPES.index(self.place.dtype) + 1 :] if _is_about_dtypes(result) else ():
            place = replace(self.place, dtype=dtype)
            other = tried(self.operator, sample, place)
            if not _is_about_dtypes(other):
                self.place = place
                return other
        return result

    def is_refused_by_dtype(self, sample: SampleData) -> bool:
        """Tell whether a call is refused for the dtype of a tensor."""
        result = taken(self.operator, sample, self.place)
        return isinstance(result, Refused) and speaks_of_dtypes(result.why)

    def _called_with_integers(self, sample: SampleData) -> SampleData | Refused:
        """Return a sample without a tensor to differentiate, if the operator takes it."""
        if is_mixed(sample):
            return Refused("there is a tensor that is not of integers", NO_GUESS)
        return self._attempt(sample, lambda: taken(self.operator, sample, self.place))

    def _constructed(self, construction: SampleData) -> SampleData | Refused:
        """Return a way to construct a class of modules, if it is one."""
        make: Any = self.target
        return self._attempt({"module": construction}, lambda: constructed(make, construction, self.place))

    def _attempt(self, call: SampleData, make: Callable[[], T | Refused]) -> T | Refused:
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

    def refusal(self) -> str:
        """Return why no call has done, in one line."""
        of_class = isinstance(self.target, type)
        advice = CONSTRUCT if of_class else GIVE_ARGUMENTS
        if self.own.ended:
            return self.own.ended[0]
        if self.nearest.needs_gpu or is_beyond_interpreter(self.nearest.why):
            return f"{self.nearest.why}; {NEEDS_GPU}" + ("" if has_interpreter() else OR_INTERPRETER)
        if not self.count:
            return f"its {'constructor' if of_class else 'signature'} shows nothing to try; {advice}"
        guesses = "1 guess" if self.count == 1 else f"{self.count} guesses"
        return ("" if self.own.given else f"{guesses}; the nearest: ") + f"{self.nearest.why}; {advice}"


def _furthest_first(depth: Depth) -> Depth:
    """Return what a heap sorts by, in which the least comes first. Of two that begin alike, the longer one does."""
    return (*(-place for place in depth), 1)


def _is_about_dtypes(result: Tried | Refused) -> bool:
    """Tell whether a call, or all of its derivatives, are refused for the dtype of a tensor, or where one is read."""
    if isinstance(result, Refused):
        return speaks_of_dtypes(result.why) or ".dtype" in result.source
    return all(map(speaks_of_dtypes, result.without_backward.values()))
