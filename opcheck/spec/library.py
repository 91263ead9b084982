"""The operators of a set of spec files, for planning: with expanded samples, and their claims on each device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property

from opcheck.spec.checks import VariantKind
from opcheck.spec.claims import TESTED_BY_OTHERS, Accuracy, OperatorTolerances, Supports, Tolerance, Tolerances, Way
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.document import Document
from opcheck.spec.dtypes import HALF
from opcheck.spec.entry import Entry
from opcheck.spec.operator import Construction, OperatorSpec, PerDevice, VariantTarget
from opcheck.spec.positions import KeyPath, Span
from opcheck.spec.problems import Mistake, Problem, unknown
from opcheck.spec.recipe import SPARSE_LAYOUTS, Tensor
from opcheck.spec.render import render
from opcheck.spec.values import Scalar, Value, parts
from opcheck.spec.versions import torch_meets


@dataclass(frozen=True, eq=False)
class Sample:
    """One set of arguments, with templates and grids expanded."""

    name: str
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    document: Document = field(repr=False)
    path: KeyPath = field(repr=False)
    _: KW_ONLY
    grad_outputs: tuple[Tensor, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    vary: tuple[Way, ...] = ()
    """The respects in which opcheck varies the sample automatically."""
    module: Construction | None = None
    """How the module is constructed for this sample; None: as the operator specifies."""

    @property
    def span(self) -> Span:
        """The position of the sample, or of the use of its template, in the spec file."""
        return self.document.span(self.path)

    @property
    def where(self) -> str:
        """The position of the sample, as `file:line`."""
        return f"{self.document.file}:{self.span.line}"

    def has(self, key: int | str) -> bool:
        """Return whether there is an argument at a position or with a name."""
        return key in self.kwargs if isinstance(key, str) else key < len(self.args)

    @cached_property
    def tensors(self) -> list[Tensor]:
        """The tensor recipes in the arguments, in order."""
        return [part for _, part in parts([self.args, self.kwargs]) if isinstance(part, Tensor)]

    @cached_property
    def elements(self) -> int:
        """The total number of elements of the tensors."""
        return sum(recipe.numel for recipe in self.tensors)

    @property
    def is_sparse(self) -> bool:
        """Whether any tensor has a sparse layout."""
        return any(tensor.layout in SPARSE_LAYOUTS for tensor in self.tensors)

    def goes_with(self, dtype: str) -> bool:
        """Return whether the sample runs in a dtype."""
        return self.dtypes is None or dtype in self.dtypes

    def toml(self) -> str:
        """Return the expanded sample as inline TOML."""
        shown: dict[str, object] = {"args": self.args}
        if self.kwargs:
            shown["kwargs"] = self.kwargs
        if self.module is not None:
            shown["module"] = self.module
        return render(shown)


def names_of(sample: str) -> tuple[str, str]:
    """Return the names that refer to a sample: its full name, and the name of its whole grid."""
    return sample, sample.split("[")[0]


@dataclass(frozen=True)
class Variant:
    """One way to call an operator."""

    kind: VariantKind
    path: str
    """The dotted path of the callable."""
    kwargs: tuple[tuple[str, Scalar], ...] = ()
    """Keyword arguments that select this variant, such as `inplace = True`."""


@dataclass(frozen=True)
class DeviceClaims:
    """The claims of an operator on one device."""

    forward: tuple[str, ...]
    backward: tuple[str, ...]
    exact: bool
    """Whether the spec claims that all other standard dtypes are refused."""
    supports: Supports
    tolerances: tuple[OperatorTolerances, Tolerances]
    """The tolerances of the operator and those of the device, in this order."""

    def tolerance(self, check: str, dtype: str) -> Tolerance:
        """Return the tolerances for a check and dtype. A value is None if the default of the check applies."""
        levels = self.tolerances
        return Tolerance.first_set(one for level in levels for one in (*level.exceptions(check, dtype), level))

    def value_tolerance(self, check: str, dtype: str) -> Tolerance:
        """Return the tolerances for comparing values: those set for the check, or for a dtype of half precision.

        Tolerances of the operator as a whole and of finer dtypes are ignored: they are meant for finite differences.
        """
        half = dtype if dtype in HALF else ""
        return Tolerance.first_set(one for level in self.tolerances for one in level.exceptions(check, half))

    def accuracy(self, dtype: str) -> Accuracy | None:
        """Return the disclaimer of accuracy if it applies to a dtype, else None."""
        own = self.tolerances[0].accuracy
        return own if own is not None and own.covers(dtype) else None


@dataclass(frozen=True, eq=False)
class Operator:
    """One `[[operator]]` of a spec file, with its samples expanded."""

    spec: OperatorSpec
    samples: tuple[Sample, ...]
    family: str
    document: Document = field(repr=False)
    index: int = field(repr=False)
    elsewhere: tuple[Operator, ...] = field(default=(), repr=False)
    """The operator under other versions of torch: without `per_torch`, and with each condition of `per_torch` alone."""

    @cached_property
    def id(self) -> str:
        """The id, such as `torch.sin` or `torch.div[floor]`."""
        return self.spec.id

    @cached_property
    def entry(self) -> Entry:
        """The operator as written in its spec file."""
        return Entry(self.document, self.index)

    def problem(self, path: KeyPath, what: str, expected: str = "", nearest: str = "", key: bool = False) -> Problem:
        """Return a problem at the position of a value (or key), in the operator or in the defaults of its file."""
        return self.entry.problem(path, what, expected, nearest, key)

    def unknown_arguments(self, names: Iterable[str] | None = None) -> Iterator[Mistake]:
        """Yield a mistake for each entry of `inplace` and `supports.backward` that names no argument.

        names: of the parameters, of which samples need not pass all; None: unknown, so that only positions are tested.
        """
        samples = [sample for one in (self, *self.elsewhere) for sample in one.samples]
        positions = range(max((len(sample.args) for sample in samples), default=0))
        passed = [name for sample in samples for name in sample.kwargs]
        known = dict.fromkeys([*(names or ()), *passed, *positions])
        for path, listed in self.named_arguments.items():
            for index, entry in enumerate(listed):
                if entry not in known and (isinstance(entry, int) or names is not None):
                    yield Mistake((*path, index), *unknown("argument", entry, known))

    @cached_property
    def named_arguments(self) -> dict[KeyPath, tuple[str | int, ...]]:
        """The lists of arguments in the spec, `inplace` and `supports.backward`, by key."""
        claims = self.spec.claims.items()
        lists = {("inplace",): self.spec.inplace} | {
            (*at, "supports", "backward"): own.supports.backward for at, own in claims
        }
        return {path: listed for path, listed in lists.items() if isinstance(listed, tuple)}

    def again(self, first: Operator) -> Problem:
        """Return the problem that an earlier operator, `first`, has the same id."""
        what = f'operator "{self.id}" is described twice; first at {first.document.file}:{first.line}'
        return self.problem(("name",), what, "another name, or a key variant")

    @property
    def line(self) -> int:
        """The line of the spec file with the name of the operator."""
        return self.span.line

    @property
    def span(self) -> Span:
        """The position of the name of the operator in the spec file."""
        return self.document.span(("operator", self.index, "name"))

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The function, followed by the variants that the spec lists."""
        last = self.spec.callable_path.rsplit(".", 1)[-1].rsplit(":", 1)[-1]
        ways = [Variant("function", self.spec.callable_path)]
        for entry in self.spec.variants:
            if isinstance(entry, VariantTarget):
                path = entry.target or self.spec.callable_path
                ways.append(Variant(entry.kind, path, tuple(entry.kwargs.items())))
            else:
                ways.append(Variant(entry, f"torch.Tensor.{last}" + ("_" if entry == "inplace" else "")))
        return tuple(ways)

    @property
    def is_in_this_torch(self) -> bool:
        """Whether the installed torch has the operator. True if torch is not installed."""
        return self.spec.torch is None or torch_meets(self.spec.torch, without=True)

    @property
    def has_differentiable_reference(self) -> bool:
        """Whether autograd can differentiate the reference, and gives the intended gradient.

        If the operator has a surrogate, its spec must set `reference.differentiable`.
        """
        reference = self.spec.reference_in_full
        if reference is None or (self.spec.surrogate is not None and reference.differentiable is None):
            return False
        return reference.is_differentiable

    @cached_property
    def has_sparse_samples(self) -> bool:
        """Whether any sample has a tensor with a sparse layout."""
        return any(sample.is_sparse for sample in self.samples)

    @cached_property
    def has_varied_samples(self) -> bool:
        """Whether opcheck derives samples. This needs a sample with `vary` whose tensors are all strided or sparse."""
        varied = [{tensor.layout for tensor in sample.tensors} for sample in self.samples if sample.vary]
        return any(layouts and layouts <= {"strided", *SPARSE_LAYOUTS} for layouts in varied)

    def has_leaves_in(self, *layouts: str) -> bool:
        """Return whether there is a sample whose leaves all have one of these layouts."""
        leaves = ([tensor for tensor in sample.tensors if tensor.grad is not False] for sample in self.samples)
        return any(all(leaf.layout in layouts for leaf in each) for each in leaves)

    def has_disclaimers(self, supports: Supports) -> bool:
        """Return whether the spec disclaims something that the check `unsupported` can test."""
        silent = {*TESTED_BY_OTHERS}
        if not self.has_sparse_samples:
            silent.add("masked")  # it concerns sparse samples only
        if not any(variant.kind == "inplace" for variant in self.variants):
            silent.add("inplace_backward")
        return bool(set(supports.disclaimed()) - silent)

    def claims_on(self, device: DeviceProfile) -> PerDevice:
        """Return the claims of the spec on a device, including dtypes that the device lacks."""
        return self.spec.per_device.get(device.name, self.spec)

    def on(self, device: DeviceProfile) -> DeviceClaims:
        """Return the claims of the operator on a device, without dtypes that the device lacks."""
        claims = self.claims_on(device)
        forward = tuple(filter(device.has, claims.dtypes.forward_names()))
        return DeviceClaims(
            forward,
            # Without a forward pass there is no backward pass, even if the defaults of the file claim one.
            tuple(name for name in claims.dtypes.backward_names() if name in forward),
            claims.dtypes.exact,
            claims.supports,
            (claims.tolerance, device.tolerance),
        )


@dataclass(frozen=True, eq=False)
class Library:
    """The operators of some spec files, in the order of files and lines."""

    operators: tuple[Operator, ...]

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    def find(self, name: str) -> list[Operator]:
        """Return the operators with this id or name."""
        return [operator for operator in self.operators if name in (operator.id, operator.spec.name)]
