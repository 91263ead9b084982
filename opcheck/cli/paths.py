"""Which specs a command works on, and which of their cases. Loads nothing else of opcheck."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opcheck.spec import Settings


def add_paths(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument for specs."""
    parser.add_argument(
        "paths", nargs="*", metavar="SPEC",
        help="spec files and folders, or builtin (the shipped library); default: those of [tool.opcheck] in "
        "pyproject.toml, else specs/",
    )  # fmt: skip


NO_SPECS = (
    "no specs here: name files or folders of them, or write `specs = [...]` under [tool.opcheck] in pyproject.toml; "
    "`builtin` is the shipped library"
)


def spec_paths(options: argparse.Namespace, settings: Settings) -> list[Path]:
    """Return the files and folders that a command works on. Raises SpecError where there are none."""
    if options.paths:
        return [Path(path) for path in options.paths]
    found = settings.spec_paths() or [path for path in [Path("specs")] if path.is_dir()]
    if not found:
        from opcheck.cli.request import RequestError

        raise RequestError([NO_SPECS])
    return found


def split_id(text: str, base: Path = Path()) -> tuple[str, str]:
    """Take `FILE::ID` apart. The id is empty where a file or a folder is named alone.

    A folder may have `::` in its name, too: the file is the first one that exists.
    """
    if not (base / text).exists():
        files = [text[: found.end() - 2] for found in re.finditer(r"\.toml::", text)]
        for file in [file for file in files if (base / file).is_file()] or files[:1]:
            return file, text[len(file) + 2 :]
    return text, ""


def unsplit(path: str, base: Path) -> str:
    """Return the path, as seen from a folder, that pytest takes as a whole: it splits arguments at `[` and `::`.

    Where there is none, it is that of the nearest folder around it.
    """
    if not any(sign in str(base / path) for sign in SPLIT_AT):
        return path
    relative = os.path.relpath(base / path, base)
    while any(sign in relative for sign in SPLIT_AT):
        relative = os.path.dirname(relative) or os.curdir
    return relative


SPLIT_AT = ("[", "::")
