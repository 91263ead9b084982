"""The options of the pytest plugin, and how `opcheck run` treats the options in addopts."""

from __future__ import annotations

import argparse
import random

import pytest

OF_LOGGING = (
    "log_auto_indent", "log_cli", "log_cli_date_format", "log_cli_format", "log_cli_level", "log_date_format",
    "log_file", "log_file_date_format", "log_file_format", "log_file_level", "log_file_mode", "log_format", "log_level",
)  # fmt: skip
"""The settings of pytest's logging plugin. `opcheck run` blocks it: it handles all of torch's loggers in each phase."""


def add_options(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options. All begin with --opcheck, to avoid conflicts with options in a project's conftest.py."""
    group = parser.getgroup("opcheck", "opcheck: tests of operators from TOML specs")
    many = {"action": "append", "default": [], "metavar": "NAMES"}
    group.addoption("--opcheck-device", **many, help="devices to test on, separated by commas; default: all present")
    group.addoption(
        "--opcheck-device-profile", action="append", default=[], metavar="FILE", help="a further device profile"
    )
    group.addoption("--opcheck-operator", **many, help="operators: ids, names or glob patterns")
    group.addoption("--opcheck-check", **many, help="checks to run")
    group.addoption("--opcheck-dtype", **many, help="dtypes or groups of dtypes")
    group.addoption("--opcheck-tag", **many, help="tags of operators")
    group.addoption("--opcheck-shard", type=shard, metavar="NUMBER/COUNT", help="run one of COUNT shards of the cases")
    group.addoption(
        "--opcheck-durations", metavar="FILE", help="the JSON report of an earlier run: shards then take equally long"
    )
    group.addoption("--opcheck-order", type=order, metavar="random|N", help=ABOUT_ORDER)
    group.addoption("--opcheck-specs", **many, help="files and folders of specs, besides those of [tool.opcheck]")
    group.addoption(
        "--opcheck-alone",
        action="store_true",
        help="run only specs, and ignore addopts except for plugins (-p) and warnings (-W): for `opcheck run`",
    )
    group.addoption("--opcheck-engine", choices=["batched", "torch"], help="what computes derivative evidence")
    group.addoption("--opcheck-seed", type=seed, metavar="N", help="seed of the sample values")
    group.addoption("--opcheck-report-json", metavar="FILE", help="append a line for each case, as JSON")
    for name in ("eps", "atol", "rtol", "nondeterminism"):
        group.addoption(f"--opcheck-{name}", type=float, metavar="X", help=f"use this {name} for all derivatives")
    group.addoption(
        "--opcheck-jacobian",
        choices=["full", "projected", "auto"],
        help="whole Jacobians, random projections, or what size and structure allow",
    )
    group.addoption("--opcheck-fast-mode", action="store_true", default=None, help="fast_mode of torch's gradcheck")
    group.addoption(
        "--opcheck-no-raise-exception", action="store_false", dest="opcheck_raise_exception", default=None,
        help="do not ask torch's gradcheck for explanations",
    )  # fmt: skip
    if pluginmanager.is_blocked("logging"):  # by `opcheck run`: a project may still have settings for it
        for name in OF_LOGGING:
            parser.addini(name, "unused: logging is disabled")
    parser.addini(
        "opcheck_specs", "files and folders of specs, besides those of [tool.opcheck]", type="paths", default=[]
    )


def leave_out_addopts(early_config: pytest.Config, args: list[str]) -> None:
    """Remove options from addopts that could select other tests than those requested of `opcheck run`."""
    own = list(early_config.invocation_params.args)
    if "--opcheck-alone" in own:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("-p", action="append", default=[])
        parser.add_argument("-W", "--pythonwarnings", action="append", default=[])
        allowed, _ = parser.parse_known_args(args[: len(args) - len(own)])
        args[:] = [*(f"-p{name}" for name in allowed.p), *(f"-W{filter}" for filter in allowed.pythonwarnings), *own]


ABOUT_ORDER = "run cases in a random order; N: in the one that a run has said; default: that of the specs"


def order(text: str) -> int:
    """Return the number of an order of cases: a new one for "random". Raises ArgumentTypeError."""
    if text == "random":
        return random.SystemRandom().randrange(10**6)
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f'"{text}" is no order; expected random, or a whole number of at least 0')
    return int(text)


def shard(text: str) -> str:
    """Return the text that a shard option was given. Raises ArgumentTypeError if it names no shard."""
    from opcheck.plan.shards import Shard

    return str(Shard.parse(text))


def seed(text: str) -> int:
    """Return the number that a seed option was given. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f'"{text}" is not a seed; expected a whole number of at least 0')
    return int(text)
