"""The JUnit report. pytest writes it, but splits the ids of cases at `::`, and does not know why a process ended."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from opcheck.report.writing import is_stream, put

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


class JUnitReport:
    """Checks and corrects the file that `--junitxml` writes."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        """Check that the file can be written, without leaving anything behind. Raises OSError if it cannot."""
        self.path = path
        self._prefix = f"{prefix}." if prefix else ""
        self._cases: dict[str, tuple[str, str]] = {}
        """Class name and name of each test case, by the dotted form of its node id."""
        self._ends: dict[str, Mapping[str, Any]] = {}
        """The records of the cases that ended their process, likewise."""
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        if is_stream(path):
            if path.is_file():
                raise OSError(f"{path} is a standard stream, which pytest would overwrite; expected a file of its own")
        elif path.is_file():
            path.open("ab").close()
        elif not path.exists():
            folder = next(parent for parent in path.parents if parent.exists())
            tempfile.TemporaryFile(dir=folder).close()

    def add(self, nodeid: str, name: str, end: Mapping[str, Any] | None = None) -> None:
        """Record which case a node id refers to. end: the record of a case that ended its process."""
        self._cases[_dotted(nodeid)] = (class_name(nodeid.removesuffix(f"::{name}")), name)
        if end is not None:
            self._ends[_dotted(nodeid)] = end

    def finish(self) -> str:
        """Rename the test cases, and return what is wrong with the report, or an empty string."""
        if not self._cases or is_stream(self.path) or not self.path.is_file():
            return ""
        try:
            self._rename()
        except (OSError, ElementTree.ParseError) as error:
            return f"the report {self.path} is incomplete: its tests do not have the names of the cases: {error}"
        return ""

    def _rename(self) -> None:
        tree = ElementTree.parse(self.path)
        for case in tree.iter("testcase"):
            address = f"{case.get('classname', '')}.{case.get('name', '')}".removeprefix(self._prefix)
            place, name = self._cases.get(_dotted(address), ("", ""))
            if name:
                case.set("classname", self._prefix + place)
                case.set("name", name)
            end = self._ends.get(_dotted(address))
            if end is not None:
                case.set("time", f"{end['seconds']:.3f}")
                for found in case.iter("error"):
                    found.set("message", xml_text(end["reason"]))
                    found.text = xml_text(end["message"])
        text = ElementTree.tostring(tree.getroot(), encoding="utf-8", xml_declaration=True)
        put(self.path, [text], self.path.stat().st_mode)


def xml_text(text: str) -> str:
    """Return text that XML can hold."""
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def class_name(file: str) -> str:
    """Return the class name of the test cases of a spec file: its path with dots."""
    return ".".join(part for part in file.removesuffix(".toml").split("/") if part not in ("..", ""))


def _dotted(address: str) -> str:
    """Return a node id in a form that does not depend on where pytest splits it."""
    return address.replace("::", ".").replace("/", ".")
