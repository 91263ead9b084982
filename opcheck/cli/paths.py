"""The specs that a command works on."""

from __future__ import annotations

import argparse
from pathlib import Path

from opcheck.cli.request import RequestError
from opcheck.settings import NO_SPECS, Settings


def add_paths(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument for specs."""
    parser.add_argument(
        "paths", nargs="*", metavar="SPEC",
        help="spec files and folders, or builtin (the shipped library); default: those of [tool.opcheck] in "
        "pyproject.toml, else specs/",
    )  # fmt: skip


def spec_paths(options: argparse.Namespace, settings: Settings) -> list[Path]:
    """Return the files and folders that a command works on. Raises RequestError if there are none."""
    if options.paths:
        return [Path(path) for path in options.paths]
    paths = settings.spec_paths() or [path for path in [Path("specs")] if path.is_dir()]
    if not paths:
        raise RequestError([NO_SPECS])
    return paths
