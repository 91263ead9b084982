"""Loads spec files and folders into a Library, and reports all mistakes at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opcheck.spec.document import OTHERS, Document, decoded, read_bytes, shown
from opcheck.spec.entry import Entry
from opcheck.spec.expand import Expansion, FindTemplate
from opcheck.spec.library import Library, Operator, Sample
from opcheck.spec.limits import Limits
from opcheck.spec.operator import OperatorSpec, SpecFile
from opcheck.spec.problems import Problem, SpecError, nearest
from opcheck.spec.templates import Template, builtin
from opcheck.spec.wording import explain, validated
from opcheck.text import digest

BUILTIN = "builtin"
"""The path that refers to the shipped library."""
EXPECTED = "a TOML file, a folder of them, or builtin"
"""What a path should refer to."""


def builtin_folder() -> Path:
    """Return the folder of the shipped specs."""
    return shipped("library", "specs")


def shipped(inside: str, beside: str) -> Path:
    """Return a folder that comes with opcheck, inside an installed package or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / inside
    return installed if installed.is_dir() else package.parent / beside


@dataclass
class Catalogue:
    """A cache of TOML files: each is read once, when it is first requested. One with a mistake is read again."""

    _texts: set[str] = field(default_factory=set)
    """The texts of the parsed files."""

    def __post_init__(self) -> None:
        for method in (self.content, self.document, self.template, self.below, self.templates):
            setattr(self, method.__name__, cache(method))

    def content(self, file: Path) -> bytes:
        """Return the bytes of a file. Raises SpecError if it cannot be read."""
        return read_bytes(file)

    def document(self, file: Path) -> Document:
        """Return a parsed TOML file. Raises SpecError if it is not valid TOML."""
        document = Document.parse(shown(file), decoded(self.content(file), file))
        self._texts.add(document.text)
        return document

    def template(self, file: Path) -> Template:
        """Return a template. Raises SpecError if it is invalid."""
        return Template.of(file.stem, self.document(file))

    def below(self, folder: Path) -> list[Path]:
        """Return the TOML files below a folder in order, except settings of tools.

        Raises SpecError if a subfolder cannot be read.
        """
        files: list[Path] = []
        problems: list[Problem] = []

        def unreadable(error: OSError) -> None:
            problems.append(Problem(shown(Path(error.filename)), 1, 1, f"cannot be read: {error.strerror}"))

        for place, _, names in os.walk(folder, onerror=unreadable):
            files += [Path(place, name) for name in names if name.endswith(".toml") and name not in OTHERS]
        if problems:
            raise SpecError(problems)
        return sorted(files)

    def templates(self, root: Path, *, alone: bool = False) -> dict[str, list[Path]]:
        """Return the template files for the specs of a folder, by name. A name with several files is a mistake.

        alone: whether to skip subfolders: a single file may be in a folder with many, such as a home folder.
        """
        shelf: dict[str, list[Path]] = {}
        for file in sorted(root.glob("*.toml")) if alone else self.below(root):
            if file.name not in OTHERS and self._is_template(file):
                shelf.setdefault(file.stem, []).append(file)
        return shelf

    def digest(self) -> str:
        """Return a digest of the texts of all parsed TOML files."""
        return digest(self._texts)

    def _is_template(self, file: Path) -> bool:
        """Return whether a file has a key `template`, or seems to have one if it cannot be parsed."""
        try:
            content = self.content(file)
        except SpecError:
            return False
        if b"template" not in content and b"\\" not in content:  # the key may contain an escape
            return False
        try:
            return "template" in self.document(file).data
        except SpecError:
            return b"template" in content


