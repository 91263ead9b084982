"""From the samples that are written to the samples that are run: templates, grids, layouts, bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

from pydantic import ValidationError

from opcheck.spec import dtypes
from opcheck.spec.entry import Entry
from opcheck.spec.explain import explain
from opcheck.spec.library import Sample
from opcheck.spec.limits import Limits
from opcheck.spec.operator import OperatorSpec, SampleSpec, TemplateUse
from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.problems import Problem, listing, nearest
from opcheck.spec.render import render
from opcheck.spec.templates import Template
from opcheck.spec.values import Tensor, Value

FindTemplate = Callable[[str], "Template | list[str] | None"]
"""Returns a template; or the names there are; or None for a template whose own mistakes are known already."""


@dataclass(frozen=True)
class Source:
    """Where the parts of a sample are written: in the operator's file, or in a template that the operator uses."""

    entry: Entry
    path: KeyPath
    """Of the sample, or of the use of a template, within the operator."""
    use: TemplateUse | None = None
    template: Template | None = None
    number: int = 0

    def problem(
        self, place: KeyPath, what: str, expected: str = "", nearest: str = "", *, key: bool = False
    ) -> Problem:
        """Return a mistake at a place within the sample."""
        words = (what, expected, nearest)
        if self.template is None or self.use is None:
            return self.entry.problem((*self.path, *place), *words, key=key)
        if len(place) > 1 and place[0] in ("kwargs", "grid") and place[1] in getattr(self.use, str(place[0])):
            return self.entry.problem((*self.path, *place), *words, key=key)
        # A wrong parameter is the mistake of who uses the template; anything else that of its author.
        written, parameter = self.template.origin(self.number, place, self.use.parameters)
        if parameter is not None:
            return self.entry.problem((*self.path, *parameter), *words)
        return self.template.document.problem(written, *words, key=key)


@dataclass
class Skip:
    """One entry of `skip`, and whether it left anything out."""

    wanted: dict[str, Value]
    index: int
    keys: dict[str, None] = field(default_factory=dict)
    """Keys of the grids that it was held against."""
    used: bool = False

    def matches(self, point: dict[str, Value]) -> bool:
        """Tell whether it leaves out a point of a grid, and remember that."""
        self.keys |= dict.fromkeys(point)
        hit = all(key in point and point[key] == value for key, value in self.wanted.items())
        self.used = self.used or hit
        return hit

    def problems(self, source: Source) -> Iterator[Problem]:
        """Yield its mistake if it left out nothing."""
        unknown = [key for key in self.wanted if key not in self.keys]
        place: KeyPath = ("skip", self.index)
        if not self.wanted:
            yield source.problem(place, "an empty skip would leave out every sample", "keys and values of the grid")
        if self.used or not self.wanted:
            return
        for key in unknown:
            expected = listing(self.keys) if self.keys else "a sample with a grid"
            yield source.problem(
                (*place, key), f'"{key}" is no key of the grid', expected, nearest(key, self.keys), key=True
            )
        if not unknown:
            yield source.problem(place, "this skip matches no combination of the grid", "values of the grid")


