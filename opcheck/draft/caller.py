"""Calls an operator with samples, in a dtype that it accepts, and keeps the refused call that got furthest."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from torch import Tensor

from opcheck.draft.attempt import NO_GUESS, Accepted, Refused, shown
from opcheck.draft.data import SampleData, has_differentiable
from opcheck.draft.hint import mentions_dtypes
from opcheck.draft.refusal import has_interpreter, is_beyond_interpreter
from opcheck.draft.target import resolve_either
from opcheck.draft.workplace import Trial, Workplace
from opcheck.samples.function import TestedFunction
from opcheck.samples.layouts import equal
from opcheck.samples.modules import ModuleCall, ModuleRecipe
from opcheck.samples.realize import realize, realize_module
from opcheck.spec.document import Document
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction, SampleSpec
from opcheck.spec.render import render

T = TypeVar("T")

DTYPES = ("float64", "float32", "bfloat16", "float16", "complex128")
"""The dtypes to call an operator in, until one is not refused. Many kernels accept single and half precision only, some
operators complex numbers only."""

SEEDS = ("draft", "another", "third")
"""Seeds to try each sample with. One draw may be in the domain, of a logarithm for example, by chance."""

IN_PLACE = "is being used in an in-place operation"
"""Part of the error of torch for an operator that writes to a leaf."""

PASS_ARGUMENTS = "pass arguments with --args"
NEEDS_GPU = "it needs a GPU; where there is one, add --device cuda"
OR_INTERPRETER = "; or, if its kernels are in Triton, set TRITON_INTERPRET=1"
CONSTRUCT = "pass constructor arguments with --module, and arguments of forward with --args"


@dataclass
class Caller:
    """Calls one operator, and keeps what the calls have shown."""

    own: Trial
    """The trial of the operator. Calls are noted in it before they are made, and exceptions that end a process."""
    workplace: Workplace
    dtype: str = DTYPES[0]
    """The dtype of tensors for which the sample gives none."""
    count: int = 0
    """The number of calls."""
    nearest: Refused = field(default_factory=lambda: Refused("", NO_GUESS))
    """The refused call that got furthest."""
    plain: int = 0
    """The number of calls that returned numbers, strings and the like, but no tensor."""

    def __post_init__(self) -> None:
        self.modules, self.device = self.workplace.settings.modules, self.workplace.device.device_string
        self.target: Callable[..., Any] | type[torch.nn.Module] = resolve_either(self.own.name, self.modules)
        self.module = self.own.module

    @property
    def recipe(self) -> ModuleRecipe | None:
        """The recipe for modules of a class, with the current constructor arguments; None for a function."""
        if not isinstance(self.target, type):
            return None
        return ModuleRecipe(self.target, Construction.model_validate(self.module))

    def called(self, sample: SampleData) -> Accepted | Refused:
        """Call the operator with a sample, and return what the calls show.

        If the dtype is refused, but a later one of `DTYPES` is not, all further calls use the later one.
        """
        call = sample if self.module is None else {"module": self.module, **sample}
        return self._attempt(call, lambda: self._in_a_dtype(sample))

    def _in_a_dtype(self, sample: SampleData) -> Accepted | Refused:
        result, first = self._shown(sample), self.dtype
        for dtype in DTYPES[DTYPES.index(first) + 1 :] if _is_about_dtypes(result) else ():
            self.dtype = dtype
            other = self._shown(sample)
            if not _is_about_dtypes(other):
                return other
        self.dtype = first
        return result

    def _shown(self, sample: SampleData, inplace: bool = False) -> Accepted | Refused:
        """Call the operator with several draws of the values of one sample, and return what the calls show.

        inplace: whether the operator gets a clone of its first argument. If a function writes to a leaf, the sample is
        tried again in this way.
        """
        try:
            made = _sample(sample)
        except ValidationError:
            return Refused("this is no sample", NO_GUESS)

        def call() -> Accepted | Refused:
            shows = []
            for seed in SEEDS:
                one = shown(self._function(made, seed, inplace), sample)
                if isinstance(one, Refused):
                    return one
                shows.append(one)
            return replace(shows[0], is_conclusive=all(one.is_conclusive for one in shows))

        result = self._unless_refused(call)
        if inplace or self.recipe or isinstance(result, Accepted) or IN_PLACE not in result.why:
            return result
        return self._shown(sample, inplace=True)

    def called_with_integers(self, sample: SampleData) -> SampleData | Refused:
        """Return a sample if it has no tensor to differentiate and the operator accepts it."""
        if has_differentiable(sample):
            return Refused("there is a tensor that is not of integers", NO_GUESS)
        return self._attempt(sample, lambda: self._taken(sample))

    def is_refused_by_dtype(self, sample: SampleData) -> bool:
        """Return whether the operator refuses a sample because of the dtype of a tensor."""
        result = self._taken(sample)
        return isinstance(result, Refused) and mentions_dtypes(result.why)

    def _taken(self, sample: SampleData) -> SampleData | Refused:
        """Return a sample if the operator accepts it, whatever it returns."""

        def call() -> SampleData:
            self._function(_sample(sample)).result()
            return sample

        return self._unless_refused(call)

    def constructed(self, construction: SampleData) -> SampleData | Refused:
        """Return the arguments of a constructor if it accepts them. Further calls are of modules made with them."""
        self.module = construction

        def call() -> SampleData:
            recipe = self.recipe
            assert recipe is not None, "only classes of modules are constructed"
            realize_module(recipe, self.dtype, self.device, SEEDS[0], self.modules)
            return construction

        return self._attempt({"module": construction}, lambda: self._unless_refused(call))

    def _function(self, sample: Sample, seed: str = SEEDS[0], inplace: bool = False) -> TestedFunction:
        """Return the operator as a function of the tensors of a sample, and of the parameters of a module."""
        recipe, operator = self.recipe, self.target
        inputs = realize(sample, self.dtype, self.device, seed, modules=self.modules, module=recipe)
        if recipe is not None:
            operator = realize_module(recipe, self.dtype, self.device, seed, self.modules, sample)
        return TestedFunction(operator, inputs, inplace=inplace)

    def _unless_refused(self, call: Callable[[], T]) -> T | Refused:
        """Call; return an exception as `Refused`."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return call()
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: only the operator raises them here
            return Refused.by(error, self.device)

    def _attempt(self, call: SampleData, make: Callable[[], T | Refused]) -> T | Refused:
        """Make a call, unless it is to be skipped, and return its result. Keep the refused call that got furthest."""
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
        """Note the call that is about to be made, to report it if the process dies or hangs."""
        self.own.note(self.workplace.budget, call=call)

    def sets_parameters(self, sample: SampleData) -> bool:
        """Return whether a call in training mode changes parameters, as in a layer that its first batch initializes."""
        function = self._function(_sample(sample))
        assert isinstance(function.operator, ModuleCall)
        inputs = function.inputs
        keys = function.operator.named_in(inputs.fill()[1]).values()
        parameters = [inputs.leaves[slot.index] for slot in inputs.slots if slot.path[1] in keys]
        before = [parameter.detach().clone() for parameter in parameters]
        function(*inputs.leaves)
        return not all(map(equal, before, map(Tensor.detach, parameters)))

    def differs_in_evaluation(self, sample: SampleData) -> bool:
        """Return whether evaluation mode gives other results than training mode, with the same random numbers."""
        function = self._function(_sample(sample))
        assert isinstance(function.operator, ModuleCall)
        kind = torch.device(self.device).type
        with torch.random.fork_rng([] if kind == "cpu" else None, device_type=kind):
            first = function()
        function.operator.module.eval()
        second = function()
        return len(first) != len(second) or not all(map(equal, first, second))

    def refusal(self) -> str:
        """Return why every call failed, in one line."""
        of_class = isinstance(self.target, type)
        advice = CONSTRUCT if of_class else PASS_ARGUMENTS
        if self.own.ended:
            return self.own.ended[0]
        if self.nearest.needs_gpu or is_beyond_interpreter(self.nearest.why):
            return f"{self.nearest.why}; {NEEDS_GPU}" + ("" if has_interpreter() else OR_INTERPRETER)
        if not self.count:
            what = "constructor" if of_class else "signature"
            return f"cannot guess arguments from its {what}; {advice}"
        few = "the only guessed call failed" if self.count == 1 else f"none of {self.count} guessed calls worked"
        closest = f"{few}: " if self.count == 1 else f"{few}; the closest: "
        return ("" if self.own.given else closest) + f"{self.nearest.why}; {advice}"


def _sample(data: SampleData) -> Sample:
    """Return the sample for TOML data. Raises ValidationError if the data are no sample."""
    spec = SampleSpec.model_validate(data)
    return Sample("0", tuple(spec.args), spec.kwargs, Document("", "", {}), ())


def _is_about_dtypes(result: Accepted | Refused) -> bool:
    """Return whether a call, or all of its derivatives, failed because of the dtype of a tensor.

    A refused call counts, too, if the source lines that raised the exception read a dtype.
    """
    if isinstance(result, Refused):
        return mentions_dtypes(result.why) or ".dtype" in result.source
    return all(map(mentions_dtypes, result.without_backward.values()))
