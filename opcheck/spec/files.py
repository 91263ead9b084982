"""Reads files from untrusted authors: only regular files, of bounded size, in UTF-8."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from opcheck.spec.problems import Problem, SpecError

PROJECT = "pyproject.toml"
OTHERS = (PROJECT, ".taplo.toml", "taplo.toml")
"""Names of TOML files that are no specs, wherever they are."""
MOST_BYTES = 4 * 2**20


def shown(path: Path) -> str:
    """Return a path as a person would type it: relative to the current folder if it is inside."""
    here = os.getcwd() + os.sep
    for full in (os.path.abspath(path), os.path.realpath(path)):  # much faster than pathlib's own way
        if full.startswith(here):
            return full.removeprefix(here)
    return str(path)


def decoded(content: bytes, path: Path) -> str:
    """Return the text of a file. Raises SpecError if it is not UTF-8."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        *lines, last = content[: error.start].decode("utf-8").split("\n")
        problem = Problem(shown(path), len(lines) + 1, len(last) + 1, "is not UTF-8 text", "a TOML file")
        raise SpecError([problem]) from None
    if text.startswith("\ufeff"):
        raise SpecError([Problem(shown(path), 1, 1, "begins with a byte order mark", "UTF-8 without one")])
    return text


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raises SpecError if it cannot be read.

    Only regular files are opened: a pipe would wait for its writer, and a device may never end.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SpecError([Problem(shown(path), 1, 1, "is not a regular file", "a TOML file")])
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SpecError([Problem(shown(path), 1, 1, f"cannot be read: {error.strerror}")]) from None
    if len(content) > MOST_BYTES:
        raise SpecError([Problem(shown(path), 1, 1, "is too large", f"at most {MOST_BYTES // 2**20} MiB")])
    return content


def toml_files(folder: Path) -> list[Path]:
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
