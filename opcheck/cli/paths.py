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
        "pyproject.toml, else specs/, else builtin",
    )  # fmt: skip


def spec_paths(options: argparse.Namespace, settings: Settings) -> list[Path]:
    """Return the files and folders that a command works on."""
    if options.paths:
        return [Path(path) for path in options.paths]
    if settings.specs:
        return settings.spec_paths()
    return [Path("specs") if Path("specs").is_dir() else Path("builtin")]
