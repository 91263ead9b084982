"""Runs `opcheck validate --resolve` on a spec for each operator in `torch.ops.aten`: `--sample N --seed S` for a few.

Each spec must be valid, or be rejected with a mistake at a line and column. Anything else, such as a traceback, is
printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import re
import sys
import tempfile
import traceback
from collections.abc import Iterable
from pathlib import Path

import torch

from opcheck.cli import main as opcheck

SPEC = '[[operator]]\nname = "torch.ops.aten.{name}"\nsamples = [{{ args = [{{ shape = [2] }}] }}]\n'
MISTAKE = re.compile(r"^\S+\.toml:2:8: ", re.MULTILINE)


def names_in_aten() -> list[str]:
    """Return the names of all operators. `dir(torch.ops.aten)` has only those that were used before."""
    schemas = (schema.name.partition("::") for schema in torch._C._jit_get_all_schemas())
    return sorted({name for namespace, _, name in schemas if namespace == "aten"})


def trouble(spec: Path) -> str:
    """Return the wrong behavior of `opcheck validate --resolve` for a spec; an empty string if it is correct."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = opcheck(["validate", "--resolve", str(spec)])
    except BaseException:
        return traceback.format_exc()
    if code == 0 or (code == 2 and MISTAKE.search(said.getvalue())):
        return ""
    return f"exit code {code}: {said.getvalue()}"


def troubles(names: Iterable[str], folder: Path) -> dict[str, str]:
    """Validate a spec for each name. Return the wrong behavior by name, if any."""
    found = {}
    for name in names:
        spec = folder / f"{name}.toml"
        spec.write_text(SPEC.format(name=name), encoding="utf-8")
        found[name] = trouble(spec)
    return {name: what for name, what in found.items() if what}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, metavar="N", help="draw N names; default: all")
    parser.add_argument("--seed", type=int, default=0, help="what to draw them by")
    options = parser.parse_args()
    names = names_in_aten()
    if options.sample is not None:
        names = random.Random(options.seed).sample(names, options.sample)
    with tempfile.TemporaryDirectory() as folder:
        found = troubles(names, Path(folder))
    for name, what in found.items():
        print(f"{name}: {what}")
    print(f"{len(names)} names, {len(found)} in trouble")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
