"""`opcheck coverage MODULE`: which differentiable functions of a module have a spec."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opcheck.cli.selecting import add_fail_under, add_processes, falls_short, loaded
from opcheck.cli.stdout import say
from opcheck.settings import Settings
from opcheck.spec import Library
from opcheck.spec.problems import RequestError, SpecError

if TYPE_CHECKING:
    from opcheck.draft.coverage import Covered

TIMEOUT = 60.0
"""The default time limit of an operator, in seconds."""

GUESS_SECONDS = 5.0
"""The time limit for guessing arguments of a function without a spec, in seconds. Most good guesses come early."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("module", metavar="MODULE", help="a Python module with functions and classes of modules")
    parser.add_argument(
        "paths", nargs="*", default=[], metavar="SPEC",  # without a default, argparse would call it required
        help="spec files and folders, or builtin (the shipped library); default: builtin for torch, else those of the "
        "project",
    )  # fmt: skip
    parser.add_argument(
        "--formulas", action="store_true", help="also call the samples, and list the autograd formulas that they reach"
    )
    parser.add_argument("--json", action="store_true", help="print one object")
    add_fail_under(parser, "share")
    add_processes(parser, TIMEOUT)


def run(options: argparse.Namespace) -> int:
    """Print which functions have a spec. Return 1 if their share is below `--fail-under`, else 0. Raises SpecError."""
    from opcheck.draft.coverage import cover, modules_of, share
    from opcheck.draft.target import package_of
    from opcheck.draft.workplace import Workplace, allowing
    from opcheck.samples.resolve import Unresolved

    settings = Settings.find()
    package = package_of(options.module)
    paths = options.paths or (["builtin"] if package == "torch" else [])
    library = loaded(paths, settings)
    workplace = Workplace(allowing(settings, package), min(options.timeout or GUESS_SECONDS, GUESS_SECONDS))
    try:
        rows = [cover(module, library, workplace, options.n) for module in modules_of(options.module)]
        reached = _formulas(library, options, settings) if options.formulas else None
    except Unresolved as error:
        raise RequestError([error.in_full]) from None
    if options.json:
        print(json.dumps(_record(rows, reached), indent=1))
    else:
        _print(rows, reached)
    return int(falls_short(options, "share", share(rows)))


def _formulas(library: Library, options: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Return the autograd formulas that the samples of a library reach, and why operators could not be measured."""
    from opcheck.running.autograd_nodes import reached
    from opcheck.running.session import RunSession

    session = RunSession(settings, own_process=True)
    if problems := session.prepare(library):
        raise SpecError(problems)
    names, lost = reached(list(library), session, options.n, options.timeout)
    return {"reached": sorted(names), "not_measured": lost}


def _print(rows: Sequence[Covered], reached: dict[str, Any] | None) -> None:
    from opcheck.draft.coverage import share

    width = max(len("module"), *(len(row.module) for row in rows))
    say(f"{'module':{width}}  functions  with a spec  without  not known  share")
    for row in rows:
        counts = f"{row.total:9}  {len(row.specified):11}  {len(row.without):7}  {len(row.unknown):9}"
        say(f"{row.module:{width}}  {counts}  {share([row]):5.3f}")
    for row in rows:
        for name in row.without:
            say(f"no spec: {name}" + _nearest(row.nearest[name]))
    for row in rows:
        for name, why in row.unknown.items():
            say(f"not known: {name}{_nearest(row.nearest[name])}: {why}")
    total, specified = sum(row.total for row in rows), sum(len(row.specified) for row in rows)
    unknown, constant = sum(len(row.unknown) for row in rows), sum(len(row.constant) for row in rows)
    if constant:
        say(f"without a spec, and not differentiable: {constant:,} (--json lists them)")
    say(
        f"share {share(rows):.3f}: {specified:,} of {total:,} differentiable functions have a spec"
        + (f" ({unknown:,} not known to be differentiable)" if unknown else "")
    )
    if reached is not None:
        for name, why in reached["not_measured"].items():
            say(f"{name}: NOT MEASURED: {why}")
        names = reached["reached"]
        say(f"autograd formulas that the samples reach: {len(names):,}" + (f" ({', '.join(names)})" if names else ""))


def _nearest(file: str) -> str:
    return f" (nearest: {file})" if file else ""


def _record(rows: Sequence[Covered], reached: dict[str, Any] | None) -> dict[str, Any]:
    from opcheck.draft.coverage import share

    record: dict[str, Any] = {
        "share": share(rows),
        "modules": [
            {
                "module": row.module,
                "functions": row.total,
                "with_spec": list(row.specified),
                "without": [{"function": name, "nearest": row.nearest[name] or None} for name in row.without],
                "not_known": [
                    {"function": name, "nearest": row.nearest[name] or None, "why": why}
                    for name, why in row.unknown.items()
                ],
                "not_differentiable": [{"function": name, "why": why} for name, why in row.constant.items()],
                "share": share([row]),
            }
            for row in rows
        ],
    }
    return record if reached is None else {**record, "formulas": reached}
