"""The options that commands of opcheck share with the pytest plugin, and their translation into pytest arguments."""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from opcheck.text import separated

if TYPE_CHECKING:
    from opcheck.planning.selection import Selection
    from opcheck.settings import Settings


def order(text: str) -> int:
    """Return the number of an order of cases, a new number for "random". Raises ArgumentTypeError."""
    if text == "random":
        return random.SystemRandom().randrange(10**6)
    return whole_number(text, 0, "is not an order; expected random, or a whole number of at least 0")


def shard(text: str) -> str:
    """Return a shard in normal form, such as "3/8". Raises ArgumentTypeError if the text is not a shard."""
    from opcheck.planning.shards import Shard

    return str(Shard.parse(text))


def names(text: str) -> str:
    """Return names separated by commas as they are. Raises ArgumentTypeError if there is none: it would select all."""
    if not separated([text]):
        raise argparse.ArgumentTypeError(f'"{text}" names nothing; expected names, separated by commas')
    return text


def file(text: str) -> str:
    """Return the path of a file as it is. Raises ArgumentTypeError for an empty one."""
    if not text:
        raise argparse.ArgumentTypeError('"" is not a file; expected a path')
    return text


def whole_number(text: str, least: int, otherwise: str) -> int:
    """Return the whole number in a text, at least `least`. Raises ArgumentTypeError; `otherwise` ends its message."""
    if text.isascii() and text.isdecimal() and int(text) >= least:
        return int(text)
    raise argparse.ArgumentTypeError(f'"{text}" {otherwise}')


def number(text: str, least: float, most: float, otherwise: str) -> float:
    """Return the number in a text, from `least` to `most`. Raises ArgumentTypeError; `otherwise` ends its message."""
    with suppress(ValueError):
        if least <= (value := float(text)) <= most:
            return value
    raise argparse.ArgumentTypeError(f'"{text}" {otherwise}')


@dataclass(frozen=True)
class Option:
    """An option of `opcheck run`, and of pytest."""

    word: str
    """The option string of `opcheck run`, such as `--seed`."""
    section: str
    """The section that the option belongs to. Each command has the options of some sections."""
    help: str
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of argparse's `add_argument`, in commands and in pytest. A flag that is not given is None."""
    is_of_pytest: bool = False
    """Whether pytest itself has the option, by the same word. If not, the plugin adds it with the prefix --opcheck-."""

    @property
    def dest(self) -> str:
        """The attribute of the parsed options that has the value; in the plugin, with the prefix opcheck_."""
        return str(self.keywords.get("dest", self.word.lstrip("-").replace("-", "_")))

    @property
    def pytest_word(self) -> str:
        """The option string of pytest, such as `--opcheck-seed`."""
        return self.word if self.is_of_pytest else f"--opcheck-{self.word.removeprefix('--')}"

    def pytest_arguments(self, value: Any) -> list[str]:
        """Return the arguments that pass the value of this option in a command to pytest."""
        if isinstance(value, bool):
            return [self.pytest_word]
        several = value if isinstance(value, list) else [] if value in (None, "") else [value]
        between = "=" if self.pytest_word.startswith("--") else ""
        return [f"{self.pytest_word}{between}{one}" for one in several]


