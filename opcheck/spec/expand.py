"""From the samples that are written to the samples that are run: templates, grids, layouts, bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from pydantic import ValidationError

from opcheck.spec import dtypes
from opcheck.spec.document import Document
from opcheck.spec.explain import explain
from opcheck.spec.library import Sample
from opcheck.spec.operator import OperatorSpec, SampleSpec, TemplateUse
from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.problems import Problem, nearest
from opcheck.spec.render import render
from opcheck.spec.templates import Template
from opcheck.spec.values import Tensor, Value

Locate = Callable[..., Problem]
FindTemplate = Callable[[str], "Template | list[str]"]
"""Returns a template, or the names there are."""


class Expansion:
    """Expands the samples of one operator, and collects the mistakes met on the way."""

    def __init__(
        self, document: Document, locate: Locate, base: KeyPath, find: FindTemplate, bounds: tuple[int, int]
    ) -> None:
        self.document, self.locate, self.base, self.find = document, locate, base, find
        self.max_elements, self.max_samples = bounds
        self.problems: list[Problem] = []

    def samples(self, spec: OperatorSpec) -> tuple[Sample, ...]:
        """Return all samples of an operator."""
        found: list[Sample] = []
        for index, entry in enumerate(spec.samples):
            path: KeyPath = ("samples", index)
            label = entry.name or str(index)
            if isinstance(entry, TemplateUse):
                found.extend(self._used(entry, label, path))
            else:
                found.extend(self._grid(entry, label, path, path))
        for layout in spec.layouts:
            if layout != "strided":
                found.extend(_in_layout(found, layout))
        if "strided" not in spec.layouts:
            found = [sample for sample in found if any(t.layout != "strided" for t in sample.tensors())]
        if len(found) > self.max_samples:
            self._refuse_count(("samples",), len(found))
        return tuple(found)

    def _used(self, entry: TemplateUse, label: str, path: KeyPath) -> Iterator[Sample]:
        template = self.find(entry.use)
        if not isinstance(template, Template):
            expected = f"one of {', '.join(template)}"
            self.problems.append(
                self.locate((*path, "use"), f'unknown template "{entry.use}"', expected, nearest(entry.use, template))
            )
            return
        for name in set(entry.parameters) - set(template.parameters):
            expected = f"one of {', '.join(template.parameters)} (parameters of the template {template.name})"
            self.problems.append(
                self.locate(
                    (*path, name), f'unknown key "{name}"', expected, nearest(name, template.parameters), key=True
                )
            )
        if self.problems:
            return
        for number, raw in enumerate(template.samples(entry.parameters)):
            spec = self._validated(template, number, raw, entry, path)
            if spec:
                merged = spec.model_copy(
                    update={
                        "kwargs": spec.kwargs | entry.kwargs,
                        "grid": spec.grid | entry.grid,
                        "skip": [*spec.skip, *entry.skip],
                        "dtypes": entry.dtypes if spec.dtypes is None else spec.dtypes,
                    }
                )
                yield from self._grid(merged, f"{label}.{spec.name or number}", path, path)

    def _validated(
        self, template: Template, number: int, raw: dict[str, Any], entry: TemplateUse, path: KeyPath
    ) -> SampleSpec | None:
        key = (id(template), number, render(entry.parameters)) if entry.parameters else (id(template), number, "")
        if key in _VALIDATED:
            return _VALIDATED[key]
        try:
            spec = SampleSpec.model_validate(raw)
        except ValidationError as error:

            def locate(place: KeyPath, *words: str, key: bool = False) -> Problem:
                # A wrong parameter is the mistake of who uses the template; anything else that of its author.
                node: Any = template.file.samples[number]
                for part in place:
                    node = node[part] if isinstance(node, (dict, list)) and not isinstance(node, str) else node
                if isinstance(node, str) and node.startswith("$") and node[1:] in entry.parameters:
                    return self.locate((*path, node[1:]), *words)
                return template.document.problem(("samples", number, *place), *words, key=key)

            self.problems += explain(error, SampleSpec, raw, locate)
            return None
        _VALIDATED[key] = spec
        return spec

    def _grid(self, spec: SampleSpec, label: str, path: KeyPath, origin: KeyPath) -> Iterator[Sample]:
        self._bound_tensors(spec, path)
        count = prod(len(values) for values in spec.grid.values())
        if count > self.max_samples:
            self._refuse_count((*path, "grid"), count)
            return
        allowed = dtypes.expand(spec.dtypes) if spec.dtypes is not None else None
        unused = list(range(len(spec.skip)))
        for values in product(*spec.grid.values()):
            point = dict(zip(spec.grid, values, strict=True))
            hits = [
                index for index, skip in enumerate(spec.skip) if all(point.get(k, _NO) == v for k, v in skip.items())
            ]
            unused = [index for index in unused if index not in hits]
            if not hits:
                yield Sample(
                    label + _point_name(point),
                    tuple(spec.args),
                    spec.kwargs | point,
                    None if spec.grad_outputs is None else tuple(spec.grad_outputs),
                    allowed,
                    self.document,
                    (*self.base, *origin) if self.base else origin,
                )
        for index in unused:
            self.problems.append(
                self.locate(
                    (*path, "skip", index),
                    "this skip matches no combination of the grid",
                    "keys and values of the grid",
                )
            )

    def _bound_tensors(self, spec: SampleSpec, path: KeyPath) -> None:
        places = [(("args", i), value) for i, value in enumerate(spec.args)]
        places += [(("kwargs", name), value) for name, value in spec.kwargs.items()]
        for place, value in [found for place, item in places for found in _tensors_at(item, place)]:
            if value.numel > self.max_elements:
                self.problems.append(
                    self.locate(
                        (*path, *place),
                        f"a tensor of {value.numel} elements is over the bound",
                        f"at most {self.max_elements} (max_elements of [tool.opcheck])",
                    )
                )

    def _refuse_count(self, path: KeyPath, count: int) -> None:
        self.problems.append(
            self.locate(
                path,
                f"{count} samples are over the bound",
                f"at most {self.max_samples} (max_samples of [tool.opcheck])",
            )
        )


_NO = object()
_VALIDATED: dict[tuple[int, int, str], SampleSpec] = {}


def _tensors_at(value: Any, place: KeyPath) -> Iterator[tuple[KeyPath, Tensor]]:
    if isinstance(value, Tensor):
        yield place, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _tensors_at(item, (*place, index))


def _point_name(point: dict[str, Value]) -> str:
    if not point:
        return ""
    return "[" + ",".join(f"{key}={render(value).strip(chr(34))}" for key, value in point.items()) + "]"


def _in_layout(samples: list[Sample], layout: str) -> list[Sample]:
    """Repeat strided samples with their first tensor in another layout, where its rank allows that."""
    least = 1 if layout in ("sparse_coo", "mkldnn") else 2
    return [
        replace(
            sample,
            name=f"{sample.name}+{layout}",
            args=(sample.args[0].model_copy(update={"layout": layout}), *sample.args[1:]),
        )
        for sample in samples
        if "+" not in sample.name
        and sample.args
        and isinstance(first := sample.args[0], Tensor)
        and first.layout == "strided"
        and len(first.sizes) >= least
    ]
