"""The TOML files of a session. Each is read once; its content decides whether it is a spec or a template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from opcheck.spec.document import Document
from opcheck.spec.files import OTHERS, decoded, read_bytes, shown, toml_files
from opcheck.spec.problems import SpecError
from opcheck.spec.templates import Template
from opcheck.text import digest

T = TypeVar("T")
Read = dict[Path, "T | SpecError"]
"""The result for each file: its content, or the mistakes in it."""


@dataclass
class Catalogue:
    """Caches files as they were when first requested."""

    _contents: Read[bytes] = field(default_factory=dict)
    _documents: Read[Document] = field(default_factory=dict)
    _templates: Read[Template] = field(default_factory=dict)
    _folders: Read[list[Path]] = field(default_factory=dict)
    _shelves: dict[tuple[Path, bool], dict[str, list[Path]]] = field(default_factory=dict)

    def content(self, file: Path) -> bytes:
        """Return the bytes of a file. Raises SpecError if it cannot be read."""
        return _once(self._contents, file, read_bytes)

    def document(self, file: Path) -> Document:
        """Return a parsed TOML file. Raises SpecError if it is not valid TOML."""
        return _once(self._documents, file, lambda file: Document.parse(shown(file), decoded(self.content(file), file)))

    def digest(self) -> str:
        """Return a digest of what all the TOML files say that were parsed."""
        texts = {one.text for one in self._documents.values() if isinstance(one, Document)}
        return digest(texts)

    def template(self, file: Path) -> Template:
        """Return a template. Raises SpecError if it is invalid."""
        return _once(self._templates, file, lambda file: Template.of(file.stem, self.document(file)))

    def below(self, folder: Path) -> list[Path]:
        """Return the TOML files below a folder. Raises SpecError if a subfolder cannot be read."""
        return _once(self._folders, folder, toml_files)

    def templates(self, root: Path, *, alone: bool = False) -> dict[str, list[Path]]:
        """Return the templates for the specs of a folder, by name. Two templates with one name are a mistake.

        alone: whether to search only the folder itself. A single file may lie anywhere, for example in a home folder.
        """
        if (root, alone) not in self._shelves:
            shelf = self._shelves[root, alone] = {}
            for file in sorted(root.glob("*.toml")) if alone else self.below(root):
                if file.name not in OTHERS and self._is_template(file):
                    shelf.setdefault(file.stem, []).append(file)
        return self._shelves[root, alone]

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


def _once(read: Read[T], path: Path, make: Callable[[Path], T]) -> T:
    if path not in read:
        try:
            read[path] = make(path)
        except SpecError as error:
            read[path] = error
    content = read[path]
    if isinstance(content, SpecError):
        raise SpecError(content.problems)
    return content
