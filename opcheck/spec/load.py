"""Loads spec files and folders into a Library, and reports every mistake of a run at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opcheck.spec import templates
from opcheck.spec.claims import Supports
from opcheck.spec.device import profiles
from opcheck.spec.document import Document, holds, shown
from opcheck.spec.expand import Expansion
from opcheck.spec.explain import explain
from opcheck.spec.library import Library, Operator
from opcheck.spec.operator import Defaults, OperatorSpec
from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.problems import Problem, SpecError, nearest
from opcheck.spec.settings import Settings

BUILTIN = "builtin"
"""The name by which a path means the shipped library."""


def builtin_folder() -> Path:
    """Return the folder of the shipped specs: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "library"
    return installed if installed.is_dir() else package.parent / "specs"


def load(paths: Iterable[Path | str], settings: Settings | None = None) -> Library:
    """Load spec files and folders (`builtin`: the shipped library). Raises SpecError with all mistakes found."""
    loader = Loader(settings or Settings())
    for path in paths:
        loader.add(Path(path))
    return loader.library()


@dataclass
class Loader:
    """Collects operators and mistakes over files."""

    settings: Settings
    problems: list[Problem] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    _templates: dict[str, templates.Template] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        """Load a file, or all TOML files below a folder. Templates of a folder are read before its specs."""
        if path.parts and path.parts[0] == BUILTIN and not path.exists():
            path = builtin_folder().joinpath(*path.parts[1:])
        if not path.exists():
            siblings = [str(other) for other in path.parent.glob("*")] if path.parent.is_dir() else []
            self.problems.append(
                Problem(
                    shown(path),
                    1,
                    1,
                    "no such file or folder",
                    "a TOML file, a folder of them, or builtin",
                    nearest(path, siblings),
                )
            )
            return
        files = [path] if path.is_file() else sorted(path.rglob("*.toml"))
        if not files:
            self.problems.append(Problem(shown(path), 1, 1, "a folder without TOML files", "at least one spec"))
        root = path if path.is_dir() else path.parent
        documents = [(file, self._read(file)) for file in files]
        specs = [(file, document) for file, document in documents if document and not self._is_template(file, document)]
        for file, document in specs:
            relative = file.relative_to(root)
            self._add_document(document, relative.parts[0] if len(relative.parts) > 1 else file.stem)

    def library(self) -> Library:
        """Return what was loaded. Raises SpecError where anything was wrong."""
        seen: dict[str, Operator] = {}
        for operator in self.operators:
            first = seen.setdefault(operator.id, operator)
            if first is not operator:
                place = ("operator", operator.index, "name")
                what = f'operator "{operator.id}" is described twice; first at {first.document.file}:{first.line}'
                self.problems.append(operator.document.problem(place, what, 'another name, or a key "variant"'))
        if self.problems:
            raise SpecError(self.problems)
        return Library(tuple(self.operators))

    def _read(self, file: Path) -> Document | None:
        try:
            return Document.read(file)
        except SpecError as error:
            self.problems += error.problems
            return None

    def _is_template(self, file: Path, document: Document) -> bool:
        if "template" not in document.data:
            return False
        try:
            self._templates[file.stem] = templates.Template.of(file.stem, document)
        except SpecError as error:
            self.problems += error.problems
        return True

    def _add_document(self, document: Document, family: str) -> None:
        data = document.data
        for key in data:
            if key not in ("defaults", "operator"):
                expected, near = "defaults or operator", nearest(key, ("defaults", "operator"))
                self.problems.append(document.problem((key,), f'unknown key "{key}"', expected, near, key=True))
        defaults, entries = data.get("defaults", {}), data.get("operator")
        if not isinstance(defaults, dict) or any(key not in Defaults.model_fields for key in defaults):
            self._check_defaults(document, defaults)
            return
        if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
            what = "operator is no array of tables" if "operator" in data else "a spec file without operators"
            self.problems.append(document.problem(("operator",), what, "at least one [[operator]]"))
            return
        for index, entry in enumerate(entries):
            self._add_operator(document, family, defaults, entry, index)

    def _check_defaults(self, document: Document, defaults: Any) -> None:
        try:
            Defaults.model_validate(defaults)
        except ValidationError as error:
            place = partial(_under, document, ("defaults",))
            self.problems += explain(error, Defaults, defaults, place)

    def _add_operator(self, document: Document, family: str, defaults: Any, entry: dict[str, Any], index: int) -> None:
        base: KeyPath = ("operator", index)

        def locate(path: KeyPath, *words: str, key: bool = False) -> Problem:
            # What the operator does not say itself was merged from the defaults of the file.
            from_defaults = path and not holds(entry, path[:1]) and holds(defaults, path[:1])
            deeper = path and not holds(entry, path) and holds(defaults, path)
            return document.problem((*(("defaults",) if from_defaults or deeper else base), *path), *words, key=key)

        raw = merge(defaults, entry)
        try:
            spec = OperatorSpec.model_validate(raw)
        except ValidationError as error:
            self.problems += explain(error, OperatorSpec, raw, locate)
            return
        own_samples = "samples" in entry
        bounds = (self.settings.max_elements, self.settings.max_samples)
        expansion = Expansion(document, locate, base if own_samples else ("defaults",), self._template, bounds)
        samples = expansion.samples(spec)
        found = [*expansion.problems, *self._claims(spec, locate)]
        if not found and not samples:
            found = [locate((), f'operator "{spec.id}" has no samples', "samples = [...]")]
        self.problems += found
        if not found:
            self.operators.append(Operator(spec, samples, family, document, index))

    def _template(self, name: str) -> templates.Template | list[str]:
        if name in self._templates:
            return self._templates[name]
        if name in templates.builtin_names():
            return templates.builtin(name)
        return sorted({*self._templates, *templates.builtin_names()})

    def _claims(self, spec: OperatorSpec, locate: Any) -> Iterable[Problem]:
        """Yield the mistakes that a model alone cannot see: names that depend on the project."""
        yield from self._paths(spec, locate)
        known = profiles(self.settings.device_folders())
        devices: list[tuple[KeyPath, str]] = [(("per_device", name), name) for name in spec.per_device]
        devices += [(("devices", index), name) for index, name in enumerate(spec.devices or ())]
        for path, name in devices:
            if name not in known:
                yield locate(path, f'unknown device "{name}"', f"one of {', '.join(known)}", nearest(name, known))
        for device, special in spec.per_device.items():
            for name in special.supports:
                if name not in Supports.model_fields:
                    path = ("per_device", device, "supports", name)
                    yield locate(
                        path,
                        f'unknown key "{name}"',
                        f"one of {', '.join(Supports.model_fields)}",
                        nearest(name, Supports.model_fields),
                        key=True,
                    )

    def _paths(self, spec: OperatorSpec, locate: Any) -> Iterable[Problem]:
        own: list[tuple[KeyPath, str]] = [(("target",) if spec.target else ("name",), spec.callable_path)]
        own += [(("aliases", index), alias) for index, alias in enumerate(spec.aliases)]
        own += [(("variants", i, "target"), v.target) for i, v in enumerate(spec.variants) if not isinstance(v, str)]
        own += [(("samples",), path) for path in _objects(spec.samples)]
        foreign: list[tuple[KeyPath, str]] = []
        if spec.reference is not None:
            inner = spec.reference if isinstance(spec.reference, str) else spec.reference.target
            foreign = [(("reference",), inner)]
        for paths, modules in ((own, self.settings.modules), (foreign, (*self.settings.modules, *REFERENCE_MODULES))):
            for place, path in paths:
                if not is_allowed(path, modules):
                    expected = f"a path inside {', '.join(modules)} (modules of [tool.opcheck])"
                    yield locate(
                        place,
                        f'"{path}" is outside the allowed modules',
                        expected,
                        nearest(path.split(".")[0], modules),
                    )


