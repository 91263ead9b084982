"""What pyproject.toml declares, as lines for pip: `python tools/declared.py [--lowest] [--without NAME] [EXTRA ...]`.

The dependencies and those of the extras named, as far as they are for the interpreter that runs this. `--lowest` gives
each in the lowest version that its range allows, as `name==version`: what `make floors` tests.
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
    """Yield the dependencies of a project and of some of its extras. Raises ValueError for an unknown extra."""
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
    """Return the lowest version that a range allows, as a requirement. Raises ValueError where there is none."""
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
