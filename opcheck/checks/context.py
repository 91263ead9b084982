"""What a check has before it: a case, its operator, and its samples made real."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.arguments import names_of
from opcheck.checks.verdict import Verdict
from opcheck.derivatives import Amount, Engine, Numbers, Request, TooLarge, default_numbers, order
from opcheck.plan.case import Case
from opcheck.plan.kinds import check_kinds
from opcheck.samples import Inputs, TestedFunction, realize
from opcheck.samples.kept import Kept
from opcheck.samples.operator import resolve_operator
from opcheck.samples.outputs import differentiable
from opcheck.samples.results import flatten
from opcheck.spec.claims import Jacobian, Supports, Tolerance
from opcheck.spec.library import Sample
from opcheck.spec.settings import Settings


@dataclass(frozen=True, eq=False)
class Context:
    """A case about to be checked."""

    case: Case
    engine: Engine
    settings: Settings
    samples: tuple[Sample, ...]
    device: str
    """torch's device string."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Numbers and settings given on the command line; they win over the spec."""
    kept: Kept = field(default_factory=Kept)
    """Inputs of the checks before this one."""
    callables: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Operators passed in from Python, by path. They are not looked up."""

    @property
    def group(self) -> tuple[object, ...]:
        """What the checks that follow one another have in common: the same inputs, of the same callable."""
        case = self.case
        return case.operator, case.variant.path, self.device, case.dtype, case.claims.supports.backward

    @cached_property
    def operator(self) -> Callable[..., Any]:
        """The callable of the case's variant. Raises Unresolved."""
        path = self.case.variant.path
        found: Callable[..., Any] = self.kept.once(self.group, path, lambda: self.resolve(path))
        return found

    def resolve(self, path: str) -> Callable[..., Any]:
        """Return the callable that a dotted path of the spec names. Raises Unresolved."""
        given = self.callables.get(path)
        return resolve_operator(path, self.settings.modules) if given is None else given

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the case."""
        found: torch.dtype = getattr(torch, self.case.dtype)
        return found

    @cached_property
    def numbers(self) -> Numbers | None:
        """Step and tolerances for derivatives; None where the dtype is too coarse for finite differences."""
        base = default_numbers(self.dtype)
        if base is None:
            return None
        own = dict(self.case.claims.tolerance(self.case.check, self.case.dtype).numbers())
        given = {key: value for key, value in own.items() if value is not None}
        given |= {key: value for key, value in self.overrides.items() if key in TOLERANCES}
        return replace(base, **given) if given else base

    @cached_property
    def amount(self) -> Amount:
        """How much evidence is gathered: by the command line, else the spec, else the project."""
        own: Jacobian | None = self.overrides.get("jacobian", self.case.operator.spec.jacobian)
        return Amount(own or self.settings.jacobian, budget=self.settings.batch_memory << 20)

    @cached_property
    def beside_the_jacobian(self) -> tuple[str, ...]:
        """The checks beside the Jacobian that the operator makes the claims for."""
        return tuple(name for name in BESIDE_THE_JACOBIAN if _claimed(name, self.case.claims.supports))

    @cached_property
    def jacobians(self) -> tuple[str, ...]:
        """The checks of Jacobians that the case and those beside it are about."""
        return tuple(filter(order, self.case.checks))

    def value_tolerance(self) -> Tolerance:
        """Return rtol and atol for comparisons of values: both None, unless the spec sets one for this very check."""
        own = self.case.operator.spec.tolerance.check.get(self.case.check, Tolerance())
        if own.atol is None and own.rtol is None:
            return own
        return Tolerance(atol=own.atol or 0.0, rtol=own.rtol or 0.0)

    def inputs(self, sample: Sample) -> Inputs:
        """Return the inputs of a sample: those of an earlier check of the group, where it has only read them."""
        return self.kept.inputs(self.group, sample.name, lambda: self.realize(sample))

    def realize(self, sample: Sample) -> Inputs:
        """Make a sample real on the device, with the leaves that have a derivative by the spec."""
        claim = self.case.claims.supports.backward
        wanted = claim if isinstance(claim, tuple) else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the making: the operator has not been called
            return realize(
                sample,
                self.case.dtype,
                self.device,
                self.case.seed(sample),
                modules=self.settings.modules,
                wrt=None if wanted is None else self.among(wanted),
            )

    def among(self, wanted: tuple[str | int, ...]) -> Callable[[tuple[int | str, ...]], bool]:
        """Return a predicate on places of arguments: those that a list of names and positions means."""
        names = names_of(self.operator, self.case.variant.path)

        def chosen(path: tuple[int | str, ...]) -> bool:
            at = path[1]
            name = names[at] if isinstance(at, int) and at < len(names) else at
            return at in wanted or name in wanted

        return chosen

    def function(self, sample: Sample, inputs: Inputs) -> TestedFunction:
        """Return the operator at a sample as a function of its leaves."""
        spec = self.case.operator.spec
        seed = zlib.crc32(self.case.seed(sample).encode()) if spec.reseed else None
        inplace = self.case.variant.kind == "inplace"
        return TestedFunction(self.operator, inputs, spec.outputs, inplace, seed, spec.masked_semantics, self.device)

    def subject(self, sample: Sample) -> Subject:
        """Make a sample real. Exceptions are those of the sample's maker."""
        inputs = self.inputs(sample)
        return Subject(self, sample, inputs, self.function(sample, inputs))


