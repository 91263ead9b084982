"""What one call of an operator shows: whether it takes a sample, is random, and can be differentiated."""

from __future__ import annotations

import linecache
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from opcheck.checks.verdict import one_line
from opcheck.derivatives.autodiff import pushed
from opcheck.draft.refusal import is_refusal, needs_gpu
from opcheck.samples import realize
from opcheck.samples.inputs import Inputs
from opcheck.samples.layouts import equal
from opcheck.samples.modules import ModuleCall, ModuleRecipe
from opcheck.samples.realize import realize_module
from opcheck.samples.results import flatten
from opcheck.spec.document import Document
from opcheck.spec.library import Sample
from opcheck.spec.operator import SampleSpec

DTYPE = "float64"


SEEDS = ("draft", "another", "third")
"""The values that a sample must be good for: a logarithm may be lucky once."""


Operator = Callable[..., Any] | ModuleRecipe
"""A function, or a class of modules and how it is constructed."""


@dataclass(frozen=True)
class Tried:
    """A sample that an operator takes, and what its result is like."""

    sample: dict[str, Any]
    random: bool
    requires_grad: bool
    is_telling: bool
    """Whether a gradient is more than zeros, or backward raises; and no derivative is infinite or NaN, as outside the
    domain of a function that is clamped."""
    has_tangent: bool
    """Whether an output has a tangent, or forward mode raises: then it is not silent."""
    places: tuple[int | str, ...]
    """The arguments that are differentiated: positions and names, those of parameters too."""
    refusals: dict[int | str, str]
    """Those of them that alone have no derivative, with what happens if one asks for it."""
    inplace: bool = False
    """Whether the operator changes its first argument, so that it gets a clone."""


NO_GUESS = -1
"""The depth of what opcheck itself refuses, and no operator."""


