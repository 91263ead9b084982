"""`opcheck validate`: checks specs for mistakes, without running anything and without torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from opcheck.cli.paths import add_paths
from opcheck.cli.unchanged import recall, remember, summary

if TYPE_CHECKING:
    from opcheck.spec import Library, Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_paths(parser)
    parser.add_argument(
        "--resolve", action="store_true", help="import torch, and look up every name that specs mention"
    )


def run(options: argparse.Namespace) -> int:
    """Print the number of operators and samples. Raises SpecError."""
    known = None if options.resolve else recall(options.paths)
    print(known or validated(options))
    return 0


def validated(options: argparse.Namespace) -> str:
    """Load the specs and say how many there are. Raises SpecError with all mistakes."""
    from opcheck.cli.selecting import loaded
    from opcheck.spec import Settings

    settings = Settings.find()
    library = loaded(options, settings)
    if options.resolve:
        resolve_names(library, settings)
    return summary(library)


def resolve_names_once(library: Library, options: argparse.Namespace, settings: Settings) -> None:
    """Look up the callables of the operators that are selected, unless all were found and nothing has changed since.

    Imports torch where they have to be looked up. Raises SpecError. What has gone all the same is told when it runs.
    """
    from opcheck.cli.selecting import rests_on

    request = ["names", *options.paths, *options.operator, *options.tag]
    if recall(request) is None:
        resolve_names(library, settings)
        specs = rests_on(options, settings)
        remember(request, "found", (*specs, *_sources(settings)) if specs else ())


def _sources(settings: Settings) -> Iterator[Path]:
    """Yield the files of the project's own modules; a change of what is installed is noticed by its folder."""
    own = {module.partition(".")[0] for module in settings.modules} - {"torch"}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name.partition(".")[0] in own:
            yield Path(file)


def resolve_names(library: Library, settings: Settings) -> None:
    """Look up the callables of all operators, variants and aliases. Imports torch. Raises SpecError."""
    from opcheck.samples.operator import resolve_operator
    from opcheck.samples.resolve import Unresolved
    from opcheck.spec import SpecError

    settings.put_on_path()
    problems = []
    for operator in library:
        own = "target" if operator.spec.target else "name"
        places: list[tuple[tuple[str | int, ...], str]] = [((own,), operator.variants[0].path)]
        places += [(("variants", i), variant.path) for i, variant in enumerate(operator.variants[1:])]
        places += [(("aliases", i), path) for i, path in enumerate(operator.spec.aliases)]
        for place, path in places:
            try:
                resolve_operator(path, settings.modules)
            except Unresolved as error:
                at = ("operator", operator.index, *place)
                problems.append(operator.document.problem(at, str(error), nearest=error.hint))
                if place == (own,):
                    break  # its method and in-place variant would be missing for the same reason
    if problems:
        raise SpecError(problems)
