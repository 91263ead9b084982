"""Loads spec files and folders into a Library, and reports all mistakes at once."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opcheck.spec.catalogue import Catalogue
from opcheck.spec.document import Document
from opcheck.spec.entry import Entry
from opcheck.spec.expand import Expansion, FindTemplate
from opcheck.spec.explain import explain
from opcheck.spec.files import shown
from opcheck.spec.library import Library, Operator
from opcheck.spec.limits import Limits
from opcheck.spec.names import not_importable, refused
from opcheck.spec.operator import OperatorSpec, SpecOutline
from opcheck.spec.positions import Path as KeyPath
from opcheck.spec.problems import Problem, SpecError, listing, nearest
from opcheck.spec.templates import Template, builtin, builtin_names

BUILTIN = "builtin"
"""The path that refers to the shipped library."""


REFERENCE_MODULES = ("numpy", "scipy", "math", "torch._refs")
"""Modules always allowed for references. torch._refs implements torch's operators in terms of simpler ones."""


def builtin_folder() -> Path:
    """Return the folder of the shipped specs, inside an installed package or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "library"
    return installed if installed.is_dir() else package.parent / "specs"


def _family(file: Path, root: Path) -> str:
    parts = file.relative_to(root).parts if root in file.parents else ()
    return parts[0] if len(parts) > 1 else file.stem


def _missing(path: Path) -> Problem:
    try:
        siblings = os.listdir(path.parent)
    except (OSError, ValueError):
        siblings = []
    near = nearest(path.name, siblings)  # names alone: long paths in the same folder are always similar
    expected = "a TOML file, a folder of them, or builtin"
    return Problem(shown(path), 1, 1, "no such file or folder", expected, shown(path.parent / near) if near else "")


@dataclass
class Loader:
    """Collects operators and mistakes from files."""

    limits: Limits = field(default_factory=Limits)
    roots: tuple[Path, ...] = ()
    """The spec folders of the project."""
    devices: Collection[str] | None = None
    """The names of all devices; None: unknown, so that names of devices are not checked."""
    catalogue: Catalogue = field(default_factory=Catalogue)
    problems: list[Problem] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    _loaded: set[Path] = field(default_factory=set)

    def add(self, path: Path, root: Path | None = None) -> None:
        """Load a file, or all TOML files below a folder. Files that are already loaded are skipped.

        root: the folder that families and templates belong to. Default: the project's spec folder around the path, or
        else the folder itself.
        """
        if path.parts and path.parts[0] == BUILTIN and not os.path.exists(path):
            root, path = builtin_folder(), builtin_folder().joinpath(*path.parts[1:])
        if not os.path.exists(path):
            self.problems.append(_missing(path))
            return
        # A link to a file counts where the link is, not where it points: that is the path people see.
        path = Path(os.path.realpath(path) if path.is_dir() else os.path.join(os.path.realpath(path.parent), path.name))
        root = Path(os.path.realpath(root or self._root(path)))
        try:
            templates = self.catalogue.templates(root, alone=not path.is_dir() and root == path.parent)
            files = self.catalogue.below(path) if path.is_dir() else [path]
        except SpecError as error:
            self.problems += error.problems
            return
        shelved = {file for named in templates.values() for file in named}
        if path.is_dir() and shelved.issuperset(files):
            self.problems.append(Problem(shown(path), 1, 1, "a folder without spec files", "at least one TOML file"))
        find = partial(self._template, templates)
        for file in files:
            if file in shelved:
                find(file.stem)  # reports its mistakes even if it is not used
            elif file not in self._loaded:
                self._loaded.add(file)
                self._add_file(file, _family(file, root), find)

    def _root(self, path: Path) -> Path:
        for root in map(os.path.realpath, (*self.roots, builtin_folder())):
            if os.path.isdir(root) and Path(root) in (path, *path.parents):
                return Path(root)
        return path if path.is_dir() else path.parent

    def _template(self, templates: dict[str, list[Path]], name: str) -> Template | list[str] | None:
        """Return a template; the known names if there is none; or None if it is invalid, after reporting that."""
        if name in templates:
            first, *others = templates[name]
            try:
                for document in map(self.catalogue.document, others):
                    words = (f'template "{name}" is described twice; first in {shown(first)}', "another file name")
                    self.problems.append(document.problem(("template",), *words, key=True))
                return self.catalogue.template(first) if not others else None
            except SpecError as error:
                self.problems += error.problems
                return None
        if name in builtin_names():
            return builtin(name)
        return sorted({*templates, *builtin_names()})

    def library(self) -> Library:
        """Return the loaded operators. Raises SpecError if there was any mistake."""
        library = self.sound()
        if self.problems:
            raise SpecError(self.problems)
        return library

    def sound(self) -> Library:
        """Return the operators without mistakes. The mistakes of the others are in `problems`."""
        seen: dict[str, Operator] = {}
        for operator in self.operators:
            first = seen.setdefault(operator.id, operator)
            if first is not operator:
                what = f'operator "{operator.id}" is described twice; first at {first.document.file}:{first.line}'
                self.problems.append(operator.problem(("name",), what, "another name, or a key variant"))
        return Library(tuple(seen.values()))

    def _add_file(self, file: Path, family: str, find: FindTemplate) -> None:
        try:
            document = self.catalogue.document(file)
        except SpecError as error:
            self.problems += error.problems
            return
        problems = _around_operators(document)
        self.problems += problems
        entries = document.data.get("operator")
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                self._add_operator(Entry(document, index), family, find, complete=not problems)

    def _add_operator(self, entry: Entry, family: str, find: FindTemplate, *, complete: bool) -> None:
        operator = self._operator(entry, family, find, complete=complete)
        # What they share with it is a mistake several times, which SpecError tells once.
        others = [self._operator(other, family, find, complete=complete) for other in entry.under_others()]
        if operator is not None:
            self.operators.append(replace(operator, elsewhere=tuple(filter(None, others))))

    def _operator(self, entry: Entry, family: str, find: FindTemplate, *, complete: bool) -> Operator | None:
        """Return an operator, or None after reporting its mistakes."""
        problems: list[Problem] = []
        try:
            spec = OperatorSpec.model_validate(entry.raw)
        except ValidationError as error:
            problems = explain(error, OperatorSpec, entry.raw, entry.problem)
            self.problems += problems
            # Check what is valid further, to report all mistakes at once.
            remaining = _without_mistakes(error, entry.raw)
            if remaining is None:
                return None
            spec = remaining
        expansion = Expansion(entry, find, self.limits)
        samples = expansion.samples(spec)
        problems += [*expansion.problems, *self._claims(spec, entry)]
        if not problems and complete and expansion.complete and not samples:
            what = f'operator "{spec.id}" has no samples' + (" left" if spec.samples else "")
            expected = "a skip, dtypes or layouts that leave at least one" if spec.samples else "samples = [...]"
            problems = [entry.problem(("samples",) if spec.samples else (), what, expected)]
        self.problems += problems
        return Operator(spec, samples, family, entry.document, entry.index) if not problems and samples else None

    def _claims(self, spec: OperatorSpec, entry: Entry) -> Iterator[Problem]:
        """Yield the mistakes that a model alone cannot see: names and bounds that depend on the project."""
        own: list[tuple[KeyPath, str]] = [(("target",) if spec.target else ("name",), spec.callable_path)]
        own += [(("aliases", index), alias) for index, alias in enumerate(spec.aliases)]
        own += [
            (("variants", i, "target"), v.target)
            for i, v in enumerate(spec.variants)
            if not isinstance(v, str) and v.target is not None
        ]
        foreign: list[tuple[KeyPath, str]] = []
        reference = spec.reference_in_full
        if reference is not None:
            place: KeyPath = ("reference",) if isinstance(spec.reference, str) else ("reference", "target")
            foreign = [(place, reference.target)]
        for paths, modules in ((own, self.limits.modules), (foreign, (*self.limits.modules, *REFERENCE_MODULES))):
            for place, path in paths:
                refusal = refused(path, modules)
                if refusal:
                    yield entry.problem(place, *refusal)
        for index, module in enumerate(spec.imports):
            refusal = not_importable(module, self.limits.modules)
            if refusal:
                yield entry.problem(("imports", index), *refusal)
        if spec.module is not None:
            made = {"args": spec.module.args, "kwargs": spec.module.kwargs}
            yield from (entry.problem(*words) for words in self.limits.of_values(made, ("module",)))
        for index, claim in enumerate(spec.errors):
            values = {"args": claim.args, "kwargs": claim.kwargs}
            for place, *words in self.limits.of_values(values, ("errors", index)):
                yield entry.problem(place, *words)
        yield from self._devices_named(spec, entry)

    def _devices_named(self, spec: OperatorSpec, entry: Entry) -> Iterator[Problem]:
        named: list[tuple[KeyPath, str]] = [(("per_device", name), name) for name in spec.per_device]
        named += [(("devices", index), name) for index, name in enumerate(spec.devices or ())]
        for path, name in named:
            if self.devices is not None and name not in self.devices:
                words = (f'unknown device "{name}"', listing(self.devices), nearest(name, self.devices))
                yield entry.problem(path, *words, key=path[0] == "per_device")


def _around_operators(document: Document) -> list[Problem]:
    """Return the mistakes of a spec file outside its operators. A default that they override may be one."""
    try:
        SpecOutline.model_validate(document.data)
    except ValidationError as error:
        return explain(error, SpecOutline, document.data, document.problem)
    return []


def _without_mistakes(error: ValidationError, raw: dict[str, Any]) -> OperatorSpec | None:
    """Return an operator made of the valid keys, with invalid samples emptied; None if too little is valid."""
    kept, wrong = dict(raw), set()
    for item in error.errors(include_url=False, include_context=False):
        key, *rest = item["loc"] or ("",)
        if key == "samples" and rest:
            wrong.add(rest[0])
        else:
            kept.pop(str(key), None)
    if isinstance(kept.get("samples"), list):
        kept["samples"] = [{} if index in wrong else sample for index, sample in enumerate(kept["samples"])]
    try:
        return OperatorSpec.model_validate(kept)
    except ValidationError:
        return None
