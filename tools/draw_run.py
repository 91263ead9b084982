"""Draws docs/run.svg, or `--output`: the terminal after `opcheck run` with the example of README.md.

The run is real. Only its times are replaced by fixed ones, so that the picture changes only if the output does.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ("opcheck", "run", "--device", "cpu", "--dtype", "float64")
COLUMNS = 112

NAMED = re.compile(r"^```\w+\n(# (\S+\.\w+)\n.*?)^```$", re.DOTALL | re.MULTILINE)
"""A code block that begins with the name of its file, as a comment."""

ERASE_LINE = "\x1b[2K"
CURSOR = re.compile(r"\x1b\[\?25[lh]")
TIMES = ((re.compile(r"\d+:\d\d:\d\d"), "0:00:03"), (re.compile(r"in \d+\.\d s"), "in 3.0 s"))

FONT_FACE = re.compile(r"@font-face \{.*?\}\n?", re.DOTALL)
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


def write_example(folder: Path, readme: Path = ROOT / "README.md") -> None:
    """Write the files in the code blocks of README.md to a folder."""
    for text, name in NAMED.findall(readme.read_text(encoding="utf-8")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def run(folder: Path) -> str:
    """Run the example, and return its output to a terminal. Raises RuntimeError unless a case fails, as it should."""
    terminal = {"COLORTERM": "truecolor", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    hidden = {"NO_COLOR", "CI", "BUILD_NUMBER", "PYTEST_ADDOPTS"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | terminal
    program = str(Path(sys.executable).parent / COMMAND[0])
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as reader:
        process = subprocess.Popen(
            [program, *COMMAND[1:]], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        received = bytearray()
        with suppress(OSError):  # Linux: EIO, once no process has the terminal open
            while part := reader.read(4096):
                received += part
    output = received.decode().replace("\r\n", "\n")
    if process.wait() != 1:
        raise RuntimeError(f"the run exited with {process.returncode}, not 1\n{output}")
    return output


def screen(output: str) -> str:
    """Return the final screen: without lines that were erased, and with fixed times."""
    left = "\n".join(line.rsplit(ERASE_LINE, 1)[-1] for line in CURSOR.sub("", output).split("\n"))
    for pattern, fixed in TIMES:
        left = pattern.sub(fixed, left)
    return left


def svg(text: str) -> str:
    """Return a picture of a terminal with some text, which may contain ANSI escape sequences."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {' '.join(COMMAND)}", "bold"))
    console.print(Text.from_ansi(text), overflow="fold", no_wrap=False)
    drawn = console.export_svg(title="opcheck", theme=MONOKAI, unique_id="run")
    without_network = FONT_FACE.sub("", drawn).replace("Fira Code, monospace", FONTS)
    return "\n".join(line.rstrip() for line in without_network.splitlines()) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "run.svg")
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_example(folder)
        output.write_text(svg(screen(run(folder))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