class Expansion:
    """Expands the samples of one operator, and collects the mistakes met on the way."""

    def __init__(self, entry: Entry, find: FindTemplate, limits: Limits) -> None:
        self.entry, self.find, self.limits = entry, find, limits
        self.problems: list[Problem] = []
        self.complete = True
        """Whether all samples could be expanded: false where a template is broken."""

    def samples(self, spec: OperatorSpec) -> tuple[Sample, ...]:
        """Return all samples of an operator."""
        found: list[Sample] = []
        for index, written in enumerate(spec.samples):
            source = Source(self.entry, ("samples", index))
            label = written.name or str(index)
            if isinstance(written, TemplateUse):
                found.extend(self._used(written, label, source))
            else:
                skips = _skips(written.skip)
                found.extend(self._grid(written, label, source, skips))
                self._refuse_unused(skips, source)
        found += [sample for layout in spec.layouts if layout != "strided" for sample in _in_layout(found, layout)]
        if "strided" not in spec.layouts:
            found = [sample for sample in found if any(tensor.layout != "strided" for tensor in sample.tensors())]
        if len(found) > self.limits.max_samples:
            self.problems.append(self.entry.problem(("samples",), *self.limits.count(len(found))))
        self._refuse_same_names(found)
        return tuple(found)

    def _used(self, use: TemplateUse, label: str, source: Source) -> Iterator[Sample]:
        template = self.find(use.use)
        if not isinstance(template, Template):
            self.complete = self.complete and template is not None
            if template is not None:
                words = (f'unknown template "{use.use}"', listing(template, 30), nearest(use.use, template))
                self.problems.append(source.problem(("use",), *words))
            return
        unknown = [name for name in use.parameters if name not in template.parameters]
        for name in unknown:
            choices = (*template.parameters, *TemplateUse.model_fields)
            expected = f"{listing(template.parameters, 30)} (parameters of the template {template.name})"
            if not template.parameters:
                expected = f"no parameters (the template {template.name} has none)"
            words = (f'unknown key "{name}"', expected, nearest(name, choices))
            self.problems.append(source.problem((name,), *words, key=True))
        if unknown:
            return
        common = _skips(use.skip)
        for number in range(len(template.file.samples)):
            inner = Source(self.entry, source.path, use, template, number)
            spec = self._validated(template, number, inner, use)
            if spec is None:
                for skip in common:
                    skip.used = True  # it may be right: nobody knows
                continue
            if use.kwargs or use.grid:
                spec = spec.model_copy(update={"kwargs": spec.kwargs | use.kwargs, "grid": spec.grid | use.grid})
            own = _skips(spec.skip)
            yield from self._grid(spec, f"{label}.{spec.name or number}", inner, own + common, use.dtypes)
            self._refuse_unused(own, inner)
        self._refuse_unused(common, source)

    def _validated(self, template: Template, number: int, source: Source, use: TemplateUse) -> SampleSpec | None:
        key = (number, render(use.parameters))
        if key not in template.validated:
            raw = template.sample(number, use.parameters)
            try:
                template.validated[key] = SampleSpec.model_validate(raw)
            except ValidationError as error:
                self.problems += explain(error, SampleSpec, raw, source.problem)
                return None
        return template.validated[key]

    def _grid(
        self,
        spec: SampleSpec,
        label: str,
        source: Source,
        skips: list[Skip],
        restriction: tuple[str, ...] | None = None,
    ) -> Iterator[Sample]:
        problems = [source.problem(place, *words) for place, *words in self.limits.of_sample(spec)]
        count = prod(len(values) for values in spec.grid.values())
        if count > self.limits.max_samples:
            problems.append(source.problem(("grid",), *self.limits.count(count)))
        self.problems += problems
        if problems:
            for skip in skips:
                skip.used = True  # it may be right: nobody knows
            return
        allowed = _both(spec.dtypes, restriction)
        path = self.entry.place(source.path)
        for values in product(*spec.grid.values()):
            point = dict(zip(spec.grid, values, strict=True))
            hits = [skip for skip in skips if skip.matches(point)]
            if not hits and allowed != ():
                yield Sample(
                    label + _point_name(point),
                    tuple(spec.args),
                    spec.kwargs | point,
                    None if spec.grad_outputs is None else tuple(spec.grad_outputs),
                    allowed,
                    self.entry.document,
                    path,
                )

    def _refuse_unused(self, skips: Iterable[Skip], source: Source) -> None:
        self.problems += [problem for skip in skips for problem in skip.problems(source)]

    def _refuse_same_names(self, samples: Iterable[Sample]) -> None:
        seen: set[str] = set()
        for sample in samples:
            if sample.name in seen:
                what = f'two samples are called "{sample.name}"'
                self.problems.append(sample.document.problem((*sample.path, "name"), what, "names that differ"))
            seen.add(sample.name)


def _skips(written: Iterable[dict[str, Value]]) -> list[Skip]:
    return [Skip(wanted, index) for index, wanted in enumerate(written)]


def _both(entries: tuple[str, ...] | None, restriction: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the dtypes that both lists allow; None is no restriction."""
    if entries is None or restriction is None:
        given = entries if restriction is None else restriction
        return None if given is None else dtypes.expand(given)
    return tuple(name for name in dtypes.expand(entries) if name in dtypes.expand(restriction))


def _point_name(point: dict[str, Value]) -> str:
    if not point:
        return ""
    return "[" + ",".join(f"{key}={render(value).strip(chr(34))}" for key, value in point.items()) + "]"


def _in_layout(samples: Iterable[Sample], layout: str) -> list[Sample]:
    """Repeat strided samples with their first tensor in another layout, where its rank allows that."""
    least = 1 if layout in ("sparse_coo", "mkldnn") else 2
    repeated = []
    for sample in samples:
        first: Any = sample.args[0] if sample.args else None
        if isinstance(first, Tensor) and first.layout == "strided" and len(first.sizes) >= least:
            args = (first.model_copy(update={"layout": layout}), *sample.args[1:])
            repeated.append(replace(sample, name=f"{sample.name}+{layout}", args=args))
    return repeated
