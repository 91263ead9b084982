"""Loads spec files and folders into a Library, and reports every mistake of a run at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opcheck.spec import templates
from opcheck.spec.claims import Supports
from opcheck.spec.device import DeviceProfile, profiles
from opcheck.spec.document import Document, shown
from opcheck.spec.entry import Entry
from opcheck.spec.expand import Expansion
from opcheck.spec.explain import explain
from opcheck.spec.library import Library, Operator
from opcheck.spec.limits import Limits
from opcheck.spec.names import refused
from opcheck.spec.operator import Defaults, OperatorSpec
from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.problems import Problem, SpecError, listing, nearest
from opcheck.spec.settings import Settings

PROJECT = "pyproject.toml"
BUILTIN = "builtin"
"""The name by which a path means the shipped library."""


REFERENCE_MODULES = ("numpy", "scipy", "math", "torch._refs")
"""References may come from these without further ado. torch._refs has torch's operators in terms of simpler ones."""


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
    _templates: dict[str, templates.Template | None] = field(default_factory=dict)
    """None: a template whose own mistakes are among the problems."""
    _beside: dict[str, list[Problem]] = field(default_factory=dict)
    """Mistakes of templates beside a lone file, which concern it only where it uses them."""
    _template_files: set[Path] = field(default_factory=set)
    _spec_files: set[Path] = field(default_factory=set)

    def add(self, path: Path, root: Path | None = None) -> None:
        """Load a file, or all TOML files below a folder. What was loaded before is not loaded again.

        root: the folder that families and templates belong to; default: the spec folder of the project that the path
        lies in, else the folder itself.
        """
        if path.parts and path.parts[0] == BUILTIN and not path.exists():
            root, path = builtin_folder(), builtin_folder().joinpath(*path.parts[1:])
        if not path.exists():
            siblings = [str(other) for other in path.parent.glob("*")] if path.parent.is_dir() else []
            near = nearest(path, siblings)
            expected = "a TOML file, a folder of them, or builtin"
            hint = shown(Path(near)) if near else ""
            self.problems.append(Problem(shown(path), 1, 1, "no such file or folder", expected, hint))
            return
        root, path = Path(os.path.realpath(root or self._root(path))), Path(os.path.realpath(path))
        self._add_templates(root, path)
        files = [path] if path.is_file() else [file for file in sorted(path.rglob("*.toml")) if file.name != PROJECT]
        specs = [file for file in files if file not in self._template_files]
        if path.is_dir() and not specs:
            self.problems.append(Problem(shown(path), 1, 1, "a folder without spec files", "at least one TOML file"))
        for file in specs:
            document = None if file in self._spec_files else self._read(file)
            self._spec_files.add(file)
            if document:
                relative = file.relative_to(root)
                self._add_document(document, relative.parts[0] if len(relative.parts) > 1 else file.stem)

    def _root(self, path: Path) -> Path:
        for root in (*self.settings.spec_paths(), builtin_folder()):
            if root.is_dir() and root.resolve() in (path.resolve(), *path.resolve().parents):
                return root
        return path if path.is_dir() else path.parent

    def _add_templates(self, root: Path, path: Path) -> None:
        """Read the templates below a folder: TOML files with a table [template]."""
        # The folder of a lone file can be anything, a home folder too: nothing below it is searched.
        lone = path.is_file() and root == path.parent
        for file in sorted(root.glob("*.toml") if lone else root.rglob("*.toml")):
            if file in self._template_files or not templates.looks_like_template(file):
                continue
            self._template_files.add(file)
            try:
                self._templates[file.stem] = templates.Template.read(file)
            except SpecError as error:
                self._templates[file.stem] = None
                if lone and file != path:
                    self._beside[file.stem] = error.problems
                else:
                    self.problems += error.problems

    def library(self) -> Library:
        """Return what was loaded. Raises SpecError where anything was wrong."""
        library = self.sound()
        if self.problems:
            raise SpecError(self.problems)
        return library

    def sound(self) -> Library:
        """Return the operators without mistakes; those of the others are in `problems`."""
        seen: dict[str, Operator] = {}
        for operator in self.operators:
            first = seen.setdefault(operator.id, operator)
            if first is not operator:
                what = f'operator "{operator.id}" is described twice; first at {first.document.file}:{first.line}'
                self.problems.append(operator.problem(("name",), what, "another name, or a key variant"))
        return Library(tuple(seen.values()))

    @cached_property
    def devices(self) -> dict[str, DeviceProfile] | None:
        """The device profiles of the project; None where they have mistakes, which are then among the problems."""
        try:
            return profiles(self.settings.device_folders())
        except SpecError as error:
            self.problems += error.problems
            return None

    def _read(self, file: Path) -> Document | None:
        try:
            return Document.read(file)
        except SpecError as error:
            self.problems += error.problems
            return None

    def _add_document(self, document: Document, family: str) -> None:
        problems = list(_top_level(document))
        problems += _in_defaults(document)
        self.problems += problems
        entries = document.data.get("operator")
        if not isinstance(entries, list):
            return
        for index, entry in enumerate(entries):
            if isinstance(entry, dict):
                self._add_operator(Entry(document, index), family, complete=not problems)

    def _add_operator(self, entry: Entry, family: str, *, complete: bool) -> None:
        found: list[Problem] = []
        try:
            spec = OperatorSpec.model_validate(entry.raw)
        except ValidationError as error:
            found = explain(error, OperatorSpec, entry.raw, entry.problem)
            self.problems += found
            # What is right is looked at further, so that all mistakes come to light at once.
            remaining = _without_mistakes(error, entry.raw)
            if remaining is None:
                return
            spec = remaining
        limits = Limits.of(self.settings)
        expansion = Expansion(entry, self._template, limits)
        samples = expansion.samples(spec)
        found += [*expansion.problems, *self._claims(spec, entry, limits)]
        if not found and complete and expansion.complete and not samples:
            what = f'operator "{spec.id}" has no samples' + (" left" if spec.samples else "")
            expected = "a skip, dtypes or layouts that leave some" if spec.samples else "samples = [...]"
            found = [entry.problem(("samples",) if spec.samples else (), what, expected)]
        self.problems += found
        if not found and samples:
            self.operators.append(Operator(spec, samples, family, entry.document, entry.index))

    def _template(self, name: str) -> templates.Template | list[str] | None:
        self.problems += self._beside.pop(name, [])
        if name in self._templates:
            return self._templates[name]
        if name in templates.builtin_names():
            return templates.builtin(name)
        return sorted({*self._templates, *templates.builtin_names()})

    def _claims(self, spec: OperatorSpec, entry: Entry, limits: Limits) -> Iterator[Problem]:
        """Yield the mistakes that a model alone cannot see: names and bounds that depend on the project."""
        own: list[tuple[KeyPath, str]] = [(("target",) if spec.target else ("name",), spec.callable_path)]
        own += [(("aliases", index), alias) for index, alias in enumerate(spec.aliases)]
        own += [(("variants", i, "target"), v.target) for i, v in enumerate(spec.variants) if not isinstance(v, str)]
        foreign: list[tuple[KeyPath, str]] = []
        if isinstance(spec.reference, str):
            foreign = [(("reference",), spec.reference)]
        elif spec.reference is not None:
            foreign = [(("reference", "target"), spec.reference.target)]
        for paths, modules in ((own, limits.modules), (foreign, (*limits.modules, *REFERENCE_MODULES))):
            for place, path in paths:
                refusal = refused(path, modules)
                if refusal:
                    yield entry.problem(place, *refusal)
        for index, claim in enumerate(spec.errors):
            values = {"args": claim.args, "kwargs": claim.kwargs}
            for place, *words in limits.of_values(values, ("errors", index)):
                yield entry.problem(place, *words)
        yield from self._devices_named(spec, entry)

    def _devices_named(self, spec: OperatorSpec, entry: Entry) -> Iterator[Problem]:
        named: list[tuple[KeyPath, str]] = [(("per_device", name), name) for name in spec.per_device]
        named += [(("devices", index), name) for index, name in enumerate(spec.devices or ())]
        for path, name in named:
            if self.devices is not None and name not in self.devices:
                words = (f'unknown device "{name}"', listing(self.devices), nearest(name, self.devices))
                yield entry.problem(path, *words, key=path[0] == "per_device")
        for device, special in spec.per_device.items():
            for name in special.supports:
                if name not in Supports.model_fields:
                    words = (
                        f'unknown key "{name}"',
                        listing(Supports.model_fields),
                        nearest(name, Supports.model_fields),
                    )
                    yield entry.problem(("per_device", device, "supports", name), *words, key=True)