@dataclass
class Loader:
    """Collects operators and mistakes from files."""

    limits: Limits = field(default_factory=Limits)
    roots: tuple[Path, ...] = ()
    """The spec folders of the project."""
    catalogue: Catalogue = field(default_factory=Catalogue)
    problems: list[Problem] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    _loaded: set[Path] = field(default_factory=set)

    def add(self, path: Path, root: Path | None = None) -> None:
        """Load a file, or all TOML files below a folder. Files that are already loaded are skipped.

        root: the folder to search for templates, whose subfolders and files name the families. Default: the spec
        folder of the project that contains the path, else the path itself if it is a folder, else its folder.
        """
        if path.parts and path.parts[0] == BUILTIN and not os.path.exists(path):
            root, path = builtin_folder(), builtin_folder().joinpath(*path.parts[1:])
        if not os.path.exists(path):
            self.problems.append(_missing(path))
            return
        if not path.is_dir() and path.suffix != ".toml":  # pytest would not collect it
            self.problems.append(Problem(shown(path), 1, 1, "the name of a spec ends in .toml", EXPECTED))
            return
        # A link to a file keeps its own path, since that is the path that users see.
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
            try:
                if file in shelved:
                    find(file.stem)  # raises the mistakes in a template even if no spec uses it
                elif file not in self._loaded:
                    self._loaded.add(file)
                    self._add_file(self.catalogue.document(file), _family(file, root), find)
            except SpecError as error:
                self.problems += error.problems

    def library(self) -> Library:
        """Return the operators without mistakes. Add a problem for each operator whose id is not unique."""
        seen: dict[str, Operator] = {}
        for operator in self.operators:
            first = seen.setdefault(operator.id, operator)
            if first is not operator:
                self.problems.append(operator.again(first))
        return Library(tuple(seen.values()))

    def _root(self, path: Path) -> Path:
        for root in map(os.path.realpath, (*self.roots, builtin_folder())):
            if os.path.isdir(root) and Path(root) in (path, *path.parents):
                return Path(root)
        return path if path.is_dir() else path.parent

    def _template(self, templates: dict[str, list[Path]], name: str) -> Template | list[str]:
        """Return a template, or the known names if there is none. Raises SpecError if it is invalid."""
        known = builtin() | templates
        if name not in known:
            return sorted(known)
        first, *others = known[name]
        if others:
            what = f'template "{name}" is described twice; first in {shown(first)}'
            documents = map(self.catalogue.document, others)
            raise SpecError(one.problem(("template",), what, "another file name", key=True) for one in documents)
        return self.catalogue.template(first)

    def _add_file(self, document: Document, family: str, find: FindTemplate) -> None:
        sound = True
        try:  # If all operators override a wrong default, only this finds it.
            validated(SpecFile, document.data, document.problem)
        except SpecError as error:
            self.problems += error.problems
            sound = False
        tables = document.data.get("operator")
        for index, table in enumerate(tables if isinstance(tables, list) else ()):
            if isinstance(table, dict):
                entry = Entry(document, index)
                each = [self._operator(one, family, find, sound) for one in (entry, *entry.under_others())]
                if None not in each:  # it has no mistakes with any version of torch
                    own, *others = filter(None, each)
                    self.operators.append(replace(own, elsewhere=tuple(others)))

    def _operator(self, entry: Entry, family: str, find: FindTemplate, sound: bool) -> Operator | None:
        """Return an operator, or None after reporting its mistakes. sound: whether the rest of the file is valid."""
        problems: list[Problem] = []
        try:
            spec: OperatorSpec | None = OperatorSpec.model_validate(entry.raw)
        except ValidationError as error:
            problems = [entry.problem(*mistake) for mistake in explain(error, OperatorSpec, entry.raw)]
            spec = _without_mistakes(error, entry.raw)  # checked further, to report all mistakes at once
        samples: tuple[Sample, ...] = ()
        if spec is not None:
            expansion = Expansion(entry, spec, find, self.limits)
            samples = expansion.samples()
            problems += expansion.problems
            problems += [entry.problem(*mistake) for mistake in self.limits.of_operator(spec)]
            if not problems and sound and not samples:
                what = f'operator "{spec.id}" has no samples' + (" left" if spec.samples else "")
                expected = "a skip, dtypes or layouts that leave at least one" if spec.samples else "samples = [...]"
                problems = [entry.problem(("samples",) if spec.samples else (), what, expected)]
        self.problems += problems
        if spec is None or problems or not samples:
            return None
        for index, expect in enumerate(spec.expect):
            expect._document, expect._place = entry.document, entry.place(("expect", index))
        return Operator(spec, samples, family, entry.document, entry.index)


def _family(file: Path, root: Path) -> str:
    parts = file.relative_to(root).parts if root in file.parents else ()
    return parts[0] if len(parts) > 1 else file.stem


def _missing(path: Path) -> Problem:
    try:
        siblings = os.listdir(path.parent)
    except (OSError, ValueError):
        siblings = []
    near = nearest(path.name, siblings)  # names alone: long paths in the same folder are always similar
    return Problem(shown(path), 1, 1, "no such file or folder", EXPECTED, shown(path.parent / near) if near else "")


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
