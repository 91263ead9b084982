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
        ("--shard 3/8", {"shard": "3/8"}),
        ("-k sin -m backward", {"k": "sin", "m": "backward"}),
        ("-k=-sin", {"k": "-sin"}),
        ("--order 0 --seed 0", {"order": 0, "seed": 0}),
        ("-W error -W ignore::Warning", {"W": ["error", "ignore::Warning"]}),
        ("-x --lf", {"x": True, "lf": True}),
        ("--report-json r.json --junitxml=r.xml", {"report_json": "r.json", "junitxml": "r.xml"}),
        ("--engine torch --jacobian projected", {"engine": "torch", "jacobian": "projected"}),
        ("--eps 0 --atol=1e-3", {"eps": 0.0, "atol": 1e-3}),
        ("--fast-mode --no-raise-exception", {"fast_mode": True, "raise_exception": False}),
        ("", {}),
    ],
)
def test_pytest_gets_the_values_of_a_run(words: str, expected: dict[str, Any]) -> None:
    defaults = passed_on()
    assert {name: value for name, value in passed_on(*words.split()).items() if value != defaults[name]} == expected


def test_paths_are_passed_on_in_full(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = passed_on("--device-profile", "npu.toml", "--durations", "last.json")
    assert (found["device_profile"], found["durations"]) == ([str(tmp_path / "npu.toml")], str(tmp_path / "last.json"))


def test_only_what_is_there_overrides_specs() -> None:
    def overriding(*words: str) -> dict[str, Any]:
        found = {f"opcheck_{name}": value for name, value in passed_on(*words).items()}
        return overrides(argparse.Namespace(**found))

    assert overriding() == {}
    assert overriding("--eps=0", "--no-raise-exception", "--seed=1") == {"eps": 0.0, "raise_exception": False}


@pytest.mark.parametrize("name", ["engine", "jacobian"])
def test_choices_are_those_of_the_settings(name: str) -> None:
    option = next(option for option in OPTIONS if option.dest == name)
    assert tuple(option.keywords["choices"]) == get_args(Settings.model_fields[name].annotation)
