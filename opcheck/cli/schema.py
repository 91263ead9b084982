"""`opcheck schema`: the JSON Schema of spec files, printed or installed for editors, and that of reports."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from opcheck.cli.editors import editor_files, write
from opcheck.cli.request import RequestError
from opcheck.planning.vocabulary import of_project, shipped
from opcheck.settings import Settings
from opcheck.spec.document import shown
from opcheck.spec.schema import json_schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "of", nargs="?", choices=["specs", "report"], default="specs", help="what it describes; default: specs"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--output", metavar="FILE", help="write it to a file, for a line `#:schema FILE` in specs")
    group.add_argument(
        "--install", action="store_true",
        help="write it to the project, with the project's own checks, devices and templates, and with settings by "
        "which Taplo and Even Better TOML find it",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Print, write or install the schema. Raises SpecError if the project's own names cannot be found."""
    if options.install:
        if options.of == "report":
            raise RequestError(["--install is for the schema of specs, which editors use; expected --output FILE"])
        settings = Settings.find()
        changed = write(editor_files(json_schema(of_project(settings)), settings))
        print(f"wrote {', '.join(shown(path) for path in changed)}" if changed else "nothing has changed")
        return 0
    text = json.dumps(report_schema() if options.of == "report" else json_schema(shipped()), indent=2)
    if options.output:
        Path(options.output).write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 0


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of a line of a report."""
    from pydantic import TypeAdapter

    from opcheck.report.model import End, Header, Record, Unread

    lines: TypeAdapter[Any] = TypeAdapter(Header | Record | End | Unread)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a line of a report",
    } | lines.json_schema()