@dataclass(frozen=True)
class Refused:
    """Why a sample is of no use."""

    why: str
    depth: int = 0
    """How far the operator got: the line that raised, of those of its own."""
    source: str = ""
    """The lines that raised it, up to three."""
    ends_process: bool = False
    """Whether it raised what ends a process."""

    @classmethod
    def by(cls, error: BaseException) -> Refused:
        """Return the refusal that an exception is."""
        frames = [
            (frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(error.__traceback__) if not _is_ours(frame.f_globals)
        ]  # fmt: skip
        if not frames:
            return cls(one_line(error), ends_process=not isinstance(error, Exception))
        file, last = frames[-1]
        source = " ".join(linecache.getline(file, line).strip() for line in range(max(last - 2, 1), last + 1))
        return cls(one_line(error), frames[0][1], source, not isinstance(error, Exception))

    @property
    def needs_gpu(self) -> bool:
        """Whether there are no tensors on a GPU for it."""
        return needs_gpu(self.why, self.source)


def _is_ours(names: dict[str, Any]) -> bool:
    return str(names.get("__name__", "")).partition(".")[0] in ("opcheck", "torch")


def tried(operator: Operator, sample: dict[str, Any], modules: Sequence[str]) -> Tried | Refused:
    """Call an operator with a sample. Return what it shows, or why it is of no use."""
    try:
        SampleSpec.model_validate(sample)
    except ValidationError:
        return Refused("this is no sample", NO_GUESS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _three(operator, sample, modules)
    except BaseException as error:  # nobody interrupts this process but the operator
        if IN_PLACE not in str(error) or isinstance(operator, ModuleRecipe | _OnClone):
            return Refused.by(error)
        other = tried(_OnClone(operator), sample, modules)
        return replace(other, inplace=True) if isinstance(other, Tried) else other


IN_PLACE = "is being used in an in-place operation"
"""What torch says of an operator that changes a leaf."""


@dataclass(frozen=True)
class _OnClone:
    operator: Callable[..., Any]

    def __call__(self, first: Tensor, *args: Any, **kwargs: Any) -> Any:
        own = first.clone()
        returned = self.operator(own, *args, **kwargs)
        return own if returned is None else returned


def _three(operator: Operator, sample: dict[str, Any], modules: Sequence[str]) -> Tried | Refused:
    trials = []
    for seed in SEEDS:
        one = _tried(*_made(operator, sample, seed, modules), sample)
        if isinstance(one, str):
            return Refused(one)
        trials.append(one)
    return replace(trials[0], is_telling=all(one.is_telling for one in trials))


def constructed(recipe: ModuleRecipe, modules: Sequence[str]) -> Refused | None:
    """Return why a module cannot be constructed; None if it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            realize_module(recipe, DTYPE, "cpu", SEEDS[0], modules)
    except BaseException as error:  # nobody interrupts this process but the operator
        return Refused.by(error)
    return None


def _made(
    operator: Operator, sample: dict[str, Any], seed: str, modules: Sequence[str]
) -> tuple[Callable[..., Any], Inputs]:
    """Return what to call, and the tensors of a sample, those of a module among them."""
    spec = SampleSpec.model_validate(sample)
    made = Sample("0", tuple(spec.args), spec.kwargs, None, None, Document("", "", {}), ())
    recipe = operator if isinstance(operator, ModuleRecipe) else None
    inputs = realize(made, DTYPE, "cpu", seed, modules=modules, module=recipe)
    if isinstance(operator, ModuleRecipe):
        return realize_module(operator, DTYPE, "cpu", seed, modules, made), inputs
    return operator, inputs


def differs_in_evaluation(recipe: ModuleRecipe, sample: dict[str, Any], modules: Sequence[str]) -> bool:
    """Return whether evaluation mode gives other results than training mode, both from the same random numbers."""
    call, inputs = _made(recipe, sample, SEEDS[0], modules)
    assert isinstance(call, ModuleCall)
    state = torch.random.get_rng_state()
    first = _called(call, inputs)
    torch.random.set_rng_state(state)
    call.module.eval()
    second = _called(call, inputs)
    return len(first) != len(second) or not all(map(equal, first, second))


def _tried(operator: Callable[..., Any], inputs: Inputs, sample: dict[str, Any]) -> Tried | str:
    if not inputs.leaves:
        return "no tensor to differentiate with respect to"
    outputs, again = _called(operator, inputs), _called(operator, inputs)
    if not all(bool(torch.isfinite(one).all()) for one in outputs):
        return "the result is not finite"
    random = not all(equal(one, other) for one, other in zip(outputs, again, strict=True))
    gradients, tangents = _gradients(outputs, inputs), _tangents(operator, inputs)
    finite = all(bool(torch.isfinite(one).all()) for one in (*gradients, *(tangents or ())))
    is_telling = finite and (not gradients or any(bool(one.any()) for one in gradients))
    requires_grad = any(output.requires_grad for output in outputs)
    places = tuple(dict.fromkeys(slot.path[1] for slot in inputs.slots))
    return Tried(sample, random, requires_grad, is_telling, tangents != [], places, _each_alone(operator, inputs))


def _called(operator: Callable[..., Any], inputs: Inputs, leaves: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """Return the outputs for leaves (default: those of the inputs)."""
    args, kwargs = inputs.fill(leaves or inputs.leaves)
    return flatten(operator(*args, **kwargs))


def _gradients(outputs: Sequence[Tensor], inputs: Inputs) -> list[Tensor]:
    """Return the gradients of the outputs; none if the backward pass raises, which is not asked here."""
    differentiable = [one for one in outputs if one.requires_grad]
    ones = [torch.rand_like(one) for one in differentiable]
    try:
        gradients = torch.autograd.grad(differentiable, inputs.leaves, ones, allow_unused=True) if ones else ()
    except Exception:
        return []
    return [one for one in gradients if one is not None]


def _each_alone(operator: Callable[..., Any], inputs: Inputs) -> dict[int | str, str]:
    """Ask for the derivative with respect to one argument at a time. Return what happens where there is none."""
    refusals: dict[int | str, str] = {}
    for index, slot in enumerate(inputs.slots):
        leaves = [leaf.detach().clone().requires_grad_(number == index) for number, leaf in enumerate(inputs.leaves)]
        try:
            outputs = [one for one in _called(operator, inputs, leaves) if one.requires_grad]
            if not outputs:
                refusals[slot.path[1]] = "no output requires grad"
                continue
            ones = [torch.ones_like(one) for one in outputs]
            torch.autograd.grad(outputs, leaves[index], ones, allow_unused=True)
        except Exception as error:
            if is_refusal(one_line(error)):
                refusals[slot.path[1]] = one_line(error)
    return refusals


def differentiable(tries: Sequence[Tried]) -> tuple[list[int | str], str] | None:
    """Return the arguments that have a derivative, and why the others have none.

    None if all have one, or none has. Only what every sample refuses is refused.
    """
    places = {place: None for one in tries for place in one.places}
    refused = {place for place in places if all(place in one.refusals for one in tries if place in one.places)}
    if not refused or refused == set(places):
        return None
    reasons = [reason for one in tries for place, reason in one.refusals.items() if place in refused]
    return [place for place in places if place not in refused], reasons[0]


def _tangents(operator: Callable[..., Any], inputs: Inputs) -> list[Tensor] | None:
    """Return the tangents of the outputs that have one; None if forward mode raises."""
    leaves = [leaf.detach() for leaf in inputs.leaves]
    try:
        _, tangents = pushed(lambda *dual: _called(operator, inputs, dual), leaves, list(map(torch.ones_like, leaves)))
    except Exception:
        return None
    return [tangent for tangent in tangents if tangent is not None]
