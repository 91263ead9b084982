"""What a check is given: a case, and what its operator, settings and options make of it."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from opcheck.checks.arguments import names_of
from opcheck.checks.tolerances import wider_numbers, wider_values
from opcheck.checks.verdict import Verdict, told
from opcheck.derivatives import Coverage, Engine, Numbers, default_numbers
from opcheck.engines import BatchedEngine
from opcheck.plan.case import Case
from opcheck.samples import Inputs, TestedFunction, Unresolved, realize
from opcheck.samples.cache import Cache
from opcheck.samples.modules import ModuleCall, ModuleRecipe
from opcheck.samples.operator import resolve_module, resolve_operator
from opcheck.samples.realize import realize_module
from opcheck.settings import Settings
from opcheck.spec.claims import Jacobian, Tolerance
from opcheck.spec.library import Sample

TOLERANCES = {"eps", "atol", "rtol", "nondeterminism"}
"""The overrides that are numbers for comparisons."""


@dataclass(frozen=True, eq=False)
class Context:
    """A case that is about to be checked."""

    case: Case
    engine: Engine
    settings: Settings
    samples: tuple[Sample, ...]
    device: str
    """The device string for torch."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Tolerances and settings from the command line. They take precedence over the spec."""
    cache: Cache = field(default_factory=Cache)
    """What earlier checks of the same group have made."""
    room: int | None = None
    """The bytes of the device's memory that a batch may take; None: as many as the settings allow."""
    requires_grad: bool = True
    """Whether inputs may require grad."""
    callables: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Operators passed in from Python, by path. They are not looked up."""

    @property
    def default_engine(self) -> BatchedEngine:
        """The default engine, whichever the run asks: for what torch's own functions cannot tell."""
        return self.engine if isinstance(self.engine, BatchedEngine) else BatchedEngine()

    @property
    def group(self) -> tuple[object, ...]:
        """What cases must have in common to share their inputs."""
        case = self.case
        return case.operator, case.variant, self.device, case.dtype, case.claims.supports.backward

    @cached_property
    def operator(self) -> Callable[..., Any]:
        """The callable of the case's variant. Raises Unresolved."""
        path = self.case.variant.path
        found: Callable[..., Any] = self.cache.once(self.group, path, lambda: self.resolve(path))
        return found

    def operator_at(self, sample: Sample) -> Callable[..., Any]:
        """Return the callable for a sample: the same for each, but for lazy modules, which have its shapes."""
        operator, path = self.operator, self.case.variant.path
        if not (isinstance(operator, ModuleCall) and operator.is_lazy):
            return operator
        found: Callable[..., Any] = self.cache.once(self.group, (path, sample.name), lambda: self.resolve(path, sample))
        return found

    def resolve(self, path: str, sample: Sample | None = None) -> Callable[..., Any]:
        """Return the callable that a dotted path names, modules constructed. Raises Unresolved.

        sample: what a lazy module gets its shapes from.
        """
        given = self.callables.get(path)
        if given is not None:
            return given
        recipe = self.module(path)
        if recipe is None:
            return resolve_operator(path, self.settings.modules)
        return self._constructed(path, recipe, sample)

    def module(self, path: str) -> ModuleRecipe | None:
        """Return how to construct the module that a dotted path names; None if the operator is no module of a spec."""
        spec = self.case.operator.spec.module
        if spec is None or path in self.callables:
            return None
        return ModuleRecipe(resolve_module(path, self.settings.modules), spec)

    def _constructed(self, path: str, recipe: ModuleRecipe, sample: Sample | None) -> ModuleCall:
        seed = f"{path}@{self.case.base_seed}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return realize_module(recipe, self.case.dtype, self.device, seed, self.settings.modules, sample)
        except Exception as error:
            raise Unresolved(f'"{path}" cannot be constructed: {told(error)}') from error

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the case."""
        found: torch.dtype = getattr(torch, self.case.dtype)
        return found

    @cached_property
    def on_cpu(self) -> Context:
        """The same case on the CPU: this one, if that is where it runs."""
        # With a cache of its own, since a cache holds what belongs to one device.
        return self if self.device == "cpu" else replace(self, device="cpu", cache=Cache())

    @cached_property
    def numbers(self) -> Numbers | None:
        """The step and the tolerances for derivatives; None if the dtype is too coarse for finite differences."""
        base = default_numbers(self.dtype)
        if base is None:
            return None
        own = dict(self.case.claims.tolerance(self.case.check, self.case.dtype).numbers())
        given = {key: value for key, value in own.items() if value is not None}
        given |= {key: value for key, value in self.overrides.items() if key in TOLERANCES}
        return replace(base, **given) if given else base

    @cached_property
    def wide(self) -> dict[str, float]:
        """The tolerances of derivatives, or of values, that are wider than the defaults."""
        if self.case.kind.dtypes == "derivative":
            return wider_numbers(self.numbers, self.dtype)
        own = self.value_tolerance()
        return {} if own.atol is None else wider_values(own.atol, own.rtol or 0.0, self.dtype)

    @cached_property
    def coverage(self) -> Coverage:
        """How much evidence to compute. The command line takes precedence over the spec, the spec over the project."""
        own: Jacobian | None = self.overrides.get("jacobian", self.case.operator.spec.jacobian)
        allowed = self.settings.batch_memory << 20
        memory = allowed if self.room is None else min(allowed, self.room)
        return Coverage(own or self.settings.jacobian, memory=memory)

    def value_tolerance(self) -> Tolerance:
        """Return rtol and atol for comparing values. Both are None unless the spec sets one for this check."""
        own = self.case.operator.spec.tolerance.check.get(self.case.check, Tolerance())
        if own.atol is None and own.rtol is None:
            return own
        return Tolerance(atol=own.atol or 0.0, rtol=own.rtol or 0.0)

    def inputs(self, sample: Sample) -> Inputs:
        """Return the inputs of a sample. Those of an earlier check serve again unless something has changed them."""
        inputs = self.cache.inputs(self.group, sample.name, lambda: self.realize(sample))
        return inputs if self.requires_grad else inputs.detached()

    def realize(self, sample: Sample, more_seed: str = "", finer: str | None = None) -> Inputs:
        """Make the tensors of a sample. The leaves are those that have a derivative according to the spec.

        more_seed: any text, for other numbers by the same recipes.
        finer: a finer dtype to convert the numbers to.
        """
        claim = self.case.claims.supports.backward
        wanted = claim if isinstance(claim, tuple) else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about making tensors: the operator has not been called yet
            return realize(
                replace(sample, kwargs={**sample.kwargs, **dict(self.case.variant.kwargs)}),
                self.case.dtype,
                self.device,
                self.case.seed(sample) + more_seed,
                modules=self.settings.modules,
                wrt=None if wanted is None else self.among(wanted),
                module=self.module(self.case.variant.path),
                finer=finer,
            )

    def among(self, wanted: tuple[str | int, ...]) -> Callable[[tuple[int | str, ...]], bool]:
        """Return a predicate on paths of arguments: whether names and positions in a list mean the argument."""
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
        operator = self.operator_at(sample)
        return TestedFunction(
            operator, inputs, spec.outputs, inplace, seed, spec.masked_semantics, self.device, self.case.device.seed
        )


Check = Callable[[Context], Iterator[Verdict]]