def _top_level(document: Document) -> Iterator[Problem]:
    """Yield the mistakes in the outermost keys of a spec file."""
    data = document.data
    known = ("defaults", "operator")
    unknown = [key for key in data if key not in known]
    for key in unknown:
        yield document.problem((key,), f'unknown key "{key}"', "defaults or operator", nearest(key, known), key=True)
    if not isinstance(data.get("defaults", {}), dict):
        yield document.problem(("defaults",), "defaults is no table", "[defaults]")
    entries = data.get("operator")
    if entries is None:
        if not any(nearest(key, known) == "operator" for key in unknown):
            yield document.problem((), "a spec file without operators", "at least one [[operator]]")
    elif not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        yield document.problem(("operator",), "operator is no array of tables", "at least one [[operator]]")


def _in_defaults(document: Document) -> Iterator[Problem]:
    """Yield the mistakes in `[defaults]`, also in what every operator of the file replaces."""
    written = document.data.get("defaults")
    if not isinstance(written, dict):
        return
    locate = partial(_under, document, ("defaults",))
    known = {key: value for key, value in written.items() if key in Defaults.model_fields}
    for key in written.keys() - known.keys():
        words = (f'unknown key "{key}"', listing(Defaults.model_fields, 30), nearest(key, Defaults.model_fields))
        yield locate((key,), *words, key=True)
    try:
        # As an operator: that spares building a second validator. All keys of Defaults are keys of operators.
        OperatorSpec.model_validate({"name": "some.operator", **known})
    except ValidationError as error:
        yield from explain(error, Defaults, known, locate)


def _without_mistakes(error: ValidationError, raw: dict[str, Any]) -> OperatorSpec | None:
    """Return an operator from those keys that are right; wrong samples become empty ones. None: that is too little."""
    kept = dict(raw)
    for item in error.errors(include_url=False, include_context=False):
        key, *rest = item["loc"] or ("",)
        samples = kept.get("samples")
        if key == "samples" and rest and isinstance(samples, list):
            kept["samples"] = [{} if index == rest[0] else sample for index, sample in enumerate(samples)]
        else:
            kept.pop(str(key), None)
    try:
        return OperatorSpec.model_validate(kept)
    except ValidationError:
        return None


def _under(document: Document, base: KeyPath, path: KeyPath, *words: str, key: bool = False) -> Problem:
    return document.problem((*base, *path), *words, key=key)
