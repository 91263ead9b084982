"""Calls an operator with a sample: whether it accepts it, is random, and can be differentiated."""

from __future__ import annotations

import linecache
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn.parameter import is_lazy

from opcheck.checks.calls import Call, copies
from opcheck.checks.surroundings import deterministic
from opcheck.draft.data import SampleData
from opcheck.draft.draft import NO_GRAPH, Accepted, Place, Written
from opcheck.draft.refusal import is_refusal, needs_gpu
from opcheck.draft.repair import OF_DTYPES
from opcheck.draft.target import resolve_either
from opcheck.draft.workplace import Trial, Workplace
from opcheck.samples.arguments import signature_of, written_by
from opcheck.samples.function import TestedFunction, paths_written
from opcheck.samples.layouts import equal
from opcheck.samples.modules import ModuleRecipe
from opcheck.samples.realize import realize, realize_module
from opcheck.samples.results import Untestable, with_gradient
from opcheck.spec.document import Document
from opcheck.spec.library import Sample
from opcheck.spec.operator import Construction, SampleSpec
from opcheck.spec.render import render
from opcheck.text import one_line

T = TypeVar("T")

DTYPES = ("float64", "float32", "bfloat16", "float16")
"""The dtypes to call an operator in, until one is not refused. Many kernels accept single and half precision only."""

SEEDS = ("draft", "another", "third")
"""Seeds to try each sample with. One draw may be in the domain, of a logarithm for example, by chance."""

IN_PLACE = "is being used in an in-place operation"
"""Part of the error of torch for an operator that writes to a leaf."""

REQUIRES_GRAD = "requires grad"
"""Part of the error of an operator that refuses tensors with a derivative, such as one that calls NumPy."""

Depth = tuple[int, ...]
"""How far a call got: the offset of the last bytecode instruction in each frame of the traceback, outermost first,
without frames of opcheck and torch. Depths are compared as tuples. Line numbers would not do: in a call that is written
on several lines, the arguments are evaluated before the call, but follow it in the source."""

NO_GUESS: Depth = ()
"""The depth of a sample that opcheck refuses itself, before the operator is called."""

OUT_OF_SIGHT: Depth = (0,)
"""The depth of an exception raised in C++, without any Python frame of the operator."""

RETURNED: Depth = (sys.maxsize,)
"""The depth of a call that returned, but with results that show no derivative."""


@dataclass(eq=False)
class Refused(Exception):
    """Why a sample cannot be used. opcheck raises it itself; `by` returns it for an exception of the operator."""

    why: str
    depth: Depth = NO_GUESS
    source: str = ""
    """The source line that raised the exception, and up to two lines before it."""
    error: BaseException | None = None
    """The exception, if it is an `Untestable`, or would end the process, such as SystemExit."""
    needs_gpu: bool = False
    """Whether the operator needs a GPU, and there is none: every other call fails as well."""
    is_raised: bool = False
    """Whether the operator raised: `why` is its exception, not what opcheck has against the sample."""

    @classmethod
    def by(cls, error: BaseException, device: str = "cpu") -> Refused:
        """Return the refusal for an exception that a call on a device raised."""
        if isinstance(error, Refused):
            return error.with_traceback(None)  # its frames hold tensors
        if isinstance(error, Untestable):
            return cls(str(error), RETURNED, error=error.with_traceback(None))
        frames = [one for one in _tracebacks(error) if not _is_ours(one.tb_frame.f_globals)]
        why, depth, source = one_line(error), tuple(one.tb_lasti for one in frames) or OUT_OF_SIGHT, ""
        if frames:
            file, last = frames[-1].tb_frame.f_code.co_filename, frames[-1].tb_lineno
            source = " ".join(linecache.getline(file, line).strip() for line in range(max(last - 2, 1), last + 1))
        gpu = device == "cpu" and needs_gpu(why, source)  # elsewhere, its tensors are on a device
        ending = None if isinstance(error, Exception) else error.with_traceback(None)
        return cls(why, (*RETURNED, 0) if gpu else depth, source, ending, gpu, is_raised=True)


def _tracebacks(error: BaseException) -> Iterator[TracebackType]:
    """Yield the traceback objects of an exception, one for each frame, outermost first."""
    one = error.__traceback__
    while one is not None:
        yield one
        one = one.tb_next


