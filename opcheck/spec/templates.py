"""Sample templates: TOML files whose samples have parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from opcheck.spec.document import Document
from opcheck.spec.operator import TemplateFile
from opcheck.spec.positions import KeyPath
from opcheck.spec.problems import SpecError, unknown
from opcheck.spec.values import UNSET, mapped, parts
from opcheck.spec.wording import validated

BUILTIN = Path(__file__).parent / "builtin" / "templates"


@dataclass(frozen=True, eq=False)
class Template:
    """A parsed template."""

    name: str
    document: Document
    file: TemplateFile

    @classmethod
    def of(cls, name: str, document: Document) -> Template:
        """Return a validated template. Raises SpecError if it is invalid, or uses a parameter that is not declared."""
        template = cls(name, document, validated(TemplateFile, document.data, document.problem))
        known = [f"${parameter}" for parameter in template.parameters]
        problems = []
        for place, part in parts(document.data["samples"], ("samples",)):
            if _is_parameter(part) and part not in known:
                what, expected, near = unknown("parameter", part, known)
                expected = expected if known else f'one that [template] declares, as in optional = ["{part[1:]}"]'
                problems.append(document.problem(place, what, expected, near))
        if problems:
            raise SpecError(problems)
        return template

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that a use can set."""
        return (*self.file.template.optional, *self.file.template.defaults)

    def filled(self, node: Any, parameters: dict[str, Any]) -> Any:
        """Return a part of a sample, as parsed TOML, with its parameters filled in."""
        head = self.file.template
        values = dict.fromkeys(head.optional, UNSET) | head.defaults | parameters
        return mapped(node, lambda part: values[part[1:]] if _is_parameter(part) else part)

    def origin(self, number: int, place: KeyPath, parameters: dict[str, Any]) -> tuple[KeyPath, KeyPath | None]:
        """Return where a part of a filled sample comes from: its path in this file, and its path in the parameters.

        The second path is None if the part comes from no given parameter, and empty if it comes from several.
        """
        node: Any = self.file.samples[number]
        written: KeyPath = ("samples", number)
        for depth, part in enumerate(place):
            if isinstance(node, list):
                kept = [index for index, item in enumerate(node) if self.filled(item, parameters) is not UNSET]
                part = kept[int(part)]
            elif not isinstance(node, dict) or part not in node:
                return written, self._parameter(node, parameters, place[depth:])
            node, written = node[part], (*written, part)
        return written, self._parameter(node, parameters, ())

    def _parameter(self, node: Any, parameters: dict[str, Any], rest: KeyPath) -> KeyPath | None:
        named = [part[1:] for _, part in parts(node) if _is_parameter(part) and part[1:] in parameters]
        if len(named) == 1:
            return (named[0], *(rest if isinstance(node, str) else ()))
        return () if named else None


def _is_parameter(part: Any) -> bool:
    return isinstance(part, str) and part.startswith("$")


@lru_cache(maxsize=1)
def builtin() -> dict[str, list[Path]]:
    """Return the files of the shipped templates, by name. There is one for each name."""
    return {path.stem: [path] for path in sorted(BUILTIN.glob("*.toml"))}
