"""Which specs a command works on. Loads nothing else of opcheck."""

from __future__ import annotations

import argparse
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
        from opcheck.cli.selecting import RequestError

        raise RequestError([NO_SPECS])
    return found
