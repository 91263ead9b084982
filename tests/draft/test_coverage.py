"""What specs cover of a module, counted in one whose functions are known."""

from __future__ import annotations

import pytest

from opcheck.draft.coverage import Covered, by_path, cover, modules_of, share
from opcheck.draft.search import RETURNS_NO_TENSOR, TAKES_NO_TENSOR
from opcheck.draft.workplace import Workplace
from opcheck.planning.loading import load
from opcheck.settings import Settings

MODULE = """
import torch

__all__ = ["cube", "square", "steps", "untold", "size", "window"]


def cube(x):
    return x**3


def square(x):
    return x * x


def steps(x):
    return x.detach().round()


def untold(made_by_hand):
    raise TypeError("expected a Recipe")


def size(x):
    return x.numel()


def window(length: int) -> torch.Tensor:
    return torch.hann_window(length)
"""


@pytest.fixture
def covered(write, tmp_path, monkeypatch):
    (tmp_path / "fewops.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(modules=("torch", "fewops"))
    library = load([write('[[operator]]\nname = "fewops.cube"\nsamples = [{ args = [{ shape = [2] }] }]\n')], settings)
    return cover("fewops", library, Workplace(settings, 60.0), 1)


def test_functions_with_and_without_a_spec_are_told_apart(covered):
    assert covered.specified == ("fewops.cube",)
    assert covered.without == ("fewops.square",)  # what has no gradient needs no spec
    assert covered.nearest["fewops.square"].endswith("spec.toml")


def test_what_takes_no_guess_is_not_known(covered):
    assert list(covered.unknown) == ["fewops.untold"]
    assert "expected a Recipe" in covered.unknown["fewops.untold"]
    assert covered.nearest["fewops.untold"].endswith("spec.toml")


def test_what_has_nothing_to_differentiate_says_why(covered):
    assert covered.constant == {
        "fewops.steps": "no output requires grad",
        "fewops.size": RETURNS_NO_TENSOR,
        "fewops.window": TAKES_NO_TENSOR,
    }


def test_the_share_is_that_of_what_may_be_differentiable(covered):
    assert covered.total == 3
    assert share([covered]) == pytest.approx(1 / 3)
    assert share([covered, Covered("other", ("a", "b", "c"), (), {}, {}, {"d": "no"})]) == pytest.approx(4 / 6)
    assert share([]) == 1.0


def test_a_spec_counts_under_all_of_its_names(write):
    text = '[[operator]]\nname = "torch.sin"\naliases = ["torch.Tensor.sin"]\nvariants = ["inplace"]\n'
    named = by_path(load([write(text + "samples = [{ args = [{ shape = [2] }] }]\n")]))
    assert {"torch.sin", "torch.Tensor.sin", "torch.Tensor.sin_"} <= set(named)


def test_a_function_that_makes_what_a_module_spec_tests_has_a_spec(write):
    made = (
        '{ call = "torch.nn.utils.parametrizations.orthogonal", args = [{ call = "torch.nn.Linear", args = [3, 3] }] }'
    )
    text = f'[[operator]]\nname = "torch.nn.Sequential"\nmodule = {{ args = [{made}] }}\n'
    library = load([write(text + "samples = [{ args = [{ shape = [2, 3] }] }]\n")])
    work = Workplace(Settings(), 60.0)
    found = cover("torch.nn.utils.parametrizations", library, work, 1)
    assert found.specified == ("torch.nn.utils.parametrizations.orthogonal",)
    assert set(found.unknown) == {f"torch.nn.utils.parametrizations.{one}_norm" for one in ("spectral", "weight")}


def test_torch_has_parts():
    assert modules_of("torch")[0] == "torch"
    assert {"torch.linalg", "torch.nn"} <= set(modules_of("torch"))
    assert modules_of("fewops") == ["fewops"]
