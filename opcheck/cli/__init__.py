"""The command `opcheck`. Each subcommand is a module of the same name in this package, imported when it is used."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection, Sequence
from importlib import import_module

import opcheck
from opcheck.cli.stdout import open_closed_streams, terminated_as_interrupt, warn

COMMANDS = {
    "new": "write a first spec of operators, by trying them",
    "run": "run the cases of specs",
    "validate": "check specs for mistakes, without running anything",
    "list": "list the cases of specs",
    "show": "show the claims, samples and cases of an operator",
    "mutate": "measure which wrong gradients the samples of specs would not notice",
    "coverage": "list which differentiable functions of a module have a spec",
    "report": "merge, compare and show reports",
    "matrix": "print the jobs of a CI service",
    "schema": "print the JSON Schema of spec files or of reports, or install that of spec files",
    "devices": "list known devices, and whether they are present",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Return 0 if all claims hold, 1 if something fails, 2 if the request or a spec is wrong."""
    open_closed_streams()
    # Not list(): that name may be the submodule opcheck.cli.list.
    arguments = [*(sys.argv[1:] if argv is None else argv)]
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="opcheck", description="Test that operators differentiate correctly, from specs in TOML.",
        epilog="Exit codes: 0 all held, 1 something failed, 2 the request or a spec was wrong.",
        allow_abbrev=False,  # --device is not --device-profile
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"opcheck {opcheck.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, about in COMMANDS.items():
        description = about[0].upper() + about[1:] + "."
        sub = commands.add_parser(name, help=about, description=description, allow_abbrev=False)
        if name == chosen:
            module = import_module(f"opcheck.cli.{name}")
            module.add_arguments(sub)
    if chosen is not None and chosen not in COMMANDS:
        return _refused("command", chosen, COMMANDS)
    options, others = parser.parse_known_args(arguments)
    if others:
        usage = getattr(options, "usage", commands.choices[options.command].format_usage)
        return _refused("argument", others[0].partition("=")[0], re.findall(r"--[\w-]+", usage()) or ["none"])
    options.words = arguments
    return _guarded(options)


def _refused(what: str, name: str, known: Collection[str]) -> int:
    """Print that a command or an argument is unknown. Return the exit code."""
    from opcheck.spec.problems import unknown, worded  # not above: --help would wait for pydantic

    warn(worded(*unknown(what, name, known, most=len(known))))
    return 2


def _guarded(options: argparse.Namespace) -> int:
    from opcheck.spec.problems import SpecError  # not above: --help would wait for pydantic

    # For the libraries that references call, such as the BLAS of SciPy. They read it when they are imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        with terminated_as_interrupt():
            code = int(import_module(f"opcheck.cli.{options.command}").run(options))
            sys.stdout.flush()
            return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python prints an error at exit
        return 0
    except OSError as error:
        warn(str(error))
    except SpecError as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        pass
    return 2
