"""`opcheck list`: lists the cases of specs, without torch."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from opcheck.cli.selecting import add_paths, devices, loaded, selection
from opcheck.planning import Case, plan
from opcheck.planning.shards import NO_SHARD, Group, Shard, groups_in
from opcheck.pytest_plugin.options import add_options
from opcheck.report.store import read_durations
from opcheck.settings import Settings
from opcheck.spec.problems import RequestError
from opcheck.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_paths(parser)
    add_options(parser, "profiles", "selection", "shards")
    parser.add_argument("--json", action="store_true", help="print an array of objects")


def run(options: argparse.Namespace) -> int:
    """Print one line or one JSON object per case; with `--shard`, only the cases of that shard. Raises SpecError."""
    settings = Settings.find(profiles=options.device_profile)
    library = loaded(options.paths, settings)
    cases = plan(library, devices(options, settings), selection(options, settings, library))
    if options.durations and not options.shard:
        raise RequestError([NO_SHARD])
    if options.shard:
        durations = read_durations(Path(options.durations)) if options.durations else None
        if durations and cases and (mistake := durations.mistake(cases)):
            raise RequestError([mistake])
        own = groups_in(Shard.parse(options.shard), cases, durations)
        cases = [case for case in cases if Group.of(case) in own]
    if options.json:
        print(json.dumps([record(case) for case in cases], indent=1))
    else:
        print("".join(f"{printable(case.id)}\n" for case in cases), end="")
    return 0


def record(case: Case) -> dict[str, Any]:
    """Return a case as plain data."""
    return {
        "id": case.id,
        "operator": case.operator.id,
        "variant": case.variant.kind,
        "check": case.check,
        "device": case.device.name,
        "dtype": case.dtype,
        "samples": [sample.name for sample in case.samples],
        "file": case.operator.document.file,
        "line": case.operator.line,
    }
