"""Expands the samples in a spec into the samples to run: templates, grids, layouts, bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, product
from math import prod
from typing import Any

from opcheck.spec.claims import ErrorClaim
from opcheck.spec.dtypes import expand
from opcheck.spec.entry import Entry
from opcheck.spec.library import Sample
from opcheck.spec.limits import Limits
from opcheck.spec.operator import Construction, OperatorSpec, SampleSpec, TemplateUse, ways
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import Mistake, Problem, SpecError, listing, nearest, unknown
from opcheck.spec.recipe import LAYOUTS_WITH, Tensor
from opcheck.spec.render import render
from opcheck.spec.templates import Template
from opcheck.spec.values import SameValue, Value, parts
from opcheck.spec.wording import Locate, validated

LONGEST = 300
"""The maximum length of the name of a sample, in characters."""

LAID_OUT = "a sample whose first argument is a strided tensor with enough dims, or a tensor of this layout"

Point = dict[str, Value]
"""One combination of a grid: a value for each of its keys."""
FindTemplate = Callable[[str], "Template | list[str]"]
"""A function that returns the template of a name, or the known names if there is none. It raises SpecError if the
template is invalid."""


class Expansion:
    """Expands the samples of one operator, and collects problems."""

    def __init__(self, entry: Entry, spec: OperatorSpec, find: FindTemplate, limits: Limits) -> None:
        self.entry, self.spec, self.find, self.limits = entry, spec, find, limits
        self.problems: list[Problem] = []

    def samples(self) -> tuple[Sample, ...]:
        """Return all samples of the operator. If there are too many, report that and return the first `max_samples`."""
        for index, claim in enumerate(self.spec.errors):
            listed = parts({"args": claim.args, "kwargs": claim.kwargs})
            self._report(_same_as_nothing(claim, {}, listed), self._locate_in(("errors", index)))
        layouts = self.spec.layouts
        strided = self._bounded(self._written())
        kept = strided
        if "strided" not in layouts:
            kept = [sample for sample in strided if any(tensor.layout != "strided" for tensor in sample.tensors)]
        others = (sample for name in layouts if name != "strided" for sample in _in_layout(strided, name))
        entries = self._bounded(chain(kept, others))
        laid_out = {"strided", *(tensor.layout for sample in entries for tensor in sample.tensors)}
        for index, name in enumerate(layouts) if entries else ():
            if name not in laid_out:
                what = f"no sample can have the layout {name}: it would not be tested"
                self.problems.append(self.entry.problem(("layouts", index), what, LAID_OUT))
        seen: set[str] = set()
        for sample in entries:
            if sample.name in seen:
                what = f'two samples are called "{sample.name}"'
                self.problems.append(sample.document.problem((*sample.path, "name"), what, "names that differ"))
            seen.add(sample.name)
        return tuple(entries)

    def _bounded(self, samples: Iterable[Sample]) -> list[Sample]:
        most = self.limits.max_samples
        listed = list(islice(samples, most + 1))
        if len(listed) > most:
            self.problems.append(self.entry.problem(("samples",), *self.limits.count()))
        return listed[:most]

    def _written(self) -> Iterator[Sample]:
        for index, written in enumerate(self.spec.samples):
            path = ("samples", index)
            label = written.name or str(index)
            if isinstance(written, TemplateUse):
                yield from self._used(written, label, path)
            elif not self._report(self._mistakes(written, label), self._locate_in(path)):
                yield from self._expanded(written, label, path)

    def _used(self, use: TemplateUse, label: str, path: KeyPath) -> Iterator[Sample]:
        """Yield the expanded samples of a template, with what its use in the operator adds to each."""
        try:
            template = self.find(use.use)
        except SpecError as error:
            self.problems += error.problems
            return
        in_use = self._locate_in(path)
        if not isinstance(template, Template):
            self._report([Mistake(("use",), *unknown("template", use.use, template, 30))], in_use)
            return
        if self._report(_unknown_parameters(use, template), in_use):
            return
        points: list[Point] = []
        sound = True
        for number, written in enumerate(template.file.samples):
            locate = _locate_in_template(template, number, use, in_use)
            try:
                spec = validated(SampleSpec, template.filled(written, use.parameters), locate)
            except SpecError as error:
                self.problems += error.problems
                sound = False
                continue
            changes = {
                "kwargs": spec.kwargs | use.kwargs,
                "grid": spec.grid | use.grid,
                "dtypes": _both(spec.dtypes, use.dtypes),
                "vary": spec.vary if use.vary is None else use.vary,
                "large": spec.large or use.large,
            }
            spec = spec.model_copy(update=changes)
            name = f"{label}.{spec.name or number}"
            if self._report(self._mistakes(spec, name), locate):
                sound = False
                continue
            points += _points(spec)
            yield from self._expanded(spec, name, path, use.skip)
        if sound:  # else the points of some samples are unknown, which an entry of `skip` may match
            self._report(_unused(use.skip, points), in_use)

    def _expanded(self, spec: SampleSpec, label: str, path: KeyPath, further: Iterable[Point] = ()) -> Iterator[Sample]:
        """Yield the expanded samples of a written sample: one for each combination of its grid that is not skipped.

        path: of the sample, or of the use of a template, in the operator.
        further: the entries of `skip` in the use of a template.
        """
        dtypes = None if spec.dtypes is None else expand(spec.dtypes)
        skips = [*spec.skip, *further]
        path = self.entry.place(path)
        for point in _points(spec):
            if dtypes != () and not any(_matches(skip, point) for skip in skips):
                named = ",".join(f"{key}={_text(value)}" for key, value in point.items())
                yield Sample(
                    f"{label}[{named}]" if named else label,
                    tuple(spec.args),
                    spec.kwargs | point,
                    self.entry.document,
                    path,
                    grad_outputs=None if spec.grad_outputs is None else tuple(spec.grad_outputs),
                    dtypes=dtypes,
                    vary=ways(self.spec.vary if spec.vary is None else spec.vary),
                    module=self._construction(spec),
                )

    def _construction(self, spec: SampleSpec) -> Construction | None:
        """Return the `module` of a sample, with missing keys from that of the operator; None if either is missing."""
        if spec.module is None or self.spec.module is None:
            return None
        return self.spec.module.model_copy(update=spec.module.stated())

    def _mistakes(self, spec: SampleSpec, label: str) -> Iterator[Mistake]:
        """Yield the mistakes in a sample and its grid, such as tensors that are too large or too many samples."""
        values = {"args": spec.args, "kwargs": spec.kwargs, "grid": spec.grid, "grad_outputs": spec.grad_outputs or ()}
        if spec.module is not None:
            values["module"] = {"args": spec.module.args, "kwargs": spec.module.kwargs}
        listed = list(parts(values))
        yield from self.limits.of_parts(listed, large=spec.large)
        yield from _same_as_nothing(spec, spec.grid, listed)
        if spec.module is not None and self.spec.module is None:
            yield Mistake(("module",), "the operator is not a module", "`module` of the operator, too", key=True)
        count = prod(len(values) for values in spec.grid.values())
        if count > self.limits.max_samples:
            yield Mistake(("grid",), *self.limits.count(count))
        else:
            yield from _unused(spec.skip, _points(spec))
        longest = {key: max(len(key) + 1 + len(_text(value)) for value in spec.grid[key]) for key in spec.grid}
        length = len(label) + sum(longest.values()) + len(longest) + 1
        if longest and length > LONGEST:
            what = f"the values of this grid make sample names of up to {length} characters"
            place = ("grid", max(longest, key=lambda key: longest[key]))
            yield Mistake(place, what, f"at most {LONGEST}; put longer values into separate samples")

    def _report(self, mistakes: Iterable[Mistake], locate: Locate) -> bool:
        """Add mistakes to `problems`, with their positions. Return whether there are any."""
        problems = [locate(*mistake) for mistake in mistakes]
        self.problems += problems
        return bool(problems)

    def _locate_in(self, path: KeyPath) -> Locate:
        """Return a function that makes the Problem for a mistake in the sample, or use of a template, at `path`."""
        return lambda place, *words: self.entry.problem((*path, *place), *words)


def _locate_in_template(template: Template, number: int, use: TemplateUse, in_use: Locate) -> Locate:
    """Return a function that makes the Problem for a mistake in a sample of a template.

    A mistake in a value that the use sets is reported in the use, any other one in the template.
    """

    def locate(place: KeyPath, what: str, expected: str, nearest: str, key: bool) -> Problem:
        if len(place) > 1 and place[0] in ("kwargs", "grid") and place[1] in getattr(use, str(place[0])):
            return in_use(place, what, expected, nearest, key)
        written, parameter = template.origin(number, place, use.parameters)
        if parameter is not None:
            return in_use(parameter, what, expected, nearest, False)
        return template.document.problem(written, what, expected, nearest, key)

    return locate


def _unknown_parameters(use: TemplateUse, template: Template) -> Iterator[Mistake]:
    expected = f"no parameters (the template {template.name} has none)"
    if template.parameters:
        expected = f"{listing(template.parameters, 30)} (parameters of the template {template.name})"
    for name in use.parameters:
        if name not in template.parameters:
            near = nearest(name, (*template.parameters, *TemplateUse.model_fields))
            yield Mistake((name,), f'unknown key "{name}"', expected, near, key=True)


def _text(value: Value) -> str:
    """Return a value as it is written in the name of a sample."""
    return render(value).strip('"')


def _points(spec: SampleSpec) -> list[Point]:
    """Return the combinations of the grid of a sample: a single empty one if it has no grid."""
    return [dict(zip(spec.grid, values, strict=True)) for values in product(*spec.grid.values())]


def _matches(skip: Point, point: Point) -> bool:
    """Return whether an entry of `skip` leaves out a combination of a grid."""
    return all(key in point and point[key] == value for key, value in skip.items())


def _unused(skips: Iterable[Point], points: list[Point]) -> Iterator[Mistake]:
    """Yield the mistakes in entries of `skip`: those that are empty or match no combination of the grids."""
    keys = list(dict.fromkeys(key for point in points for key in point))
    for index, skip in enumerate(skips):
        place: KeyPath = ("skip", index)
        strange = [key for key in skip if key not in keys]
        for key in strange:
            expected = listing(keys) if keys else "a sample with a grid"
            yield Mistake((*place, key), f'"{key}" is not a key of the grid', expected, nearest(key, keys), key=True)
        if not skip:
            yield Mistake(place, "an empty skip would skip every sample", "keys and values of the grid")
        elif not strange and not any(_matches(skip, point) for point in points):
            yield Mistake(place, "this skip matches no combination of the grid", "values of the grid")


def _both(entries: tuple[str, ...] | None, restriction: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the dtypes in both lists. None means no restriction."""
    lists = [expand(listed) for listed in (entries, restriction) if listed is not None]
    return tuple(name for name in lists[0] if name in lists[-1]) if lists else None