BESIDE_THE_JACOBIAN = ("batched_grad", "batched_forward_grad", "undefined_grad", "grad_dtypes", "nondeterminism")


def _claimed(check: str, supports: Supports) -> bool:
    return all(getattr(supports, name) for name in check_kinds()[check].needs)


TOLERANCES = {"eps", "atol", "rtol", "nondeterminism"}


@dataclass(frozen=True)
class Seen:
    """What is known of the outputs under test without keeping them."""

    names: tuple[str, ...]
    """As in `.loss`; empty: they have positions."""
    elements: int
    """How many there are in all outputs."""
    differentiable: int
    """How many there are in outputs of a floating or complex dtype."""
    has_derivative: bool
    """Whether any output is of such a dtype, be it empty."""
    requires_grad: bool
    """Whether any output has a backward pass."""


@dataclass(frozen=True, eq=False)
class Subject:
    """One operator at one sample, with real tensors: the argument of a check.

    Example:
        >>> import opcheck
        >>> def keeps_its_shape(subject: opcheck.Subject) -> bool:
        ...     return all(output.shape == subject.leaves[0].shape for output in subject.outputs)
    """

    context: Context
    """The case (`context.case`), its callable (`context.operator`) and the settings around it."""
    sample: Sample
    """The sample, as the spec has it."""
    inputs: Inputs
    """Its arguments: `args, kwargs = inputs.fill()`."""
    function: TestedFunction
    """The operator as a function of the leaves alone; it returns a tuple of the outputs under test."""

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        """The tensors to differentiate with respect to."""
        return self.inputs.leaves

    @cached_property
    def result(self) -> Any:
        """What the operator returns. Exceptions are the operator's."""
        return self.function.result(*self.leaves)

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs under test. Exceptions are the operator's, Untestable where there are none, and TooLarge."""
        return self._bounded(self.function.tested(self.result))

    def _bounded(self, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        count, most = sum(output.numel() for output in outputs), self.context.settings.max_outputs
        if count > most:
            raise TooLarge(
                f"the outputs have {count:,} elements, at most {most:,} are allowed (max_outputs of [tool.opcheck])"
            )
        return outputs

    @property
    def seen(self) -> Seen:
        """What the outputs are like for derivatives: found out once, by the first check of a group."""
        return self.context.kept.once(self.context.group, ("seen", self.sample.name), self._look)

    def _look(self) -> Seen:
        with torch.enable_grad():
            result, outputs = self.result, self.outputs
        found = differentiable(outputs)
        return Seen(
            self.function.names(result),
            sum(output.numel() for output in outputs),
            sum(output.numel() for output in found),
            bool(found),
            any(output.requires_grad for output in found),
        )

    @property
    def differentiable_outputs(self) -> tuple[Tensor, ...]:
        """The outputs under test that have a derivative."""
        return tuple(output for output in differentiable(self.outputs) if output.requires_grad)

    @cached_property
    def request(self) -> Request:
        """What an engine is asked about this sample."""
        context, supports = self.context, self.context.case.claims.supports
        settings = context.case.operator.spec.gradcheck
        assert context.numbers is not None
        generated = settings.gen_non_contig_grad_outputs
        overrides = context.overrides
        return Request(
            self.function,
            self.leaves,
            context.numbers,
            grad_outputs=self.inputs.grad_outputs,
            masked=context.case.operator.spec.masked_semantics,
            forward_ad=supports.forward_ad,
            undefined_grad=supports.undefined_grad,
            fast_mode=bool(overrides.get("fast_mode", settings.fast_mode)),
            raise_exception=bool(overrides.get("raise_exception", settings.raise_exception)),
            non_contiguous=(False, True) if generated == "both" else (generated,),
            amount=context.amount,
            together=context.beside_the_jacobian,
            jacobians=context.jacobians,
            names=self.seen.names,
            key=f"{context.case.subject}[{context.device}-{context.case.dtype}]#{self.sample.name}",
        )

    @property
    def fits_in_place(self) -> bool:
        """Whether an in-place call can hold the result: same shape and dtype as the first argument."""
        return self.context.kept.once(self.context.group, ("in place", self.sample.name), self._fits_in_place)

    def _fits_in_place(self) -> bool:
        args, kwargs = self.inputs.detached().fill()
        if not args or not isinstance(args[0], Tensor):
            return False
        path = self.context.case.operator.variants[0].path
        self.function.reseed()
        results = flatten(self.context.resolve(path)(*args, **kwargs))
        return bool(results) and results[0].shape == args[0].shape and results[0].dtype == args[0].dtype


Check = Callable[[Context], Iterator[Verdict]]
