"""The key `module`: what it may hold, and where its mistakes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.planning import load
from opcheck.settings import Settings
from opcheck.spec import SpecError

HEAD = '[[operator]]\nname = "torch.nn.Linear"\nsamples = [{ args = [{ shape = [2, 3] }] }]\n'


def problems(tmp_path: Path, module: str) -> list[str]:
    path = tmp_path / "spec.toml"
    path.write_text(HEAD + module)
    try:
        load([path], Settings())
    except SpecError as error:
        return [str(problem).partition("spec.toml:")[2] for problem in error.problems]
    return []


@pytest.mark.parametrize(
    "module",
    [
        "module = {}",
        "module = { args = [3, 2], kwargs = { bias = false }, train = false }",
        'module = { init = { weight = { std = 0.1 }, "layers.0.bias" = { low = 1 }, "*" = { values = [1, 2] } } }',
        "module = { init = { weight = { grad = false } } }",
    ],
)
def test_what_it_may_hold(tmp_path: Path, module: str) -> None:
    assert problems(tmp_path, module) == []


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            "module = { arg = [3] }",
            '4:12: unknown key "arg"; expected one of args, kwargs, train, init; did you mean "args"?',
        ),
        (
            "module = { init = { weight = { std = 1, low = 0 } } }",
            "4:30: init mixes distributions; expected low and high; or mean and std; or values",
        ),
        ("module = { init = { weight = { low = 2, high = 1 } } }", "4:30: low = 2 is not below high = 1"),
        ("module = { init = { weight = { std = 0 } } }", "4:38: std is out of range: 0; expected a number above 0"),
        (
            'module = {}\nvariants = ["method"]',
            "5:12: a module has no method and in-place variants; expected variants = []",
        ),
        (
            'module = { args = [{ object = "os.system" }] }',
            '4:31: "os.system" is outside the allowed modules; expected a path inside torch (modules of '
            "[tool.opcheck])",
        ),
        (
            "module = { kwargs = { weight = { shape = [9999] } } }",
            "4:32: a tensor of 9999 elements is too large; expected at most 4096 (max_elements of [tool.opcheck])",
        ),
    ],
)
def test_mistakes_have_places(tmp_path: Path, module: str, message: str) -> None:
    assert problems(tmp_path, module) == [message]
