"""`opcheck validate`: finds the mistakes in specs, without torch."""

from __future__ import annotations

import argparse

from opcheck.cli.selecting import add_paths, loaded
from opcheck.pytest_plugin.options import add_options
from opcheck.settings import Settings
from opcheck.spec import SpecError
from opcheck.text import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_paths(parser)
    add_options(parser, "profiles")
    parser.add_argument(
        "--resolve", action="store_true", help="import torch, and look up every operator and reference that specs name"
    )


def run(options: argparse.Namespace) -> int:
    """Print the number of operators and samples. Raises SpecError if there are mistakes."""
    settings = Settings.find(profiles=options.device_profile)
    library = loaded(options.paths, settings)
    if options.resolve:
        from opcheck.running.session import unknown_reference, unresolved

        settings.put_on_path()
        problems = [
            problem
            for operator in library
            for find in (unresolved, unknown_reference)
            for problem in find(operator, settings)
        ]
        if problems:
            raise SpecError(problems)
    samples = sum(len(operator.samples) for operator in library)
    print(f"{counted(len(library), 'operator')}, {counted(samples, 'sample')}: no mistakes found")
    return 0
