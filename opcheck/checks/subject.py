"""One sample of a case, with its tensors made: the operator's inputs, its outputs, and the question for an engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.arguments import called, names_of
from opcheck.checks.context import Context
from opcheck.derivatives import Request, TooLarge
from opcheck.derivatives.disagreement import called as named
from opcheck.samples import Inputs, TestedFunction
from opcheck.samples.memory import own
from opcheck.samples.outputs import differentiable, with_gradient
from opcheck.samples.results import flatten
from opcheck.spec.library import Sample


@dataclass(frozen=True)
class OutputInfo:
    """What is known about the outputs under test without keeping them."""

    names: tuple[str, ...]
    """As in `.loss`; empty if the outputs have positions instead."""
    elements: int
    """The number of elements in all outputs."""
    differentiable: int
    """The number of elements in outputs of a floating or complex dtype."""
    has_derivative: bool
    """Whether any output has a floating or complex dtype, even an empty one."""
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

    @classmethod
    def of(cls, context: Context, sample: Sample) -> Subject:
        """Make the tensors of a sample. Passes on the exceptions of making them."""
        inputs = context.inputs(sample)
        return cls(context, sample, inputs, context.function(sample, inputs))

    def elsewhere(self) -> Subject:
        """Return the operator at another point of the same sample: other numbers by the same recipes."""
        inputs = self.context.realize(self.sample, "@elsewhere")
        return Subject(self.context, self.sample, inputs, self.context.function(self.sample, inputs))

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        """The tensors to differentiate with respect to."""
        return self.inputs.leaves

    @cached_property
    def result(self) -> Any:
        """What the operator returns for copies of the leaves. Passes on the operator's exceptions."""
        return self.function.result(*map(own, self.leaves))

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs under test.

        Raises Untestable if there are none, TooLarge if they exceed the limit of the project, and the operator's own
        exceptions.
        """
        outputs = self.function.tested(self.result)
        count, most = sum(output.numel() for output in outputs), self.context.settings.max_outputs
        if count > most:
            raise TooLarge(
                f"the outputs have {count:,} elements, at most {most:,} are allowed (max_outputs of [tool.opcheck])"
            )
        return outputs

    @property
    def output_info(self) -> OutputInfo:
        """What the outputs are like if gradients are recorded. The first check of a group finds out for all."""
        return self.context.cache.once(self.context.group, ("outputs", self.sample.name), self._output_info)

    def _output_info(self) -> OutputInfo:
        with torch.enable_grad():
            result, outputs = self.result, self.outputs
        found = differentiable(outputs)
        return OutputInfo(
            self.function.names(result),
            sum(output.numel() for output in outputs),
            sum(output.numel() for output in found),
            bool(found),
            any(output.requires_grad for output in found),
        )

    @property
    def differentiable_outputs(self) -> tuple[Tensor, ...]:
        """The outputs under test that require grad."""
        return with_gradient(self.outputs)

    @cached_property
    def request(self) -> Request:
        """The question that an engine answers about this sample."""
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
            coverage=context.coverage,
            whole=context.case.operator.spec.orders,
            names=self.output_info.names,
            leaf_names=self.leaf_names,
            key=f"{context.case.subject}[{context.device}-{context.case.dtype}]#{self.sample.name}",
        )

    @property
    def output_names(self) -> tuple[str, ...]:
        """What messages call the outputs under test."""
        names = self.function.names(self.result)
        return tuple(named(index, names[index] if names else "") for index in range(len(self.outputs)))

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """What messages call the leaves: as the operator calls its arguments, where its signature tells."""
        context = self.context
        names = context.cache.once(
            context.group, "parameters", lambda: names_of(context.operator, context.case.variant.path)
        )
        return tuple(called(slot.path, names) for slot in self.inputs.slots)

    @property
    def fits_in_place(self) -> bool:
        """Whether the first argument can hold the result of an in-place call: it has the same shape and dtype."""
        return self.context.cache.once(self.context.group, ("in place", self.sample.name), self._fits_in_place)

    def _fits_in_place(self) -> bool:
        args, kwargs = self.inputs.fill([own(leaf.detach()) for leaf in self.leaves])
        if not args or not isinstance(args[0], Tensor):
            return False
        path = self.context.case.operator.variants[0].path
        self.function.reseed()
        results = flatten(self.context.resolve(path)(*args, **kwargs))
        return bool(results) and results[0].shape == args[0].shape and results[0].dtype == args[0].dtype
