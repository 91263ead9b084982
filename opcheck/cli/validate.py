"""`opcheck validate`: checks specs for mistakes, without running anything and without torch."""

from __future__ import annotations

import argparse

from opcheck.cli.selecting import add_paths, loaded
from opcheck.spec import Library, Settings, SpecError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_paths(parser)
    parser.add_argument(
        "--resolve", action="store_true", help="import torch, and look up every name that specs mention"
    )


def run(options: argparse.Namespace) -> int:
    """Print the number of operators and samples. Raises SpecError."""
    settings = Settings.find()
    library = loaded(options, settings)
    if options.resolve:
        resolve_names(library, settings)
    print(f"{len(library)} operators, {library.sample_count} samples: no mistakes found")
    return 0


def resolve_names(library: Library, settings: Settings) -> None:
    """Look up the callables of all operators, variants and aliases. Imports torch. Raises SpecError."""
    from opcheck.samples.resolve import Unresolved, resolve

    settings.put_on_path()
    problems = []
    for operator in library:
        own = "target" if operator.spec.target else "name"
        places: list[tuple[tuple[str | int, ...], str]] = [((own,), operator.variants[0].path)]
        places += [(("variants", i), variant.path) for i, variant in enumerate(operator.variants[1:])]
        places += [(("aliases", i), path) for i, path in enumerate(operator.spec.aliases)]
        for place, path in places:
            try:
                resolve(path, settings.modules)
            except Unresolved as error:
                at = ("operator", operator.index, *place)
                problems.append(operator.document.problem(at, str(error), nearest=error.hint))
                if place == (own,):
                    break  # its method and in-place variant would be missing for the same reason
    if problems:
        raise SpecError(problems)
