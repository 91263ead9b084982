"""Calls an operator with samples, in a dtype that it accepts, and keeps the refused calls."""

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
from opcheck.draft.target import resolve_either
from opcheck.draft.workplace import Trial, Workplace
from opcheck.samples.function import TestedFunction
from opcheck.samples.layouts import equal
from opcheck.samples.modules import ModuleCall, ModuleRecipe
from opcheck.samples.realize import realize, realize_module
from opcheck.samples.results import Untestable
from opcheck.spec.document import Document
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction, SampleSpec
from opcheck.spec.render import render
from opcheck.text import one_line

T = TypeVar("T")

DTYPES = ("float64", "float32", "bfloat16", "float16", "complex128")
"""The dtypes to call an operator in, until one is not refused. Many kernels accept single and half precision only, some
operators complex numbers only."""

SEEDS = ("draft", "another", "third")
"""Seeds to try each sample with. One draw may be in the domain, of a logarithm for example, by chance."""

IN_PLACE = "is being used in an in-place operation"
"""Part of the error of torch for an operator that writes to a leaf."""


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
    refused: list[tuple[SampleData, Refused]] = field(default_factory=list)
    """The calls that were refused."""

    def __post_init__(self) -> None:
        self.modules, self.device = self.workplace.settings.modules, self.workplace.device.device_string
        self.target: Callable[..., Any] | type[torch.nn.Module] = resolve_either(self.own.name, self.modules)
        self.module = self.own.module

    @property
    def nearest(self) -> tuple[SampleData, Refused]:
        """The refused call that got furthest."""
        return max(self.refused, key=lambda one: one[1].depth, default=({}, Refused("")))

    @property
    def untestable(self) -> int:
        """The number of calls that returned no tensor, or an object that may contain one."""
        return sum(isinstance(why.error, Untestable) for _, why in self.refused)

    @property
    def recipe(self) -> ModuleRecipe | None:
        """The recipe for modules of a class, with the current constructor arguments; None for a function."""
        if not isinstance(self.target, type):
            return None
        return ModuleRecipe(self.target, Construction.model_validate(self.module))

    def called(self, sample: SampleData) -> Accepted | Refused:
        """Call the operator with a sample, and return what the calls show.

        If the dtype is refused, but a later one of `DTYPES` is not, all further calls use the later one. Complex dtypes
        must be accepted for that: most operators refuse them, in many words.
        """
        call = sample if self.module is None else {"module": self.module, **sample}
        return self._attempt(call, lambda: self._in_a_dtype(sample))

    def _in_a_dtype(self, sample: SampleData) -> Accepted | Refused:
        result, first = self._tried(lambda: self._shown(sample)), self.dtype
        for dtype in DTYPES[DTYPES.index(first) + 1 :] if _is_about_dtypes(result) else ():
            self.dtype = dtype
            other = self._tried(lambda: self._shown(sample))
            if not (_is_about_dtypes(other) or (isinstance(other, Refused) and dtype.startswith("complex"))):
                return other
        self.dtype = first
        return result

    def _shown(self, sample: SampleData) -> Accepted:
        """Call the operator with several draws of the values of a sample; in place, if it has to get a clone."""
        made = _sample(sample)
        try:
            return self._drawn(made, sample, inplace=False)
        except RuntimeError as error:
            if self.recipe is not None or IN_PLACE not in one_line(error):
                raise
        return self._drawn(made, sample, inplace=True)

    def _drawn(self, made: Sample, sample: SampleData, *, inplace: bool) -> Accepted:
        each = [shown(self._function(made, seed, inplace), sample) for seed in SEEDS]
        return replace(each[0], is_conclusive=all(one.is_conclusive for one in each))

    def called_with_integers(self, sample: SampleData) -> SampleData | Refused:
        """Return a sample if it has no tensor to differentiate and the operator accepts it, whatever it returns."""

        def call() -> SampleData:
            self._function(_sample(sample)).result()
            return sample

        if has_differentiable(sample):
            return Refused("there is a tensor that is not of integers")
        return self._attempt(sample, call)

    def constructed(self, construction: SampleData) -> SampleData | Refused:
        """Return the arguments of a constructor if it accepts them. Further calls are of modules made with them."""
        self.module = construction

        def call() -> SampleData:
            assert self.recipe is not None, "only classes of modules are constructed"
            realize_module(self.recipe, self.dtype, self.device, SEEDS[0], self.modules)
            return construction

        return self._attempt({"module": construction}, call)

    def _function(self, sample: Sample, seed: str = SEEDS[0], inplace: bool = False) -> TestedFunction:
        """Return the operator as a function of the tensors of a sample, and of the parameters of a module."""
        recipe, operator = self.recipe, self.target
        inputs = realize(sample, self.dtype, self.device, seed, modules=self.modules, module=recipe)
        if recipe is not None:
            operator = realize_module(recipe, self.dtype, self.device, seed, self.modules, sample)
        return TestedFunction(operator, inputs, inplace=inplace)

    def _tried(self, call: Callable[[], T | Refused]) -> T | Refused:
        """Call; return an exception as `Refused`."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return call()
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: only the operator raises them here
            return Refused.by(error, self.device)

    def _attempt(self, call: SampleData, make: Callable[[], T | Refused]) -> T | Refused:
        """Make a call, unless it is to be skipped, and return its result."""
        if call in self.own.skip:
            return Refused("it has ended its process")
        # The parent process reports the call if this process dies or hangs.
        self.own.note(self.workplace.budget, call=call, step=f"in the call {render(call)}")
        self.count += 1
        result = self._tried(make)
        if isinstance(result, Refused):
            self.refused.append((call, result))
            ended = f"it ends its process by an exception: {result.why}, in the call {render(call)}"
            if not isinstance(result.error, Exception | None) and ended not in self.own.ended:
                self.own.note(ended=[*self.own.ended, ended])
        return result

    def sets_parameters(self, sample: SampleData) -> bool:
        """Return whether a call in training mode changes parameters, as in a layer that its first batch initializes."""
        function = self._function(_sample(sample))
        inputs, given = function.inputs, sample.get("kwargs", {})
        named = [slot for slot in inputs.slots if slot.path[0] == "kwargs" and slot.path[1] not in given]
        parameters = [inputs.leaves[slot.index] for slot in named]
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


def _sample(data: SampleData) -> Sample:
    """Return the sample for TOML data. Raises Refused if the data are no sample."""
    try:
        spec = SampleSpec.model_validate(data)
    except ValidationError:
        raise Refused("this is no sample", NO_GUESS) from None
    return Sample("0", tuple(spec.args), spec.kwargs, Document("", "", {}), ())


def _is_about_dtypes(result: Accepted | Refused) -> bool:
    """Return whether a call, or all of its derivatives, failed because of the dtype of a tensor.

    A refused call counts, too, if the source lines that raised the exception read a dtype.
    """
    if isinstance(result, Refused):
        return mentions_dtypes(result.why) or ".dtype" in result.source
    return all(map(mentions_dtypes, result.without_backward.values()))
