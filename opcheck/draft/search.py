"""Searches for samples that an operator accepts, and drafts specs from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from types import MethodType
from typing import Any, TypeVar

import torch
from torch._library.custom_ops import CustomOpDef

from opcheck.draft.attempt import NO_GUESS, OUT_OF_SIGHT, Caller, Refused
from opcheck.draft.data import SampleData
from opcheck.draft.draft import Accepted, Draft
from opcheck.draft.guess import DOMAINS, constructions, first_samples, further_samples, within
from opcheck.draft.parameters import Parameter, parameters_of, parameters_of_constructor
from opcheck.draft.recorder import examples
from opcheck.draft.refusal import has_interpreter
from opcheck.draft.repair import repairs_of
from opcheck.draft.workplace import EXAMPLES, Deadline, Trial, Workplace
from opcheck.samples.arguments import takes_out
from opcheck.samples.resolve import Unresolved, resolve_operator
from opcheck.samples.results import Untestable
from opcheck.spec.render import render

NO_CLASS = "it is not a class of modules, which --module is for"
TAKES_NO_TENSOR = "it takes no tensor, so there is nothing to differentiate"
RETURNS_NO_TENSOR = "it returns no tensor, so there is nothing to differentiate"
CONSTANT = (TAKES_NO_TENSOR, RETURNS_NO_TENSOR)

MOST_WITHOUT_GRADIENT = 60
"""The number of further samples to try after a sample whose gradient is missing or inconclusive."""

MOST_LIKELY = 12
"""The number of guesses to try before the examples in the documentation."""

MOST_IN_VAIN = 400
"""The number of guesses that may be refused, without getting further than earlier guesses, before the search stops."""

MOST_UNTESTABLE = 6
"""The number of calls that return no tensor, or an object that may contain one, after which the search stops."""

PASS_ARGUMENTS = "pass arguments with --args"
NEEDS_GPU = "it needs a GPU; where there is one, add --device cuda"
OR_INTERPRETER = "; or, if its kernels are in Triton, set TRITON_INTERPRET=1"
CONSTRUCT = "pass constructor arguments with --module, and arguments of forward with --args"

T = TypeVar("T")


@dataclass
class Search:
    """Searches for samples of one operator."""

    own: Trial
    """The operator to find samples for."""
    workplace: Workplace
    deadline: Deadline
    hopeless: str = ""
    """Why no call can show a derivative, such as `RETURNS_NO_TENSOR`; empty unless that is certain."""

    def __post_init__(self) -> None:
        self.caller = Caller(self.own, self.workplace)
        self.name, self.target = self.own.name, self.caller.target

    def draft(self) -> Draft | None:
        """Return the draft that follows from samples that work; None if none works, for the reason of `refusal`."""
        is_function = not isinstance(self.target, type)
        if is_function and not self.own.given and all(one.is_plain for one in chain(*self.parameters)):
            self.hopeless = TAKES_NO_TENSOR
        if is_function and self.caller.module is not None:
            self.hopeless = NO_CLASS
        for _ in () if self.hopeless else self.constructions():
            tries = list(self.one_of_each(map(self.samples_of, self.groups)) if self.own.given else self.guessed())
            if tries:
                variants = variants_of(self.name, self.caller.modules) if is_function else []
                has_out = not is_function or takes_out(self.target) is not False
                evaluated = self.in_evaluation(tries[0])
                draft = Draft.of(self.name, [*tries, *evaluated], self.caller.module, variants, out=has_out)
                if isinstance(self.target, CustomOpDef):
                    draft.disclaim_unregistered()
                return draft
        error = self.caller.nearest[1].error
        if isinstance(error, Untestable) and error.is_plain and not self.own.given:
            self.hopeless = self.hopeless or RETURNS_NO_TENSOR
        return None

    def in_evaluation(self, trained: Accepted) -> Iterator[Accepted]:
        """Yield the result of a sample in evaluation mode, if it differs from the result of the module in training."""
        other = {**trained.sample, "module": {"train": False}}
        if self.caller.module is not None and self.caller.module.get("train", True):
            yield from (one for one in self.tries([other], self.caller.called) if self.caller.differ(trained, one))

    def refusal(self) -> str:
        """Return why no sample works, in one line."""
        if self.hopeless or self.own.ended:
            return self.hopeless or self.own.ended[0]
        is_class = isinstance(self.target, type)
        what, advice = ("constructor", CONSTRUCT) if is_class else ("signature", PASS_ARGUMENTS)
        if not self.caller.refused:
            unknown = self.unknown()
            why = f"no guess for the parameter {unknown}" if unknown else f"cannot guess arguments from its {what}"
            return f"{why}; {advice}"
        call, nearest = self.caller.nearest
        why = f"{render(call)}{' raised' if nearest.is_raised else ':'} {nearest.why}"
        if nearest.needs_gpu:
            return f"{why}; {NEEDS_GPU}" + ("" if has_interpreter() else OR_INTERPRETER)
        if not self.own.given:
            only = f"none of {self.caller.count} guessed calls worked; the closest"
            why = f"{'the only guessed call failed' if self.caller.count == 1 else only}: {why}"
        return f"{why}; {advice}"

    def unknown(self) -> Parameter | None:
        """Return the first required parameter without a guess; of a module, also of its constructor."""
        parameters = self.parameters
        if isinstance(self.target, type) and self.caller.module is None:
            parameters = [parameters_of_constructor(self.target), *parameters]
        every = chain.from_iterable(parameters)
        return next((one for one in every if one.required and not one.options), None)

    def constructions(self) -> Iterator[SampleData | None]:
        """Yield constructor arguments for `caller` to use: the given ones, or each recorded or guessed ones that work.

        For a function, yield None once.
        """
        if not isinstance(self.target, type) or self.caller.module is not None:
            yield self.caller.module
            return
        recorded = [call["module"] for group in self.groups for call in group if "module" in call]
        guesses = () if self.own.given and recorded else constructions(self.target)
        yield from self.tries(chain(recorded, guesses), self.caller.constructed, parameters_of_constructor(self.target))

    @cached_property
    def groups(self) -> Sequence[Sequence[SampleData]]:
        """Groups of calls to try: the given ones or, if there are none, those in the examples of the documentation."""
        if self.own.given or EXAMPLES in self.own.skip:
            return self.own.given
        self.own.note(self.workplace.budget, call=EXAMPLES, step="in the examples in its documentation")
        return examples(self.name, self.caller.modules)

    def samples_of(self, group: Sequence[SampleData]) -> list[SampleData]:
        """Return the samples in a group of calls, without those of modules with other constructor arguments."""
        own = [call for call in group if call.get("module", self.caller.module) == self.caller.module]
        return [{key: value for key, value in call.items() if key != "module"} for call in own]

    @cached_property
    def parameters(self) -> list[list[Parameter]]:
        """Lists of parameters to guess arguments for, to be tried in turn: of a class of modules, those of forward."""
        make: Any = self.target
        called = MethodType(make.forward, make) if isinstance(self.target, type) else make
        return parameters_of(called, self.name)

    def one_of_each(self, groups: Iterable[Sequence[SampleData]]) -> Iterator[Accepted]:
        """Yield the result of the first sample of each group that is not refused."""
        for group in groups:
            yield from islice(self.tries(group, self.caller.called), 1)

    def guessed(self) -> Iterator[Accepted]:
        """Yield the result of a guessed sample, then those of samples that differ from it in one respect."""
        for parameters in self.parameters:
            main = self.likeliest(parameters)
            if main is not None:
                yield main
                others = self.one_of_each(further_samples(main.sample, parameters))
                yield from {render(one.sample): one for one in others if one.sample != main.sample}.values()
                return

    def guesses(self, parameters: Sequence[Parameter]) -> Iterator[SampleData]:
        """Yield the likeliest guesses, then examples (often of one row, or positive), then other guesses."""
        guesses = first_samples(parameters, bool(self.own.skip), isinstance(self.target, type))
        yield from islice(guesses, MOST_LIKELY)
        for group in self.groups:
            yield from self.samples_of(group)
        yield from guesses

    def likeliest(self, parameters: Sequence[Parameter]) -> Accepted | None:
        """Return the result of the first sample with conclusive derivatives; else of the first sample that works.

        That one is tried in other domains, too: its shapes are right, so other shapes and kinds are less likely.
        """
        fallback: Accepted | None = None
        for number, attempt in enumerate(self.tries(self.guesses(parameters), self.caller.called, parameters)):
            others = [within(domain, attempt.sample) for domain in DOMAINS[1:] if fallback is None]
            for one in chain([attempt], self.tries(others, self.caller.called)):
                if one.requires_grad and one.is_conclusive:
                    return one
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
        """Yield the results of `attempt` for guesses that are not refused, until the time is over.

        A refused guess is repaired as its error message suggests, if it got as far in the source of the operator as any
        guess before. Without a Python source, only guesses with a new message are repaired. Three of four guesses are
        repaired ones, if there are any; those that got furthest come first.

        parameters: the parameters that the guesses are arguments for. If empty, guesses are not repaired.
        """
        guesses, repaired = iter(guesses), iter(list[SampleData]())
        seen, said, vain, best = set[str](), set[str](), 0, NO_GUESS
        while vain < MOST_IN_VAIN and self.caller.untestable < MOST_UNTESTABLE and not self.deadline.is_over:
            guess = next(chain(repaired, guesses) if self.caller.count % 4 else chain(guesses, repaired), None)
            if guess is None:
                return
            if render(guess) in seen:
                continue
            seen.add(render(guess))
            result = attempt(guess)
            if not isinstance(result, Refused):
                yield result
                continue
            if result.needs_gpu:
                return
            is_further, is_visible = result.depth > best, result.depth > OUT_OF_SIGHT
            vain = 0 if is_further else vain + 1
            # If the depth is unknown, a repeated message suggests no new repair.
            message = re.sub(r"\d+", "", result.why)
            is_new = is_visible or message not in said
            if parameters and is_new and result.depth >= max(best, OUT_OF_SIGHT):
                own = repairs_of(guess, result.why, result.source, parameters)
                repaired = chain(own, repaired) if is_further or not is_visible else chain(repaired, own)
                best = result.depth
            said.add(message)


def variants_of(path: str, modules: Sequence[str]) -> list[Any]:
    """Return the variants of an operator that exist, as in a spec: method and in-place."""
    home, _, name = path.replace(":", ".").rpartition(".")
    if home.partition(".")[0] == "torch":
        return [kind for kind, end in (("method", ""), ("inplace", "_")) if hasattr(torch.Tensor, name + end)]
    try:
        resolve_operator(f"{home}.{name}_", modules)
    except Unresolved:
        return []
    return [{"kind": "inplace", "target": f"{home}.{name}_"}]
