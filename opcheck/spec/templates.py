"""Sample templates: TOML files whose samples have parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from opcheck.spec.document import Document
from opcheck.spec.explain import Locate, validated
from opcheck.spec.operator import SampleSpec, TemplateFile, TemplateUse
from opcheck.spec.positions import Path
from opcheck.spec.problems import Problem, SpecError, unknown
from opcheck.spec.render import render

BUILTIN = FilePath(__file__).parent / "builtin" / "templates"
UNSET = object()


@dataclass(frozen=True, eq=False)
class Template:
    """A parsed template."""

    name: str
    document: Document
    file: TemplateFile
    _samples: dict[tuple[int, str], SampleSpec] = field(default_factory=dict, repr=False)
    """Samples by number and parameters. Most uses of a template share them."""

    @classmethod
    def read(cls, path: FilePath) -> Template:
        """Read a template, which is named like its file. Raises SpecError if it is invalid."""
        return cls.of(path.stem, Document.read(path))

    @classmethod
    def of(cls, name: str, document: Document) -> Template:
        """Validate a template. Raises SpecError if it is invalid or uses a parameter that it does not declare."""
        template = cls(name, document, validated(TemplateFile, document.data, document.problem))
        problems = template._undeclared(document.data["samples"], ("samples",)) + template._unusable()
        if problems:
            raise SpecError(problems)
        return template

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that a use can set."""
        return (*self.file.template.optional, *self.file.template.defaults)

    def filled(self, number: int, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return a sample, as parsed TOML, with its parameters filled in."""
        filled: dict[str, Any] = _fill(self.file.samples[number], self._values(parameters))
        return filled

    def sample(self, number: int, parameters: dict[str, Any], locate: Locate) -> SampleSpec:
        """Return a sample with its parameters filled in. Raises SpecError if it is invalid."""
        key = (number, render(parameters))
        if key not in self._samples:
            self._samples[key] = validated(SampleSpec, self.filled(number, parameters), locate)
        return self._samples[key]

    def origin(self, number: int, place: Path, parameters: dict[str, Any]) -> tuple[Path, Path | None]:
        """Return the path in this file of a part of a filled sample, and the path in `given` that it comes from.

        The second path is None if the part comes from no parameter, and empty if it comes from several.
        """
        values = self._values(parameters)
        node: Any = self.file.samples[number]
        written: Path = ("samples", number)
        for depth, part in enumerate(place):
            if isinstance(node, list):
                part = [index for index, item in enumerate(node) if _fill(item, values) is not UNSET][int(part)]
            elif not isinstance(node, dict) or part not in node:
                return written, self._parameter(node, parameters, place[depth:])
            node, written = node[part], (*written, part)
        return written, self._parameter(node, parameters, ())

    def _parameter(self, node: Any, parameters: dict[str, Any], rest: Path) -> Path | None:
        named = [name for name in _mentioned(node) if name in parameters]
        if len(named) == 1:
            return (named[0], *(rest if isinstance(node, str) else ()))
        return () if named else None

    def _values(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return dict.fromkeys(self.file.template.optional, UNSET) | self.file.template.defaults | parameters

    def _undeclared(self, node: Any, path: Path) -> list[Problem]:
        if isinstance(node, str) and node.startswith("$") and node[1:] not in self.parameters:
            what, expected, near = unknown("parameter", node, [f"${name}" for name in self.parameters])
            expected = expected if self.parameters else "a parameter that [template] declares"
            return [self.document.problem(path, what, expected, near)]
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return [problem for key, item in items for problem in self._undeclared(item, (*path, key))]

    def _unusable(self) -> list[Problem]:
        """Return a problem for each parameter that no use could set, because a key of every use has its name."""
        head = self.file.template
        places: list[tuple[Path, str]] = [(("optional", i), name) for i, name in enumerate(head.optional)]
        places += [(("defaults", name), name) for name in head.defaults]
        return [
            self.document.problem(
                ("template", *place),
                f'a parameter cannot be called "{name}"',
                f"a name other than {', '.join(TemplateUse.model_fields)}",
            )
            for place, name in places
            if name in TemplateUse.model_fields
        ]


def _fill(node: Any, values: dict[str, Any]) -> Any:
    if isinstance(node, str) and node.startswith("$"):
        return values[node[1:]]
    if isinstance(node, dict):
        filled = ((key, _fill(item, values)) for key, item in node.items())
        return {key: item for key, item in filled if item is not UNSET}
    if isinstance(node, list):
        return [item for item in (_fill(item, values) for item in node) if item is not UNSET]
    return node


def _mentioned(node: Any) -> Iterator[str]:
    """Yield the parameters that a part of a template uses."""
    if isinstance(node, str) and node.startswith("$"):
        yield node[1:]
    elif isinstance(node, (dict, list)):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _mentioned(item)


@lru_cache(maxsize=1)
def builtin_names() -> tuple[str, ...]:
    """Return the names of the shipped templates."""
    return tuple(sorted(path.stem for path in BUILTIN.glob("*.toml")))


@lru_cache(maxsize=64)
def builtin(name: str) -> Template:
    """Read a shipped template."""
    return Template.read(BUILTIN / f"{name}.toml")
