"""`opcheck show`: shows the claims, the expanded samples and the cases of operators, without torch."""

from __future__ import annotations

import argparse
import os
from itertools import groupby

from opcheck.cli.selecting import add_paths, devices, loaded, selection
from opcheck.cli.stdout import say
from opcheck.planning import plan
from opcheck.pytest_plugin.options import add_options
from opcheck.settings import Settings
from opcheck.spec import Library, Operator
from opcheck.spec.device_profile import DeviceProfile
from opcheck.spec.load import BUILTIN
from opcheck.spec.problems import RequestError, nearest, worded
from opcheck.spec.render import render
from opcheck.text import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("name", metavar="OPERATOR", nargs="?", help="id or name of an operator; default: all operators")
    add_paths(parser)
    add_options(parser, "profiles", "selection")


def run(options: argparse.Namespace) -> int:
    """Print operators: those with an id or name, or all. Raises SpecError, RequestError if there are none."""
    settings = Settings.find(profiles=options.device_profile)
    if options.name is not None and (options.name == BUILTIN or os.path.exists(options.name)):  # specs alone
        options.name, options.paths = None, [options.name, *options.paths]
    library = loaded(options.paths, settings)
    operators = [*library] if options.name is None else library.find(options.name)
    if not operators:
        known = [operator.id for operator in library]
        what = f'no operator "{options.name}" among {len(known)}'
        raise RequestError([worded(what, nearest=nearest(options.name, known))])
    profiles = devices(options, settings)
    for operator in operators:
        _show(operator, profiles, options, settings)
    return 0


def _show(operator: Operator, profiles: list[DeviceProfile], options: argparse.Namespace, settings: Settings) -> None:
    spec = operator.spec
    say(f"{operator.id}  {operator.document.file}:{operator.line}  family {operator.family}")
    for line in spec.notes.splitlines():
        say(f"  {line}")
    if spec.module is not None:
        say(f"  module {render(spec.module)}")
    for profile in profiles:
        claims = operator.on(profile)
        say(
            f"  on {profile.name}: forward {', '.join(claims.forward)}; backward {', '.join(claims.backward) or 'none'}"
        )
        disclaimed = claims.supports.disclaimed()
        if disclaimed:
            say(f"  on {profile.name}: not supported: {', '.join(disclaimed)}")
    for expect in spec.expect:
        say(f"  expected to {expect.outcome}: {expect.reason}")
    say(f"  {counted(len(operator.samples), 'sample')}:")
    for sample in operator.samples:
        only = f"  (only {', '.join(sample.dtypes)})" if sample.dtypes is not None else ""
        say(f"    {sample.name}  line {sample.span.line}  {sample.toml()}{only}")
    own = Library((operator,))
    cases = plan(own, profiles, selection(options, settings, own))
    say(f"  {counted(len(cases), 'case')}:")
    for (subject, check), group in groupby(cases, key=lambda case: (case.subject, case.check)):
        shown = " ".join(f"[{case.device.name}-{case.dtype}]" for case in group)
        say(f"    {subject}::{check} {shown}")
