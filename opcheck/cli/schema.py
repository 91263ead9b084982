"""`opcheck schema`: the JSON Schema of spec files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from opcheck.spec.schema import json_schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--output", metavar="FILE", help="write it to a file, for a line `#:schema FILE` in specs")


def run(options: argparse.Namespace) -> int:
    """Print or write the schema."""
    text = json.dumps(json_schema(), indent=2)
    if options.output:
        Path(options.output).write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 0