def _is_ours(names: dict[str, Any]) -> bool:
    return str(names.get("__name__", "")).partition(".")[0] in ("opcheck", "torch")


@dataclass
class Caller:
    """Calls one operator, and keeps the calls that were refused."""

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
        self.signature = signature_of(self.target, self.own.name)

    @property
    def nearest(self) -> tuple[SampleData, Refused]:
        """The refused call that got furthest. A module that was called got further than one that was constructed."""
        return max(self.refused, key=lambda one: (one[0].keys() != {"module"}, one[1].depth), default=({}, Refused("")))

    @property
    def untestable(self) -> int:
        """The number of calls that returned no tensor, or an object that may contain one."""
        return sum(isinstance(why.error, Untestable) for _, why in self.refused)

    def called(self, sample: SampleData) -> Accepted | Refused:
        """Call the operator with a sample, and return what the calls show.

        If the dtype is refused, but a later one of `DTYPES` is not, all further calls use the later one.
        """
        call = sample if self.module is None else {**sample, "module": {**self.module, **sample.get("module", {})}}
        return self._attempt(call, lambda: self._in_a_dtype(sample))

    def constructed(self, construction: SampleData) -> SampleData | Refused:
        """Return the arguments of a constructor if it accepts them. Further calls are of modules made with them.

        Arguments with which the constructor leaves a tensor as it was allocated are refused: its values are random.
        """
        self.module = construction

        def call() -> SampleData:
            with deterministic():  # torch.empty and similar functions then return NaN, not what the memory holds
                made = realize_module(self._recipe({}), self.dtype, self.device, SEEDS[0], self.modules)
            for name, tensor in made.state.items():
                if not is_lazy(tensor) and tensor.numel() and bool(tensor.isnan().all()):
                    raise Refused(f"the constructor gives {name} no values", RETURNED)
            return construction

        return self._attempt({"module": construction}, call)

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

    def _tried(self, call: Callable[[], T | Refused]) -> T | Refused:
        """Call; return an exception as `Refused`."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return call()
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: only the operator raises them here
            return Refused.by(error, self.device)

    def _in_a_dtype(self, sample: SampleData) -> Accepted | Refused:
        first, results = self.dtype, list[Accepted | Refused]()
        inplace = written_by(self.target)
        for self.dtype in DTYPES[DTYPES.index(first) :]:
            results.append(self._tried(lambda: self._shown(sample, inplace=inplace)))
            if not _refuses_dtype(results[-1]):
                return results[-1]
        self.dtype = first
        return results[0]

    def _shown(self, sample: SampleData, *, inplace: Written = False, detached: bool = False) -> Accepted:
        """Call the operator with several draws of the values of a sample.

        inplace: the arguments that it changes, as in specs. detached: whether its tensors must not require grad.
        """
        made = _sample(sample)
        try:
            each = [shown(self._function(made, sample, seed, inplace, detached), sample) for seed in SEEDS]
        except RuntimeError as error:
            why = one_line(error)
            if IN_PLACE in why and not inplace and self.module is None:
                return self._shown(sample, inplace=True)
            if IN_PLACE not in why and REQUIRES_GRAD in why and not detached:
                return self._shown(sample, inplace=inplace, detached=True)
            raise
        return replace(each[0], is_conclusive=all(one.is_conclusive for one in each))

    def _function(
        self, made: Sample, sample: SampleData, seed: str, inplace: Written = False, detached: bool = False
    ) -> TestedFunction:
        """Return the operator as a function of the tensors of a sample, and of the parameters of a module."""
        recipe = None if self.module is None else self._recipe(sample)
        inputs = realize(made, self.dtype, self.device, seed, modules=self.modules, module=recipe)
        inputs = inputs.detached() if detached else inputs
        if recipe is None:
            writes = paths_written(inplace, made.args, made.kwargs, self.signature.positional)
            return TestedFunction(self.target, inputs, writes=writes)
        return TestedFunction(realize_module(recipe, self.dtype, self.device, seed, self.modules, made), inputs)

    def _recipe(self, sample: SampleData) -> ModuleRecipe:
        """Return how to construct modules: with the current arguments, and those of the sample."""
        assert isinstance(self.target, type)
        return ModuleRecipe(
            self.target, Construction.model_validate({**(self.module or {}), **sample.get("module", {})})
        )

    def differ(self, *both: Accepted) -> bool:
        """Return whether two samples that the operator accepts give other results, with the same random numbers."""
        results = []
        for one in both:
            torch.manual_seed(0)
            # It may have accepted only tensors that do not require grad.
            results.append(self._function(_sample(one.sample), one.sample, SEEDS[0], detached=not one.requires_grad)())
        first, second = results
        return len(first) != len(second) or not all(map(equal, first, second))


def _sample(data: SampleData) -> Sample:
    """Return the sample for TOML data. Raises Refused if the data are not a sample."""
    try:
        spec = SampleSpec.model_validate(data)
    except ValidationError:
        raise Refused("this is no sample", NO_GUESS) from None
    return Sample("0", tuple(spec.args), spec.kwargs, Document("", "", {}), ())


def _refuses_dtype(result: Accepted | Refused) -> bool:
    """Return whether a call, or all of its derivatives, failed because of the dtype of a tensor.

    Either the message is about a dtype, or the source lines that raised it read one.
    """
    if isinstance(result, Refused):
        return OF_DTYPES.search(result.why) is not None or ".dtype" in result.source
    return all(map(OF_DTYPES.search, result.without_backward.values()))


def shown(function: TestedFunction, sample: SampleData) -> Accepted:
    """Call a function at its inputs, and return what the calls show.

    sample: the sample that the inputs of the function were made from.

    Passes on the exceptions of the function. Raises Untestable if it returns no tensor, Refused if its results are not
    finite, or all empty.
    """
    leaves = function.inputs.leaves
    if not leaves:
        raise Refused("no tensor to differentiate with respect to", OUT_OF_SIGHT)
    kept = copies(leaves)  # a call may write to its arguments
    state = torch.get_rng_state()
    outputs, again = function(), function(*kept)
    draws = not torch.equal(state, torch.get_rng_state())
    if not _are_finite(outputs):
        raise Refused("the result is not finite", RETURNED)
    if not any(output.numel() for output in outputs):
        raise Refused("the result has no elements", RETURNED)
    gradients: list[Tensor] = []
    without_backward: dict[Place, str] = {}
    for place, found in _by_backward(function):
        without_backward[place] = without_backward.get(place) or _refusal(found)
        gradients += [found] if isinstance(found, Tensor) else []
    return Accepted(
        sample,
        random=draws or not all(map(equal, outputs, again)),
        inplace="" in function.writes or tuple(function.writes),
        without_backward=without_backward,
        is_conclusive=_are_finite(gradients) and _are_moderate(gradients),
    )


def _refusal(found: Tensor | str | None) -> str:
    """Return why there is no derivative; empty if there is one, or if an error is not a refusal."""
    return found if isinstance(found, str) and (found == NO_GRAPH or is_refusal(found)) else ""


def _are_finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(one).all()) for one in tensors)


def _are_moderate(gradients: list[Tensor]) -> bool:
    """Return whether the largest gradient is neither rounding nor huge, so that finite differences can check it."""
    largest = max((float(one.abs().max()) for one in gradients if one.numel()), default=0.0)
    return not gradients or 1e-6 < largest < 1e8


def _by_backward(function: TestedFunction) -> Iterator[tuple[Place, Tensor | str | None]]:
    """Yield each leaf's argument and gradient: None if backward returns none, or why there is none, in words."""
    for slot in function.inputs.slots:
        place = slot.path[1]
        if not function.inputs.leaves[slot.index].requires_grad:
            yield place, NO_GRAPH
            continue
        leaves = [leaf.detach().clone() for leaf in function.inputs.leaves]
        own = leaves[slot.index].requires_grad_()
        try:
            call = Call((own,), with_gradient(function(*leaves)))
            cotangents = [v.to(y) for y, v in zip(call.outputs, call.cotangents, strict=True)]
            if call.outputs:
                yield place, torch.autograd.grad(call.outputs, own, cotangents, allow_unused=True)[0]
            else:
                yield place, NO_GRAPH
        except Exception as error:
            yield place, one_line(error)