def _same_as_nothing(
    spec: SampleSpec | ErrorClaim, grid: Mapping[str, Sequence[Value]], listed: Iterable[tuple[KeyPath, Any]]
) -> Iterator[Mistake]:
    """Yield a mistake for each `{ same = ... }` that does not refer to a tensor among the arguments."""
    known: list[int | str] = [index for index, item in enumerate(spec.args) if isinstance(item, Tensor)]
    known += [name for name, item in spec.kwargs.items() if isinstance(item, Tensor) and name not in grid]
    known += [name for name, items in grid.items() if all(isinstance(item, Tensor) for item in items)]
    for place, part in listed:
        if isinstance(part, SameValue) and part.same not in known:
            key = part.same
            is_name = isinstance(key, str)
            what = f'no argument called "{key}" is a tensor' if is_name else f"there is no tensor at position {key}"
            expected = listing(map(render, known)) if known else "another argument that is a tensor"
            yield Mistake((*place, "same"), what, expected, nearest(key, map(str, known)))


def _in_layout(samples: Iterable[Sample], layout: str) -> Iterator[Sample]:
    """Yield samples with the first argument in another layout, where it is a strided tensor of sufficient rank."""
    least = 1 if layout in ("sparse_coo", "mkldnn") else 2
    for sample in samples:
        first: Any = sample.args[0] if sample.args else None
        if isinstance(first, Tensor) and first.layout == "strided" and len(first.sizes) >= least:
            keys = {key: value for key, value in first.stated().items() if layout in LAYOUTS_WITH.get(key, [layout])}
            changed = Tensor.model_validate({**keys, "layout": layout})
            yield replace(sample, name=f"{sample.name}+{layout}", args=(changed, *sample.args[1:]))
