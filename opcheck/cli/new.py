"""`opcheck new TARGET`: writes a first spec of operators. It calls them to find arguments and claims."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from opcheck.cli.selecting import add_count, duration, one_device
from opcheck.cli.stdout import say
from opcheck.pytest_plugin.options import ONE_DEVICE, add_options
from opcheck.settings import FOLDER, Settings
from opcheck.spec.document import Document
from opcheck.spec.problems import RequestError, SpecError, worded
from opcheck.spec.wording import name_of, validated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="a function or a class of modules (mylib.scale, mylib.Layer), or a Python module with them (mylib)",
    )
    parser.add_argument(
        "--args", action="append", default=[], metavar="VALUES",
        help="arguments in TOML, instead of guesses: '[{ shape = [2, 3] }, 0.5]', or a whole sample "
        "'{ args = [...], kwargs = {...} }'; repeat it for more samples",
    )  # fmt: skip
    parser.add_argument(
        "--module", metavar="VALUES",
        help="arguments in TOML to construct a torch.nn.Module with, instead of guesses: '[3, 2]', or "
        "'{ args = [3], kwargs = { bias = false }, train = false }'",
    )  # fmt: skip
    parser.add_argument(
        "--from-tests", action="append", default=[], metavar="PATH",
        help="run these tests with pytest, and take samples from the calls that they make",
    )  # fmt: skip
    parser.add_argument(
        "--output", metavar="PATH", help="a TOML file, or a folder for <package>.toml; default: the folder of specs"
    )
    parser.add_argument(
        "--budget", type=duration, default="20s", metavar="TIME", help="for each operator; default: 20s"
    )
    parser.add_argument("--within", type=duration, metavar="TIME", help="for all of them, as in 10m; default: no limit")
    add_count(parser)
    add_options(parser, "profiles", "--device", device=ONE_DEVICE)


def run(options: argparse.Namespace) -> int:
    """Write a spec. Return 0 if all of its claims hold, 1 if something fails. Raises SpecError."""
    settings = Settings.find(profiles=options.device_profile)
    device = one_device(options, settings, "operators are drafted")
    if "torch" not in sys.modules:  # with more threads, or a GPU, this process could not be forked
        os.environ |= {"OMP_NUM_THREADS": "1"}
        if device.device_string == "cpu":
            os.environ |= {"CUDA_VISIBLE_DEVICES": ""}
    from opcheck.draft.author import Author
    from opcheck.draft.target import package_of
    from opcheck.draft.workplace import Workplace, allowing
    from opcheck.samples.resolve import Unresolved

    package = package_of(options.target)
    until = time.monotonic() + (options.within or float("inf"))
    missing = [path for path in options.from_tests if not Path(path.partition("::")[0]).exists()]
    if missing:
        raise RequestError(f"--from-tests {path}: no such file or folder" for path in missing)
    arguments = [[_table("--args", text)] for text in options.args]
    module = None if options.module is None else _table("--module", options.module)
    workplace = Workplace(allowing(settings, package), options.budget, until, device)
    file = _file(options, settings, package)
    author = Author(options.target, file, settings, workplace, options.n, say)
    try:
        author.draft(arguments, module, options.from_tests)
    except Unresolved as error:
        raise RequestError([error.in_full]) from None
    except KeyboardInterrupt:
        say("interrupted: what is done is written")
        author.report(interrupted=True)
        raise
    return author.report()


def _file(options: argparse.Namespace, settings: Settings, package: str) -> Path:
    """Return the file to write the spec to. Raises RequestError for a name that pytest does not collect."""
    if options.output is None:
        folder = next((path for path in settings.spec_paths() if path.suffix != ".toml"), settings.root / FOLDER)
        return folder / f"{package}.toml"
    path = Path(options.output)
    if path.is_dir() or not path.suffix:
        return path / f"{package}.toml"
    if path.suffix != ".toml":
        raise RequestError([f"--output {path}: expected a file whose name ends in .toml, or a folder"])
    return path


def _table(option: str, text: str) -> dict[str, Any]:
    """Parse the value of an option, a TOML array of positional arguments or a table with args and kwargs.

    Return the table. Raises RequestError if the value is invalid.
    """
    import tomli

    from opcheck.spec.operator import Construction, SampleSpec

    model, example = (SampleSpec, "[{ shape = [2, 3] }, 0.5]") if option == "--args" else (Construction, "[3, 2]")
    try:
        value = tomli.loads(f"value = {text}")["value"]
        table: dict[str, Any] = {"args": value} if isinstance(value, list) else value
        if not isinstance(table, dict):
            raise ValueError(name_of(table))
        validated(model, table, Document(option, text, {}).problem)
    except ValueError as error:  # TOMLDecodeError is one
        expected = f"expected TOML such as '{example}' or '{{ args = [...], kwargs = {{...}} }}'"
        raise RequestError([f"{option} {text}: {error}; {expected}"]) from None
    except SpecError as error:
        mistakes = (worded(one.what, one.expected, one.nearest) for one in error.problems)
        raise RequestError(f"{option} {text}: {mistake}" for mistake in mistakes) from None
    return table
