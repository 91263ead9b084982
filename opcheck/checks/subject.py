"""The arguments of checks: a case with its settings (`Context`), and its operator at one sample (`Subject`)."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from opcheck.checks.wide_tolerances import EXACT, OF_VALUES, wider
from opcheck.derivatives import Coverage, Numbers, TooLarge, default_numbers
from opcheck.derivatives.disagreement import output_label
from opcheck.derivatives.point import Point
from opcheck.derivatives.rounding import rounding_unit
from opcheck.derivatives.sparse import LAYOUTS
from opcheck.derivatives.tolerances import too_coarse_in
from opcheck.devices.device import CPU, Device
from opcheck.planning.case import Case
from opcheck.planning.kinds import check_kinds
from opcheck.samples.arguments import Signature, argument_label, is_among, signature_of
from opcheck.samples.cache import Cache, Memo, once
from opcheck.samples.function import TestedFunction, paths_written
from opcheck.samples.inputs import Inputs
from opcheck.samples.layouts import equal, own, share_memory
from opcheck.samples.modules import ModuleCall, ModuleRecipe
from opcheck.samples.realize import Wrt, realize, realize_module
from opcheck.samples.resolve import Unresolved, resolve_module, resolve_operator
from opcheck.samples.results import Untestable, differentiable, flatten, has_derivative, with_gradient
from opcheck.settings import Settings
from opcheck.spec.claims import Jacobian, Supports, Tolerance
from opcheck.spec.library import Sample
from opcheck.spec.problems import Mistake
from opcheck.text import counted, one_line

NEARBY = 1 - 2**-10
"""The factor by which numbers that are not random change, see `Subject.elsewhere`. It leaves most domains intact."""


def no_note(line: str) -> None:
    """Do nothing. The default of `Context.note`, for processes that are not monitored."""


@dataclass(frozen=True, eq=False)
class Context:
    """A case to check, with its settings and device."""

    case: Case
    settings: Settings
    device: Device
    """The device of the tensors: `device.string` is torch's device string."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Tolerances and settings from the command line. They take precedence over the spec."""
    cache: Cache = field(default_factory=Cache)
    """The inputs and results that the checks of a group share."""
    requires_grad: bool = True
    """Whether inputs may require grad. If not, all leaves are detached: some operators without a derivative refuse
    others."""
    by_torch: bool = False
    """Whether derivatives are tested by torch's own gradcheck and gradgradcheck instead, as a second opinion."""
    note: Callable[[str], None] = no_note
    """The function that records the current step, to report it if the process dies."""
    callables: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Operators passed in from Python, by path. These paths are not imported."""

    @property
    def group(self) -> tuple[object, ...]:
        """The properties that cases must have in common to share their inputs."""
        case = self.case
        return (
            case.operator,
            case.variant,
            self.device.string,
            case.dtype,
            case.claims.supports.backward,
            self.requires_grad,
        )

    def under(self, check: str) -> Context:
        """Return the context of the same case under another check."""
        return replace(self, case=replace(self.case, kind=check_kinds()[check]))

    def is_claimed(self, check: str) -> bool:
        """Return whether the operator makes the claim of a check on the device."""
        case = self.case
        return check_kinds()[check].claimed(case.operator, case.device, case.claims.supports)

    @property
    def memo(self) -> Memo:
        """The results that the checks of a group share and that do not depend on a sample."""
        return self.cache.memo(self.group)

    @cached_property
    def operator(self) -> Callable[..., Any]:
        """The callable of the case's variant. Raises Unresolved if it cannot be found."""
        return self.resolve(self.case.variant.path)

    @cached_property
    def _modules(self) -> Memo:
        """The modules for single samples. A module may keep state between calls, so that cases do not share modules."""
        return Memo()

    @property
    @once
    def signature(self) -> Signature:
        """The parameters of the operator; empty if they are unknown."""
        return signature_of(self.operator, self.case.variant.path)

    @property
    def unknown_arguments(self) -> list[Mistake]:
        """A mistake for each entry of `inplace` and `supports.backward` that names no argument or module parameter.

        Samples that construct the module in their own way may have other parameters, so only positions are tested.
        """
        operator, samples = self.case.operator, self.case.operator.samples
        if not operator.named_arguments:
            return []
        if any(sample.module is not None for sample in samples):
            return list(operator.unknown_arguments())
        names = [*self.signature.names]
        if isinstance(self.operator, ModuleCall):
            names += [key for sample in samples for key in self.operator.keys(sample.kwargs).values()]
        return list(operator.unknown_arguments(names))

    def operator_at(self, sample: Sample, path: str = "") -> Callable[..., Any]:
        """Return the callable for a sample. Raises Unresolved if it cannot be found.

        All samples share one callable, except if the operator is a lazy module, or if the sample has constructor
        arguments of its own.

        path: the path of another callable, such as the surrogate. Default: the operator. If the operator is a module,
        the other callable is a module with the same constructor arguments.
        """
        path, operator = path or self.case.variant.path, self.operator
        is_same = sample.module is None and not (isinstance(operator, ModuleCall) and operator.is_lazy)
        if path == self.case.variant.path and is_same:
            return operator
        return self._modules.once((path, sample.toml()), lambda: self.resolve(path, sample))

    def resolve(self, path: str, sample: Sample | None = None) -> Callable[..., Any]:
        """Return the callable at a dotted path. Modules are constructed. Raises Unresolved if that is not possible.

        sample: the sample that determines the shapes of a lazy module, and that may have constructor arguments.
        """
        own = self.callables.get(path)
        if own is not None:
            return own
        recipe = self.module(path, sample)
        if recipe is None:
            return resolve_operator(path, self.settings.modules)
        seed = f"{path}@{self.case.base_seed}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return realize_module(recipe, self.case.dtype, self.device.string, seed, self.settings.modules, sample)
        except Exception as error:
            raise Unresolved(f'"{path}" cannot be constructed: {one_line(error)}') from error

    def module(self, path: str, sample: Sample | None = None) -> ModuleRecipe | None:
        """Return the class and the constructor arguments of the module at a dotted path.

        Returns None if the operator is not a module that a spec constructs.

        sample: the sample whose constructor arguments, if any, replace those of the spec.
        """
        spec = self.case.operator.spec.module
        if spec is None or path in self.callables:
            return None
        own = sample.module if sample is not None else None
        return ModuleRecipe(resolve_module(path, self.settings.modules), own or spec)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the case."""
        dtype: torch.dtype = getattr(torch, self.case.dtype)
        return dtype

    @cached_property
    def on_cpu(self) -> Context:
        """The context of the same case on the CPU: this one if it already runs there."""
        # A cache holds the tensors of one device, so the CPU needs its own.
        return self if self.device.string == "cpu" else replace(self, device=CPU, cache=Cache())

    @cached_property
    def numbers(self) -> Numbers | None:
        """The step and the tolerances for derivatives; None if the dtype is too coarse for finite differences."""
        return self.numbers_in(self.dtype)

    def numbers_in(self, dtype: torch.dtype) -> Numbers | None:
        """Return the step and the tolerances for a dtype; None if it is too coarse for finite differences.

        The dtype may differ from that of the case, if the operator has inputs or outputs of another one.
        """
        base = default_numbers(dtype, self._own_numbers.get("eps"))
        return replace(base, **self._own_numbers) if base and self._own_numbers else base

    @cached_property
    def _own_numbers(self) -> dict[str, float]:
        """The step and the tolerances that the spec or the command line sets, by name."""
        own = self.case.claims.tolerance(self.case.check, self.case.dtype).numbers()
        return own | {key: value for key, value in self.overrides.items() if key in Tolerance.model_fields}

    @cached_property
    def wide(self) -> dict[str, float]:
        """The tolerances of the check that are wider than the defaults, by name: for derivatives or for values."""
        if self.case.kind.dtypes == "derivative":
            return wider(self.numbers, default_numbers(self.dtype))
        return wider(self.case.claims.value_tolerance(self.case.check, ""), OF_VALUES.get(self.dtype, EXACT))

    @cached_property
    def coverage(self) -> Coverage:
        """The part of a Jacobian to compute, and the memory limit.

        The command line takes precedence over the spec, and the spec over the settings of the project.
        """
        own: Jacobian | None = self.overrides.get("jacobian", self.case.operator.spec.jacobian)
        allowed = self.settings.batch_memory << 20
        memory = allowed if self.device.room is None else min(allowed, self.device.room)
        return Coverage(own or self.settings.jacobian, memory=memory)

    @property
    def derive(self) -> str:
        """The level that determines the number of derived samples: "none", "standard" or "thorough"."""
        return str(self.overrides.get("derive") or self.settings.derive)

    @property
    def is_thorough(self) -> bool:
        """Whether as many samples as possible are derived from each written one: `derive` is "thorough"."""
        return self.derive == "thorough"

    def value_tolerance(self, dtype: str = "") -> tuple[float, float] | None:
        """Return atol and rtol for comparing values; None if neither is set for this check, or for a coarse dtype."""
        own = self.case.claims.value_tolerance(self.case.check, dtype)
        return None if own.atol is None and own.rtol is None else (own.atol or 0.0, own.rtol or 0.0)

    def subject(self, sample: Sample) -> Subject:
        """Return the operator at a sample. Passes on the exceptions of making the sample.

        The inputs, and results computed by earlier checks, are reused unless a call has modified the inputs.
        """
        inputs, memo = self.cache.inputs(self.group, sample.name, lambda: self.realize(sample))
        return self.at(sample, inputs, memo)

    def at(self, sample: Sample, inputs: Inputs | None = None, memo: Memo | None = None) -> Subject:
        """Return the operator at inputs of a sample. Default: new inputs.

        memo: the results that are known for these inputs.
        """
        inputs = self.realize(sample) if inputs is None else inputs
        spec = self.case.operator.spec
        inplace = self.case.variant.kind == "inplace" or spec.inplace
        function = TestedFunction(
            self.operator_at(sample),
            inputs,
            spec.outputs,
            writes=paths_written(inplace, sample.args, sample.kwargs, self.signature.positional) if inplace else {},
            on_copies=not self.is_claimed("purity"),
            seed=zlib.crc32(self.case.seed(sample).encode()) if spec.reseed else None,
            masked=spec.masked_semantics,
            device=self.device,
            surrogate_operator=self.operator_at(sample, spec.surrogate_path) if spec.surrogate_path else None,
            constant=spec.surrogate == "constant",
        )
        return Subject(self, sample, function, memo or Memo())

    def realize(self, sample: Sample, more_seed: str = "", finer: str | None = None, wrt: Wrt | None = None) -> Inputs:
        """Make the tensors of a sample and return the inputs.

        more_seed: a text that is appended to the seed, to draw other numbers for the same sample.
        finer: a finer dtype to convert the numbers to.
        wrt: the arguments to differentiate with respect to. Default: those with a derivative according to the spec.
        """
        claim = self.case.claims.supports.backward
        if wrt is None and isinstance(claim, tuple):
            wrt = self.among(claim)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warnings are about making tensors, not about the operator
            inputs = realize(
                replace(sample, kwargs={**sample.kwargs, **dict(self.case.variant.kwargs)}),
                self.case.dtype,
                self.device.string,
                self.case.seed(sample) + more_seed,
                modules=self.settings.modules,
                wrt=wrt,
                module=self.module(self.case.variant.path, sample),
                finer=finer,
            )
        return inputs if self.requires_grad else inputs.detached()

    def among(self, wanted: tuple[str | int, ...]) -> Wrt:
        """Return a predicate on paths of arguments: whether the name or position of an argument is in `wanted`."""

        return lambda path: is_among(path, wanted, self.signature.positional)


NUMBERS_OF = ("abs", "real", "gauge_invariant", "finite")
"""The maps in `outputs.apply` that compute other numbers, in new memory."""


@dataclass(frozen=True)
class OutputInfo:
    """The properties of the outputs under test, so that the outputs need not be kept."""

    names: tuple[str, ...]
    """The names, as in `.loss`; empty if the outputs have positions instead."""
    elements: int
    """The number of elements in all outputs."""
    differentiable: int
    """The number of elements in outputs of a floating or complex dtype."""
    has_derivative: bool
    """Whether any output has a floating or complex dtype, even an empty one."""
    requires_grad: bool
    """Whether any output requires grad."""
    dtype: torch.dtype
    """The coarsest dtype, see `Subject.coarsest`."""
    sparse: str
    """The first output that is sparse, in words; empty if there is none."""


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
    """The sample, as in the spec."""
    function: TestedFunction
    """The operator as a function of the leaves alone; it returns a tuple of the outputs under test."""
    memo: Memo = field(default_factory=Memo)
    """The results that the checks of these inputs share."""
    expected: bool = False
    """Whether the spec expects the check to fail at the sample. An expected failure needs no diagnosis, so at most one
    wrong entry is confirmed.
    """

    def calling(self, **changes: Any) -> Subject:
        """Return the subject with fields of `function` replaced, as in `calling(operator=compiled)`."""
        if all(getattr(self.function, name) is value for name, value in changes.items()):
            return self
        return replace(self, function=replace(self.function, **changes), memo=Memo())

    @property
    def bare(self) -> Subject:
        """The subject without a map of outputs that computes other numbers (see `NUMBERS_OF`).

        Such a map would hide in-place changes and aliasing of the tensors that the operator returns.
        """
        outputs = self.function.outputs
        if outputs.apply not in NUMBERS_OF:
            return self
        own = outputs.model_copy(update={"apply": None})
        return self.calling(outputs=own)

    def elsewhere(self) -> Subject:
        """Return the operator at another point of the same sample: the same recipes with other random numbers.

        Leaves that are not random, such as tensors passed to `opcheck.check`, are multiplied by `NEARBY`.
        """
        inputs = self.context.realize(self.sample, "@elsewhere")
        pairs = zip(self.leaves, inputs.leaves, strict=True)
        leaves = tuple(_elsewhere(leaf, drawn) for leaf, drawn in pairs)
        return self.context.at(self.sample, replace(inputs, leaves=leaves))

    @property
    def case(self) -> Case:
        """The case that is checked."""
        return self.context.case

    @property
    def check(self) -> str:
        """The name of the check."""
        return self.case.check

    @property
    def supports(self) -> Supports:
        """The features that the spec claims to be supported in the case."""
        return self.case.claims.supports

    @property
    def inputs(self) -> Inputs:
        """The arguments of the sample: `args, kwargs = inputs.fill()`."""
        return self.function.inputs

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        """The tensors to differentiate with respect to."""
        return self.function.inputs.leaves

    @cached_property
    def result(self) -> Any:
        """The return value of the operator for copies of the leaves. Passes on the operator's exceptions."""
        return self.function.result(*map(own, self.leaves))

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The outputs under test.

        Raises Untestable if there are none, or none with a finite element under `outputs.apply = "finite"`; TooLarge if
        they exceed the limit of the project; and the operator's own exceptions.
        """
        outputs = self.function.tested(self.result)
        is_finite = (not output.numel() or bool(output.isfinite().any()) for output in flatten(self.result))
        if self.function.outputs.apply == "finite" and not any(is_finite):
            raise Untestable('no output is finite anywhere: outputs.apply = "finite" leaves nothing to test')
        count, most = sum(output.numel() for output in outputs), self.context.settings.max_outputs
        if count > most:
            raise TooLarge(
                f"the outputs have {count:,} elements, at most {most:,} are allowed (max_outputs of [tool.opcheck])"
            )
        return outputs

    @property
    @once
    def output_info(self) -> OutputInfo:
        """The properties of the outputs with grad mode enabled. Computed once per group of checks."""
        with torch.enable_grad():
            result, outputs = self.result, self.outputs
        smooth = differentiable(outputs)
        names = self.function.names(result)
        sparse = (k for k, own in enumerate(outputs) if own.layout in LAYOUTS and has_derivative(own))
        return OutputInfo(
            names,
            sum(output.numel() for output in outputs),
            sum(output.numel() for output in smooth),
            bool(smooth),
            bool(with_gradient(smooth)),
            self.coarsest(smooth),
            next((f"{output_label(k, names)} has the layout {outputs[k].layout}" for k in sparse), ""),
        )

    @property
    def unfit_cotangents(self) -> str:
        """What is wrong with the cotangents of the sample, `grad_outputs`, in words; empty if they fit the outputs."""
        cotangents = self.inputs.grad_outputs
        if cotangents is None:
            return ""
        outputs = with_gradient(self.outputs) or differentiable(self.outputs)
        if len(cotangents) != len(outputs):
            return f"grad_outputs has {counted(len(cotangents), 'tensor')}, expected {len(outputs)}"
        for index, pair in enumerate(zip(cotangents, outputs, strict=True)):
            one, other = (f"{str(tensor.dtype)[6:]}{[*tensor.shape]}" for tensor in pair)
            if one != other:
                return f"grad_outputs[{index}] is {one}, but its output is {other}"
        return ""

    def coarsest(self, outputs: Iterable[Tensor]) -> torch.dtype:
        """Return the coarsest among the dtype of the case and those of leaves and outputs."""
        dtypes: list[torch.dtype] = [self.context.dtype, *(tensor.dtype for tensor in (*self.leaves, *outputs))]
        return max(dtypes, key=rounding_unit)

    @property
    def too_coarse(self) -> str:
        """Why finite differences mean nothing at the sample: a leaf or output is too coarse. Empty if they do."""
        dtype = self.output_info.dtype
        return "" if self.context.numbers_in(dtype) else too_coarse_in(dtype)

    @cached_property
    def numbers(self) -> Numbers:
        """The step and the tolerances for derivatives. They are those of the case's dtype if outputs are too coarse."""
        numbers = self.context.numbers_in(self.output_info.dtype) or self.context.numbers
        assert numbers is not None
        return numbers

    @property
    @once
    def point(self) -> Point:
        """The evidence about derivatives at the sample: outputs, Jacobians and differences, computed on demand."""
        return Point.of(
            self.function, self.leaves, coverage=self.context.coverage, cotangents=self.inputs.grad_outputs,
            output_names=self.output_info.names, leaf_names=self.leaf_names, masked=self.function.masked,
        )  # fmt: skip

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs under test, for messages."""
        names = self.function.names(self.result)
        return tuple(output_label(index, names) for index in range(len(self.outputs)))

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """The names of the leaves, for messages: those in the operator's signature, if it is known."""
        return tuple(argument_label(slot.path, self.context.signature.positional) for slot in self.inputs.slots)

    @property
    @once
    def fits_in_place(self) -> bool:
        """Whether the first argument can hold the result of an in-place call.

        It can if the spec's operator itself is in-place, or if the result has the dtype of the first argument and
        either the same shape or, as for `squeeze_`, all of its elements as a view.
        """
        if self.case.operator.spec.inplace:
            return True
        args, kwargs = self.inputs.fill([own(leaf.detach()) for leaf in self.leaves])
        if not args or not isinstance(args[0], Tensor):
            return False
        path = self.case.operator.variants[0].path
        self.function.reseed()
        results = flatten(self.context.resolve(path)(*args, **kwargs))
        if not results or results[0].dtype != args[0].dtype:
            return False
        is_view = results[0].numel() == args[0].numel() and share_memory(results[0], args[0])
        return results[0].shape == args[0].shape or is_view


def _elsewhere(leaf: Tensor, drawn: Tensor) -> Tensor:
    """Return a leaf for another point: the one that was drawn for it, or `NEARBY` times the leaf if they are equal."""
    if leaf.layout is not torch.strided or not equal(leaf, drawn):
        return drawn
    return (NEARBY * leaf.detach()).requires_grad_(leaf.requires_grad)
