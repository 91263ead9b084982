"""Sample templates: TOML files whose samples have parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opcheck.spec.document import Document
from opcheck.spec.explain import explain
from opcheck.spec.operator import TemplateFile
from opcheck.spec.problems import Problem, SpecError

BUILTIN = Path(__file__).parent / "builtin" / "templates"
UNSET = object()


@dataclass(frozen=True)
class Template:
    """A template that has been read."""

    name: str
    document: Document
    file: TemplateFile

    @classmethod
    def read(cls, path: Path) -> Template:
        """Read a template; its name is that of the file. Raises SpecError."""
        return cls.of(path.stem, Document.read(path))

    @classmethod
    def of(cls, name: str, document: Document) -> Template:
        """Validate a template. Raises SpecError where it is wrong, or mentions a parameter that it does not declare."""
        try:
            file = TemplateFile.model_validate(document.data)
        except ValidationError as error:
            raise SpecError(explain(error, TemplateFile, document.data, document.problem)) from None
        template = cls(name, document, file)
        problems = list(template._undeclared(document.data["samples"], ("samples",)))
        if problems:
            raise SpecError(problems)
        return template

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that a use can set."""
        return (*self.file.template.optional, *self.file.template.defaults)

    def samples(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the samples (parsed TOML) with parameters filled in."""
        values = dict.fromkeys(self.file.template.optional, UNSET) | self.file.template.defaults | given
        return [_fill(sample, values) for sample in self.file.samples]

    def _undeclared(self, node: Any, path: tuple[str | int, ...]) -> list[Problem]:
        if isinstance(node, str) and node.startswith("$") and node[1:] not in self.parameters:
            return [self.document.problem(path, f'unknown parameter "{node}"', f"one of {', '.join(self.parameters)}")]
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return [problem for key, item in items for problem in self._undeclared(item, (*path, key))]


def _fill(node: Any, values: dict[str, Any]) -> Any:
    if isinstance(node, str) and node.startswith("$"):
        return values[node[1:]]
    if isinstance(node, dict):
        filled = ((key, _fill(item, values)) for key, item in node.items())
        return {key: item for key, item in filled if item is not UNSET}
    if isinstance(node, list):
        return [item for item in (_fill(item, values) for item in node) if item is not UNSET]
    return node


@lru_cache(maxsize=1)
def builtin_names() -> tuple[str, ...]:
    """Return the names of the shipped templates."""
    return tuple(sorted(path.stem for path in BUILTIN.glob("*.toml")))


@lru_cache(maxsize=64)
def builtin(name: str) -> Template:
    """Read a shipped template."""
    return Template.read(BUILTIN / f"{name}.toml")