_NAMES = {"action": "append", "default": [], "metavar": "NAMES"}
_SELECTED = {**_NAMES, "type": names}
_FILE = {"type": file, "metavar": "FILE"}
_EXPRESSION = {"metavar": "EXPRESSION"}
_FINITE = partial(number, most=sys.float_info.max)
_STEP = {
    "type": partial(_FINITE, least=math.ulp(0.0), otherwise="is not a step; expected a finite number above 0"),
    "metavar": "X",
}
_TOLERANCE = {  # nothing would fail an infinite one
    "type": partial(_FINITE, least=0, otherwise="is not a tolerance; expected a finite number of at least 0"),
    "metavar": "X",
}
_FLAG = {"action": "store_true", "default": None}
OPTIONS = (
    Option(
        "--device-profile", "profiles", "a further device profile; the option may be repeated",
        {"action": "append", "default": [], "metavar": "FILE"},
    ),
    Option("--device", "selection", "devices; default: all present", _NAMES),
    Option("--operator", "selection", "ids, names or glob patterns of operators", _SELECTED),
    Option("--check", "selection", "checks", _SELECTED),
    Option("--dtype", "selection", "dtypes or groups of dtypes", _SELECTED),
    Option("--tag", "selection", "tags of operators", _SELECTED),
    Option(
        "--shard", "shards", "one of COUNT shards of the selected cases, such as 3/8",
        {"type": shard, "metavar": "NUMBER/COUNT"},
    ),
    Option("--durations", "shards", "the report of an earlier run: shards then take equally long", _FILE),
    Option("-k", "run", "select by case ids, as in pytest", _EXPRESSION, is_of_pytest=True),
    Option(
        "-m", "run", "select by markers (checks, devices, dtypes, tags), as in pytest", _EXPRESSION, is_of_pytest=True
    ),
    Option(
        "--order", "run",
        "random: shuffle the cases and print the number N of the order; N: repeat that order; default: the order "
        "of the specs",
        {"type": order, "metavar": "random|N"},
    ),
    Option(
        "-W", "run", "how to treat warnings, as in Python and pytest",
        {"action": "append", "default": [], "metavar": "FILTER"}, is_of_pytest=True,
    ),
    Option("-x", "run", "stop at the first failure", _FLAG, is_of_pytest=True),
    Option("--lf", "run", "run only what failed last time", _FLAG, is_of_pytest=True),
    Option("--repro", "run", "show failures as scripts in plain torch, each of which has been run", _FLAG),
    Option("--report-json", "run", "append a line for each case as it ends, as JSON", _FILE),
    Option("--junitxml", "run", "write a JUnit report", _FILE, is_of_pytest=True),
    Option(
        "--seed", "run", "seed of the sample values; default: the project's, else 0",
        {
            "type": partial(whole_number, least=0, otherwise="is not a seed; expected a whole number of at least 0"),
            "metavar": "N",
        },
    ),
    Option("--engine", "run", "what computes derivative evidence", {"choices": ["batched", "torch"]}),
    Option(
        "--derive", "derivatives", "how many samples to derive from each written one; default: standard",
        {"choices": ["none", "standard", "thorough"]},
    ),
    Option("--eps", "derivatives", "the step of differences, for all derivatives", _STEP),
    Option("--atol", "derivatives", "the absolute tolerance, for all derivatives", _TOLERANCE),
    Option("--rtol", "derivatives", "the relative tolerance, for all derivatives", _TOLERANCE),
    Option("--nondeterminism", "derivatives", "how far two passes may differ, for all derivatives", _TOLERANCE),
    Option(
        "--jacobian", "derivatives", "whole Jacobians, random projections, or what size and structure allow",
        {"choices": ["full", "projected", "auto"]},
    ),
    Option("--fast-mode", "derivatives", "fast_mode of torch's gradcheck", _FLAG),
    Option(
        "--no-raise-exception", "derivatives", "do not ask torch's gradcheck for explanations",
        {"action": "store_false", "default": None, "dest": "raise_exception"},
    ),
    Option("--specs", "pytest", "files and folders of specs, besides those of [tool.opcheck]", _NAMES),
    Option(
        "--alone", "pytest",
        "run only specs, and ignore addopts except for plugins (-p) and warnings (-W): for `opcheck run`",
        {"action": "store_true"},
    ),
)  # fmt: skip
"""Every option that a command shares with pytest, and the options of the plugin alone (section "pytest").

Options that pytest does not need are added by their commands.
"""

ABOUT = {
    "selection": "names separated by commas; an option may be repeated",
    "derivatives": "these take precedence over the specs",
}
"""The descriptions of sections in the help of a command. Other sections are listed with the command's own options."""

SELECTION = tuple(option.dest for option in OPTIONS if option.section == "selection")


ONE_DEVICE = "the device, one only; default: cpu"
"""The help on `--device` of commands that work on one device."""


def add_options(parser: argparse.ArgumentParser, *names: str, device: str = "") -> None:
    """Add options to a command.

    names: sections, or the option strings of single options.
    device: the help on `--device`, if it means something else in this command.
    """
    for name in names:
        group = parser.add_argument_group(name, ABOUT[name]) if name in ABOUT else parser
        for option in OPTIONS:
            if name in (option.section, option.word):
                about = device if device and option.word == "--device" else option.help
                group.add_argument(option.word, help=about, **option.keywords)


def pytest_arguments(options: argparse.Namespace) -> list[str]:
    """Return the pytest arguments that are equivalent to the options of `opcheck run`."""
    shared = [option for option in OPTIONS if option.section != "pytest"]
    return [word for option in shared for word in option.pytest_arguments(getattr(options, option.dest))]


def selected(options: argparse.Namespace, settings: Settings, prefix: str = "") -> Selection:
    """Return the selection of cases by options. Options that are not given default to the settings.

    prefix: the beginning of the attributes, which is opcheck_ in the options of pytest.
    """
    from opcheck.planning.selection import Selection

    given = {name.removeprefix(prefix): value for name, value in vars(options).items() if name.startswith(prefix)}
    operators, checks, dtypes, tags = (separated(given.get(key, ())) for key in ("operator", "check", "dtype", "tag"))
    derive, engine = given.get("derive") or settings.derive, given.get("engine") or settings.engine
    return Selection(operators, checks, dtypes, tags, derive, engine)


def overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of derivatives in the options of pytest, by name. They take precedence over the specs."""
    names = [option.dest for option in OPTIONS if option.section == "derivatives"]
    return {name: value for name in names if (value := getattr(options, f"opcheck_{name}")) is not None}
