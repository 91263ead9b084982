"""The table of options: what `opcheck run` has, and what pytest gets of it."""

from __future__ import annotations

import argparse
from typing import Any, get_args

import pytest

from opcheck.pytest_plugin.hooks import pytest_addoption
from opcheck.pytest_plugin.options import OPTIONS, add_options, overrides, pytest_arguments
from opcheck.settings import Settings

SECTIONS = ("profiles", "selection", "shards", "run", "derivatives")
OF_PYTEST = [option for option in OPTIONS if option.is_of_pytest]


class Pytest:
    """A parser of pytest's options, as far as the plugin uses it."""

    def __init__(self) -> None:
        self.parser = argparse.ArgumentParser()
        for option in OF_PYTEST:
            self.parser.add_argument(option.word, dest=f"opcheck_{option.dest}", **option.keywords)

    def getgroup(self, *_: str) -> Pytest:
        return self

    def addoption(self, *words: str, **keywords: Any) -> None:
        self.parser.add_argument(*words, **keywords)

    def addini(self, *_: Any, **__: Any) -> None:
        pass

    def is_blocked(self, _: str) -> bool:
        return False


def commands() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    add_options(parser, *SECTIONS)
    return parser


def passed_on(*words: str) -> dict[str, Any]:
    """Return what the plugin is told, for what `opcheck run` is told."""
    plugin: Any = Pytest()
    pytest_addoption(plugin, plugin)
    found = plugin.parser.parse_args(pytest_arguments(commands().parse_args(words)))
    return {name.removeprefix("opcheck_"): value for name, value in vars(found).items()}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--device=cpu,cuda --device=mps", {"device": ["cpu,cuda", "mps"]}),
        ("--operator torch.div[floor] --operator=*.sin", {"operator": ["torch.div[floor]", "*.sin"]}),
        ("--check=backward --dtype=-float64 --tag=a", {"check": ["backward"], "dtype": ["-float64"], "tag": ["a"]}),
        ("--shard 3/8 --durations last.json", {"shard": "3/8", "durations": "last.json"}),
        ("--device-profile npu.toml", {"device_profile": ["npu.toml"]}),
        ("-k sin -m backward", {"k": "sin", "m": "backward"}),
        ("-k=-sin", {"k": "-sin"}),
        ("--order 0 --seed 0", {"order": 0, "seed": 0}),
        ("-W error -W ignore::Warning", {"W": ["error", "ignore::Warning"]}),
        ("-x --lf", {"x": True, "lf": True}),
        ("--report-json r.json --junitxml=r.xml", {"report_json": "r.json", "junitxml": "r.xml"}),
        ("--engine torch --jacobian projected", {"engine": "torch", "jacobian": "projected"}),
        ("--eps 5e-324 --atol=1e-3 --rtol 0", {"eps": 5e-324, "atol": 1e-3, "rtol": 0.0}),
        ("--fast-mode --no-raise-exception", {"fast_mode": True, "raise_exception": False}),
        ("", {}),
    ],
)
def test_pytest_gets_the_values_of_a_run(words: str, expected: dict[str, Any]) -> None:
    defaults = passed_on()
    assert {name: value for name, value in passed_on(*words.split()).items() if value != defaults[name]} == expected


def test_only_what_is_there_overrides_specs() -> None:
    def overriding(*words: str) -> dict[str, Any]:
        found = {f"opcheck_{name}": value for name, value in passed_on(*words).items()}
        return overrides(argparse.Namespace(**found))

    assert overriding() == {}
    assert overriding("--atol=0", "--no-raise-exception", "--seed=1") == {"atol": 0.0, "raise_exception": False}


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("--eps", "0", "is not a step; expected a finite number above 0"),
        ("--eps", "-1", "is not a step; expected a finite number above 0"),
        ("--eps", "nan", "is not a step; expected a finite number above 0"),
        ("--atol", "inf", "is not a tolerance; expected a finite number of at least 0"),
        ("--rtol", "-0.1", "is not a tolerance; expected a finite number of at least 0"),
        ("--nondeterminism", "1e999", "is not a tolerance; expected a finite number of at least 0"),
        ("--check", "", "names nothing; expected names, separated by commas"),
        ("--tag", " , ", "names nothing; expected names, separated by commas"),
        ("--report-json", "", "is not a file; expected a path"),
    ],
)
def test_values_that_make_no_sense_are_refused(
    option: str, text: str, expected: str, capsys: pytest.CaptureFixture[str], pytester: pytest.Pytester
) -> None:
    with pytest.raises(SystemExit, match="2"):
        commands().parse_args([option, text])
    assert capsys.readouterr().err.endswith(f'error: argument {option}: "{text}" {expected}\n')
    result = pytester.runpytest_inprocess(f"--opcheck-{option.removeprefix('--')}={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f'*"{text}" {expected}'])


@pytest.mark.parametrize("name", ["engine", "jacobian"])
def test_choices_are_those_of_the_settings(name: str) -> None:
    option = next(option for option in OPTIONS if option.dest == name)
    assert tuple(option.keywords["choices"]) == get_args(Settings.model_fields[name].annotation)