REFERENCE_MODULES = ("numpy", "scipy", "math")


def is_allowed(path: str, modules: Sequence[str]) -> bool:
    """Tell whether a dotted path lies inside one of the modules."""
    dotted = path.replace(":", ".")
    return any(dotted.startswith(f"{module}.") for module in modules)


def merge(base: Any, top: Any) -> Any:
    """Merge parsed TOML: tables key by key, everything else is replaced."""
    if isinstance(base, dict) and isinstance(top, dict):
        return base | {key: merge(base[key], value) if key in base else value for key, value in top.items()}
    return top


def _under(document: Document, base: KeyPath, path: KeyPath, *words: str, key: bool = False) -> Problem:
    return document.problem((*base, *path), *words, key=key)


def _objects(value: Any) -> list[str]:
    """Return the paths of `{ object = ... }` within samples."""
    if hasattr(value, "object") and isinstance(value.object, str):
        return [value.object]
    if isinstance(value, dict):
        return [path for item in value.values() for path in _objects(item)]
    if isinstance(value, (list, tuple)):
        return [path for item in value for path in _objects(item)]
    if hasattr(value, "args") or hasattr(value, "kwargs"):
        return _objects(getattr(value, "args", [])) + _objects(value.kwargs) + _objects(value.grid)
    return _objects(value.tuple) if hasattr(value, "tuple") else []
