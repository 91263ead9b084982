"""Prints the requirements in pyproject.toml for pip: `tools/declared.py [--lowest] [--without NAME] [EXTRA ...]`.

These are the dependencies, and those of the given extras, whose markers match this interpreter. With `--lowest`, each
is pinned to the lowest version that its range allows, as `name==version`. `make floors` tests these versions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tomli
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def declared(project: dict[str, Any], extras: Sequence[str] = ()) -> Iterator[Requirement]:
    """Yield the dependencies of a project and of some of its extras whose markers match this interpreter.

    An extra that names extras of the project itself is expanded. Raises ValueError for an unknown extra.
    """
    optional = project.get("optional-dependencies", {})
    for extra in extras:
        if extra not in optional:
            raise ValueError(f'there is no extra "{extra}"; expected one of {", ".join(optional)}')
    for text in (*project["dependencies"], *(line for extra in extras for line in optional[extra])):
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        if canonicalize_name(requirement.name) == canonicalize_name(project["name"]):
            yield from declared({**project, "dependencies": []}, sorted(requirement.extras))
        else:
            yield requirement


def lowest(requirement: Requirement) -> Requirement:
    """Return a requirement for the lowest version of a range. Raises ValueError if the range has no lower bound."""
    bounds = [Version(part.version) for part in requirement.specifier if part.operator in (">=", "~=", "==")]
    if not bounds:
        raise ValueError(f'"{requirement}" declares no lowest version; expected {requirement.name}>=VERSION')
    return Requirement(f"{requirement.name}=={max(bounds)}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("extras", nargs="*", metavar="EXTRA")
    parser.add_argument("--lowest", action="store_true", help="the lowest version of each")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave this one out")
    options = parser.parse_args(arguments)
    project = tomli.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    try:
        found = [each for each in declared(project, options.extras) if each.name not in options.without]
        lines = [lowest(each) if options.lowest else each for each in found]
    except ValueError as error:
        print(f"{PYPROJECT.name}: {error}", file=sys.stderr)
        return 1
    print(*lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
