"""`opcheck schema`: the JSON Schema of spec files, printed or installed for editors, and that of reports."""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
from pathlib import Path
from typing import Any

import tomli

from opcheck.planning.vocabulary import vocabulary
from opcheck.report import content
from opcheck.report.files import replace
from opcheck.settings import NO_SPECS, Settings
from opcheck.spec.document import OTHERS, shown
from opcheck.spec.problems import RequestError
from opcheck.spec.schema import json_schema

SCHEMA = "opcheck.schema.json"
TAPLO = (".taplo.toml", "taplo.toml")
"""The names of Taplo's settings file, in the order in which Taplo looks for them."""
CODE = ".vscode/settings.json"
BEGIN, END = "# opcheck: begin (written by `opcheck schema --install`)", "# opcheck: end"


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
    """Print, write or install the schema. Raises SpecError if a plugin, template or device profile cannot be loaded."""
    if options.install:
        if options.of == "report":
            raise RequestError(["--install is for the schema of specs, which editors use; expected --output FILE"])
        settings = Settings.find()
        changed = _write(_editor_files(json_schema(vocabulary(settings)), settings))
        print(f"wrote {', '.join(shown(path) for path in changed)}" if changed else "nothing has changed")
        return 0
    schema = content.json_schema() if options.of == "report" else json_schema(vocabulary())
    text = json.dumps(schema, indent=2)
    if options.output:
        replace(Path(options.output), [text.encode(), b"\n"])
    else:
        print(text)
    return 0


def _editor_files(schema: dict[str, Any], settings: Settings) -> dict[Path, str]:
    """Return the content of each file to install, by path: the schema, and the settings by which editors find it.

    Raises RequestError if the project has no specs, or if an existing settings file cannot be extended.
    """
    root = settings.root
    taplo = next((root / name for name in TAPLO if (root / name).is_file()), root / TAPLO[0])
    return {
        root / SCHEMA: json.dumps(schema, indent=2) + "\n",
        taplo: _taplo(taplo, _patterns(settings)),
        root / CODE: _code(root / CODE, taplo.name),
    }


def _patterns(settings: Settings) -> list[str]:
    """Return glob patterns for the specs and device profiles of a project, relative to its root."""
    specs = settings.spec_paths()
    if not specs:
        raise RequestError([NO_SPECS])
    inside = [(path, "**/*.toml" if path.is_dir() else "") for path in specs]
    inside += [(path, "*.toml") for path in settings.device_folders()]
    return [Path(glob.escape(os.path.relpath(path, settings.root)), pattern).as_posix() for path, pattern in inside]


def _taplo(path: Path, patterns: list[str]) -> str:
    """Return Taplo's settings with a rule for the specs. It replaces a rule that opcheck wrote before."""
    exclude = [f"**/{name}" for name in OTHERS]
    rule = (
        f"[[rule]]\ninclude = {json.dumps(patterns)}\nexclude = {json.dumps(exclude)}\n"
        f'[rule.schema]\npath = "{SCHEMA}"\n'
    )
    block = f"{BEGIN}\n{rule}{END}\n"
    old = _read(path)
    own = re.compile(f"^{re.escape(BEGIN)}$.*?^{re.escape(END)}$\n?", re.DOTALL | re.MULTILINE)
    added = f"{old.rstrip()}\n\n{block}" if old.strip() else block
    new = own.sub(lambda _: block, old) if own.search(old) else added
    try:
        tomli.loads(new)
    except tomli.TOMLDecodeError as error:
        raise RequestError([f"{path}: cannot be added to ({error}); add a rule like this yourself:\n{rule}"]) from None
    return new


def _code(path: Path, taplo: str) -> str:
    """Return the settings of Visual Studio Code that make Even Better TOML read Taplo's."""
    # The extension's schema associations do not work: it resolves relative paths beside the opened folder, not inside.
    wanted = {
        "evenBetterToml.schema.enabled": True,
        "evenBetterToml.taplo.configFile.enabled": True,
        "evenBetterToml.taplo.configFile.path": taplo,
    }
    old = _read(path)
    lines = json.dumps(wanted, indent=4)
    try:
        present = json.loads(old) if old.strip() else {}
        new = {**present, **wanted}
    except (ValueError, TypeError):  # the file may have comments, which json would lose
        if all(f'"{key}": {json.dumps(value)}' in old for key, value in wanted.items()):
            return old
        what = f"{path}: cannot be added to, since it is not plain JSON; add this yourself:\n{lines}"
        raise RequestError([what]) from None
    return old if new == present else json.dumps(new, indent=4, ensure_ascii=False) + "\n"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _write(files: dict[Path, str]) -> list[Path]:
    """Write the files whose content has changed. Return their paths."""
    changed = [path for path, text in files.items() if _read(path) != text]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return changed
