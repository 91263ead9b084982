"""`opcheck list`: lists the cases of specs, without torch."""

from __future__ import annotations

import argparse
import json
from typing import Any

from opcheck.cli.selecting import add_paths, planned, settings_of
from opcheck.planning import Case
from opcheck.pytest_plugin.options import add_options
from opcheck.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_paths(parser)
    add_options(parser, "profiles", "selection", "shards")
    parser.add_argument("--json", action="store_true", help="print an array of objects")


def run(options: argparse.Namespace) -> int:
    """Print one line or one JSON object per case."""
    cases = planned(options, settings_of(options))
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
